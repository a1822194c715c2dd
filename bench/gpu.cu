// gpu_bench: parity and time of the GPU families on a list of stages, in JSON.
//
//     gpu_bench verify LIST            every tile of every stage against `general`, bit for bit
//     gpu_bench invariance LIST        the same bits for every tile, run, batch and place in it
//     gpu_bench time LIST [TILES]      the best of the first TILES tiles (default 8; 1: the model's
//     choice) gpu_bench once STAGE TILE        three launches of one tile, for a profiler
//     gpu_bench pairs LIST [TILES]     lines 1 and 2, 3 and 4, ... in one launch: bits and time
//     beside those of two launches
//
// Verify draws small integers, so that every partial sum is exact and all orders of summation
// agree; outputs are poisoned with NaN and fenced. Time replays a CUDA graph over buffers that
// together exceed the L2, with normal inputs, after a warm-up of 100 ms.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/stage.hpp"
#include "core/kernel.hpp"
#include "cuda/error.hpp"
#include "cuda/general.hpp"
#include "cuda/sm90/few.hpp"
#include "cuda/sm90/first.hpp"
#include "cuda/sm90/halo.hpp"
#include "cuda/sm90/pair.hpp"

namespace {
using namespace convoy;
using namespace convoy::cuda;

constexpr std::size_t guard = 4096;  // bytes behind an output

struct Memory {
  void* data = nullptr;
  explicit Memory(std::size_t bytes) {
    check(cudaMalloc(&data, bytes), "allocating " + std::to_string(bytes) + " bytes");
  }
  Memory(Memory&& other) noexcept : data(std::exchange(other.data, nullptr)) {}
  ~Memory() { static_cast<void>(cudaFree(data)); }
};

__device__ std::uint32_t hash(std::uint64_t i, std::uint32_t seed) {
  std::uint64_t v = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
  v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9ull;
  v = (v ^ (v >> 27)) * 0x94D049BB133111EBull;
  return static_cast<std::uint32_t>(v >> 32);
}

/// Normal values times `scale`, or with `integers` > 0 whole numbers in [-integers, integers].
template <class T>
__global__ void fill(T* data, Index count, std::uint32_t seed, float scale, int integers) {
  for (Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    float v;
    if (integers > 0) {
      v = static_cast<float>(static_cast<int>(hash(i, seed) % (2 * integers + 1)) - integers);
    } else {
      const float u = (hash(i, seed) + 1.0f) / 4294967808.0f,
                  angle = hash(i, seed + 7919) * 1.4629180792671596e-9f;
      v = scale * sqrtf(-2.0f * logf(u)) * cosf(angle);
    }
    data[i] = static_cast<T>(v);
  }
}
__global__ void fill_bytes(std::uint8_t* data, Index count, std::uint32_t seed, int most) {
  for (Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<Index>(gridDim.x) * blockDim.x)
    data[i] = hash(i, seed) % (most + 1);
}
template <class T>
__global__ void widen(const T* from, float* to, Index count) {
  for (Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<Index>(gridDim.x) * blockDim.x)
    to[i] = static_cast<float>(from[i]);
}
__global__ void count_differences(const std::uint16_t* a, const std::uint16_t* b, Index count,
                                  unsigned long long* different) {
  for (Index i = blockIdx.x * static_cast<Index>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    const bool zeros = ((a[i] | b[i]) & 0x7FFF) == 0;  // -0 = +0
    if (a[i] != b[i] && !zeros) atomicAdd(different, 1ull);
  }
}
__global__ void measure_clock(long long* cycles, unsigned long long* nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  const long long first = clock64();
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < 20000);
  *cycles = clock64() - first;
  *nanoseconds = now - start;
}

void fill_type(DType type, void* data, Index count, std::uint32_t seed, float scale, int integers) {
  if (type == DType::u8)
    fill_bytes<<<2048, 256>>>(static_cast<std::uint8_t*>(data), count, seed,
                              integers > 0 ? 2 * integers : 255);
  else if (type == DType::f32)
    fill<<<2048, 256>>>(static_cast<float*>(data), count, seed, scale, integers);
  else if (type == DType::bf16)
    fill<<<2048, 256>>>(static_cast<__nv_bfloat16*>(data), count, seed, scale, integers);
  else
    fill<<<2048, 256>>>(static_cast<__half*>(data), count, seed, scale, integers);
  check(cudaGetLastError(), "filling");
}

