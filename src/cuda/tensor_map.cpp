#include "cuda/tensor_map.hpp"

#include <cstdint>
#include <optional>

#include "cuda/driver.hpp"

namespace convoy::cuda {
namespace {

constexpr const char* no_driver = "no NVIDIA driver with tensor maps (CUDA 12.0 or later) is here";

std::string refused(CUresult result) {
  return "the driver refused a tensor map (error " + std::to_string(static_cast<int>(result)) + ")";
}

/// Its type, where TMA here takes it.
std::optional<CUtensorMapDataType> type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::f32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::u8:
    case DType::i32:
      break;
  }
  return {};
}

std::string axis(int i) {
  return "axis " + std::to_string(i);
}

}  // namespace

std::vector<std::string> problems(const TensorMapArgs& args, const void* data) {
  std::vector<std::string> found;
  if (!type_of(args.dtype))
    found.push_back("the type is " + std::string(to_text(args.dtype)) +
                    ", TMA here takes f32, f16 and bf16");
  if (args.rank < 1 || args.rank > 5) {
    found.push_back("rank " + std::to_string(args.rank) + ", legal are 1 to 5");
    return found;
  }
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0)
    found.push_back("the address is not a multiple of 16 bytes");
  for (int i = 0; i < args.rank; ++i) {
    const auto a = static_cast<std::size_t>(i);
    if (args.size[a] == 0 || args.size[a] > (std::uint64_t{1} << 32))
      found.push_back(axis(i) + " has " + std::to_string(args.size[a]) +
                      " elements, legal are 1 to 2^32");
    if (args.box[a] == 0 || args.box[a] > 256)
      found.push_back("the box spans " + std::to_string(args.box[a]) + " on " + axis(i) +
                      ", legal are 1 to 256");
    if (args.step[a] == 0 || args.step[a] > 8)
      found.push_back("step " + std::to_string(args.step[a]) + " on " + axis(i) +
                      ", legal are 1 to 8");
    if (i > 0 && (args.stride[a] % 16 != 0 || args.stride[a] >= (std::uint64_t{1} << 40)))
      found.push_back(axis(i) + " has a stride of " + std::to_string(args.stride[a]) +
                      " bytes, legal are multiples of 16 under 2^40");
  }
  const std::size_t bytes = args.box[0] * size_of(args.dtype);
  if (bytes % 16 != 0)
    found.push_back("the box spans " + std::to_string(bytes) +
                    " bytes on axis 0, legal are multiples of 16");
  if (args.swizzle && bytes > 128)
    found.push_back("the box spans " + std::to_string(bytes) +
                    " bytes on axis 0, the swizzle takes 128");
  return found;
}

std::string encode(const TensorMapArgs& args, const void* data, CUtensorMap* map) noexcept {
  const auto type = type_of(args.dtype);
  if (!type) return "a tensor map was refused; " + problems(args, data).front();
  const auto function = driver().encode_tensor_map;
  if (function == nullptr) return no_driver;
  const CUresult result = function(
      map, *type, static_cast<cuuint32_t>(args.rank), const_cast<void*>(data), args.size.data(),
      args.stride.data() + 1, args.box.data(), args.step.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      !args.swizzle                             ? CU_TENSOR_MAP_SWIZZLE_NONE
      : args.box[0] * size_of(args.dtype) == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                : CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return {};
  std::string message = refused(result);
  for (const std::string& problem : problems(args, data)) message += "; " + problem;
  return message;
}

std::string redirect(CUtensorMap* map, const void* data) noexcept {
  const auto function = driver().replace_address;
  if (function == nullptr) return no_driver;
  const CUresult result = function(map, const_cast<void*>(data));
  return result == CUDA_SUCCESS ? std::string() : refused(result);
}

}  // namespace convoy::cuda
