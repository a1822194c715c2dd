// Pools that a kernel's registers do not hold, or that wait for an operation of PostOps: the
// results of some images, then their maxima. For kernels that have no rows of results in scratch.
#pragma once

#include <functional>
#include <memory>

#include "core/kernel.hpp"

namespace convoy::cpu {

/// prepare(stage), or if pools_apart(stage), that of the stage without its pool and then the pool.
std::unique_ptr<Prepared> prepare_pooled(
    const Stage& stage, const Machine& machine,
    const std::function<std::unique_ptr<Prepared>(const Stage&)>& prepare);
/// cost_of(stage), likewise.
Cost cost_pooled(const Stage& stage, const Machine& machine,
                 const std::function<Cost(const Stage&)>& cost_of);

}  // namespace convoy::cpu
