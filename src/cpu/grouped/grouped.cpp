// The kernel `grouped`: groups of few channels and filters. A vector holds filters of several
// groups, where `direct` would give each group a vector of its own; each lane takes the channel of
// its group by a permutation of what lies next to each other. Inputs are read where they lie.
#include "cpu/grouped/grouped.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/buffer.hpp"
#include "cpu/families.hpp"
#include "cpu/shared/core_costs.hpp"
#include "cpu/shared/cpu_prepared.hpp"
#include "cpu/shared/refusals.hpp"
#include "math/divide.hpp"

namespace convoy::cpu {
namespace {
using math::ceil_div;

// How a stage's filters lie in vectors.
struct Vectors {
  Index filters = 0;   // of a vector, at most its lanes
  Index count = 0;     // of vectors
  Index channels = 0;  // that one of them reads at most: those of all its groups
};

struct ChannelRange {
  Index first = 0, count = 0;
};
// The channels that filters [k, k + count) read.
ChannelRange channels_of(const Stage& stage, Index k, Index count) {
  const Index of_group = stage.c / stage.groups, filters = stage.k / stage.groups;
  const Index first = k / filters, last = (std::min(k + count, stage.k) - 1) / filters;
  return {first * of_group, (last - first + 1) * of_group};
}

Vectors vectors_of(const Stage& stage, Index lanes) {
  const Index of_group = stage.k / stage.groups;
  Vectors vectors;
  // Whole groups, unless that leaves so many lanes idle that two vectors of channels take less: a
  // quarter where one instruction picks from both (AVX-512), else half.
  const Index whole = lanes / of_group * of_group;  // 0 where a group has more filters
  const bool enough = lanes == 16 ? 4 * whole > 3 * lanes : 2 * whole > lanes;
  vectors.filters = whole > 0 && enough ? whole : lanes;
  vectors.count = ceil_div(stage.k, vectors.filters);
  // Where vectors begin within a group repeats after at most as many as it has filters.
  for (Index i = 0; i < std::min(vectors.count, of_group); ++i)
    vectors.channels =
        std::max(vectors.channels, channels_of(stage, i * vectors.filters, vectors.filters).count);
  return vectors;
}

struct GroupedWeights final : PackedWeights {
  Buffer<float> vectors;  // [vectors of filters][R,S,C/groups][lanes]
  Buffer<std::int32_t>
      channels;  // [vectors of filters][C/groups][lanes]: from the first that each reads
};

class GroupedPrepared final : public CpuPrepared<GroupedWeights>, private PixelRows {
 public:
  GroupedPrepared(const Stage& stage, const Machine& machine)
      : PixelRows(stage, machine, vectors_of(stage, grouped_loops::loops().lanes).filters),
        loops_(grouped_loops::loops()),
        epilogue_(stage.act),
        vectors_(vectors_of(stage, loops_.lanes)),
        inputs_(stage.c / stage.groups) {}

  std::string packing() const override {
    return fmt::format("{} by {} filters", weights_shape(stage()), loops_.lanes);
  }
  std::size_t workspace_bytes() const override { return bytes_of_rows(); }
  Status run(const RunArgs& args) const noexcept override {
    run_rows(args);
    return Status();
  }

 protected:
  void lay_out(const float* w, GroupedWeights& to) const override {
    const Index lanes = loops_.lanes, taps = stage().r * stage().s;
    const Index filters = stage().k / stage().groups;
    to.vectors = Buffer<float>(static_cast<std::size_t>(vectors_.count * taps * inputs_ * lanes));
    to.channels = Buffer<std::int32_t>(static_cast<std::size_t>(vectors_.count * inputs_ * lanes));
    std::fill_n(to.vectors.data(), to.vectors.size(), 0.0F);
    std::fill_n(to.channels.data(), to.channels.size(), 0);
    for (Index k = 0; k < stage().k; ++k) {
      const Index vector = k / vectors_.filters, lane = k % vectors_.filters;
      const Index begin = channels_of(stage(), vector * vectors_.filters, vectors_.filters).first;
      const Index first = k / filters * inputs_ - begin;
      for (Index c = 0; c < inputs_; ++c) {
        to.channels[static_cast<std::size_t>((vector * inputs_ + c) * lanes + lane)] =
            static_cast<std::int32_t>(first + c);
        for (Index tap = 0; tap < taps; ++tap)
          to.vectors[static_cast<std::size_t>(((vector * taps + tap) * inputs_ + c) * lanes +
                                              lane)] = w[(k * taps + tap) * inputs_ + c];
      }
    }
  }

