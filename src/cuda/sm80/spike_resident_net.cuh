// Kernel `spike_resident`: what its code knows of the network when it is compiled.
#pragma once

#include "cuda/sm80/spike_resident_params.hpp"

#if defined(__CUDACC__)
#define CONVOY_LANE __device__ __forceinline__
#define CONVOY_UNROLL _Pragma("unroll")
#define CONVOY_UNROLL_KNOWN _Pragma("unroll (Net::known ? 64 : 1)")
#else
#define CONVOY_LANE inline
#define CONVOY_UNROLL
#define CONVOY_UNROLL_KNOWN
#endif

namespace convoy::cuda::sm80 {

/// Most pairs of rows that a known convolution's window may have for its tiles to share what they
/// read.
inline constexpr int most_known_pairs = 3;

/// Whether each tile is two whole rows of y, and the next tile the next two, so that what a tile
/// reads for two rows of taps is what the tile above it reads for the next two.
CONVOY_HD constexpr bool tiles_are_rows(const ResidentLayer& l) {
  return l.across * (l.pool ? 2 : 1) == tile_rows / 2 && l.tap_row == l.in_row && l.pairs() > 0 &&
         l.pairs() <= most_known_pairs;
}

/// Any network: its facts are those of the launch.
template <TaskSizes Tasks>
struct AnyNet {
  static constexpr TaskSizes tasks = Tasks;
  static constexpr bool known = false;
  static constexpr bool inner = true;  // whether layers' spikes may be wanted
  static constexpr int terms = 0;      // of a weight: as packed

  CONVOY_LANE static int steps(const ResidentParams& p) { return p.at.steps; }
  CONVOY_LANE static int size(const ResidentParams& p) { return p.at.size; }
  CONVOY_LANE static int convolutions(const ResidentParams& p) { return p.at.convolutions; }
  CONVOY_LANE static bool clear(const ResidentParams& p) { return p.at.clear; }
  CONVOY_LANE static const ResidentImage& image(const ResidentParams& p) { return p.at.image; }
  template <class Body>
  CONVOY_LANE static void first_layer(const ResidentParams& p, Body body) {
    body(p.at.layers[0]);
  }
  template <class Body>
  CONVOY_LANE static void later_convolutions(const ResidentParams& p, Body body) {
    for (int i = 1; i < p.at.convolutions; ++i) body(p.at.layers[i], i);
  }
  template <class Body>
  CONVOY_LANE static void linear_layers(const ResidentParams& p, Body body) {
    for (int i = p.at.convolutions; i < p.at.size; ++i) body(p.at.layers[i], i);
  }
};

/// A network whose facts `Facts::net()` lists, and whose weights have so many terms.
template <class Facts, TaskSizes Tasks, int Terms = 2>
struct KnownNet {
  static constexpr TaskSizes tasks = Tasks;
  static constexpr bool known = true, inner = false;
  static constexpr int terms = Terms;
  static constexpr int first_products = Facts::net().layers[0].products;

  CONVOY_LANE static int steps(const ResidentParams&) { return known_steps; }
  CONVOY_LANE static int size(const ResidentParams&) { return known_size; }
  CONVOY_LANE static int convolutions(const ResidentParams&) { return known_convolutions; }
  CONVOY_LANE static bool clear(const ResidentParams&) { return known_clear; }
  CONVOY_LANE static ResidentImage image(const ResidentParams&) {
    constexpr ResidentImage at = Facts::net().image;
    return at;
  }
  template <class Body>
  CONVOY_LANE static void first_layer(const ResidentParams&, Body body) {
    constexpr ResidentLayer l = Facts::net().layers[0];
    body(l);
  }
  template <class Body>
  CONVOY_LANE static void later_convolutions(const ResidentParams&, Body body) {
    each<1, known_convolutions>(body);
  }
  template <class Body>
  CONVOY_LANE static void linear_layers(const ResidentParams&, Body body) {
    each<known_convolutions, known_size>(body);
  }

 private:
  static constexpr int known_steps = Facts::net().steps, known_size = Facts::net().size;
  static constexpr int known_convolutions = Facts::net().convolutions;
  static constexpr bool known_clear = Facts::net().clear;

  template <int I, int End, class Body>
  CONVOY_LANE static void each(Body& body) {
    if constexpr (I < End) {
      constexpr ResidentLayer l = Facts::net().layers[I];
      body(l, I);
      each<I + 1, End>(body);
    }
  }
};

/// A known network whose layers' spikes are wanted: the same code, which writes them too.
template <class Net>
struct WithInner : Net {
  static constexpr bool inner = true;
};

}  // namespace convoy::cuda::sm80
