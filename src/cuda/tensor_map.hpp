// Tensor maps made of their arguments (tensor_map_args.hpp): what needs a driver.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "cuda/tensor_map_args.hpp"

namespace convoy::cuda {

/// Every rule of TMA that the arguments or the address break; empty: legal.
std::vector<std::string> problems(const TensorMapArgs& args, const void* data);

/// The map, made by the driver, which is asked for at run time: nothing links to libcuda. Returns
/// an empty string, or why not.
std::string encode(const TensorMapArgs& args, const void* data, CUtensorMap* map) noexcept;

/// Gives a map another address, on 16 bytes: a fifth of the time that making one takes. Returns an
/// empty string, or what went wrong.
std::string redirect(CUtensorMap* map, const void* data) noexcept;

}  // namespace convoy::cuda
