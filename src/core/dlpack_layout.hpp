// The layout of DLPack's structures, version 1.1, under names of ours: the global ones belong to
// whichever dlpack.h a program includes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "convoy/tensor.hpp"

namespace convoy::dlpack {

enum DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
enum TypeCode : std::uint8_t { signed_integer = 0, unsigned_integer = 1, floating = 2, bfloat = 4 };
constexpr std::uint64_t flag_read_only = 1, flag_is_copied = 2;
constexpr std::uint32_t version_major = 1, version_minor = 1;

struct Device {
  std::int32_t type, number;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct Array {  // DLTensor
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null: contiguous
  std::uint64_t byte_offset;
};
struct Managed {  // DLManagedTensor
  Array array;
  void* context;
  void (*deleter)(Managed*);
};
struct Version {
  std::uint32_t major, minor;
};
struct ManagedVersioned {  // DLManagedTensorVersioned
  Version version;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Array array;
};

// What every other library was compiled with, where pointers have eight bytes.
static_assert(sizeof(void*) != 8 ||
              (sizeof(Array) == 48 && offsetof(Array, device) == 8 && offsetof(Array, ndim) == 16 &&
               offsetof(Array, dtype) == 20 && offsetof(Array, shape) == 24 &&
               offsetof(Array, byte_offset) == 40));
static_assert(sizeof(void*) != 8 || (sizeof(Managed) == 64 && offsetof(Managed, context) == 48 &&
                                     offsetof(Managed, deleter) == 56));
static_assert(sizeof(void*) != 8 ||
              (sizeof(ManagedVersioned) == 80 && offsetof(ManagedVersioned, context) == 8 &&
               offsetof(ManagedVersioned, deleter) == 16 &&
               offsetof(ManagedVersioned, flags) == 24 && offsetof(ManagedVersioned, array) == 32));

/// As a view has it, with these lists of sizes and strides.
Array array_of(const ConstTensorView& view, std::int64_t* shape, std::int64_t* strides);

}  // namespace convoy::dlpack
