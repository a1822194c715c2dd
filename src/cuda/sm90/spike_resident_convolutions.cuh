// Kernel `spike_resident` of FashionNet by wgmma: the convolutions of an image by a warpgroup.
// Weights are the left operand, in registers, so that spikes and pixels are read where they lie, by
// any tap.
#pragma once

#include "cuda/sm80/spike_resident_nets.hpp"
#include "cuda/sm80/spike_resident_run.cuh"
#include "cuda/sm80/spike_resident_warpgroup.hpp"

namespace convoy::cuda::sm90 {

using sm80::FirstByWarpgroup;
using sm80::half_one;
using sm80::LaneRows;
using sm80::PixelWords;
using sm80::resident_warpgroups;
using sm80::ResidentLayer;
using sm80::ResidentParams;
using sm80::row_pairs;
using sm80::SecondByWarpgroup;
using sm80::Team;
using sm80::unit_at;
using sm80::warpgroup_lanes;
using sm80::warpgroup_map;
using sm80::WeightWords;
using sm80::Words4;

/// Units of eight pixels that a lane stages of an image.
inline constexpr int lane_units = 2;

/// A lane's weights of a product: of unit 0 those of half 0 and 1, then of unit 1.
struct Fragment {
  std::uint32_t a[4];
};

/// Weights of input rows 2 * p and 2 * p + 1 of a window: of its upper row of outputs they are
/// those of tap rows as many, of the lower one a tap less; 0 where there is no such tap.
template <class Row>
CONVOY_LANE void pair_of_rows(int p, bool lower, Row row, std::uint32_t (&two)[2]) {
  CONVOY_UNROLL
  for (int unit = 0; unit < 2; ++unit) {
    const int r = 2 * p + unit;
    const std::uint32_t upper_tap = r < 5 ? row(r) : 0, lower_tap = r > 0 ? row(r - 1) : 0;
    two[unit] = lower ? lower_tap : upper_tap;
  }
}

/// The convolutions, by a warpgroup. Features go to where `Linear` reads them.
template <class Net, class Linear, class Lane>
struct Convolutions {
  const Lane& lane;
  const ResidentParams& p;
  Team team;
  Fragment first[row_pairs][2];  // terms
  Fragment second[SecondByWarpgroup::columns][row_pairs];
  float bias[2];

  CONVOY_LANE Convolutions(const Lane& of, const ResidentParams& params, const Team& in)
      : lane(of), p(params), team(in) {}

