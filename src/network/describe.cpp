#include "network/describe.hpp"

#include <fmt/core.h>

#include "core/printable.hpp"

namespace convoy::network {
namespace {

class Describer {
 public:
  explicit Describer(const Program& program) : program_(program) {}

  std::string text() const {
    std::string all = "place: the steps, and the buffers that they read and write\n";
    for (std::size_t i = 0; i < program_.steps.size(); ++i)
      all += fmt::format("step {:<3} {}\n", i + 1,
                         std::visit([&](const auto& step) { return of(step); }, program_.steps[i]));
    if (program_.any_n)
      return all + "one kernel takes any number of images, without memory between its layers\n";
    const Index most = program_.at_once;
    return all + fmt::format("memory {} bytes for 1 image, {} for {}, which pass at once at most\n",
                             program_.arena(1).bytes.value(), program_.arena(most).bytes.value(),
                             most);
  }

 private:
  std::string at(graph::ValueId id) const {
    const Place& place = program_.places[id];
    const graph::Value& value = program_.value(id);
    const Buffer& buffer = program_.buffers[place.buffer];
    std::string text = printable(value.name);
    if (buffer.of_caller) return text + " (the caller's)";
    text += fmt::format(" (buffer {}", place.buffer);
    if (place.pitch != value.channels())
      text += fmt::format(", channels {} to {} of {}", place.offset,
                          place.offset + value.channels() - 1, place.pitch);
    return text + ")";
  }
  std::string of(const ConvertStep& step) const {
    return fmt::format("normalise  {} -> {}", at(step.x), at(step.y));
  }
  std::string of(const KernelStep& step) const {
    std::string layers = printable(program_.layer(step.first).name);
    if (step.count > 1)
      layers += " to " + printable(program_.layer(step.first + step.count - 1).name);
    return fmt::format("{} by {}  {} -> {}", layers, step.bound->kernel().name(), at(step.x),
                       at(step.y));
  }
  std::string of(const CopyStep& step) const {
    return fmt::format("copy {} channels  {} -> {}", step.channels, at(step.from), at(step.to));
  }
  std::string of(const MeanStep& step) const {
    return fmt::format("mean over the steps  {} -> {}", at(step.x), at(step.y));
  }

  const Program& program_;
};

}  // namespace

std::string describe(const Program& program) {
  return Describer(program).text();
}

}  // namespace convoy::network
