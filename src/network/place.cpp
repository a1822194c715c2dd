#include "network/place.hpp"

#include <algorithm>

#include "plan/kernel_table.hpp"

namespace convoy::network {
namespace {

using graph::no_id;
using graph::ValueId;

/// A value as channels of another one.
struct View {
  ValueId of = no_id;
  Index offset = 0;   // in channels
  bool flat = false;  // the image's memory as a vector
};

class Placer {
 public:
  explicit Placer(Program& program)
      : program_(program),
        views_(program.graph.values.size()),
        writers_(views_.size()),
        readers_(views_.size()),
        there_(views_.size()) {
    for (const Step& step : program.steps) note(step);
    for (const ValueId id : program.graph.inputs) there_[id] = true;
    for (const ValueId id : program.graph.outputs) there_[id] = true;
  }

  void run() {
    const auto& nodes = program_.graph.nodes;
    for (const graph::Node& node : nodes)
      if (node.as<graph::Flatten>() && there_[node.out]) {
        views_[node.out] = {node.in[0], 0, true};
        there_[node.in[0]] = true;
      }
    // From the last one: a concatenation that lies in another one knows where.
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
      if (node->as<graph::Concat>() && there_[node->out]) place_parts(*node);
    for (const graph::Node& node : nodes)
      if (const auto* slice = node.as<graph::Slice>(); slice && there_[node.out])
        place_slice(node, *slice);
    std::erase_if(program_.steps, [&](const Step& step) { return is_view(step); });
    lay_out();
  }

 private:
  using Steps = std::vector<const Step*>;

  void note(const Step& step) {
    const auto [x, y] = ends_of(step);
    there_[x] = there_[y] = true;
    readers_[x].push_back(&step);
    writers_[y].push_back(&step);
  }
  static std::pair<ValueId, ValueId> ends_of(const Step& step) {
    return std::visit(
        [](const auto& s) {
          if constexpr (requires { s.from; })
            return std::pair(s.from, s.to);
          else
            return std::pair(s.x, s.y);
        },
        step);
  }

  /// A view's root, with the offset of all views on the way.
  View root_of(ValueId id) const {
    View root{id, 0};
    while (views_[root.of].of != no_id) {
      root.offset += views_[root.of].offset;
      root.of = views_[root.of].of;
    }
    return root;
  }

  bool takes_slices(const Step& step, Index offset_bytes, Index pitch_bytes) const {
    if (std::get_if<CopyStep>(&step)) return true;
    const auto* kernel = std::get_if<KernelStep>(&step);
    if (!kernel || program_.any_n) return false;
    const Index unit = slice_unit(kernel->bound->kernel());
    return unit > 0 && offset_bytes % unit == 0 && pitch_bytes % unit == 0;
  }

  /// Whether `id` may lie in `view`: all that read and write it take that.
  bool may_lie_in(ValueId id, const View& view) const {
    const View root = root_of(view.of);
    if (!dense(root.of)) return false;
    const auto bytes = static_cast<Index>(size_of(program_.value(id).type));
    const Index offset = (root.offset + view.offset) * bytes,
                pitch = program_.value(root.of).channels() * bytes;
    const auto take = [&](const Steps& steps) {
      return std::all_of(steps.begin(), steps.end(),
                         [&](const Step* step) { return takes_slices(*step, offset, pitch); });
    };
    return views_[id].of == no_id && !is_flattened(id) && take(readers_[id]) && take(writers_[id]);
  }
  /// No slice of a vector that is an image's memory.
  bool dense(ValueId id) const { return !views_[id].flat; }
  bool is_flattened(ValueId id) const {
    return std::any_of(views_.begin(), views_.end(),
                       [&](const View& view) { return view.flat && view.of == id; });
  }
  bool is_input(ValueId id) const {
    const auto& inputs = program_.graph.inputs;
    return std::find(inputs.begin(), inputs.end(), id) != inputs.end();
  }

  void place_parts(const graph::Node& node) {
    Index before = 0;
    for (const ValueId part : node.in) {
      const View view{node.out, before};
      before += program_.value(part).channels();
      if (is_input(part) || !there_[part] || program_.graph.is_output(part) ||
          std::count(node.in.begin(), node.in.end(), part) > 1)
        continue;
      // The copy reads the value from where it lies now.
      const auto copies = [&](const Step* step) {
        const auto* copy = std::get_if<CopyStep>(step);
        return copy && copy->from == part && copy->to == node.out;
      };
      if (may_lie_in(part, view) && !writers_[part].empty() &&
          std::any_of(readers_[part].begin(), readers_[part].end(), copies))
        views_[part] = view;
    }
  }

