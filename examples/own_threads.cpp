// A stage on threads of the program's own. A program whose other work runs on a pool of threads
// lends them to Convoy: a second pool would compete for the same cores.
//
//     own_threads
#include <algorithm>
#include <atomic>
#include <convoy/plan.hpp>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

namespace {

using Body = void (*)(void* context, int i);

/// Threads that sleep until there is something to do: what a program has already.
class Pool {
 public:
  explicit Pool(int helpers) : helpers_(helpers) {  // all are there before the first thread starts
    for (int i = 0; i < helpers; ++i) {
      helpers_[i].thread = std::jthread([this, i](const std::stop_token& stop) {
        for (;;) {
          helpers_[i].start.acquire();
          if (stop.stop_requested()) return;
          body_(context_, i + 1);
          ++calls;
          done_.release();
        }
      });
    }
  }
  ~Pool() {
    for (Helper& helper : helpers_) {
      helper.thread.request_stop();
      helper.start.release();
    }
  }
  /// Calls body(context, 0) here and body(context, i) on helpers. Fewer calls than `count` are
  /// allowed: if another run has the helpers, this thread works alone.
  void run(int count, Body body, void* context) {
    const std::unique_lock mine(one_run_, std::try_to_lock);
    const int helping = mine ? std::min(count - 1, static_cast<int>(helpers_.size())) : 0;
    if (mine) body_ = body, context_ = context;
    for (int i = 0; i < helping; ++i) helpers_[i].start.release();
    body(context, 0);
    for (int i = 0; i < helping; ++i) done_.acquire();  // return when all calls have
  }
  std::atomic<int> calls = 0;

 private:
  struct Helper {
    std::binary_semaphore start{0};
    std::jthread thread;
  };
  std::mutex one_run_;
  Body body_ = nullptr;
  void* context_ = nullptr;
  std::counting_semaphore<> done_{0};
  std::vector<Helper> helpers_;  // last: joined before what they use is gone
};

Pool pool(3);

/// CallerThreads is a plain function, so the pool is one of the program's statics.
void on_pool(int count, Body body, void* context) {
  pool.run(count, body, context);
}

}  // namespace

int main() try {
  using namespace convoy;
  const Stage stage = parse_stage("n4h56c64k64r3pad1+relu+max2");
  const std::vector<float> numbers(64 * 3 * 3 * 64, 0.01F);
  const ConstTensorView weights = ConstTensorView::of(numbers.data(), {64, 3, 3, 64});

  const Plan by_convoy(stage, weights, {.threads = 4});  // the threads of Convoy
  const Plan by_pool(stage, weights, {.threads = 4, .caller_threads = on_pool});

  Tensor x(DType::f32, x_shape(stage)), y(DType::f32, y_shape(stage)), z = y.clone();
  for (Index i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i % 7);
  by_convoy.run({.x = x, .y = y}).or_throw();
  by_pool.run({.x = x, .y = z}).or_throw();

  const bool same = std::memcmp(y.data<float>(), z.data<float>(), y.bytes()) == 0;
  std::printf("threads: %d\n", by_pool.threads());
  std::printf("the pool's helpers worked: %s\n", pool.calls > 0 ? "yes" : "no");
  std::printf("the same bits as on Convoy's threads: %s\n", same ? "yes" : "no");
  return same && pool.calls > 0 ? 0 : 1;
} catch (const convoy::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
