// Drawing: legal stages of awkward sizes, and inputs for them.
#pragma once

#include <optional>
#include <string_view>

#include "convoy/plan.hpp"
#include "verify/random.hpp"

namespace convoy::verify {

/// A legal stage of at most 3 million multiply-adds a step, any rider, any type. For a GPU most are
/// f16 and bf16, with channels that its fast families take.
Stage draw_stage(Random& random, DeviceKind device = DeviceKind::cpu);
/// Whether a stage is legal and small enough for that.
bool is_small(const Stage& stage);

enum class Data : std::uint8_t {
  integers,  // every partial sum is exact, in winograd2 too
  normal,    // mean 0, variance 1
  mean10,    // mean 10, variance 1
  scaled,    // normal, every second channel times 10^4 (100 where f16 would overflow)
};
std::string_view name(Data data);

/// What a run reads. x is dense in the stage's layout.
struct Inputs {
  Stage stage;
  Tensor x, weights, bias, norm_scale, norm_shift, membrane_in;
  /// The inputs as operands; no outputs.
  Operands operands() const;
};

/// Inputs that the seed and the stage determine. Integers: none where even ±1 could make a partial
/// sum inexact.
std::optional<Inputs> draw_inputs(const Stage& stage, Data data, std::uint64_t seed);

/// Fills `to`, [T,]N,H,W,C or so, with images of `from`: image i is image (first + i) % N there.
void copy_images(const Tensor& from, Index first, Tensor& to);

/// n images, image i of which is image (first + i) % stage.n of `inputs`.
Inputs repeat_images(const Inputs& inputs, Index first, Index n);

}  // namespace convoy::verify
