// Kernel `spike_resident` of FashionNet by wgmma for few images: one a warpgroup. The bits are
// those of spike_resident.cuh, whose convolutions it runs; what differs is that nobody waits for
// weights. A CTA has one image as a rule, and each warpgroup a part in it: the first one takes the
// convolutions and the second linear layer, the others the first linear layer, whose weights come
// to their registers meanwhile.
#pragma once

#include "cuda/sm90/spike_resident.cuh"

namespace convoy::cuda::sm90 {

using sm80::FewByWarpgroup;

/// `Tiles` tiles of linear layer I, from `first` on, each `stride` behind the one before.
template <int I, int Tiles>
struct FewTiles {
  static constexpr int words = Tiles * sm80::FashionNet::net().layers[I].products;
  int first = 0, stride = 1;

  template <class Lane>
  CONVOY_LANE void load(const Lane& lane, const ResidentParams& p, const Team& team,
                        WeightWords* w) const {
    constexpr ResidentLayer l = sm80::FashionNet::net().layers[I];
    const auto* const weights = reinterpret_cast<const WeightWords*>(
        static_cast<const unsigned char*>(p.linear) + l.weights);
    CONVOY_UNROLL
    for (int tile = 0; tile < Tiles; ++tile) CONVOY_UNROLL
    for (int i = 0; i < l.products; ++i)
      w[tile * l.products + i] = lane.either(
          weights + (i * l.channel_tiles + 4 * (first + tile * stride) + team.warp) * 32 +
          lane.lane);
  }

  /// The same of eight filters, as a warp has them for mma.
  template <class Lane>
  CONVOY_LANE void load_eights(const Lane& lane, const ResidentParams& p, int tile,
                               WeightWords* w) const {
    constexpr ResidentLayer l = sm80::FashionNet::net().layers[I];
    const auto* const weights = reinterpret_cast<const WeightWords*>(
        static_cast<const unsigned char*>(p.linear) + l.weights);
    CONVOY_UNROLL
    for (int i = 0; i < l.products; ++i)
      w[i] = lane.either(weights + (i * l.channel_tiles + tile) * 32 + lane.lane);
  }

  /// Spikes, or their counts, of the layer. Columns of images that are not there are whatever lies
  /// there, and nobody reads what becomes of them.
  template <class Net, class Lane>
  CONVOY_LANE void run(const Lane& lane, const ResidentParams& p, const Team& team,
                       const WeightWords* w, Index begin, int images) const {
    using At = FewByWarpgroup;
    constexpr ResidentLayer l = sm80::FashionNet::net().layers[I];
    const int in = p.at.part(I), out = p.at.part(I + 1);
    float acc[Tiles][At::n / 2];
    lane.begin_products();
    CONVOY_UNROLL
    for (int i = 0; i < l.products; ++i) CONVOY_UNROLL
    for (int tile = 0; tile < Tiles; ++tile) {
      const WeightWords& of = w[tile * l.products + i];
      const std::uint32_t a[4] = {of.hi[0], of.lo[0], of.hi[1], of.lo[1]};
      lane.template product<At::n>(acc[tile], a, in, 2 * i * At::unit_bytes, At::unit_bytes, 128,
                                   i > 0);
    }
    lane.end_products();
    CONVOY_UNROLL
    for (int tile = 0; tile < Tiles; ++tile) lane.wait_for_products(acc[tile]);
    const int image = lane.lane & 3;
    if (image >= images) return;
    const float scale = p.of[I].scale;
    CONVOY_UNROLL
    for (int tile = 0; tile < Tiles; ++tile) {
      const int filter = (first + tile * stride) * LinearByWarpgroup::filters +
                         LinearByWarpgroup::filter(team.warp, lane.lane);
      const float bias = reinterpret_cast<const float*>(lane.shared + l.bias)[filter];
      float v = 0;
      int count = 0;
      CONVOY_UNROLL
      for (int t = 0; t < 2; ++t) {
        const float x = fmaf(acc[tile][t] + acc[tile][2 + t], scale, bias);
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
};

/// The mean of a round's images, of eight classes a warp.
template <class Net, class Lane>
CONVOY_LANE void few_means(const Lane& lane, const ResidentParams& p, const ResidentLayer& last,
                           const WeightWords* w, int tile, int images) {
  sm80::Task task;
  task.in = p.at.part(4);
  task.items = images;
  task.tiles = task.columns = 1;
  task.column = tile;
  sm80::mean_task<Net>(
      lane, p, last, p.of[4], task, [&](int product, int) { return w[product]; },
      reinterpret_cast<float*>(lane.shared + p.at.part(5)));
}

/// All of a CTA, which has an image for each warpgroup at most.
template <class Net, class Lane>
CONVOY_LANE void few_images_cta(const Lane& lane, const ResidentParams& p, int cta, int ctas) {
  constexpr ResidentLayer last = sm80::FashionNet::net().layers[4];
  // Asked here, parameters that are read last are in the constants' cache then.
  if (!Net::inner && p.labels == nullptr && p.y[4] == nullptr) return;
  fetch_linear_constants(lane, p);
  const Team team = warpgroup_of(lane, p);
  lane.wait_for_previous_launch();
  const Index first = p.n * cta / ctas;
  const auto images = static_cast<int>(p.n * (cta + 1) / ctas - first);
  Convolutions<Net, FewByWarpgroup, Lane> convolutions(lane, p, team);
  if (team.number < images)
    convolutions.run_one(first + team.number, team.number);
  else
    convolutions.skip();

  const FewTiles<2, 2> two{team.number - 1, 2};
  const FewTiles<3, 3> three;
  const bool has_means = team.number == 1 && team.warp < last.channel_tiles;
  // Of the layer that this warpgroup multiplies next: one array for all, or they would take
  // registers side by side.
  WeightWords w[FewTiles<2, 2>::words];
  if (team.number > 0) two.load(lane, p, team, w);
  lane.template wait_for_fetches<0>();
  lane.publish();
  lane.sync_cta();
  if (team.number > 0) {
    two.template run<Net>(lane, p, team, w, first, images);
    if (has_means) FewTiles<4, 1>{}.load_eights(lane, p, team.warp, w);
  } else {
    three.load(lane, p, team, w);
  }
  lane.publish();
  lane.sync_cta();
  if (team.number == 0) three.template run<Net>(lane, p, team, w, first, images);
  lane.sync_cta();
  if (has_means) few_means<Net>(lane, p, last, w, team.warp, images);
  lane.sync_cta();
  sm80::give_outputs(lane, p, last.k, first, images);
}

}  // namespace convoy::cuda::sm90
