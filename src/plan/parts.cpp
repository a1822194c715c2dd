#include "plan/parts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/dtype.hpp"
#include "core/gpu_rows.hpp"
#include "math/divide.hpp"

namespace convoy {
namespace {

/// Bytes of workspace that copied parts should take: enough to fill a GPU, and to hide a launch.
constexpr Index copied_bytes = Index{256} << 20;
/// Images of a part, of which x then begins on 16 bytes.
constexpr Index together = 16;
constexpr std::size_t most_later = 63;  // stages behind the first, of a chain that is cut

bool has_steps(const Chain& chain) {
  return chain.mean || chain.x_steps > 1 ||
         std::any_of(chain.stages.begin(), chain.stages.end(),
                     [](const Stage& stage) { return stage.t > 1; });
}

/// Whether runs may be cut. What lies between the stages of a chain is not in our hands, and with
/// several steps it would have to be copied.
bool may_be_cut(const Kernel& kernel, const Chain& chain) {
  return !kernel.facts().any_n &&
         (chain.size() == 1 || (!has_steps(chain) && chain.size() <= most_later + 1));
}

/// The most images that the kernel takes at once, of a chain of which it takes one.
Index most_at_once(const Kernel& kernel, const Chain& chain, const Machine& machine) {
  Index takes = 1, refuses = chain.front().n;
  if (refuses == 1 || !may_be_cut(kernel, chain) || kernel.refusals(chain, machine).empty())
    return refuses;
  while (refuses - takes > 1) {
    const Index n = takes + (refuses - takes) / 2;
    (kernel.refusals(with_images(chain, n), machine).empty() ? takes : refuses) = n;
  }
  return takes;
}

/// An operand of a copied part: of each step the part's images, one step behind the other.
struct Piece {
  Index image = 0;       // elements of an image
  Index steps = 0;       // 0: it is not copied
  std::size_t size = 0;  // of an element, bytes
  // Where it is taken from or brought to: `rows` of an image, of `row` elements each, which lie
  // `pitch` apart; `step` elements from step to step.
  Index row = 0, rows = 1, pitch = 0, step = 0;

  std::size_t bytes(Index images) const {
    return (static_cast<std::size_t>(image * steps * images) * size + 255) / 256 * 256;
  }
};

/// The pieces of a part, of runs whose operands are dense.
struct Pieces {
  Piece x, y, pre, act, idx;
  bool nhwc;

  Pieces(const Stage& stage, bool gpu) : nhwc(stage.layout == Layout::nhwc) {
    const Shapes shapes = shapes_of(stage);
    const std::size_t out = size_of(stage.output_dtype(gpu));
    const auto piece = [&](bool there, Index pixels, Index channels, std::size_t size) {
      const Index image = pixels * channels;
      return there ? Piece{image, stage.t, size, image, 1, image, 0} : Piece{};
    };
    const Index plane = shapes.p * shapes.q, pooled = shapes.out_h * shapes.out_w;
    x = piece(!stage.hold, stage.h * stage.w, stage.c, size_of(stage.dtype));
    y = piece(true, pooled, stage.k, out);
    pre = piece(stage.keep.pre, plane, stage.k, out);
    act = piece(stage.keep.act, plane, stage.k, out);
    idx = piece(stage.keep.idx, pooled, stage.k, size_of(DType::i32));
  }
  std::size_t bytes(Index images) const {
    return x.bytes(images) + y.bytes(images) + pre.bytes(images) + act.bytes(images) +
           idx.bytes(images);
  }
};

/// `at` moved on by so many elements of `size` bytes; null stays null.
const void* moved(const void* at, Index elements, std::size_t size) {
  return at == nullptr ? nullptr
                       : static_cast<const std::byte*>(at) + elements * static_cast<Index>(size);
}
void* moved(void* at, Index elements, std::size_t size) {
  return const_cast<void*>(moved(static_cast<const void*>(at), elements, size));
}
template <class T>
T* moved(T* at, Index elements) {
  return at == nullptr ? nullptr : at + elements;
}

class InParts final : public Prepared {
 public:
  InParts(const Chain& chain, const Parts& parts, Device device, std::unique_ptr<Prepared> inner)
      : chain_(chain),
        parts_(parts),
        device_(device),
        inner_(std::move(inner)),
        inner_bytes_((inner_->workspace_bytes() + 255) / 256 * 256),
        pieces_(chain.front(), gpu()) {
    for (const Stage& stage : chain.stages) shapes_.push_back(shapes_of(stage));
  }

