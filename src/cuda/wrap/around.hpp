// A kernel that runs another one inside, between passes over memory: what such wrappers share.
//
// Its name is the inner kernel's and the wrapper's: `halo_pool` is Pooled(halo). Its facts, its
// weights and their packing are the inner kernel's. A wrapper makes one kernel of any other that
// runs one stage; kernel_table.cpp has a line for each.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/kernel.hpp"

namespace convoy::cuda {

class PreparedAround : public Prepared {
 public:
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

 protected:
  PreparedAround(std::string_view name, std::unique_ptr<Prepared> inner, const Machine& machine)
      : name_(name),
        inner_(std::move(inner)),
        device_(machine.device.index),
        overlap_(machine.compute_capability >= 90) {}

  std::string_view name_;
  std::unique_ptr<Prepared> inner_;
  int device_;
  bool overlap_;  // passes start while the kernel before them drains, and wait for it
};

/// Bytes of a tensor in workspace, so that the next one lies on 256.
constexpr std::size_t workspace_part(Index bytes) {
  return (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
}

}  // namespace convoy::cuda
