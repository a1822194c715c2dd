/// @file
/// The mark of exported symbols. All other symbols of a shared libconvoy are hidden.
#pragma once

/// @def CONVOY_API
/// Marks the functions and classes that users may call. Empty with CONVOY_STATIC, which CMake
/// defines for users of a static libconvoy.

#if defined(CONVOY_STATIC)
#define CONVOY_API
#else
#define CONVOY_API __attribute__((visibility("default")))
#endif