  std::string packing() const override { return inner_->packing(); }
  std::shared_ptr<const PackedWeights> pack(std::span<const Parameters> all) const override {
    return inner_->pack(all);
  }
  void use(std::shared_ptr<const PackedWeights> weights) override {
    inner_->use(std::move(weights));
  }
  std::vector<float> laid_out(std::size_t block, const float* from) const override {
    return inner_->laid_out(block, from);
  }
  std::size_t workspace_bytes() const override {
    return parts_.copied ? inner_bytes_ + pieces_.bytes(parts_.images) : inner_->workspace_bytes();
  }
  std::vector<GpuResources> gpu_resources() const override { return inner_->gpu_resources(); }
  std::string why_no_trace() const override {
    return fmt::format("it runs in {} parts of at most {} images. Trace a stage of fewer images",
                       parts_.count, parts_.images);
  }

  Status run(const RunArgs& args) const noexcept override {
    for (Index first = 0; first < args.n; first += parts_.images) {
      const Index n = std::min(parts_.images, args.n - first);
      const Status status = parts_.copied ? run_copied(args, first, n) : run_slice(args, first, n);
      if (!status.ok()) return status;
    }
    return {};
  }

 private:
  bool gpu() const { return device_.kind == DeviceKind::cuda; }
  const Stage& stage(std::size_t i) const { return chain_.stages[i]; }
  std::size_t y_size(std::size_t i) const { return size_of(stage(i).output_dtype(gpu())); }

  /// Moves what stage i reads and writes beside x and y to image `first`. Steps follow each other:
  /// what has several is moved in the first one.
  void move(StageArgs& args, std::size_t i, Index first) const {
    const Index plane = shapes_[i].p * shapes_[i].q * stage(i).k,
                pooled = shapes_[i].out_h * shapes_[i].out_w * stage(i).k;
    args.pre = moved(args.pre, first * plane, y_size(i));
    args.act = moved(args.act, first * plane, y_size(i));
    args.idx = moved(args.idx, first * pooled);
    args.membrane_in = moved(args.membrane_in, first * plane);
    args.membrane_out = moved(args.membrane_out, first * plane);
    args.inner_y = moved(args.inner_y, first * pooled);
  }
  RunArgs slice(const RunArgs& args, Index first, Index n) const {
    RunArgs part = args;
    part.n = n;
    part.x = moved(args.x, first * args.x_stride.n, size_of(stage(0).dtype));
    part.y = moved(args.y, first * args.y_stride.n, y_size(shapes_.size() - 1));
    part.labels = moved(args.labels, first);
    move(part, 0, first);
    return part;
  }

  Status run_slice(const RunArgs& args, Index first, Index n) const {
    RunArgs part = slice(args, first, n);
    std::array<StageArgs, most_later> later;
    for (std::size_t i = 0; i < args.later.size(); ++i) {
      later[i] = args.later[i];
      move(later[i], i + 1, first);
    }
    part.later = std::span(later).first(args.later.size());
    return inner_->run(part);
  }

  Status run_copied(const RunArgs& args, Index first, Index n) const {
    const Stage& stage = this->stage(0);
    RunArgs part = slice(args, first, n);
    std::byte* at = args.workspace + inner_bytes_;
    const auto room = [&](const Piece& piece) {
      std::byte* const begin = at;
      at += piece.bytes(parts_.images);
      return begin;
    };
    // Of an operand whose pixels, or images, may lie apart.
    const auto strided = [&](Piece piece, const Strides& given, Index channels) {
      piece.step = given.t;
      piece.row = pieces_.nhwc ? channels : piece.image;
      piece.pitch = pieces_.nhwc ? given.w : given.n;
      piece.rows = piece.image / piece.row;
      return piece;
    };
    const auto dense = [&](Piece piece) {
      piece.step = args.n * piece.image;
      return piece;
    };
    Status status;
    if (pieces_.x.steps > 0) {
      std::byte* const x = room(pieces_.x);
      status = copy(strided(pieces_.x, args.x_stride, stage.c), n, part.x, x, args.stream);
      part.x = x;
    }
    part.x_stride = stage.hold ? args.x_stride : dense_x(stage, n);
    const RunArgs wanted = part;
    part.y = room(pieces_.y);
    part.y_stride = dense_y(stage, n);
    if (args.pre) part.pre = room(pieces_.pre);
    if (args.act) part.act = room(pieces_.act);
    if (args.idx) part.idx = reinterpret_cast<std::int32_t*>(room(pieces_.idx));
    if (status.ok()) status = inner_->run(part);
    const auto give = [&](const Piece& piece, const void* made, void* to) {
      if (status.ok() && to) status = copy(piece, n, made, to, args.stream, true);
    };
    give(strided(pieces_.y, args.y_stride, stage.k), part.y, wanted.y);
    give(dense(pieces_.pre), part.pre, wanted.pre);
    give(dense(pieces_.act), part.act, wanted.act);
    give(dense(pieces_.idx), part.idx, wanted.idx);
    return status;
  }