/// A stage with its weights on the device.
struct Case {
  Stage stage;
  Shapes shapes;
  DType out;
  Memory w, bias, w32, norm;
  Case(const Stage& s, int integers)
      : stage(s),
        shapes(shapes_of(s)),
        out(s.output_dtype(true)),
        w(shapes.w_elements * 2),
        bias(s.k * 4),
        w32(shapes.w_elements * 4),
        norm(s.c * 8) {
    fill_type(out, w.data, shapes.w_elements, 1,
              1.0f / std::sqrt(static_cast<float>(shapes.gemm_k)), integers);
    fill_type(DType::f32, bias.data, stage.k, 2, 1.0f, integers);
    fill_type(DType::f32, norm.data, stage.c * 2, 4, 0.1f, integers > 0 ? 1 : 0);
    if (out == DType::bf16)
      widen<<<512, 256>>>(static_cast<__nv_bfloat16*>(w.data), static_cast<float*>(w32.data),
                          shapes.w_elements);
    else
      widen<<<512, 256>>>(static_cast<__half*>(w.data), static_cast<float*>(w32.data),
                          shapes.w_elements);
  }
  std::size_t x_bytes() const {
    return static_cast<std::size_t>(shapes.x_elements) * size_of(stage.dtype);
  }
  std::size_t y_bytes() const { return static_cast<std::size_t>(shapes.y_elements) * size_of(out); }
  const float* bias_or_null() const {
    return stage.bias ? static_cast<const float*>(bias.data) : nullptr;
  }
  const float* norm_or_null(Index first) const {
    return stage.norm ? static_cast<const float*>(norm.data) + first : nullptr;
  }
  Strides x_stride() const {
    return {0, stage.h * stage.w * stage.c, stage.w * stage.c, stage.c, 1};
  }
  void general(const void* x, void* y) const {
    RunArgs args;
    args.n = stage.n;
    args.x = x;
    args.x_stride = x_stride();
    args.y = y;
    args.y_stride = {0, shapes.out_h * shapes.out_w * stage.k, shapes.out_w * stage.k, stage.k, 1};
    args.bias = bias_or_null();
    args.norm_scale = norm_or_null(0);
    args.norm_shift = norm_or_null(stage.c);
    if (const std::string why =
            general_launch(stage, args, static_cast<const float*>(w32.data), nullptr);
        !why.empty())
      throw Error(why);
  }
};

/// One way to run a stage: a family with a tile.
struct Contender {
  std::string name;
  double predicted_us;
  std::function<std::string(const void* x, void* y, Index n, bool overlap, cudaStream_t)> launch;
};

void ready(const std::string& why) {
  if (!why.empty()) throw Error(why);
}

