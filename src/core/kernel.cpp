#include "core/kernel.hpp"

#include <fmt/core.h>

#include <utility>

#include "convoy/error.hpp"
#include "core/failure.hpp"

namespace convoy {
namespace {

Strides dense(const Stage& stage, Index n, Index h, Index w, Index c, bool steps) {
  const Index image = h * w * c;
  const Index step = steps ? n * image : 0;
  return stage.layout == Layout::nhwc ? Strides{step, image, w * c, c, 1}
                                      : Strides{step, image, w, 1, h * w};
}

}  // namespace

Strides dense_x(const Stage& stage, Index n) {
  return dense(stage, n, stage.h, stage.w, stage.c, stage.act.is_neuron() && !stage.hold);
}
Strides dense_y(const Stage& stage, Index n) {
  const Shapes shapes = shapes_of(stage);
  return dense(stage, n, shapes.out_h, shapes.out_w, stage.k, stage.act.is_neuron());
}

Reasons Kernel::refusals(const Chain& chain, const Machine& machine) const {
  if (!facts_.chain && !is_one_stage(chain)) return {"runs one stage, not a chain of them"};
  Reasons why;
  for (std::size_t i = 0; i < chain.size(); ++i)
    for (std::string& reason : unserved(chain[i], facts_.serves, facts_.device))
      why.push_back(chain.size() == 1 ? std::move(reason)
                                      : fmt::format("stage {}: {}", i + 1, reason));
  if (facts_.chain) add_missing(why, unserved(chain, *facts_.chain));
  refuse_chain(chain, machine, why);
  return why;
}

std::vector<float> Prepared::laid_out(std::size_t, const float*) const {
  throw Unsupported(
      "laid_out: the packed weights of this kernel have no blocks, expected a kernel with blocks.");
}
std::string Prepared::why_no_trace() const {
  return "it takes no time stamps";
}
RunTrace Prepared::trace(std::span<const RunArgs, 2>, const std::function<void()>&) const {
  throw Unsupported("trace: " + why_no_trace() + ".");
}

}  // namespace convoy
