#include "plan/kernel_table.hpp"

#include "cpu/families.hpp"
#if defined(CONVOY_CUDA)
#include "cuda/families.hpp"
#endif

namespace convoy {

// A function's result and not a constant: the families live in other files, whose statics may not
// be there yet when this file's would be.
std::span<const Kernel* const> kernel_table() {
  static const Kernel* const kernels[] = {
    &cpu::winograd4(),        // 3x3 stride 1: a quarter of the multiplications; default mode only
    &cpu::winograd2(),        // 3x3 stride 1 or 2: under half of them, or 25 of 36; exact on small
                              // integers
    &cpu::first(),            // one channel, stride 1, filters 3, 5 or 7 wide
    &cpu::first_winograd2(),  // 3x3 stride 1 of up to four channels: F(2x2) in registers
    &cpu::tap_pairs(),        // filters larger than their stride: 9 products for 16
    &cpu::few_filters(),      // up to eight filters over many channels
    &cpu::depthwise(),        // a filter of its own for each channel
    &cpu::direct(),           // any filter size, stride, dilation and groups
    &cpu::general(),          // every legal stage
#if defined(CONVOY_CUDA)
    &cuda::sm90::first(),      // up to four input channels, f16, bf16 or u8
    &cuda::sm90::few(),        // up to 64 taps of all filters together
    &cuda::sm90::halo(),       // any filter, stride and dilation, f16 and bf16, max 2x2 or no pool
    &cuda::sm90::halo_pool(),  // the same with any pool and second outputs, in a second pass
    &cuda::sm90::halo_padded(),  // halo for C or K that are no multiples of 8, between copies
    &cuda::sm90::first_nchw(),   // the same for NCHW, between transpositions
    &cuda::sm90::few_nchw(),
    &cuda::sm90::halo_nchw(),
    &cuda::sm90::halo_padded_nchw(),
    &cuda::depthwise(),  // a filter of its own for each channel, on any GPU
    &cuda::general(),    // every legal stage
#endif
  };
  return kernels;
}

const Kernel* find_kernel(std::string_view name, DeviceKind device) {
  for (const Kernel* kernel : kernel_table())
    if (kernel->name() == name && kernel->device() == device) return kernel;
  return nullptr;
}

}  // namespace convoy