  /// Between the run's operand, where the piece's rows lie apart, and workspace, where they are
  /// dense. `back`: from there.
  Status copy(const Piece& piece, Index n, const void* from, void* to, void* stream,
              bool back = false) const {
    const auto bytes = [&](Index elements) {
      return static_cast<std::size_t>(elements) * piece.size;
    };
    const bool dense = piece.pitch == piece.row;
    const Index row = dense ? n * piece.image : piece.row, rows = dense ? 1 : n * piece.rows,
                pitch = dense ? row : piece.pitch;
    for (Index t = 0; t < piece.steps; ++t) {
      const Index apart = t * piece.step, packed = t * n * piece.image;
      const gpu::Rows all{
          .from = moved(from, back ? packed : apart, piece.size),
          .to = moved(to, back ? apart : packed, piece.size),
          .bytes = bytes(row),
          .count = static_cast<std::size_t>(rows),
          .from_pitch = bytes(back ? row : pitch),
          .to_pitch = bytes(back ? pitch : row),
      };
      const Status status = gpu() ? gpu::copy_rows(device_, all, stream) : copy_on_host(all);
      if (!status.ok()) return status;
    }
    return {};
  }
  static Status copy_on_host(const gpu::Rows& all) {
    for (std::size_t i = 0; i < all.count; ++i)
      std::memcpy(static_cast<std::byte*>(all.to) + i * all.to_pitch,
                  static_cast<const std::byte*>(all.from) + i * all.from_pitch, all.bytes);
    return {};
  }

  OwnedChain chain_;
  Parts parts_;
  Device device_;
  std::unique_ptr<Prepared> inner_;
  std::size_t inner_bytes_;
  Pieces pieces_;
  std::vector<Shapes> shapes_;
};

}  // namespace

std::vector<std::string> refusals_of_an_image(const Kernel& kernel, const Chain& chain,
                                              const Machine& machine) {
  if (chain.front().n == 1 || !may_be_cut(kernel, chain)) return kernel.refusals(chain, machine);
  return kernel.refusals(with_images(chain, 1), machine);
}

Parts part_of(const Kernel& kernel, const Chain& chain, const Machine& machine) {
  const Index n = chain.front().n;
  Index most = most_at_once(kernel, chain, machine);
  if (most >= n) return {n, 1, false};
  Parts parts;
  parts.copied = has_steps(chain);
  if (parts.copied) {
    const auto of_image =
        static_cast<Index>(Pieces(chain.front(), machine.device.kind == DeviceKind::cuda).bytes(1));
    most = std::clamp(copied_bytes / std::max<Index>(of_image, 1), Index{1}, most);
  }
  parts.images = math::ceil_div(n, math::ceil_div(n, most));
  if (most >= together)
    parts.images = std::min(math::round_up(parts.images, together), most / together * together);
  parts.count = math::ceil_div(n, parts.images);
  return parts;
}

std::vector<Tile> tiles_of_part(const Kernel& kernel, const Chain& chain, const Parts& parts,
                                const Machine& machine) {
  if (parts.count == 1) return kernel.tiles(chain, machine);
  return kernel.tiles(with_images(chain, parts.images), machine);
}

Cost cost_in_parts(const Kernel& kernel, const Chain& chain, const Parts& parts, const Tile& tile,
                   const Machine& machine) {
  if (parts.count == 1) return kernel.cost(chain, tile, machine);
  Cost cost = kernel.cost(with_images(chain, parts.images), tile, machine);
  const double times = static_cast<double>(chain.front().n) / static_cast<double>(parts.images);
  cost.seconds *= times;
  cost.flops *= times;
  cost.bytes *= times;
  return cost;
}

Cost cost_in_parts(const Kernel& kernel, const Chain& chain, const Tile& tile,
                   const Machine& machine) {
  return cost_in_parts(kernel, chain, part_of(kernel, chain, machine), tile, machine);
}

std::unique_ptr<Prepared> prepare_in_parts(const Kernel& kernel, const Chain& chain,
                                           const Tile& tile, const Machine& machine) {
  const Parts parts = part_of(kernel, chain, machine);
  if (parts.count == 1) return kernel.prepare(chain, tile, machine);
  return std::make_unique<InParts>(chain, parts, machine.device,
                                   kernel.prepare(with_images(chain, parts.images), tile, machine));
}

}  // namespace convoy
