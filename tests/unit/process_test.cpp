// The end of a process and forks of it, with plans at work.
#include "core/process.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "convoy/plan.hpp"
#include "core/measure.hpp"
#include "core/threads.hpp"
#include "plan/workspaces.hpp"

namespace convoy {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool thread_sanitizer = true;
#else
constexpr bool thread_sanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr bool address_sanitizer = true;
#else
constexpr bool address_sanitizer = false;
#endif

// A stage on two threads, with all that its plan takes.
struct TwoThreads {
  Stage stage = parse_stage("n4h16c8k16r3pad1+bias+relu+max2");
  Tensor x{DType::f32, x_shape(stage)}, w{DType::f32, w_shape(stage)}, bias{DType::f32, {stage.k}};
  PlanOptions options;
  TwoThreads() {
    options.threads = 2;
    options.all_threads = true;
    options.concurrent_runs = 2;
    options.kernel = "winograd2";  // it takes workspace
    for (Index i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i % 11) - 5;
    for (Index i = 0; i < w.elements(); ++i) w.data<float>()[i] = static_cast<float>(i % 7) - 3;
  }
  Plan plan() const { return Plan(stage, w, options); }
  Status run(const Plan& plan, Tensor& y) const {
    Operands operands;
    operands.x = x;
    operands.bias = bias;
    operands.y = y;
    return plan.run(operands);
  }
  Tensor output() const { return {DType::f32, y_shape(stage)}; }
};

bool works(int threads = 2) {
  TwoThreads setup;
  setup.options.threads = threads;
  Tensor y = setup.output();
  return setup.run(setup.plan(), y).ok();
}

struct AtTheEnd {
  ~AtTheEnd() { std::fputs(works() ? "a plan worked\n" : "it failed\n", stderr); }
};

TEST(ProcessDeathTest, PlansWorkInDestructorsOfStatics) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto end = [] {
    static const AtTheEnd late;  // made before the library's own statics: destroyed after them
    if (!works()) std::exit(2);
    std::exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "a plan worked");
}

TEST(ProcessDeathTest, PlansWorkInHandlersOfAtexit) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto end = [] {
    std::atexit([] { std::fputs(works() ? "a plan worked\n" : "it failed\n", stderr); });
    if (!works()) std::exit(2);
    std::exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "a plan worked");
}

TEST(ProcessDeathTest, DetachedThreadsMayPlanWhileTheProgramEnds) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto end = [] {
    static std::atomic<int> planned{0};
    // The handler runs after everything that was made later has been destroyed.
    std::atexit([] {
      for (const int before = planned; planned < before + 20;) std::this_thread::yield();
      std::fputs("plans were made\n", stderr);
    });
    for (int i = 0; i < 3; ++i)
      std::thread([] {
        for (;; ++planned)
          if (!works()) std::abort();
      }).detach();
    while (planned == 0) std::this_thread::yield();
    std::exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "plans were made");
}

