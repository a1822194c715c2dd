#include "plan/kernel_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "convoy/error.hpp"
#include "cpu/families.hpp"
#include "cpu/neuron/neuron.hpp"
#if defined(CONVOY_CUDA)
#include "cuda/families.hpp"
#include "cuda/wrap/fired.hpp"
#include "cuda/wrap/nchw.hpp"
#include "cuda/wrap/padded.hpp"
#include "cuda/wrap/pooled.hpp"
#include "cuda/wrap/winograd.hpp"
#endif

namespace convoy {
namespace {

// A function's result and not a constant: the families live in other files, whose statics may not
// be there yet when this file's would be.
std::span<const Kernel* const> library_kernels() {
  // CPU families that make the sums of stages with a neuron.
  static const cpu::Neurons winograd2_neuron("winograd2_neuron", cpu::winograd2());
  static const cpu::Neurons tap_pairs_neuron("tap_pairs_neuron", cpu::tap_pairs());
  static const cpu::Neurons direct_neuron("direct_neuron", cpu::direct());
#if defined(CONVOY_CUDA)
  // GPU families that run inside another kernel, between passes over memory.
  static const cuda::Pooled halo_pool("halo_pool", cuda::sm90::halo());
  static const cuda::Padded halo_padded("halo_padded", cuda::sm90::halo(), 8);
  static const cuda::Padded halo_pool_padded("halo_pool_padded", halo_pool, 8);
  static const cuda::Fired halo_neuron_pass("halo_neuron_pass", cuda::sm90::halo_sums());
  static const cuda::Nchw first_nchw("first_nchw", cuda::sm90::first(), cuda::Nchw::strided_x);
  static const cuda::Nchw few_nchw("few_nchw", cuda::sm90::few());
  static const cuda::Nchw halo_nchw("halo_nchw", cuda::sm90::halo());
  static const cuda::Nchw halo_padded_nchw("halo_padded_nchw", halo_padded);
  static const cuda::Pooled window_pool("window_pool", cuda::sm80::window());
  static const cuda::Fired window_neuron_pass("window_neuron_pass", cuda::sm80::window());
  static const cuda::Nchw window_nchw("window_nchw", cuda::sm80::window());
  static const cuda::Nchw window_neuron_pass_nchw("window_neuron_pass_nchw", window_neuron_pass);
  static const cuda::Winograd winograd4("winograd4", "winograd f4, 64 bytes of channels",
                                        cuda::sm80::window());
  static const cuda::Nchw winograd4_nchw("winograd4_nchw", winograd4);
  static const cuda::Pooled few_filters_pool("few_filters_pool", cuda::few_filters());
  static const cuda::Pooled fma_pool("fma_pool", cuda::fma());
  static const cuda::Fired fma_neuron_pass("fma_neuron_pass", cuda::fma());
  static const cuda::Nchw fma_neuron_pass_nchw("fma_neuron_pass_nchw", fma_neuron_pass,
                                               cuda::Nchw::strided_x);
  static const cuda::Pooled depthwise_pool("depthwise_pool", cuda::depthwise());
#endif
  static const Kernel* const kernels[] = {
    &cpu::winograd4(),        // 3x3 stride 1: a quarter of the multiplications; default mode only
    &cpu::winograd2(),        // 3x3 stride 1 or 2: under half of them, or 25 of 36; exact on small
                              // integers
    &cpu::first(),            // one channel, stride 1, filters 3, 5 or 7 wide
    &cpu::first_winograd2(),  // 3x3 stride 1 of up to four channels: F(2x2) in registers
    &cpu::tap_pairs(),        // filters larger than their stride: 9 products for 16
    &cpu::few_filters(),      // up to eight filters over many channels
    &cpu::depthwise(),        // a filter of its own for each channel
    &cpu::grouped(),          // groups of few channels and filters
    &cpu::direct(),           // any filter size, stride, dilation and groups
    &winograd2_neuron,        // winograd2, then neurons over the steps and the pool
    &tap_pairs_neuron,
    &direct_neuron,
    &cpu::spike_chain(),  // spiking layers in a row, by tables of sums or by events
    &cpu::general(),      // every legal stage
#if defined(CONVOY_CUDA)
    &cuda::sm90::first(),  // up to four input channels, f16, bf16 or u8
    &cuda::sm90::few(),    // up to 64 taps of all filters together
    &cuda::sm90::halo(),   // any filter, stride and dilation, f16 and bf16, max 2x2 or no pool
    &cuda::sm90::pair(),   // two such stages in one launch, the second 1x1
    &cuda::sm80::spike_resident(),  // a spiking network from u8 images to labels in one launch
    &cuda::sm80::spike_resident_warpgroups(),  // one of the shipped network's shape, by wgmma
    &cuda::sm80::window(),  // any groups, channels and filters, f32 too, from 8.0 on
    &halo_pool,             // halo with any pool and second outputs, in a second pass
    &halo_padded,           // halo for C or K that are no multiples of 8, between copies
    &halo_pool_padded,      // the same with any pool: halo_pool between copies
    &halo_neuron_pass,      // halo's sums in f32, then neurons over the steps and the pool
    &first_nchw,            // first for NCHW, between transpositions
    &few_nchw,
    &halo_nchw,
    &halo_padded_nchw,
    &window_pool,              // window with any pool and second outputs, in a second pass
    &window_neuron_pass,       // window's sums in f32, then neurons over the steps and the pool
    &window_nchw,              // window for NCHW, between transpositions
    &window_neuron_pass_nchw,  // the same around window_neuron_pass
    &winograd4,       // 3x3 of f32: a quarter of the multiplications, by window's groups; default
                      // mode only
    &winograd4_nchw,  // the same for NCHW
    &cuda::few_filters(),   // up to eight filters in f32, on any GPU
    &few_filters_pool,      // the same with any pool and second outputs, in a second pass
    &cuda::depthwise(),     // a filter of its own for each channel, on any GPU
    &depthwise_pool,        // the same with any pool and second outputs, in a second pass
    &cuda::fma(),           // any stage without a neuron, on the CUDA cores
    &fma_pool,              // fma with any pool and second outputs, in a second pass
    &fma_neuron_pass,       // fma's sums in f32, then neurons over the steps and the pool
    &fma_neuron_pass_nchw,  // the same for NCHW, whose spikes it transposes
    &cuda::general(),       // every legal stage
#endif
  };
  return kernels;
}

// Nobody deletes it: plans may be made while the program ends.
KernelList& table() {
  static KernelList& list = *new KernelList(library_kernels());
  return list;
}

bool has(std::span<const Kernel* const> kernels, std::string_view name, DeviceKind device) {
  return std::ranges::any_of(kernels, [&](const Kernel* kernel) {
    return kernel->name() == name && kernel->device() == device;
  });
}

}  // namespace

void KernelList::add(std::span<const Kernel* const> kernels) {
  const std::lock_guard lock(mutex_);
  std::vector<const Kernel*> all = kernels_;
  for (const Kernel* kernel : kernels) {
    if (read_)
      throw Error(fmt::format(
          "kernel \"{}\": added after a plan was made or a kernel was looked up, expected before: "
          "plans must not differ by when they were made. Add kernels at the start of main.",
          kernel->name()));
    if (has(all, kernel->name(), kernel->device()))
      throw Error(fmt::format(
          "kernel \"{}\": the kernel table has one of that name on that kind of device, expected "
          "another name. Add each library's kernels once.",
          kernel->name()));
    all.push_back(kernel);
  }
  kernels_ = std::move(all);
}

std::span<const Kernel* const> KernelList::read() {
  const std::lock_guard lock(mutex_);
  read_ = true;
  return kernels_;
}

std::span<const Kernel* const> kernel_table() {
  return table().read();
}

void add_kernels(std::span<const Kernel* const> kernels) {
  table().add(kernels);
}

bool is_teaching_kernel(std::string_view name) {
  return name.starts_with("ladder_") || name == "cutlass_pooled";
}

const Kernel* find_kernel(std::string_view name, DeviceKind device) {
  for (const Kernel* kernel : kernel_table())
    if (kernel->name() == name && kernel->device() == device) return kernel;
  return nullptr;
}

}  // namespace convoy