std::vector<Contender> contenders(const Case& c, const DeviceFacts& device) {
  std::vector<Contender> found;
  if (sm90::first_refusals(c.stage, device).empty()) {
    const sm90::FirstLayout layout = sm90::first_layout(c.stage, device);
    ready(sm90::first_ready(c.stage));
    const auto packed = std::make_shared<Memory>(layout.w_bytes);
    if (const std::string why = sm90::first_pack(c.stage, layout, c.w.data, packed->data, nullptr);
        !why.empty())
      throw Error(why);
    found.push_back(
        {"first", 0,
         [&c, layout, packed](const void* x, void* y, Index n, bool overlap, cudaStream_t stream) {
           return sm90::first_launch(c.stage, layout,
                                     {.n = n,
                                      .x = x,
                                      .x_stride = c.x_stride(),
                                      .w = packed->data,
                                      .bias = c.bias_or_null(),
                                      .norm_scale = c.norm_or_null(0),
                                      .norm_shift = c.norm_or_null(c.stage.c),
                                      .y = y,
                                      .y_pixel_stride = c.stage.k,
                                      .overlap_previous = overlap},
                                     stream);
         }});
  }
  if (sm90::few_refusals(c.stage, device).empty()) {
    const sm90::FewLayout layout = sm90::few_layout(c.stage, device);
    ready(sm90::few_ready(c.stage));
    found.push_back(
        {"few", 0,
         [&c, layout](const void* x, void* y, Index n, bool overlap, cudaStream_t stream) {
           return sm90::few_launch(c.stage, layout,
                                   {.n = n,
                                    .x = x,
                                    .w = c.w.data,
                                    .bias = c.bias_or_null(),
                                    .y = y,
                                    .x_pixel_stride = c.stage.c,
                                    .y_pixel_stride = c.stage.k,
                                    .overlap_previous = overlap},
                                   stream);
         }});
  }
  if (sm90::halo_refusals(c.stage, device).empty()) {
    for (const sm90::HaloTile& tile : sm90::halo_tiles(c.stage, device)) {
      const sm90::HaloLayout layout = sm90::halo_layout(c.stage, tile, device);
      ready(sm90::halo_ready(c.stage, tile));
      found.push_back(
          {"halo." + tile.name(), sm90::halo_seconds(c.stage, tile, layout) * 1e6,
           [&c, tile, layout](const void* x, void* y, Index n, bool overlap, cudaStream_t stream) {
             return sm90::halo_launch(c.stage, tile, layout,
                                      {.n = n,
                                       .x = x,
                                       .w = c.w.data,
                                       .bias = c.bias_or_null(),
                                       .y = y,
                                       .x_pixel_stride = c.stage.c,
                                       .y_pixel_stride = c.stage.k,
                                       .overlap_previous = overlap},
                                      stream);
           }});
    }
  }
  return found;
}

bool guard_intact(const void* y, std::size_t bytes) {
  std::vector<unsigned char> fence(guard);
  check(
      cudaMemcpy(fence.data(), static_cast<const char*>(y) + bytes, guard, cudaMemcpyDeviceToHost),
      "reading the fence");
  return std::all_of(fence.begin(), fence.end(), [](unsigned char b) { return b == 0xFF; });
}

int verify(const std::vector<Stage>& stages, const DeviceFacts& device, int limit) {
  int failures = 0, runs = 0;
  for (const Stage& stage : stages) {
    const Case c(stage, 2);
    Memory x(c.x_bytes()), expected(c.y_bytes()), y(c.y_bytes() + guard), different(8);
    fill_type(stage.dtype, x.data, c.shapes.x_elements, 3, 1, 2);
    c.general(x.data, expected.data);
    check(cudaDeviceSynchronize(), "general on " + to_text(stage));
    int tiles = 0;
    for (const Contender& contender : contenders(c, device)) {
      if (tiles++ == limit) break;
      check(cudaMemset(y.data, 0xFF, c.y_bytes() + guard), "poisoning");
      check(cudaMemset(different.data, 0, 8), "clearing");
      std::string why = contender.launch(x.data, y.data, stage.n, false, nullptr);
      unsigned long long count = 0;
      if (why.empty()) {
        count_differences<<<1024, 256>>>(
            static_cast<std::uint16_t*>(y.data), static_cast<std::uint16_t*>(expected.data),
            c.shapes.y_elements, static_cast<unsigned long long*>(different.data));
        check(cudaMemcpy(&count, different.data, 8, cudaMemcpyDeviceToHost),
              "running " + contender.name + " on " + to_text(stage));
        if (count > 0)
          why = std::to_string(count) + " of " + std::to_string(c.shapes.y_elements) +
                " values differ";
        if (!guard_intact(y.data, c.y_bytes())) why += " the fence behind y was overwritten";
      }
      ++runs;
      if (!why.empty()) {
        ++failures;
        std::printf("FAIL %s %s: %s\n", to_text(stage).c_str(), contender.name.c_str(),
                    why.c_str());
      }
    }
    std::printf("%s %s: %d tiles\n", tiles > 0 ? "ran " : "skip", to_text(stage).c_str(), tiles);
    std::fflush(stdout);
  }
  std::printf("verify: %d runs, %d failures\n", runs, failures);
  return failures == 0 ? 0 : 1;
}

