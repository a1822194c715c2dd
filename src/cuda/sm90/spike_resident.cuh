// Kernel `spike_resident` of FashionNet by wgmma, on 9.0: the convolutions of an image by a
// warpgroup, then the linear layers of all images of a round by all three. Weights are packed as
// for src/cuda/sm80, and `Lane` does what only a warp or a CTA can, as there.
//
// Of an image: barrier, first layer, barrier, second layer, beside whose products the next image's
// pixels are staged. While one warpgroup fires neurons, products of the others run.
#pragma once

#include "cuda/sm90/spike_resident_convolutions.cuh"

namespace convoy::cuda::sm90 {

using sm80::LinearByWarpgroup;
using sm80::warpgroup_bytes;
using sm80::warpgroup_warps;

/// The f16 number 0, 1 or 2.
CONVOY_LANE std::uint32_t count_bits(int count) {
  return count == 0 ? 0 : half_one + (count - 1) * 0x400;
}

/// A spike of a linear layer, of image `image` of a round's, to where layers' spikes are wanted.
template <class Net>
CONVOY_LANE void put_wanted(const ResidentParams& p, const ResidentLayer& l, int i, int t,
                            Index begin, int image, int images, int filter, bool spike) {
  if constexpr (Net::inner) {
    if (image >= images) return;
    const sm80::Sink sink = sm80::sink_of<Net>(p, l, i, 0, begin + image, 0);
    if (sink.y != nullptr) sink.y[t * sink.y_step + filter] = spike ? 1.0F : 0.0F;
  }
}

/// Linear layer I of a round's images: a warpgroup takes 32 filters by 40 images at a time. Where
/// the mean reads them its spikes are counts, a row an image, as src/cuda/sm80 has them. Columns of
/// images that are not there are whatever lies there, and nobody reads what becomes of them. begin:
/// the round's first image.
template <class Net, int I, class Lane>
CONVOY_LANE void linear_layer(const Lane& lane, const ResidentParams& p, const Team& team,
                              Index begin, int images) {
  using At = LinearByWarpgroup;
  constexpr ResidentLayer l = sm80::FashionNet::net().layers[I];
  const auto* const weights =
      reinterpret_cast<const WeightWords*>(static_cast<const unsigned char*>(p.linear) + l.weights);
  constexpr int tiles = l.k / At::filters;
  const int tasks = (images + At::n - 1) / At::n * tiles;
  WeightWords w[l.products];
  const auto load = [&](int tile) {
    CONVOY_UNROLL
    for (int i = 0; i < l.products; ++i)
      w[i] = lane.either(weights + (i * l.channel_tiles + 4 * tile + team.warp) * 32 + lane.lane);
  };
  load(team.number % tiles);  // while others are busy
  lane.publish();
  lane.sync_cta();
  const int in = p.at.part(I), out = p.at.part(I + 1);
  for (int task = team.number; task < tasks; task += resident_warpgroups) {
    const int tile = task % tiles, first = task / tiles * At::n;
    if (task != team.number) load(tile);
    float acc[2][At::n / 2];
    lane.begin_products();
    CONVOY_UNROLL
    for (int i = 0; i < l.products; ++i) CONVOY_UNROLL
    for (int t = 0; t < 2; ++t) {
      const std::uint32_t a[4] = {w[i].hi[0], w[i].lo[0], w[i].hi[1], w[i].lo[1]};
      lane.template product<At::n>(acc[t], a, in + first * 16,
                                   (t * l.tap_units + 2 * i) * At::unit_bytes, At::unit_bytes, 128,
                                   i > 0);
    }
    lane.end_products();
    lane.wait_for_products(acc[0]);
    lane.wait_for_products(acc[1]);
    const int filter = tile * At::filters + At::filter(team.warp, lane.lane);
    const float scale = p.of[I].scale;
    const float bias = reinterpret_cast<const float*>(lane.shared + l.bias)[filter];
    CONVOY_UNROLL
    for (int j = 0; j < At::n / 8; ++j) CONVOY_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int image = first + 8 * j + 2 * (lane.lane & 3) + e;
      float v = 0;
      int count = 0;
      CONVOY_UNROLL
      for (int t = 0; t < 2; ++t) {
        const float x = fmaf(acc[t][4 * j + e] + acc[t][4 * j + 2 + e], scale, bias);
        const bool spike = sm80::step<false>(l, x, v);
        count += spike ? 1 : 0;
        put_wanted<Net>(p, l, I, t, begin, image, images, filter, spike);
        if (!l.counts)
          *reinterpret_cast<std::uint16_t*>(lane.shared + out +
                                            At::place(l.k / 8, t, filter, image)) =
              static_cast<std::uint16_t>(spike ? half_one : 0);
      }
      if (l.counts)
        *reinterpret_cast<std::uint16_t*>(lane.shared + out + image * l.out_image + 2 * filter) =
            static_cast<std::uint16_t>(count_bits(count));
    }
  }
}

template <class Lane>
CONVOY_LANE Team warpgroup_of(const Lane& lane, const ResidentParams& p) {
  Team team;
  team.warps = warpgroup_warps;
  team.size = warpgroup_lanes;
  team.number = lane.warp() / warpgroup_warps;
  team.warp = lane.warp() % warpgroup_warps;
  team.index = team.warp * 32 + lane.lane;
  team.memory = p.at.team_at() + team.number * warpgroup_bytes;
  return team;
}

/// Of constants in shared memory linear layers alone take any, their biases: from there on.
inline constexpr int linear_constants = sm80::FashionNet::net().layers[2].offsets;
template <class Lane>
CONVOY_LANE void fetch_linear_constants(const Lane& lane, const ResidentParams& p) {
  sm80::fetch(lane, linear_constants,
              static_cast<const unsigned char*>(p.constants) + linear_constants,
              sm80::FashionNet::net().constants_bytes - linear_constants);
}

/// All of a CTA.
template <class Net, class Lane>
CONVOY_LANE void warpgroups_cta(const Lane& lane, const ResidentParams& p, int cta, int ctas) {
  fetch_linear_constants(lane, p);
  for (int i = lane.thread * 128; i < linear_constants; i += lane.threads() * 128)
    lane.prefetch(static_cast<const unsigned char*>(p.constants) + i);
  const Team team = warpgroup_of(lane, p);
  lane.wait_for_previous_launch();
  lane.template wait_for_fetches<0>();  // linear layers begin with a barrier
  const Index begin = p.n * cta / ctas, end = p.n * (cta + 1) / ctas;
  const auto all = static_cast<int>(end - begin);
  // Rounds of about as many images each.
  const int rounds = (all + p.at.batch - 1) / p.at.batch, batch = (all + rounds - 1) / rounds;
  for (Index first = begin; first < end; first += batch) {
    const int images = static_cast<int>(end - first < batch ? end - first : batch);
    Convolutions<Net, LinearByWarpgroup, Lane>(lane, p, team).run(first, images);
    linear_layer<Net, 2>(lane, p, team, first, images);
    linear_layer<Net, 3>(lane, p, team, first, images);
    constexpr ResidentLayer last = sm80::FashionNet::net().layers[4];
    sm80::linear_layer<Net>(lane, p, last, 4, first, images);
    lane.sync_cta();
    sm80::give_outputs(lane, p, last.k, first, images);
    lane.sync_cta();
  }
}

}  // namespace convoy::cuda::sm90
