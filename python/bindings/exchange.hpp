// DLPack's C functions (version 1.3) that a Python type hands out in a capsule: a view of a tensor
// without a Python call, and the stream that its library works on.
#pragma once

#include <cstdint>

#include "core/dlpack_layout.hpp"

namespace convoy::python {

/// The layout is DLPack's DLPackExchangeAPI. Functions return 0, or -1 with Python's error set.
struct ExchangeApi {
  dlpack::Version version;
  const ExchangeApi* previous;  // of an older version
  int (*allocate)(dlpack::Array*, dlpack::ManagedVersioned**, void*,
                  void (*)(void*, const char*, const char*));
  int (*from_python)(void* array, dlpack::ManagedVersioned** out);
  int (*to_python)(dlpack::ManagedVersioned*, void** out);
  int (*borrow)(void* array, dlpack::Array* out);  // null where the library has none
  int (*current_stream)(std::int32_t device_type, std::int32_t number, void** out);
};

}  // namespace convoy::python