/// On normal inputs: every tile gives the same bits, twice, and for an image the same alone as in
/// its batch; and the result is as near to `general` as one rounding allows.
int invariance(const std::vector<Stage>& stages, const DeviceFacts& device) {
  int failures = 0, runs = 0;
  for (const Stage& stage : stages) {
    const Case c(stage, 0);
    Memory x(c.x_bytes()), first(c.y_bytes()), y(c.y_bytes()), different(8), exact(c.y_bytes());
    fill_type(stage.dtype, x.data, c.shapes.x_elements, 3, 1, 0);
    c.general(x.data, exact.data);
    std::string family;
    const auto differences = [&](const void* a, const void* b, Index count) {
      check(cudaMemset(different.data, 0, 8), "clearing");
      count_differences<<<1024, 256>>>(static_cast<const std::uint16_t*>(a),
                                       static_cast<const std::uint16_t*>(b), count,
                                       static_cast<unsigned long long*>(different.data));
      unsigned long long n = 0;
      check(cudaMemcpy(&n, different.data, 8, cudaMemcpyDeviceToHost),
            "comparing on " + to_text(stage));
      return n;
    };
    const Index image_x = static_cast<Index>(c.x_bytes()) / stage.n,
                image_y = static_cast<Index>(c.y_bytes()) / stage.n, last = stage.n - 1;
    for (const Contender& contender : contenders(c, device)) {
      const auto run = [&](const void* from, void* to, Index n) {
        check(cudaMemset(to, 0xFF, static_cast<std::size_t>(image_y * n)), "poisoning");
        if (const std::string why = contender.launch(from, to, n, false, nullptr); !why.empty())
          throw Error(why);
      };
      const std::string its_family = contender.name.substr(0, contender.name.find('.'));
      if (its_family != family) run(x.data, first.data, stage.n);
      run(x.data, y.data, stage.n);
      unsigned long long wrong = differences(first.data, y.data, c.shapes.y_elements);
      run(static_cast<const char*>(x.data) + last * image_x, y.data, 1);
      wrong +=
          differences(static_cast<const char*>(first.data) + last * image_y, y.data, image_y / 2);
      if (its_family != family) {
        std::vector<std::uint16_t> a(static_cast<std::size_t>(c.shapes.y_elements)), b(a.size());
        check(cudaMemcpy(a.data(), first.data, c.y_bytes(), cudaMemcpyDeviceToHost), "reading y");
        check(cudaMemcpy(b.data(), exact.data, c.y_bytes(), cudaMemcpyDeviceToHost), "reading y");
        const auto value = [&](std::uint16_t bits) {
          if (c.out == DType::bf16)
            return static_cast<double>(__bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits})));
          return static_cast<double>(__half2float(__half(__half_raw{bits})));
        };
        double error = 0, norm = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
          const double e = value(a[i]) - value(b[i]);
          error += e * e;
          norm += value(b[i]) * value(b[i]);
        }
        const double relative = std::sqrt(error / norm);
        std::printf("%s %s: relative distance to general %.2g\n", to_text(stage).c_str(),
                    its_family.c_str(), relative);
        // `first` rounds normalised inputs to the output type, once more than `general`.
        if (!(relative < (c.out == DType::bf16 ? 1e-3 : 1.5e-4) * (stage.norm ? 4 : 1))) ++wrong;
      }
      family = its_family;
      ++runs;
      if (wrong > 0) {
        ++failures;
        std::printf("FAIL %s %s: %llu values differ\n", to_text(stage).c_str(),
                    contender.name.c_str(), wrong);
      }
    }
  }
  std::printf("invariance: %d tiles, %d failures\n", runs, failures);
  return failures == 0 ? 0 : 1;
}