// The exit status of a child that runs `body`; -1 where it had to be killed.
template <class Body>
int status_of_child(const Body& body) {
  const pid_t child = fork();
  if (child < 0) return -1;
  if (child == 0) {
    alarm(60);  // a child that hangs is no hanging test
    _exit(body());
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, ChildRunsPlansThatAnotherThreadWasRunning) {
  if (thread_sanitizer)
    GTEST_SKIP() << "the thread sanitizer does not support forks of several threads";
  const TwoThreads setup;
  const Plan plan = setup.plan();
  Tensor expected = setup.output();
  ASSERT_TRUE(setup.run(plan, expected).ok());
  std::atomic<bool> done{false};
  std::thread other([&] {
    Tensor y = setup.output();
    while (!done) EXPECT_TRUE(setup.run(plan, y).ok());
  });
  std::vector<int> statuses;
  for (int i = 0; i < (address_sanitizer ? 10 : 50); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    statuses.push_back(status_of_child([&] {
      const auto same = [&](const Plan& it) {
        Tensor y = setup.output();
        return setup.run(it, y).ok() &&
               std::memcmp(y.view().data, expected.view().data, y.bytes()) == 0;
      };
      if (!same(plan)) return 1;
      if (!same(setup.plan())) return 2;
      return fork_generation() == 1 ? 0 : 3;
    }));
  }
  done = true;
  other.join();
  EXPECT_EQ(statuses, std::vector<int>(statuses.size(), 0));
  EXPECT_EQ(fork_generation(), 0);
}

TEST(Fork, WhatAThreadHeldIsFreeInTheChild) {
  Workspaces workspaces(100, 2);
  const std::byte* const taken = workspaces.take();
  Claim claim;
  ASSERT_TRUE(claim.take());
  static constinit Shared<int> shared;
  *shared.lock() = 7;
  const auto locked = shared.lock();
  EXPECT_EQ(status_of_child([&] {
              if (!workspaces.take() || !workspaces.take() || workspaces.take()) return 1;
              if (!claim.take() || claim.take()) return 2;
              return *shared.lock();  // anew
            }),
            0);
  EXPECT_FALSE(claim.take());
  EXPECT_EQ(*locked, 7);
  workspaces.give(taken);
}

TEST(Immortal, IsMadeOnce) {
  Immortal<std::string> kept;
  const std::string& first = kept.get([] { return std::string("made"); });
  const std::string& second = kept.get([] { return std::string("again"); });
  EXPECT_EQ(&first, &second);
  EXPECT_EQ(second, "made");
  delete &first;
}

TEST(Threads, HaveACeiling) {
  TwoThreads setup;
  for (const int count : {-1, most_threads + 1, 2'000'000'000}) {
    setup.options.threads = count;
    try {
      setup.plan();
      ADD_FAILURE() << count;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "threads: found " + std::to_string(count) +
                                  ", expected 1 to 4096, or 0 for every core.");
    }
  }
  setup.options.threads = most_threads;
  EXPECT_EQ(setup.plan().threads(), most_threads);
  const char* const before = std::getenv("CONVOY_NUM_THREADS");
  const std::string kept = before ? before : "";
  for (const char* text : {"4097", "99999999999", "0", "-1", "2x", "", "\x1b[2J"}) {
    setenv("CONVOY_NUM_THREADS", text, 1);
    try {
      default_threads();
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("expected a whole number from 1 to 4096"), std::string::npos);
      EXPECT_EQ(message.find('\x1b'), std::string::npos);
    }
  }
  setenv("CONVOY_NUM_THREADS", "4096", 1);
  EXPECT_EQ(default_threads(), 4096);
  if (before)
    setenv("CONVOY_NUM_THREADS", kept.c_str(), 1);
  else
    unsetenv("CONVOY_NUM_THREADS");
}

// From here on the address space may grow by so many bytes and no more.
void limit_memory(std::size_t bytes) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto most = static_cast<rlim_t>(pages * static_cast<std::size_t>(getpagesize()) + bytes);
  const rlimit limit{most, most};
  setrlimit(RLIMIT_AS, &limit);
}

// Prints the Error of `body`, or that there was none (an emulator may know no limits).
template <class Body>
[[noreturn]] void report(const Body& body) {
  try {
    body();
    std::fputs("no error\n", stderr);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(0);
}

TEST(MemoryDeathTest, APlanThatFindsNoneThrowsError) {
  if (address_sanitizer || thread_sanitizer)
    GTEST_SKIP() << "sanitizers take the address space for themselves";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto end = [] {
    limit_memory(400 << 20);
    report([] {
      const Plan plan(parse_stage("n1h1c16000k16000r1"));
      std::fputs(plan.kernel().c_str(), stderr);
    });
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0),
              "no memory for the plan of n1h1w1c16000k16000r1: its weights are 256000000 numbers, "
              "1024000000 bytes|no error");
}

TEST(MemoryDeathTest, MeasuringWithoutThrowsError) {
  if (address_sanitizer || thread_sanitizer)
    GTEST_SKIP() << "sanitizers take the address space for themselves";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto copy = [] {
    limit_memory(40 << 20);
    report([] { measure_copy_bandwidth(4096, 0.001); });
  };
  EXPECT_EXIT(copy(), testing::ExitedWithCode(0), "copy bandwidth: no memory for .*|no error");
  // Less than one stack: no second thread can start. Where there is but one core none is asked for.
  const auto threads = [] {
    limit_memory(1 << 20);
    report([] { measure_peak_flops(4096, 0.001); });
  };
  EXPECT_EXIT(threads(), testing::ExitedWithCode(0), "threads could be started.*|no error");
}

}  // namespace
}  // namespace convoy
