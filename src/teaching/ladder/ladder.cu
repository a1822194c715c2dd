// Which of the ladder's kernels runs, with which tiles, and its launches.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "cuda/launch.hpp"
#include "teaching/ladder/ladder.hpp"
#include "teaching/ladder/ladder_0_scalar.cuh"
#include "teaching/ladder/ladder_10_half.cuh"
#include "teaching/ladder/ladder_1_wmma.cuh"
#include "teaching/ladder/ladder_2_implicit.cuh"
#include "teaching/ladder/ladder_3_shared.cuh"
#include "teaching/ladder/ladder_4_buffered.cuh"
#include "teaching/ladder/ladder_5_vector.cuh"
#include "teaching/ladder/ladder_6_masks.cuh"
#include "teaching/ladder/ladder_7_registers.cuh"
#include "teaching/ladder/ladder_8_fused.cuh"
#include "teaching/ladder/ladder_9_bounds.cuh"
#include "teaching/ladder/ladder_fma.cuh"
#include "teaching/ladder/ladder_without.cuh"

namespace convoy::cuda::teaching {
namespace {

constexpr int cta_threads = 256;  // of launches without tiles

// 64x64 and 64x32 outputs of a CTA with a square a warp; 128x128 and 128x32 with register tiles.
using LargeSquares = CtaTile<4, 4>;
using MediumSquares = CtaTile<4, 2>;
using LargeTile = CtaTile<2, 4, 4, 2, 2>;
using MediumTile = CtaTile<4, 1, 2, 2, 4>;
// A CTA of one warp: nobody shares what it loads. It holds a whole slice in registers on its way,
// so that fewer warps fit than of the large tile.
using LonelyWarp = CtaTile<1, 1, 4, 2, 10>;
// The large tile in units of one channel: a thread looks up 16 pixels of a slice. Their addresses,
// masks and values take more than the 128 registers of a second CTA.
using ChannelwiseTile = CtaTile<2, 4, 4, 2, 1>;

using LadderKernel = void (*)(LadderParams);

struct Choice {
  LadderKernel kernel = nullptr;
  const char* name = "";
  int pixels = 0, filters = 0;  // of a CTA; 0: cta_threads outputs
  int threads = cta_threads, shared_bytes = 0;
  bool fused = false;   // no launch for the activation
  bool matrix = false;  // a launch for im2col
};

template <class Tile>
Choice tiled(LadderKernel kernel, const char* name, int slices, bool fused) {
  return {.kernel = kernel,
          .name = name,
          .pixels = Tile::pixels,
          .filters = Tile::filters,
          .threads = Tile::threads,
          .shared_bytes = std::max(slices * static_cast<int>(sizeof(Slice<Tile>)),
                                   Tile::warps * side * side * static_cast<int>(sizeof(float))),
          .fused = fused};
}

/// Of squares, four of a CTA side by side.
Choice squares(LadderKernel kernel, const char* name, bool matrix) {
  return {.kernel = kernel,
          .name = name,
          .threads = warps_alone * warp_size,
          .shared_bytes = warps_alone * side * side * static_cast<int>(sizeof(float)),
          .matrix = matrix};
}

template <class Large, class Medium, class Make>
Choice by_size(LadderSize size, Make make) {
  return size == LadderSize::large ? make(std::type_identity<Large>())
                                   : make(std::type_identity<Medium>());
}

/// The last rung without one thing; large tiles only.
Choice without_one(LadderWithout without) {
  using T = LargeTile;
  using S = LargeSquares;
  using L = LonelyWarp;
  using C = ChannelwiseTile;
  switch (without) {
    case LadderWithout::nothing:
      return tiled<T>(ladder_9_bounds<T>, "ladder_9_bounds", 2, true);
    case LadderWithout::implicit_gemm: {
      Choice choice = tiled<T>(ladder_9_bounds<T>, "ladder_9_bounds", 2, true);
      choice.matrix = true;
      return choice;
    }
    case LadderWithout::shared:
      return tiled<L>(ladder_without<L, RegisterSums, MaskedCopy<L, uint4>, WriteFused>,
                      "ladder_without", 2, true);
    case LadderWithout::buffering:
      return tiled<T>(ladder_without_buffering<T>, "ladder_without_buffering", 1, true);
    case LadderWithout::vectors:
      return tiled<C>(ladder_without<C, RegisterSums, MaskedCopy<C, __half>, WriteFused>,
                      "ladder_without", 2, true);
    case LadderWithout::masks:
      return tiled<T>(ladder_without<T, RegisterSums, Copy<T, uint4>, WriteFused>, "ladder_without",
                      2, true);
    case LadderWithout::registers:
      return tiled<S>(ladder_without<S, SquareSums, MaskedCopy<S, uint4>, WriteFused>,
                      "ladder_without", 2, true);
    case LadderWithout::fusing:
      return tiled<T>(ladder_without<T, RegisterSums, MaskedCopy<T, uint4>, WritePre>,
                      "ladder_without", 2, false);
    case LadderWithout::bounds:
      return tiled<T>(ladder_8_fused<T>, "ladder_8_fused", 2, true);
  }
  return {};
}

Choice choose(LadderRung rung, LadderSize size, LadderWithout without) {
  using S = LargeSquares;
  using s = MediumSquares;
  using T = LargeTile;
  using t = MediumTile;
  switch (rung) {
    case LadderRung::scalar:
      return {.kernel = ladder_0_scalar, .name = "ladder_0_scalar"};
    case LadderRung::wmma:
      return squares(ladder_1_wmma, "ladder_1_wmma", true);
    case LadderRung::implicit_gemm:
      return squares(ladder_2_implicit, "ladder_2_implicit", false);
    case LadderRung::shared:
      return by_size<S, s>(size, []<class Tile>(std::type_identity<Tile>) {
        return tiled<Tile>(ladder_3_shared<Tile>, "ladder_3_shared", 1, false);
      });
    case LadderRung::buffered:
      return by_size<S, s>(size, []<class Tile>(std::type_identity<Tile>) {
        return tiled<Tile>(ladder_4_buffered<Tile>, "ladder_4_buffered", 2, false);
      });
    case LadderRung::vector:
      return by_size<S, s>(size, []<class Tile>(std::type_identity<Tile>) {
        return tiled<Tile>(ladder_5_vector<Tile>, "ladder_5_vector", 2, false);
      });
    case LadderRung::masks:
      return by_size<S, s>(size, []<class Tile>(std::type_identity<Tile>) {
        return tiled<Tile>(ladder_6_masks<Tile>, "ladder_6_masks", 2, false);
      });
    case LadderRung::registers:
      return by_size<T, t>(size, []<class Tile>(std::type_identity<Tile>) {
        return tiled<Tile>(ladder_7_registers<Tile>, "ladder_7_registers", 2, false);
      });
    case LadderRung::fused:
      return by_size<T, t>(size, []<class Tile>(std::type_identity<Tile>) {
        return tiled<Tile>(ladder_8_fused<Tile>, "ladder_8_fused", 2, true);
      });
    case LadderRung::bounds:
      if (size == LadderSize::large) return without_one(without);
      return tiled<t>(ladder_9_bounds<t>, "ladder_9_bounds", 2, true);
    case LadderRung::half:
      return by_size<T, t>(size, []<class Tile>(std::type_identity<Tile>) {
        return tiled<Tile>(ladder_10_half<Tile>, "ladder_10_half", 2, true);
      });
    case LadderRung::fma:
      return by_size<T, t>(size, []<class Tile>(std::type_identity<Tile>) {
        return tiled<Tile>(ladder_fma<Tile>, "ladder_fma", 2, true);
      });
  }
  return {};
}

Index ctas_of(const Choice& choice, Index m, Index k) {
  const auto blocks = [](Index all, Index block) { return (all + block - 1) / block; };
  if (choice.pixels > 0) return blocks(m, choice.pixels) * blocks(k, choice.filters);
  if (choice.threads == cta_threads) return blocks(m * k, cta_threads);
  return blocks(blocks(m, side) * blocks(k, side), warps_alone);
}

template <class Params>
GpuResources resources_of(void (*kernel)(Params), const char* name, int threads, int shared) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), std::string("asking about ") + name);
  int device = 0, most = 0;
  GpuResources of{.kernel = name, .threads = threads};
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxThreadsPerMultiProcessor, device),
        "asking about the device");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of.ctas, kernel, threads,
                                                      static_cast<std::size_t>(shared)),
        std::string("asking for the occupancy of ") + name);
  of.registers = attributes.numRegs;
  of.spilled_bytes = static_cast<int>(attributes.localSizeBytes);
  of.shared_bytes = static_cast<int>(attributes.sharedSizeBytes) + shared;
  of.occupancy = static_cast<double>(of.ctas * threads) / most;
  return of;
}

}  // namespace