  /// From global memory: the packed words of a product are what lanes hold, of other lanes where
  /// the tap is another.
  CONVOY_LANE void load_weights() {
    constexpr sm80::ResidentNet net = sm80::FashionNet::net();
    constexpr ResidentLayer one = net.layers[0], two = net.layers[1];
    const auto* const all = static_cast<const unsigned char*>(p.constants);
    const auto words = [&](const ResidentLayer& l, int index) {
      return lane.either(reinterpret_cast<const WeightWords*>(all + l.weights) + index);
    };
    const auto float_at = [&](int at) {
      return lane.from_global(reinterpret_cast<const float*>(all + at));
    };
    {
      const LaneRows at = FirstByWarpgroup::rows(team.warp, lane.lane);
      bias[0] = float_at(one.bias + 4 * at.filter);
      CONVOY_UNROLL
      for (int half = 0; half < 2; ++half) {
        WeightWords w[3];
        CONVOY_UNROLL
        for (int product = 0; product < 3; ++product)
          w[product] = words(one, (product * 4 + FirstByWarpgroup::phase(team.warp, half)) * 32 +
                                      4 * at.filter + (lane.lane & 3));
        CONVOY_UNROLL
        for (int pair = 0; pair < row_pairs; ++pair) CONVOY_UNROLL
        for (int term = 0; term < 2; ++term) {
          std::uint32_t two_units[2];
          pair_of_rows(
              pair, at.lower != 0,
              [&](int r) { return term == 0 ? w[r / 2].hi[r % 2] : w[r / 2].lo[r % 2]; },
              two_units);
          first[pair][term].a[half] = lane.kept(two_units[0]);
          first[pair][term].a[2 + half] = lane.kept(two_units[1]);
        }
      }
    }
    const LaneRows at = SecondByWarpgroup::rows(team.warp, lane.lane);
    bias[1] = float_at(two.bias + 4 * at.filter);
    const auto product_of = [&](int product) {
      return words(two, (product * 2 + at.filter / 8) * 32 + 4 * (at.filter % 8) + (lane.lane & 3));
    };
    WeightWords last[3];  // the odd row, whose columns lie in pairs
    CONVOY_UNROLL
    for (int i = 0; i < 3; ++i) last[i] = product_of(two.paired_products() + i);
    CONVOY_UNROLL
    for (int column = 0; column < SecondByWarpgroup::columns; ++column) {
      const WeightWords w[2] = {product_of(2 * column), product_of(2 * column + 1)};
      CONVOY_UNROLL
      for (int pair = 0; pair < row_pairs; ++pair) CONVOY_UNROLL
      for (int term = 0; term < 2; ++term) {
        std::uint32_t two_units[2];
        pair_of_rows(
            pair, at.lower != 0,
            [&](int r) {
              const WeightWords& from = r < 4 ? w[r / 2] : last[column / 2];
              const int unit = r < 4 ? r % 2 : column % 2;
              return term == 0 ? from.hi[unit] : from.lo[unit];
            },
            two_units);
        second[column][pair].a[term] = lane.kept(two_units[0]);
        second[column][pair].a[2 + term] = lane.kept(two_units[1]);
      }
    }
  }

  /// What this lane stages of an image, on its way.
  CONVOY_LANE void read_pixels(Index image, PixelWords (&pixels)[lane_units]) const {
    const std::uint8_t* const from = pixels_of(image);
    if (on_words(from))
      read_words(from, pixels);
    else
      read_bytes(from, pixels);
  }
  CONVOY_LANE const std::uint8_t* pixels_of(Index image) const {
    const sm80::ResidentImage at = Net::image(p);
    return (Net::tasks == sm80::few_tasks && p.x == nullptr ? p.image : p.x) +
           image * (at.h * at.w);
  }
  CONVOY_LANE static bool on_words(const std::uint8_t* from) {
    return reinterpret_cast<std::uintptr_t>(from) % 4 == 0;
  }
  CONVOY_LANE void read_words(const std::uint8_t* from, PixelWords (&pixels)[lane_units]) const {
    const sm80::ResidentImage at = Net::image(p);
    CONVOY_UNROLL
    for (int i = 0; i < lane_units; ++i)
      if (const int unit = team.index + i * warpgroup_lanes; unit < at.rows * at.groups)
        pixels[i] = sm80::pixels_at<Net>(lane, from + unit_at(at, unit).from);
  }
  /// The same of images that do not lie on words.
  CONVOY_LANE void read_bytes(const std::uint8_t* from, PixelWords (&pixels)[lane_units]) const {
    const sm80::ResidentImage at = Net::image(p);
    CONVOY_UNROLL
    for (int i = 0; i < lane_units; ++i) {
      const int unit = team.index + i * warpgroup_lanes;
      if (unit >= at.rows * at.groups) continue;
      const std::uint8_t* const of_unit = from + unit_at(at, unit).from;
      CONVOY_UNROLL
      for (int word = 0; word < 2; ++word) {
        std::uint32_t four = 0;
        CONVOY_UNROLL
        for (int j = 0; j < 4; ++j) four |= std::uint32_t{of_unit[4 * word + j]} << (8 * j);
        pixels[i].word[word] = four;
      }
    }
  }
  CONVOY_LANE void stage(const PixelWords (&pixels)[lane_units]) const {
    const sm80::ResidentImage at = Net::image(p);
    CONVOY_UNROLL
    for (int i = 0; i < lane_units; ++i) {
      const int unit = team.index + i * warpgroup_lanes;
      if (unit >= at.rows * at.groups) continue;
      const int to = team.memory + FirstByWarpgroup::unit(unit / at.groups, unit % at.groups);
      *reinterpret_cast<Words4*>(lane.shared + to) = sm80::unit_of(lane, pixels[i]);
    }
  }

