// Kernel `spike_resident`: what it is compiled for.
#pragma once

#include "cuda/sm80/spike_resident_params.hpp"

namespace convoy::cuda::sm80 {

using ResidentKernel = void (*)(ResidentParams);

// Of any network, and of FashionNet; for few images by few_tasks.
ResidentKernel resident_any();
ResidentKernel resident_any_few();
ResidentKernel resident_fashion();
ResidentKernel resident_fashion_few();
ResidentKernel resident_fashion_one_term();  // of weights that are f16 numbers
// By wgmma, on 9.0.
ResidentKernel resident_fashion_warpgroups();
ResidentKernel resident_fashion_warpgroups_few();
// The same where layers' spikes are wanted.
ResidentKernel resident_fashion_warpgroups_inner();
ResidentKernel resident_fashion_warpgroups_few_inner();

}  // namespace convoy::cuda::sm80