struct LadderLaunch::Ready {
  Stage stage;
  Shapes shapes;
  Choice choice;
  LoadedKernel<LadderParams> kernel;
  std::optional<LoadedKernel<LadderParams>> im2col;
  std::optional<LoadedKernel<LadderReluParams>> relu;
  LadderParams params;  // all but the operands and their number of images
  bool wide_x;
};

LadderLaunch::LadderLaunch(const Stage& stage, LadderRung rung, LadderWithout without) {
  const auto i = [](Index v) { return static_cast<int>(v); };
  const Shapes shapes = shapes_of(stage);
  rung = ladder_rung(rung, stage);
  const Choice choice = choose(rung, ladder_size(stage.c, stage.k), without);
  LadderParams g{};
  g.rows = math::conv_rows<int>(stage), g.columns = math::conv_columns<int>(stage);
  g.in = g.out = {i(shapes.p), i(shapes.q)};
  g.k = i(stage.k), g.c = i(stage.c), g.r = i(stage.r), g.s = i(stage.s);
  g.channels = blocks_of(g.c, ladder_channels) * ladder_channels;
  g.activation = device_activation(stage.act);
  Ready ready{.stage = stage,
              .shapes = shapes,
              .choice = choice,
              .kernel = {choice.kernel, choice.name},
              .params = g,
              .wide_x = rung >= LadderRung::vector};
  if (choice.matrix) ready.im2col.emplace(ladder_1_im2col, "ladder_1_im2col");
  if (!choice.fused && (stage.act != no_act || stage.keep.any()))
    ready.relu.emplace(ladder_relu, "ladder_relu");
  ready_ = std::make_unique<const Ready>(std::move(ready));
}
LadderLaunch::~LadderLaunch() = default;

