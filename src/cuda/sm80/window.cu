// The window family's launches: which of the compiled kernels, with what.
#include <algorithm>
#include <cstdint>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/sm80/window.hpp"
#include "cuda/sm80/window_kernels.cuh"

namespace convoy::cuda::sm80 {
namespace {

WindowKernel kernel_of(const Stage& stage, const WindowTile& tile, int parts) {
  if (widens(stage)) return window_to_f32(stage.dtype, tile);
  if (tile.box) return window_boxes(stage.dtype, parts);
  switch (stage.dtype) {
    case DType::f32:
      return window_f32(tile);
    case DType::f16:
      return window_f16(tile);
    case DType::bf16:
      return window_bf16(tile);
    case DType::u8:
    case DType::i32:
      break;
  }
  return nullptr;
}

/// The largest power of two, at most 16, that divides them all.
template <class... Bytes>
int common_alignment(Bytes... bytes) {
  const auto all = (static_cast<std::uint64_t>(bytes) | ... | std::uint64_t{16});
  return static_cast<int>(all & -all);
}

/// A kernel with what its launches of the stage have in common.
struct WindowReady {
  WindowTile tile;
  LoadedKernel<WindowParams> kernel;
  WindowParams params{};  // all but what a run brings
  int shared_bytes;

  WindowReady(const Stage& stage, const WindowTile& tile_, bool in_order, const Machine& machine)
      : tile(tile_),
        kernel(kernel_of(stage, tile, box_parts(window_sizes(stage, tile).groups, stage.dtype)),
               "window " + tile.name()) {
    params.at = window_sizes(stage, tile);
    set_machine(params.at, stage, tile, machine);
    params.at.in_order = in_order;
    params.post = post_ops_of(stage);
    shared_bytes = tile.shared_bytes();
    if (tile.visit == Visit::precomputed)
      shared_bytes += static_cast<int>(stage.r * stage.s * sizeof(WindowTap));
  }
};

}  // namespace

struct WindowLaunch::Ready {
  Stage stage;
  int size, y_size;  // of an element of x and of y, bytes
  bool overlap;
  WindowReady planned, any;
};

WindowLaunch::WindowLaunch(const Stage& stage, const WindowTile& tile, const Machine& machine) {
  const bool in_order = window_sizes(stage, tile).in_order;
  ready_ = std::make_unique<const Ready>(Ready{stage,
                                               static_cast<int>(size_of(stage.dtype)),
                                               static_cast<int>(size_of(stage.output_dtype(true))),
                                               machine.compute_capability >= 90,
                                               {stage, tile, in_order, machine},
                                               {stage, narrow, in_order, machine}});
}
WindowLaunch::~WindowLaunch() = default;

std::string WindowLaunch::run(const RunArgs& args, const void* w,
                              cudaStream_t stream) const noexcept {
  const auto& [stage, size, y_size, overlap, planned, any] = *ready_;
  const WindowGroups& groups = planned.params.at.groups;
  const bool one = groups.count == 1;
  const Strides& x = args.x_stride;
  const int copy = common_alignment(reinterpret_cast<std::uintptr_t>(args.x), x.n * size,
                                    x.h * size, x.w * size, one ? 0 : groups.channels * size);
  const WindowReady& with = planned.tile.narrow || copy == unit_bytes ? planned : any;
  WindowParams p = with.params;
  set_images(p.at, with.tile, args.n);
  p.at.g.set_distances(x.n * size, x.h * size, x.w * size);
  p.x = static_cast<const char*>(args.x), p.w = static_cast<const char*>(w);
  p.post.bias = args.bias;
  p.y = static_cast<char*>(args.y), p.y_pixel = args.y_stride.w;
  p.x_end = p.x + ((args.n - 1) * x.n + (stage.h - 1) * x.h + (stage.w - 1) * x.w + stage.c) * size;
  p.copy = std::min(copy, 8);
  p.y_store = common_alignment(reinterpret_cast<std::uintptr_t>(args.y), args.y_stride.w * y_size,
                               one ? 0 : groups.filters * y_size);
  const cudaError_t error = with.kernel.launch(
      {.grid = p.at.m_tiles * p.at.n_tiles,
       .threads = with.tile.threads(),
       .shared_bytes = with.tile.box ? p.at.box.shared_bytes() : with.shared_bytes,
       .stream = stream,
       .overlap_previous = overlap},
      p);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching window for " + to_text(stage));
}

}  // namespace convoy::cuda::sm80
