// Kernel `spike_resident`: networks that its code is compiled for. Of most networks it knows
// nothing, layers are data. A network that is met often is a list of constants here: the same code,
// compiled for it, has its loops unrolled and its offsets in the instructions.
#pragma once

#include "cuda/sm80/spike_resident_plan.hpp"

namespace convoy::cuda::sm80 {

/// The shipped network of Fashion-MNIST, and all others of its shape: 5x5 convolutions of 8 and 16
/// filters on 28x28 grey pixels, each with a 2x2 pool, then 128, 96 and 10 neurons; IF, two steps.
struct FashionNet {
  CONVOY_HD static constexpr ResidentNet net() {
    ResidentNet net;
    net.steps = 2;
    net.convolutions = 2;
    net.size = 5;
    net.layers[0] = {.k = 8,
                     .channel_tiles = 1,
                     .phases = 4,
                     .taps_h = 5,
                     .tap_units = 1,
                     .tap_row = 112,
                     .products = 3,
                     .weights = 64,
                     .bias = 32,
                     .in_row = 112,
                     .in_column = 16,
                     .pool = true,
                     .items = 72,
                     .across = 6,
                     .out_h = 12,
                     .out_w = 12,
                     .out = 3136,
                     .out_step = 2304,
                     .out_row = 192,
                     .out_column = 16,
                     .tau = 1,
                     .threshold = 1};
    net.layers[1] = {.k = 16,
                     .channel_tiles = 2,
                     .taps_h = 5,
                     .taps_w = 5,
                     .tap_units = 1,
                     .tap_row = 192,
                     .tap_column = 16,
                     .products = 13,
                     .weights = 6384,
                     .offsets = 6208,
                     .bias = 6320,
                     .in = 3136,
                     .in_step = 2304,
                     .in_row = 192,
                     .in_column = 16,
                     .pool = true,
                     .items = 16,
                     .across = 4,
                     .out_h = 4,
                     .out_w = 4,
                     .out_step = 512,
                     .out_row = 128,
                     .out_column = 32,
                     .out_features = true,
                     .out_image = 1040,
                     .tau = 1,
                     .threshold = 1};
    net.layers[2] = {.k = 128,
                     .channel_tiles = 16,
                     .tap_units = 32,
                     .products = 16,
                     .offsets = 19696,
                     .bias = 19824,
                     .in_step = 512,
                     .in_row = 1040,
                     .across = 1,
                     .out_step = 256,
                     .out_row = 256,
                     .out_column = 256,
                     .out_features = true,
                     .out_image = 528,
                     .tau = 1,
                     .threshold = 1};
    net.layers[3] = {.k = 96,
                     .channel_tiles = 12,
                     .tap_units = 16,
                     .products = 8,
                     .weights = 131072,
                     .offsets = 20336,
                     .bias = 20400,
                     .in_step = 256,
                     .in_row = 528,
                     .across = 1,
                     .out_step = 192,
                     .out_row = 192,
                     .out_column = 192,
                     .out_features = true,
                     .out_image = 208,
                     .counts = true,
                     .tau = 1,
                     .threshold = 1};
    net.layers[4] = {.k = 10,
                     .channel_tiles = 2,
                     .tap_units = 12,
                     .products = 6,
                     .weights = 180224,
                     .offsets = 20784,
                     .bias = 20832,
                     .in_step = 192,
                     .in_row = 208,
                     .across = 1,
                     .stores = false,
                     .mean = true,
                     .tau = 1};
    net.image = {
        .h = 28, .w = 28, .c = 1, .rows = 28, .groups = 6, .units = 1, .step = 4, .pitch = 7};
    net.constants_bytes = 20896;
    net.linear_bytes = 186368;
    return net;
  }
};

/// many_tasks of known networks: registers suffice for more of a convolution, so that more tiles
/// share what they read.
inline constexpr TaskSizes known_many_tasks{3, 4, 3, 2, 2, 4};
/// The same of warpgroups: of linear layers alone.
inline constexpr TaskSizes warpgroup_tasks{3, 4, 2, 2, 2, 4};

/// ResidentLayout::compiled of the network: 0, of none.
constexpr int compiled_net(const ResidentNet& net) {
  return net == FashionNet::net() ? 1 : 0;
}

}  // namespace convoy::cuda::sm80