/// Median microseconds of one launch: replays of a graph with one launch for each buffer set.
double time_graph(int sets, double warm_ms, double measure_ms,
                  const std::function<void(int, cudaStream_t)>& launch) {
  cudaStream_t stream;
  cudaEvent_t from, to;
  check(cudaStreamCreate(&stream), "creating a stream");
  check(cudaEventCreate(&from), "creating an event");
  check(cudaEventCreate(&to), "creating an event");
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
  for (int i = 0; i < sets; ++i) launch(i, stream);
  check(cudaStreamEndCapture(stream, &graph), "ending the capture");
  check(cudaGraphInstantiate(&ready, graph, 0), "instantiating");
  const auto replay = [&](int times) {
    check(cudaEventRecord(from, stream), "recording");
    for (int i = 0; i < times; ++i) check(cudaGraphLaunch(ready, stream), "replaying");
    check(cudaEventRecord(to, stream), "recording");
    check(cudaEventSynchronize(to), "timing");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, from, to), "timing");
    return static_cast<double>(ms);
  };
  replay(1);
  const double once = std::max(replay(2) / 2, 1e-3);
  if (warm_ms > 0) replay(std::max(1, static_cast<int>(warm_ms / once)));
  const int times = std::max(1, static_cast<int>(measure_ms / 5 / once));
  std::vector<double> samples;
  for (int i = 0; i < 5; ++i) samples.push_back(replay(times) / times / sets * 1e3);
  std::sort(samples.begin(), samples.end());
  check(cudaGraphExecDestroy(ready), "destroying a graph");
  check(cudaGraphDestroy(graph), "destroying a graph");
  check(cudaEventDestroy(from), "destroying an event");
  check(cudaEventDestroy(to), "destroying an event");
  check(cudaStreamDestroy(stream), "destroying a stream");
  return samples[2];
}

double clock_ghz() {
  Memory cycles(8), ns(8);
  measure_clock<<<1, 1>>>(static_cast<long long*>(cycles.data),
                          static_cast<unsigned long long*>(ns.data));
  long long c = 0, n = 1;
  check(cudaMemcpy(&c, cycles.data, 8, cudaMemcpyDeviceToHost), "reading the clock");
  check(cudaMemcpy(&n, ns.data, 8, cudaMemcpyDeviceToHost), "reading the clock");
  return static_cast<double>(c) / static_cast<double>(n);
}

void time_all(const std::vector<Stage>& stages, const DeviceFacts& device, int limit) {
  std::printf("{\"device\": \"%s\", \"sms\": %d, \"inputs\": \"normal\", \"rows\": [",
              device.name.c_str(), device.sms);
  const char* comma = "\n";
  for (const Stage& stage : stages) {
    const Case c(stage, 0);
    const std::vector<Contender> all = contenders(c, device);
    if (all.empty()) continue;
    const int sets = static_cast<int>(
        std::clamp<std::size_t>(3 * device.l2_bytes / (c.x_bytes() + c.y_bytes()) + 1, 8, 128));
    std::vector<Memory> x, y;
    for (int i = 0; i < sets; ++i) {
      x.emplace_back(c.x_bytes());
      y.emplace_back(c.y_bytes());
      fill_type(stage.dtype, x.back().data, c.shapes.x_elements, 100 + i, 1, 0);
    }
    struct Timed {
      const Contender* contender;
      double us;
    };
    std::vector<Timed> timed;
    const auto measure = [&](const Contender& contender, double warm, double ms, bool overlap) {
      return time_graph(sets, warm, ms, [&](int i, cudaStream_t stream) {
        if (const std::string why =
                contender.launch(x[i].data, y[i].data, stage.n, overlap, stream);
            !why.empty())
          throw Error(why);
      });
    };
    for (const Contender& contender : all) {
      if (static_cast<int>(timed.size()) == limit) break;
      timed.push_back({&contender, measure(contender, timed.empty() ? 100 : 20, 15, true)});
    }
    const Timed first = timed.front();
    std::stable_sort(timed.begin(), timed.end(),
                     [](const Timed& a, const Timed& b) { return a.us < b.us; });
    const double best = measure(*timed.front().contender, 100, 60, true),
                 alone = measure(*timed.front().contender, 20, 30, false);
    std::printf(
        "%s {\"stage\": \"%s\", \"us\": %.2f, \"us_without_overlap\": %.2f, \"tile\": \"%s\", "
        "\"tflops\": %.0f, \"clock_ghz\": %.2f, \"model_tile\": \"%s\", \"model_us\": %.2f, "
        "\"tiles\": [",
        comma, to_text(stage).c_str(), best, alone, timed.front().contender->name.c_str(),
        2e-6 * static_cast<double>(c.shapes.macs) / best, clock_ghz(),
        first.contender->name.c_str(), first.us);
    const char* inner = "";
    for (const Timed& t : timed) {
      std::printf("%s[\"%s\", %.2f, %.2f]", inner, t.contender->name.c_str(), t.us,
                  t.contender->predicted_us);
      inner = ", ";
    }
    std::printf("]}");
    std::fflush(stdout);
    comma = ",\n";
  }
  std::printf("\n]}\n");
}

