// Whether memory on the GPU still holds what it held, without a copy of it: 128 bits for each
// chunk.
//
// The hash is NH of UMAC (RFC 4418, 5.2.2), as that of python/bindings/contents.cpp: a key's word
// is added to each 32-bit word, and pairs are multiplied and summed in 64 bits. Two chunks that
// differ have the same sum for at most one in 2^32 keys. A second sum with the key shifted
// (Toeplitz's construction) makes that one in 2^64. Each byte is read once; memory bounds it.
#include <algorithm>
#include <vector>

#include "core/gpu.hpp"
#include "cuda/error.hpp"
#include "cuda/launch.hpp"
#include "cuda/memory.hpp"
#include "cuda/wrap/table.hpp"

namespace convoy::cuda {
namespace {

constexpr int of_cta = 256, warps = of_cta / 32;
constexpr int vector_bytes = sizeof(uint4), sums = 2;
constexpr int vectors = gpu::watch_chunk / vector_bytes;  // of a chunk, which is a CTA's
constexpr int of_thread = vectors / of_cta;
constexpr int ctas_of_sm = 2;  // of compare_group: 64 KB on their way hide the latency of memory
static_assert(gpu::watch_sum_bytes == sums * sizeof(unsigned long long));
static_assert(gpu::watch_key_bytes == (vectors + sums - 1) * vector_bytes);

/// Memory that has one fingerprint: at most gpu::watch_chunk bytes.
struct Chunk {
  const unsigned char* from;
  Index bytes;
  unsigned long long meaning;
  ulonglong2* seen;
  std::int32_t* changed;
};

/// Bytes behind the end count as zeros.
__device__ uint4 bytewise(const Chunk& p, Index at) {
  union {
    uint4 vector;
    unsigned char bytes[vector_bytes];
  } all;
  for (int i = 0; i < vector_bytes; ++i) all.bytes[i] = at + i < p.bytes ? p.from[at + i] : 0;
  return all.vector;
}

__device__ unsigned long long product(unsigned a, unsigned b) {
  return static_cast<unsigned long long>(a) * b;
}

__device__ unsigned long long mixed(const uint4& word, const uint4& key) {
  return product(word.x + key.x, word.y + key.y) + product(word.z + key.z, word.w + key.w);
}

/// Both keys of each word that a thread hashes.
struct Keys {
  uint4 first[of_thread], second[of_thread];
};

__device__ Keys keys_of_thread(const uint4* keys) {
  Keys mine;
#pragma unroll
  for (int i = 0; i < of_thread; ++i) {
    const int at = i * of_cta + static_cast<int>(threadIdx.x);
    mine.first[i] = keys[at], mine.second[i] = keys[at + 1];
  }
  return mine;
}

__device__ void compare_chunk(const Chunk& p, const Keys& keys) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(p.from) % vector_bytes == 0;
  uint4 words[of_thread];
#pragma unroll
  for (int i = 0; i < of_thread; ++i) {
    const Index at = static_cast<Index>(i * of_cta + threadIdx.x) * vector_bytes;
    // Read once: other data keeps its place in the caches.
    words[i] = aligned && at + vector_bytes <= p.bytes
                   ? __ldcs(reinterpret_cast<const uint4*>(p.from + at))
                   : bytewise(p, at);
  }
  unsigned long long first = 0, second = 0;
#pragma unroll
  for (int i = 0; i < of_thread; ++i) {
    first += mixed(words[i], keys.first[i]);
    second += mixed(words[i], keys.second[i]);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    first += __shfl_xor_sync(~0U, first, lanes);
    second += __shfl_xor_sync(~0U, second, lanes);
  }
  __shared__ ulonglong2 of_warps[warps];
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = make_ulonglong2(first, second);
  __syncthreads();
  if (threadIdx.x == 0) {
    ulonglong2 sum = make_ulonglong2(p.meaning, 0);
    for (int warp = 0; warp < warps; ++warp) sum.x += of_warps[warp].x, sum.y += of_warps[warp].y;
    const ulonglong2 before = *p.seen;
    if (sum.x != before.x || sum.y != before.y) *p.seen = sum, *p.changed = 1;
  }
}

__global__ void __launch_bounds__(of_cta) compare(Chunk all, const uint4* keys) {
  const Index begin = static_cast<Index>(blockIdx.x) * gpu::watch_chunk;
  all.from += begin, all.bytes -= begin, all.seen += blockIdx.x;
  compare_chunk(all, keys_of_thread(keys));
}

// CTAs that stay: each keeps its keys in registers, which would else be read twice per chunk.
__global__ void __launch_bounds__(of_cta, ctas_of_sm)
    compare_group(const Chunk* chunks, int count, const uint4* keys) {
  const Keys mine = keys_of_thread(keys);
  for (int chunk = static_cast<int>(blockIdx.x); chunk < count;
       chunk += static_cast<int>(gridDim.x)) {
    compare_chunk(chunks[chunk], mine);
    __syncthreads();  // the sums of the warps have been read
  }
}

Chunk memory_of(const gpu::Watch& watch) {
  return {static_cast<const unsigned char*>(watch.from), static_cast<Index>(watch.bytes),
          watch.meaning, static_cast<ulonglong2*>(watch.seen), watch.changed};
}

int chunks_of(const gpu::Watch& watch) {
  return static_cast<int>((watch.bytes + gpu::watch_chunk - 1) / gpu::watch_chunk);
}

}  // namespace
}  // namespace convoy::cuda

namespace convoy::gpu {

void compare(Device device, Stream stream, const Watch& watch) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  const cuda::Launch how{cuda::chunks_of(watch), cuda::of_cta, 0,
                         static_cast<cudaStream_t>(stream.handle)};
  cuda::check(cuda::launch(cuda::compare, how, cuda::memory_of(watch),
                           static_cast<const uint4*>(watch.keys)),
              "launching the comparison of weights");
}

void forget(Device device, Stream stream, void* seen, std::size_t bytes) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  cuda::check(cudaMemsetAsync(seen, 0, bytes, static_cast<cudaStream_t>(stream.handle)),
              "forgetting weights");
}

Table watch_table(Device device, std::span<const Watch> watches) {
  std::vector<cuda::Chunk> chunks;
  for (const Watch& watch : watches) {
    cuda::Chunk rest = cuda::memory_of(watch);
    for (int left = cuda::chunks_of(watch); left > 0; --left) {
      chunks.push_back(rest);
      chunks.back().bytes = std::min<Index>(rest.bytes, watch_chunk);
      rest.from += watch_chunk, rest.bytes -= watch_chunk, ++rest.seen;
    }
  }
  const int resident = machine(device.index).multiprocessors * cuda::ctas_of_sm;
  return cuda::table_of(device, chunks, std::min(static_cast<int>(chunks.size()), resident));
}

void compare_group(Device device, Stream stream, const Table& watches, const void* keys) {
  const cuda::OnDevice on(device.index);
  cuda::check(on.error(), "choosing " + to_text(device));
  const cuda::Launch how{watches.ctas, cuda::of_cta, 0, static_cast<cudaStream_t>(stream.handle)};
  cuda::check(cuda::launch(cuda::compare_group, how,
                           reinterpret_cast<const cuda::Chunk*>(watches.rows.data<std::uint8_t>()),
                           static_cast<int>(watches.count), static_cast<const uint4*>(keys)),
              "launching the comparison of all weights");
}

}  // namespace convoy::gpu
