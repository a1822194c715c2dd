// CONVOY_HD: a function written once for host and device.
#pragma once

#if defined(__CUDACC__)
#define CONVOY_HD __host__ __device__ __forceinline__
#else
#define CONVOY_HD inline
#endif