/// Each two stages in one launch: on integers equal to two runs of `general`, on normal inputs
/// equal to two launches of halo, alone as in the batch; and how long both take.
int pairs(const std::vector<Stage>& stages, const DeviceFacts& device, int limit) {
  int failures = 0, runs = 0;
  for (std::size_t i = 0; i + 1 < stages.size(); i += 2) {
    const Stage &first = stages[i], &second = stages[i + 1];
    for (const std::string& why : sm90::pair_refusals(first, second, device))
      std::printf("refused: %s\n", why.c_str());
    const std::vector<sm90::HaloTile> tiles = sm90::pair_tiles(first, second, device);
    for (const int integers : {1, 0}) {
      const Case a(first, integers), b(second, integers);
      const sm90::HaloTile tile_a = sm90::halo_tiles(first, device).front(),
                           tile_b = sm90::halo_tiles(second, device).front();
      const auto halo = [&](const Case& c, const sm90::HaloTile& tile, const void* x, void* y,
                            bool overlap, cudaStream_t stream) {
        ready(sm90::halo_ready(c.stage, tile));
        if (const std::string why =
                sm90::halo_launch(c.stage, tile, sm90::halo_layout(c.stage, tile, device),
                                  {.n = c.stage.n,
                                   .x = x,
                                   .w = c.w.data,
                                   .bias = c.bias_or_null(),
                                   .y = y,
                                   .x_pixel_stride = c.stage.c,
                                   .y_pixel_stride = c.stage.k,
                                   .overlap_previous = overlap},
                                  stream);
            !why.empty())
          throw Error(why);
      };
      const auto pair = [&](const sm90::HaloTile& tile, const void* x, void* y, Index n,
                            bool overlap, cudaStream_t stream) {
        ready(sm90::pair_ready(first, tile));
        if (const std::string why = sm90::pair_launch(
                first, second, tile, sm90::pair_layout(first, second, tile, device),
                {.n = n,
                 .x = x,
                 .w = a.w.data,
                 .bias = a.bias_or_null(),
                 .w2 = b.w.data,
                 .bias2 = b.bias_or_null(),
                 .y = y,
                 .x_pixel_stride = first.c,
                 .y_pixel_stride = second.k,
                 .overlap_previous = overlap},
                stream);
            !why.empty())
          throw Error(why);
      };
      const int sets = integers > 0
                           ? 1
                           : static_cast<int>(std::clamp<std::size_t>(
                                 3 * device.l2_bytes / (a.x_bytes() + b.y_bytes()) + 1, 8, 128));
      std::vector<Memory> x, y;
      for (int s = 0; s < sets; ++s) {
        x.emplace_back(a.x_bytes());
        y.emplace_back(b.y_bytes() + guard);
        fill_type(first.dtype, x.back().data, a.shapes.x_elements, 100 + s, 1, integers);
      }
      Memory middle(a.y_bytes()), expected(b.y_bytes()), different(8);
      if (integers > 0) {
        a.general(x[0].data, middle.data);
        b.general(middle.data, expected.data);
      } else {
        halo(a, tile_a, x[0].data, middle.data, false, nullptr);
        halo(b, tile_b, middle.data, expected.data, false, nullptr);
      }
      check(cudaDeviceSynchronize(), "two launches of " + to_text(first));
      const auto compare = [&](const void* got, const void* wanted, Index count) {
        check(cudaMemset(different.data, 0, 8), "clearing");
        count_differences<<<1024, 256>>>(static_cast<const std::uint16_t*>(got),
                                         static_cast<const std::uint16_t*>(wanted), count,
                                         static_cast<unsigned long long*>(different.data));
        unsigned long long n = 0;
        check(cudaMemcpy(&n, different.data, 8, cudaMemcpyDeviceToHost), "comparing");
        return n;
      };
      const Index image_x = static_cast<Index>(a.x_bytes()) / first.n,
                  image_y = static_cast<Index>(b.y_bytes()) / first.n, last = first.n - 1;
      for (const sm90::HaloTile& tile : tiles) {
        check(cudaMemset(y[0].data, 0xFF, b.y_bytes() + guard), "poisoning");
        pair(tile, x[0].data, y[0].data, first.n, false, nullptr);
        unsigned long long wrong = compare(y[0].data, expected.data, b.shapes.y_elements);
        if (!guard_intact(y[0].data, b.y_bytes())) ++wrong;
        check(cudaMemset(y[0].data, 0xFF, b.y_bytes()), "poisoning");
        pair(tile, static_cast<const char*>(x[0].data) + last * image_x, y[0].data, 1, false,
             nullptr);
        wrong += compare(y[0].data, static_cast<const char*>(expected.data) + last * image_y,
                         image_y / 2);
        ++runs;
        if (wrong > 0) {
          ++failures;
          std::printf("FAIL pair.%s %s, %s, %s: %llu values differ\n", tile.name().c_str(),
                      to_text(first).c_str(), to_text(second).c_str(),
                      integers > 0 ? "integers" : "normal", wrong);
        }
      }
      if (integers > 0 || limit == 0) continue;
      std::vector<Memory> middles;
      for (int s = 0; s < sets; ++s) middles.emplace_back(a.y_bytes());
      const double two = time_graph(sets, 100, 30, [&](int s, cudaStream_t stream) {
        halo(a, tile_a, x[s].data, middles[s].data, true, stream);
        halo(b, tile_b, middles[s].data, y[s].data, true, stream);
      });
      std::printf("two launches %s, %s: %.2f us (%s, %s)\n", to_text(first).c_str(),
                  to_text(second).c_str(), two, tile_a.name().c_str(), tile_b.name().c_str());
      for (std::size_t t = 0; t < tiles.size() && t < static_cast<std::size_t>(limit); ++t) {
        const double us = time_graph(sets, 20, 20, [&](int s, cudaStream_t stream) {
          pair(tiles[t], x[s].data, y[s].data, first.n, true, stream);
        });
        std::printf("  pair.%s: %.2f us, predicted %.2f\n", tiles[t].name().c_str(), us,
                    1e6 * sm90::pair_seconds(first, tiles[t],
                                             sm90::pair_layout(first, second, tiles[t], device)));
      }
      std::fflush(stdout);
    }
  }
  std::printf("pairs: %d runs, %d failures\n", runs, failures);
  return failures == 0 ? 0 : 1;
}