  /// Where an image's spikes of layer i are wanted: y of step 0, from step to step the same further
  /// on; null: nowhere.
  CONVOY_LANE sm80::Sink wanted(const ResidentLayer& l, int i, Index image) const {
    return sm80::sink_of<Net>(p, l, i, 0, image, 0);
  }

  /// Both steps' spikes of the first layer, from the pixels.
  CONVOY_LANE void first_layer(Index image) const {
    using At = FirstByWarpgroup;
    constexpr ResidentLayer l = sm80::FashionNet::net().layers[0];
    float acc[At::n / 2];
    lane.begin_products();
    CONVOY_UNROLL
    for (int pair = 0; pair < row_pairs; ++pair) CONVOY_UNROLL
    for (int term = 0; term < 2; ++term)
      lane.template product<At::n>(acc, first[pair][term].a, team.memory, pair * At::row_bytes,
                                   At::parity_bytes, 128, pair + term > 0);
    lane.end_products();
    lane.wait_for_products(acc);
    const LaneRows rows = At::rows(team.warp, lane.lane);
    // Column 8 * j + 2 * (lane & 3) + e of the product; of two lanes, which have both rows of its
    // windows, one goes on with e = 0, the other with e = 1.
    const int column = 2 * (lane.lane & 3) + rows.lower;
    const int to = team.memory + warpgroup_map + column * 2 * SecondByWarpgroup::pixel_bytes +
                   At::window(team.warp) * SecondByWarpgroup::pixel_bytes + 2 * rows.filter;
    const sm80::ResidentScale of = p.of[0];
    CONVOY_UNROLL
    for (int j = 0; j < At::n / 8; ++j) {
      const float left = fmaxf(acc[4 * j], acc[4 * j + 2]);
      const float right = fmaxf(acc[4 * j + 1], acc[4 * j + 3]);
      const float other = lane.exchange_float(rows.lower ? left : right, 16);
      const float most = fmaxf(rows.lower ? right : left, other);
      const float x = sm80::first_input(of, most, bias[0]);
      float v = 0;
      CONVOY_UNROLL
      for (int t = 0; t < 2; ++t) {
        const std::uint32_t spike = sm80::step<false>(l, x, v) ? half_one : 0;
        *reinterpret_cast<std::uint16_t*>(lane.shared + to + t * SecondByWarpgroup::step_bytes +
                                          j * 16 * SecondByWarpgroup::pixel_bytes) =
            static_cast<std::uint16_t>(spike);
        if constexpr (Net::inner)
          if (const sm80::Sink sink = wanted(l, 0, image); sink.y != nullptr)
            sink.y[t * sink.y_step + (2 * (8 * j + column) + At::window(team.warp)) * l.k +
                   rows.filter] = spike != 0 ? 1.0F : 0.0F;
      }
    }
  }

