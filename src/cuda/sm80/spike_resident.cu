#include <algorithm>
#include <optional>

#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/sm80/spike_resident.hpp"
#include "cuda/sm80/spike_resident_kernels.hpp"
#include "cuda/sm80/spike_resident_warpgroup.hpp"

namespace convoy::cuda::sm80 {

struct ResidentLaunch::Ready {
  using Kernel = LoadedKernel<ResidentParams>;
  Kernel any[2], fashion[2];               // for many images, for few
  Kernel fashion_one_term;                 // for many
  std::optional<Kernel> warpgroups[2][2];  // for many images, for few; with the spikes of layers
  bool overlap_previous;
};

ResidentLaunch::ResidentLaunch(bool overlap_previous, bool warpgroups)
    : ready_(new Ready{
          {{resident_any(), "spike_resident"}, {resident_any_few(), "spike_resident"}},
          {{resident_fashion(), "spike_resident"}, {resident_fashion_few(), "spike_resident"}},
          {resident_fashion_one_term(), "spike_resident"},
          {},
          overlap_previous}) {
  if (!warpgroups) return;
  auto& kernels = ready_->warpgroups;
  kernels[0][0].emplace(resident_fashion_warpgroups(), "spike_resident");
  kernels[0][1].emplace(resident_fashion_warpgroups_inner(), "spike_resident");
  kernels[1][0].emplace(resident_fashion_warpgroups_few(), "spike_resident");
  kernels[1][1].emplace(resident_fashion_warpgroups_few_inner(), "spike_resident");
}
ResidentLaunch::~ResidentLaunch() = default;

std::string ResidentLaunch::run(const ResidentParams& params, int grid,
                                cudaStream_t stream) const noexcept {
  // Teams' kernel of a known network writes no spikes of inner layers; the general one's bits are
  // the same.
  const bool inner = std::any_of(params.y, params.y + params.at.size - 1,
                                 [](const float* y) { return y != nullptr; });
  const bool known = params.at.compiled != 0 && !inner, few = params.at.tasks == few_tasks;
  const bool one_term = std::all_of(params.of, params.of + params.at.size,
                                    [](const ResidentScale& of) { return of.terms == 1; });
  // A CTA of warpgroups with small tasks takes no more than a round.
  const Index rounds = (params.n - 1) / params.at.batch + 1;
  const bool single = params.at.warpgroups && few;
  const auto ctas = std::max<Index>(std::min<Index>(grid, params.n), single ? rounds : 0);
  // Where all lo are 0 both kernels of the known network give the same bits.
  const auto& kernel = params.at.warpgroups ? *ready_->warpgroups[few ? 1 : 0][inner ? 1 : 0]
                       : known && !few && one_term
                           ? ready_->fashion_one_term
                           : (known ? ready_->fashion : ready_->any)[few ? 1 : 0];
  const cudaError_t error =
      kernel.launch({.grid = static_cast<int>(ctas),
                     .threads = (params.at.warpgroups ? warps_of_warpgroups : resident_warps) * 32,
                     .shared_bytes = params.at.shared_bytes,
                     .stream = stream,
                     .overlap_previous = ready_->overlap_previous},
                    params);
  if (error == cudaSuccess) return {};  // the text below allocates
  return describe(error, "launching spike_resident");
}

}  // namespace convoy::cuda::sm80