void once(const Stage& stage, const DeviceFacts& device, const std::string& name) {
  const Case c(stage, 0);
  Memory x(c.x_bytes()), y(c.y_bytes());
  fill_type(stage.dtype, x.data, c.shapes.x_elements, 3, 1, 0);
  for (const Contender& contender : contenders(c, device)) {
    if (contender.name != name) continue;
    for (int i = 0; i < 3; ++i) {
      if (const std::string why = contender.launch(x.data, y.data, stage.n, false, nullptr);
          !why.empty())
        throw Error(why);
    }
    check(cudaDeviceSynchronize(), "running " + name + " on " + to_text(stage));
    return;
  }
  throw Error("there is no " + name + " for " + to_text(stage));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 2 ? argv[1] : "";
  if (verb != "verify" && verb != "invariance" && verb != "time" && verb != "pairs" &&
      !(verb == "once" && argc == 4)) {
    std::fprintf(
        stderr,
        "usage: gpu_bench verify|invariance|time|pairs LIST [TILES], gpu_bench once STAGE TILE\n"
        "  e.g. gpu_bench time shapes/targets-gpu.txt 8\n");
    return 2;
  }
  try {
    const Discovery found = discover();
    if (found.devices.empty()) {
      std::fprintf(stderr, "skipped: no GPU (%s)\n", found.why_none.c_str());
      return 77;  // ctest: not run
    }
    const DeviceFacts device = found.devices.front();
    if (verb == "once") {
      once(parse_stage(argv[2]), device, argv[3]);
      return 0;
    }
    const std::vector<Stage> stages = read_shape_list(argv[2]);
    const int limit = argc > 3 ? std::atoi(argv[3]) : 0;
    if (verb == "verify") return verify(stages, device, limit > 0 ? limit : 1000);
    if (verb == "pairs") return pairs(stages, device, limit);
    if (verb == "invariance") return invariance(stages, device);
    time_all(stages, device, limit > 0 ? limit : 8);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 2;
  }
}
