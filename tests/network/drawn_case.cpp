#include "drawn_case.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/gpu_timing.hpp"
#include "graph/interpret.hpp"
#include "math/half.hpp"
#include "network/builder.hpp"

namespace convoy {
namespace {

std::vector<Index> with_images(std::vector<Index> axes, Index n, Index steps = 0) {
  axes.insert(axes.begin(), n);
  if (steps > 0) axes.insert(axes.begin(), steps);
  return axes;
}

}  // namespace

DrawnCase::DrawnCase(std::uint64_t number_, const DrawOptions& options)
    : number(number_), drawn(draw_graph(number_, options)) {
  verify::Random random(number + 1000000);
  for (const std::vector<Index>& axes : drawn.input_axes) {
    Index elements = images;
    for (const Index size : axes) elements *= size;
    Numbers& x = inputs.emplace_back();
    for (Index i = 0; i < elements; ++i) x.push_back(static_cast<float>(random.between(-3, 3)));
  }
}

const graph::Graph& DrawnCase::plain() const {
  return graph_of(drawn.builder);
}

std::string DrawnCase::text() const {
  return "graph " + std::to_string(number) + "\n" + graph::to_text(plain());
}

std::vector<Numbers> DrawnCase::interpreted(const graph::Graph& graph) const {
  std::vector<ConstTensorView> views;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    views.push_back(
        ConstTensorView::of(inputs[i].data(), with_images(drawn.input_axes[i], images)));
  Threads threads(1);
  const std::vector<Tensor> values = graph::interpret(graph, views, threads);
  std::vector<Numbers> outputs;
  for (const graph::ValueId id : graph.outputs)
    outputs.emplace_back(values[id].data<float>(),
                         values[id].data<float>() + values[id].elements());
  return outputs;
}

std::vector<Numbers> DrawnCase::run(const Network& network, Index n, Device memory,
                                    Stream stream) const {
  std::vector<Tensor> x, y;
  std::vector<NamedInput> named_inputs;
  std::vector<NamedOutput> named_outputs;
  x.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Port& port = network.inputs()[i];
    Tensor here(port.dtype, with_images(port.axes, n));
    const Index image = static_cast<Index>(inputs[i].size()) / images;
    for (Index at = 0; at < here.elements(); ++at)
      math::store(port.dtype, here.view().data, at,
                  inputs[i][static_cast<std::size_t>(at % (image * images))]);
    x.push_back(memory == Device{} ? std::move(here) : here.to(memory));
    named_inputs.push_back({port.name, x.back().view()});
  }
  y.reserve(network.outputs().size());
  for (const Port& port : network.outputs()) {
    Tensor here(port.dtype, with_images(port.axes, n, port.steps));
    std::memset(here.view().data, 0xA5, here.bytes());
    y.push_back(memory == Device{} ? std::move(here) : here.to(memory));
    named_outputs.push_back({port.name, y.back().view()});
  }
  network.run(named_inputs, named_outputs, stream).or_throw();
  std::vector<Numbers> outputs;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const Port& port = network.outputs()[i];
    Tensor here(port.dtype, with_images(port.axes, n, port.steps));
    copy_tensor(y[i].view(), here.view(), stream);  // it waits for the run
    Numbers& numbers = outputs.emplace_back();
    for (Index at = 0; at < here.elements(); ++at)
      numbers.push_back(math::load(port.dtype, here.view().data, at));
  }
  return outputs;
}

std::vector<Numbers> repeated(const Network& network, const std::vector<Numbers>& seven, Index n) {
  std::vector<Numbers> all;
  for (std::size_t i = 0; i < seven.size(); ++i) {
    const Index steps = std::max<Index>(network.outputs()[i].steps, 1),
                image = static_cast<Index>(seven[i].size()) / steps / DrawnCase::images;
    Numbers& y = all.emplace_back();
    for (Index t = 0; t < steps; ++t)
      for (Index at = 0; at < n; ++at) {
        const auto from =
            seven[i].begin() + (t * DrawnCase::images + at % DrawnCase::images) * image;
        y.insert(y.end(), from, from + image);
      }
  }
  return all;
}

bool same_bits(const std::vector<Numbers>& a, const std::vector<Numbers>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return true;
}

NetworkOptions in_parts(Device device) {
  NetworkOptions options;
  options.threads = 1;
  options.batch = 16;  // a run of 64 images is made in parts
  options.device = device;
  return options;
}

int wrong_runs_at_once(const DrawnCase& one, const Network& network,
                       const std::vector<Numbers>& seven, Device device, Device memory) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      const gpu::OwnedStream own(device);  // none on a CPU
      for (int round = 0; round < 3; ++round) {
        const Index n = (t + round) % 3 == 0 ? 7 : (t + round) % 3 == 1 ? 1 : 64;
        try {
          if (!same_bits(one.run(network, n, memory, own.stream()), repeated(network, seven, n)))
            ++wrong;
        } catch (const Error&) {
          ++wrong;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  return wrong;
}

std::uint64_t graphs_to_draw(std::uint64_t by_default) {
  const char* const given = std::getenv("CONVOY_GRAPHS");
  return given ? std::strtoull(given, nullptr, 10) : by_default;
}

}  // namespace convoy