  void place_slice(const graph::Node& node, const graph::Slice& slice) {
    const ValueId x = node.in[0];
    const bool on_gpu_from_caller = program_.on_gpu() && is_input(root_of(x).of);
    const View view{x, slice.first};
    // Its only writer is the copy.
    if (!on_gpu_from_caller && !program_.graph.is_output(node.out) && dense(x) &&
        may_lie_in(node.out, view))
      views_[node.out] = view;
  }

  /// A copy between two places that are one.
  bool is_view(const Step& step) const {
    const auto* copy = std::get_if<CopyStep>(&step);
    if (!copy) return false;
    const View& from = views_[copy->from];
    const View& to = views_[copy->to];
    return (from.of == copy->to && from.offset == copy->to_channel && !from.flat) ||
           (to.of == copy->from && to.offset == copy->from_channel && !to.flat);
  }

  void lay_out() {
    program_.places.assign(views_.size(), {});
    program_.buffers.clear();
    std::vector<std::size_t> buffer(views_.size(), no_id);
    for (ValueId id = 0; id < views_.size(); ++id) {
      if (!there_[id]) continue;
      const View root = root_of(id);
      if (buffer[root.of] == no_id) {
        buffer[root.of] = program_.buffers.size();
        program_.buffers.push_back({.owner = root.of, .of_caller = is_input(root.of)});
      }
      const Index pitch =
          views_[id].flat ? program_.value(id).channels() : program_.value(root.of).channels();
      program_.places[id] = {buffer[root.of], root.offset, pitch};
    }
    find_lifetimes();
  }

  void find_lifetimes() {
    const auto end = static_cast<Index>(program_.steps.size());
    for (Buffer& one : program_.buffers) one.first = one.of_caller ? -1 : end;
    const auto use = [&](ValueId id, Index step) {
      Buffer& one = program_.buffers[program_.places[id].buffer];
      one.first = std::min(one.first, step);
      one.last = std::max(one.last, step);
    };
    for (Index i = 0; i < end; ++i) {
      const auto [x, y] = ends_of(program_.steps[static_cast<std::size_t>(i)]);
      use(x, i);
      use(y, i);
    }
    for (const ValueId id : program_.graph.outputs) use(id, end);
  }

  Program& program_;
  std::vector<View> views_;  // of each value; of = no_id: it has a buffer
  std::vector<Steps> writers_, readers_;
  std::vector<bool> there_;  // it reaches memory
};

}  // namespace

Index slice_unit(const Kernel& kernel) {
  if (is_for_chains(kernel)) return 0;
  return kernel.device() == DeviceKind::cuda ? 16 : 1;
}

void place_values(Program& program) {
  Placer(program).run();
}

ValueId Program::converted_input() const {
  for (const Step& step : steps)
    if (const auto* convert = std::get_if<ConvertStep>(&step)) return convert->y;
  return graph.inputs[0];
}

Program::Arena Program::arena(Index n) const {
  std::vector<Lifetime> lives;
  for (const Buffer& one : buffers) {
    const bool here = !one.of_caller && !any_n;
    lives.push_back({here ? image_bytes(one.owner) * n : Size(0), one.first, one.last});
  }
  std::vector<std::size_t> workspaces;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto* kernel = std::get_if<KernelStep>(&steps[i]);
    const std::size_t bytes = kernel ? kernel->bound->workspace_bytes() : 0;
    if (bytes == 0) continue;
    workspaces.push_back(i);
    lives.push_back({static_cast<Index>(bytes), static_cast<Index>(i), static_cast<Index>(i)});
  }
  const MemoryPlan plan = plan_memory(lives);
  Arena result;
  result.bytes = plan.bytes;
  result.buffer.assign(plan.offset.begin(),
                       plan.offset.begin() + static_cast<std::ptrdiff_t>(buffers.size()));
  result.workspace.assign(steps.size(), -1);
  for (std::size_t k = 0; k < workspaces.size(); ++k)
    result.workspace[workspaces[k]] = plan.offset[buffers.size() + k];
  return result;
}

}  // namespace convoy::network
