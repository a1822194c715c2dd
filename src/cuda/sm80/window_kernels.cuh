// The kernels of the window family that are compiled, a file a type.
#pragma once

#include "cuda/sm80/window.cuh"

namespace convoy::cuda::sm80 {

using WindowKernel = void (*)(WindowParams);

/// The kernel of a tile; null: not compiled for the type.
WindowKernel window_f16(const WindowTile& tile);
WindowKernel window_bf16(const WindowTile& tile);
WindowKernel window_f32(const WindowTile& tile);
/// Of f16 or bf16 with an output of f32: of window_tiles' fewer tiles.
WindowKernel window_to_f32(DType type, const WindowTile& tile);
/// The kernel of box tiles, by the 32-byte parts that 16 filters take (box_parts).
WindowKernel window_boxes(DType type, int parts);

}  // namespace convoy::cuda::sm80
