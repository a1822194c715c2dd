// Making a Network: its program, and what it says of itself.
#include "network/impl.hpp"

#include <fmt/core.h>

#include <new>
#include <stdexcept>

#include "core/failure.hpp"
#include "core/printable.hpp"
#include "network/flow.hpp"
#include "network/parameter_views.hpp"

namespace convoy {
namespace {

using network::PixelsOfValues;

// What `make` returns. `name`: of the network, for the message where memory runs out.
template <class Make>
auto with_memory(const std::string& name, const Make& make) {
  const auto no_memory = [&] {
    return NoMemory(
        fmt::format("no memory for the network {}. While it is loaded, its weights are in memory "
                    "twice, as numbers and packed. Use a smaller network or a smaller batch.",
                    printable(name)));
  };
  try {
    return make();
  } catch (const std::bad_alloc&) {
    throw no_memory();
  } catch (const std::length_error&) {
    throw no_memory();
  }
}

std::vector<Port> ports_of(const network::Program& program,
                           const std::vector<graph::ValueId>& ids) {
  std::vector<Port> ports;
  for (const graph::ValueId id : ids) {
    const graph::Value& value = program.value(id);
    const Index steps = program.steps_of(id);  // as of a stage, one step has no axis
    ports.push_back({value.name, value.type, value.axes, steps > 1 ? steps : 0});
  }
  return ports;
}

/// The way back from x' to pixels, of the only node that makes x' of them.
std::optional<PixelsOfValues> inverse_of(const network::Program& program) {
  if (program.reads_pixels)
    for (const graph::Node& node : program.graph.nodes)
      if (const auto* normalise = node.as<graph::Normalise>()) {
        const network::Conversion conversion(*normalise, DType::u8,
                                             program.graph.input(node, 0).channels());
        return PixelsOfValues(conversion.values(), conversion.mean(), conversion.std());
      }
  return {};
}

/// The same network for images that are normalised already.
graph::Graph without_normalise(graph::Graph graph) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!graph.nodes[i].as<graph::Normalise>()) continue;
    graph.inputs = {graph.nodes[i].out};
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  return graph::without_dead(std::move(graph));
}

}  // namespace

Network::Impl::Impl(std::optional<NetworkText> text_, graph::Graph graph,
                    const NetworkOptions& options)
    : text(std::move(text_)),
      program(network::make_program(graph, options)),
      input_ports(ports_of(program, program.graph.inputs)),
      output_ports(ports_of(program, program.graph.outputs)),
      pixels_of_values(inverse_of(program)),
      contexts(program) {
  if (program.reads_pixels) plain = without_normalise(std::move(graph));
  program.forget_weights();
}

std::unique_ptr<Network::Impl> Network::Impl::make(const std::string& folder,
                                                   const NetworkOptions& options) {
  network::check_options(options);  // before any file is read
  return with_memory(folder, [&] {
    network::Model model = network::read_model(folder);
    return std::make_unique<Impl>(std::move(model.text), std::move(model.graph), options);
  });
}

std::unique_ptr<Network::Impl> Network::Impl::make(const NetworkText& text,
                                                   const NetworkParameters& parameters,
                                                   const NetworkOptions& options) {
  network::check_options(options);
  return with_memory("in memory", [&] {
    NetworkText whole = network::completed(text);
    network::ParameterViews views(parameters);
    graph::Graph graph = network::read_graph(whole, views);
    return std::make_unique<Impl>(std::move(whole), std::move(graph), options);
  });
}

std::unique_ptr<Network::Impl> Network::Impl::make(graph::Graph graph,
                                                   const NetworkOptions& options) {
  network::check_options(options);
  return with_memory(
      "in memory", [&] { return std::make_unique<Impl>(std::nullopt, std::move(graph), options); });
}

}  // namespace convoy
