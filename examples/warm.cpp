// A network that is warmed before the clock starts: what is timed is the run alone.
//
//     warm MODEL [DEVICE [IMAGES]]        warm models/fashion-scnn cuda 10000
#include <chrono>
#include <convoy/network.hpp>
#include <convoy/pinned.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

namespace {

convoy::NetworkOptions on(const char* device) {
  convoy::NetworkOptions options;
  options.device = convoy::parse_device(device);
  return options;
}

/// Made once, ahead of what is timed: reading the model, packing its weights, CUDA's start, code,
/// streams, page-locked and device memory, threads, and the first run of each size, which finds
/// caches cold.
struct Ready {
  convoy::Network network;
  convoy::PinnedTensor images, labels;

  Ready(const char* model, const convoy::NetworkOptions& options, convoy::Index n)
      : network(model, options),
        images(network.text().dtype, {n, network.text().h, network.text().w, network.text().c},
               options.device),
        labels(convoy::DType::i32, {n}, options.device) {
    network.warm(n);
    run();  // and from page-locked memory
  }
  void run() { network.run(images, {}, labels).or_throw(); }
};

double microseconds_of_a_run(Ready& ready) {
  const auto begin = std::chrono::steady_clock::now();
  ready.run();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace

int main(int count, char** words) {
  if (count < 2 || count > 4) {
    std::fprintf(stderr, "Usage: %s MODEL [DEVICE [IMAGES]]\n", words[0]);
    return 2;
  }
  try {
    const long long n = count > 3 ? std::atoll(words[3]) : 1000;
    Ready ready(words[1], on(count > 2 ? words[2] : "cpu"), n);
    std::printf("%.0f us for %lld images\n", microseconds_of_a_run(ready), n);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