std::size_t LadderLaunch::workspace_bytes() const {
  if (!ready_->im2col) return 0;
  const Index rows = (ready_->shapes.gemm_m + side - 1) / side * side;
  return static_cast<std::size_t>(rows * ready_->params.depth()) * sizeof(__half);
}

bool LadderLaunch::wide_x() const {
  return ready_->wide_x;
}

std::vector<GpuResources> LadderLaunch::resources() const {
  const Choice& choice = ready_->choice;
  std::vector<GpuResources> all{
      resources_of(choice.kernel, choice.name, choice.threads, choice.shared_bytes)};
  if (ready_->im2col)
    all.push_back(resources_of(ladder_1_im2col, "ladder_1_im2col", cta_threads, 0));
  if (ready_->relu) all.push_back(resources_of(ladder_relu, "ladder_relu", cta_threads, 0));
  return all;
}

std::string LadderLaunch::run(const RunArgs& args, const void* w,
                              cudaStream_t stream) const noexcept {
  const auto& [stage, shapes, choice, kernel, im2col, relu, ready, wide_x] = *ready_;
  LadderParams g = ready;
  g.m = static_cast<int>(args.n * shapes.p * shapes.q);
  g.x = static_cast<const __half*>(args.x), g.w = static_cast<const __half*>(w);
  g.bias = args.bias;
  g.x_image = args.x_stride.n, g.x_row = args.x_stride.h, g.x_pixel = args.x_stride.w;
  auto* const y = static_cast<__half*>(args.y);
  g.act = static_cast<__half*>(args.act);
  const Strides& at = args.y_stride;
  g.y = y, g.y_image = at.n, g.y_row = at.h, g.y_pixel = at.w;
  const auto odd = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % 16 != 0;
  };
  g.wide_y = (stage.k | at.n | at.h | at.w) % 8 == 0 && !odd(y) && !odd(args.pre) && !odd(args.act);
  if (choice.fused) {
    g.pre = static_cast<__half*>(args.pre);
  } else if (args.pre != nullptr) {
    g.y = static_cast<__half*>(args.pre);
    g.y_pixel = stage.k, g.y_row = shapes.q * g.y_pixel, g.y_image = shapes.p * g.y_row;
  }
  cudaError_t error = cudaSuccess;
  if (im2col) {
    g.matrix = reinterpret_cast<__half*>(args.workspace);
    const int rows = blocks_of(g.m, side) * side;
    error = im2col->launch({rows, cta_threads, 0, stream}, g);
  }
  LadderParams of_kernel = g;
  if (im2col && choice.pixels > 0) {  // a tiled kernel reads the matrix as a 1x1 stage of a row
    of_kernel.x = g.matrix;
    of_kernel.x_image = of_kernel.x_row = 0, of_kernel.x_pixel = g.depth();
    of_kernel.rows = {.size = 1}, of_kernel.columns = {.size = g.m};
    of_kernel.in = {1, g.m};
    of_kernel.c = of_kernel.channels = g.depth();
    of_kernel.r = of_kernel.s = 1;
  }
  const auto grid = static_cast<int>(ctas_of(choice, g.m, g.k));
  if (error == cudaSuccess)
    error = kernel.launch({grid, choice.threads, choice.shared_bytes, stream}, of_kernel);
  if (error == cudaSuccess && relu) {
    const Index eights = static_cast<Index>(g.m) * blocks_of(g.k, 8);
    const auto ctas = static_cast<int>((eights + cta_threads - 1) / cta_threads);
    error = relu->launch({ctas, cta_threads, 0, stream}, {g, y, at.n, at.h, at.w});
  }
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, std::string("launching ") + choice.name + " for " + to_text(stage));
}

}  // namespace convoy::cuda::teaching