  using SecondSums = float[2][SecondByWarpgroup::n / 2];
  /// Its products are then under way.
  CONVOY_LANE void begin_second_layer(SecondSums& acc) const {
    using At = SecondByWarpgroup;
    lane.begin_products();
    CONVOY_UNROLL
    for (int column = 0; column < At::columns; ++column) CONVOY_UNROLL
    for (int pair = 0; pair < row_pairs; ++pair) CONVOY_UNROLL
    for (int t = 0; t < 2; ++t)
      lane.template product<At::n>(
          acc[t], second[column][pair].a, team.memory,
          warpgroup_map + t * At::step_bytes + column * At::pixel_bytes + pair * 2 * At::row_bytes,
          At::row_bytes, 2 * At::row_bytes, column + pair > 0);
    lane.end_products();
  }
  /// Both steps' features of an image.
  CONVOY_LANE void end_second_layer(SecondSums& acc, Index image, int slot) const {
    constexpr ResidentLayer l = sm80::FashionNet::net().layers[1];
    lane.wait_for_products(acc[0]);
    lane.wait_for_products(acc[1]);
    const LaneRows rows = SecondByWarpgroup::rows(team.warp, lane.lane);
    const float scale = p.of[1].scale;
    std::uint32_t bits = 0;  // row j of windows in step t: j + 4 * t
    CONVOY_UNROLL
    for (int j = 0; j < 4; ++j) CONVOY_UNROLL
    for (int e = 0; e < 2; ++e) {
      float v = 0;
      CONVOY_UNROLL
      for (int t = 0; t < 2; ++t) {
        const float x = fmaf(acc[t][4 * j + e] + acc[t][4 * j + 2 + e], scale, bias[1]);
        if (sm80::step<false>(l, x, v)) bits |= 1U << (j + 4 * t);
      }
    }
    bits |= lane.exchange(bits, 16);  // upper and lower row
    // Of two lanes with the same window each writes a step.
    bits >>= 4 * rows.lower;
    const auto place = [&](int row) {
      const int pixel = row * l.out_w + (lane.lane & 3);
      return Linear::place(l.out_h * l.out_w * l.k / 8, rows.lower, pixel * l.k + rows.filter,
                           slot);
    };
    CONVOY_UNROLL
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<std::uint16_t*>(lane.shared + p.at.parts[0] + place(j)) =
          static_cast<std::uint16_t>(bits >> j & 1 ? half_one : 0);
    if constexpr (Net::inner)
      if (const sm80::Sink sink = wanted(l, 1, image); sink.y != nullptr) {
        CONVOY_UNROLL
        for (int j = 0; j < 4; ++j)
          sink.y[rows.lower * sink.y_step + (j * l.out_w + (lane.lane & 3)) * l.k + rows.filter] =
              bits >> j & 1 ? 1.0F : 0.0F;
      }
  }

  CONVOY_LANE void sync() const { lane.sync_team(team.number, warpgroup_lanes); }

  /// The features of one image.
  CONVOY_LANE void run_one(Index image, int slot) {
    PixelWords pixels[lane_units] = {};
    const std::uint8_t* const from = pixels_of(image);
    if (on_words(from)) read_words(from, pixels);
    load_weights();
    if (!on_words(from)) read_bytes(from, pixels);
    stage(pixels);
    lane.publish();
    sync();
    first_layer(image);
    lane.publish();
    sync();
    SecondSums acc;
    begin_second_layer(acc);
    end_second_layer(acc, image, slot);
  }

  /// All images of a round: their features.
  CONVOY_LANE void run(Index begin, int images) {
    load_weights();  // linear layers need the registers
    PixelWords pixels[lane_units];
    if (team.number < images) {
      read_pixels(begin + team.number, pixels);
      stage(pixels);
    }
    for (int slot = team.number; slot < images; slot += resident_warpgroups) {
      const bool more = slot + resident_warpgroups < images;
      lane.publish();
      sync();
      if (more) read_pixels(begin + slot + resident_warpgroups, pixels);
      first_layer(begin + slot);
      lane.publish();
      sync();
      SecondSums acc;
      begin_second_layer(acc);
      if (more) stage(pixels);
      end_second_layer(acc, begin + slot, slot);
    }
    const int last = images % resident_warpgroups;  // of a row that is not whole
    if (last != 0 && team.number >= last) skip();
  }

  /// In an image's place. compute-sanitizer's racecheck takes warps that met fewer barriers for
  /// behind the others, at barriers of the CTA too.
  CONVOY_LANE void skip() const {
    sync();
    sync();
  }
};

}  // namespace convoy::cuda::sm90
