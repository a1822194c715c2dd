// A network that is loaded and warmed before main: what is timed there is the run alone.
//
//     warm MODEL [DEVICE [IMAGES]]        warm models/fashion-scnn cuda 10000
//
// A constructor of a static object runs before main, and so before a clock that main starts. Moved
// there: reading the model, packing its weights, CUDA's start, loading code, streams, page-locked
// and device memory, threads, and the first run of each size, which finds caches cold.
#include <chrono>
#include <convoy/network.hpp>
#include <convoy/pinned.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

namespace {

struct Ready {
  std::unique_ptr<const convoy::Network> network;
  std::unique_ptr<const convoy::PinnedTensor> images, labels;

  Ready(const char* model, const char* device, convoy::Index n) {
    convoy::NetworkOptions options;
    options.device = convoy::parse_device(device);
    network = std::make_unique<convoy::Network>(model, options);
    const convoy::NetworkText& text = network->text();
    images = std::make_unique<convoy::PinnedTensor>(
        text.dtype, std::vector<convoy::Index>{n, text.h, text.w, text.c}, options.device);
    labels = std::make_unique<convoy::PinnedTensor>(convoy::DType::i32,
                                                    std::vector<convoy::Index>{n}, options.device);
    network->warm(n);
    network->run(*images, {}, *labels).or_throw();  // and from page-locked memory
  }
};

constinit std::unique_ptr<const Ready> ready;  // there before any constructor runs

// The GNU C library hands the program's arguments to such functions as to main.
__attribute__((constructor)) void before_main(int count, char** words, char**) {
  if (count < 2 || count > 4) return;
  try {
    ready = std::make_unique<Ready>(words[1], count > 2 ? words[2] : "cpu",
                                    count > 3 ? std::atoll(words[3]) : 1000);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

}  // namespace

int main(int count, char** words) {
  const auto begin = std::chrono::steady_clock::now();
  if (!ready) {
    if (count < 2 || count > 4)
      std::fprintf(stderr, "Usage: %s MODEL [DEVICE [IMAGES]]\n", words[0]);
    return 2;
  }
  ready->network->run(*ready->images, {}, *ready->labels).or_throw();
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  std::printf("%.0f us for %lld images\n", took.count(),
              static_cast<long long>(ready->labels->view().shape[0]));
  ready.reset();  // while CUDA is still there
  return 0;
}