 private:
  // Vector by vector, whose weights stay in L1 along the row.
  void run_row(const PixelRow& row) const noexcept override {
    const Index lanes = loops_.lanes;
    grouped_loops::PixelArgs args;
    args.tap_rows = row.tap_rows;
    args.row = row.row;
    args.column = row.column;
    args.pixel = row.pixel;
    args.inputs = inputs_;
    args.w_column = inputs_ * lanes;
    args.w_row = stage().s * args.w_column;
    args.epilogue = epilogue_;
    args.y_pixel = row.y_pixel;
    for (Index k = 0; k < row.filters; k += vectors_.filters) {
      const Index vector = (row.k + k) / vectors_.filters;
      const ChannelRange range = channels_of(stage(), row.k + k, vectors_.filters);
      const float* const w = weights().vectors.data() + (vector * stage().r + row.r) * args.w_row;
      args.channels = stage().c - range.first;
      args.channel = weights().channels.data() + vector * args.w_column;
      args.bias = row.bias + k;
      args.filters = std::min(vectors_.filters, row.filters - k);
      const bool two = range.count > lanes, some = args.channels < (two ? 2 : 1) * lanes;
      const auto& loops =
          two ? (some ? loops_.some_of_two : loops_.two) : (some ? loops_.some_of_one : loops_.one);
      for (const RowSegment& segment : segments()) {
        args.tap_columns = segment.tap_columns;
        args.w = w + segment.s * args.w_column;
        each_tile(row, segment, [&](const float* x, float* y, Index pixels) {
          args.x = x + range.first;
          args.y = y + k;
          loops[pixels - 1](args);
        });
      }
    }
  }

  const grouped_loops::Loops& loops_;
  Epilogue epilogue_;
  Vectors vectors_;
  Index inputs_;  // channels of a group
};

constexpr Serves served_by_grouped{
    .types = Types(DType::f32, DType::f32),
    .layouts = Layout::nhwc,
    .strides = true,
    .dilation = true,
    .groups = true,
    .bias = true,
    .norm = false,
    .acts = elementwise,
    .soft = false,
    .hold = false,
    .pools = any_pool,
    .pools_first = false,
    .keep = nothing,
};

class Grouped final : public StageKernel {
 public:
  Grouped()
      : StageKernel({.name = "grouped",
                     .arithmetic = "sequential",
                     .device = DeviceKind::cpu,
                     .serves = served_by_grouped,
                     .exact = true}) {}

  void refuse(const Stage& stage, const Machine& machine, Reasons& why) const override {
    const Index lanes = machine.vector_floats, most = vectors_of(stage, lanes).channels;
    Refusals(stage, why)
        .expect(stage.groups > 1, "groups", stage.groups, "at least 2")
        .expect(stage.groups == 1 || most <= 2 * lanes,
                "the number of channels that a vector of filters reads", most,
                fmt::format("at most two vectors, {}", 2 * lanes))
        .rows_of_pool();
  }

  std::vector<Tile> tiles(const Stage&, const Machine& machine) const override {
    return {{fmt::format("{}x{}", max_row_pixels, machine.vector_floats), 0}};
  }

  Cost cost(const Stage& stage, const Tile&, const Machine& machine) const override {
    const CoreCosts::Grouped& costs = core_costs(machine).grouped;
    const Vectors vectors = vectors_of(stage, machine.vector_floats);
    const double taps = static_cast<double>(stage.r * stage.s);
    const double inputs = static_cast<double>(stage.c / stage.groups);
    const bool two = vectors.channels > machine.vector_floats;
    const double product = two ? costs.product_of_two_steps : costs.product_steps;
    return cost_of_rows(stage, vectors.count, taps * inputs,
                        taps * (inputs * product + costs.tap_steps) + costs.vector_steps, machine);
  }

  std::unique_ptr<Prepared> prepare(const Stage& stage, const Tile&,
                                    const Machine& machine) const override {
    return std::make_unique<GroupedPrepared>(stage, machine);
  }
};

}  // namespace

const Kernel& grouped() {
  static const Grouped kernel;
  return kernel;
}

}  // namespace convoy::cpu
