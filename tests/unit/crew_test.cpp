// Jobs that several threads do together, if threads do not come, come late, or throw.
#include "core/crew.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "convoy/plan.hpp"
#include "core/machine.hpp"
#include "core/threads.hpp"
#include "plain_options.hpp"
#include "ready_plan.hpp"

namespace convoy {
namespace {

// Each task once, no slot shared; the text says what was wrong.
std::string wrong_in_loops(Threads& threads, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (const Index tasks : {2, 3, 5, 64, 300}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(tasks));
      std::vector<std::atomic<int>> inside(static_cast<std::size_t>(threads.count()));
      std::atomic<int> shared{0};
      threads.for_each(tasks, [&](Index task, int slot) {
        if (inside[static_cast<std::size_t>(slot)]++ != 0) ++shared;
        ++done[static_cast<std::size_t>(task)];
        --inside[static_cast<std::size_t>(slot)];
      });
      for (Index task = 0; task < tasks; ++task)
        if (done[static_cast<std::size_t>(task)] != 1)
          return "task " + std::to_string(task) + " of " + std::to_string(tasks) + " was done " +
                 std::to_string(done[static_cast<std::size_t>(task)]) + " times";
      if (shared != 0) return "two threads shared a slot";
    }
  }
  return {};
}

TEST(Crew, DoesEachTaskOnceForSeveralCallersAtOnce) {
  std::array<std::string, 4> wrong;
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < wrong.size(); ++i)
    callers.emplace_back([&wrong, i] {
      Threads threads(static_cast<int>(i) + 2);
      wrong[i] = wrong_in_loops(threads, 200);
    });
  for (std::thread& caller : callers) caller.join();
  for (const std::string& text : wrong) EXPECT_EQ(text, "");
}

TEST(Crew, WorksAgainAfterItSlept) {
  Threads threads(4);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(wrong_in_loops(threads, 2), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(Crew, TasksRunSideBySide) {
  if (cores_of_process() < 2) GTEST_SKIP() << "one core";
  Threads threads(2);
  // Each task waits for the other, for ten seconds at most.
  std::atomic<int> here{0};
  threads.for_each(2, [&](Index, int) {
    ++here;
    for (int i = 0; i < 10'000 && here < 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  EXPECT_EQ(here, 2);
}

// Pools of callers that are not as threads.hpp asks.
void throws_at_once(int, void (*)(void*, int), void*) {
  throw std::runtime_error("no threads today");
}
void throws_after_its_own(int, void (*body)(void*, int), void* context) {
  body(context, 0);
  throw std::bad_alloc();
}
void throws_a_number(int count, void (*body)(void*, int), void* context) {
  if (count > 1) std::thread(body, context, 1).join();
  throw 7;
}
void does_nothing(int, void (*)(void*, int), void*) {}
void gives_numbers_twice(int count, void (*body)(void*, int), void* context) {
  std::vector<std::thread> others;
  for (int i = 0; i < count + 3; ++i) others.emplace_back(body, context, i % 2);
  for (std::thread& other : others) other.join();
}

// Threads that are still at work, or come only later, when the pool throws.
std::vector<std::thread>& left_behind() {
  static std::vector<std::thread> all;
  return all;
}
void throws_while_others_work(int count, void (*body)(void*, int), void* context) {
  for (int i = 1; i < count; ++i)
    left_behind().emplace_back([=] {
      if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
      body(context, i);
    });
  throw std::runtime_error("not all came");
}

TEST(CallerThreads, ThatThrowOrDoNothingChangeNoResult) {
  for (const CallerThreads pool : {throws_at_once, throws_after_its_own, throws_a_number,
                                   does_nothing, gives_numbers_twice, throws_while_others_work}) {
    for (const int count : {2, 3, 40}) {
      Threads threads(count, pool);
      EXPECT_EQ(wrong_in_loops(threads, 3), "") << count;
      for (std::thread& thread : left_behind()) thread.join();
      left_behind().clear();
    }
  }
}

TEST(CallerThreads, ThatThrowGiveThePlanItsBits) {
  PlanOptions options = plain();
  options.threads = 2;
  options.all_threads = true;
  ReadyPlan own("n4h16c16k32r3pad1+bias+relu+max2", options);
  own.plan.run(own.operands()).or_throw();
  for (const CallerThreads pool : {throws_at_once, throws_after_its_own, does_nothing}) {
    options.caller_threads = pool;
    ReadyPlan theirs("n4h16c16k32r3pad1+bias+relu+max2", options);
    const Status status = theirs.plan.run(theirs.operands());
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::memcmp(own.y.view().data, theirs.y.view().data, own.y.bytes()), 0);
  }
}

// Whether loops are right in a fresh process whose user may have only so many threads, or whose
// memory leaves no room for their stacks.
int status_of(const std::function<void()>& limit) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    limit();
    Threads threads(6);
    _exit(wrong_in_loops(threads, 20).empty() ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

TEST(ProcessDeathTest, ThreadsThatCantBeStartedCostSpeedAlone) {
  if (workers() > 0) GTEST_SKIP() << "a test before this one started threads: run it by itself";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs its own threads and address space";
#endif
  for (rlim_t most = 0; most < 4; ++most)
    EXPECT_EQ(status_of([most] {
                const rlimit limit{most, most};
                setrlimit(RLIMIT_NPROC, &limit);
                // Root may start threads whatever the limit.
                if (getuid() == 0) static_cast<void>(!setuid(65534));
              }),
              0)
        << "RLIMIT_NPROC " << most;
  for (const rlim_t stacks : {0, 1, 2}) {
    EXPECT_EQ(status_of([stacks] {
                std::ifstream sizes("/proc/self/statm");
                rlim_t pages = 0;
                sizes >> pages;
                const rlim_t bytes = pages * 4096 + (1 << 20) + stacks * (5 << 20);
                const rlimit limit{bytes, bytes};
                setrlimit(RLIMIT_AS, &limit);
              }),
              0)
        << "room for " << stacks << " stacks";
  }
}

TEST(Machine, CountsCoresBeyondTheFirstThousand) {
  // As a kernel of 4,096 cores does: it refuses what is too short for its mask.
  EXPECT_EQ(cores_in_mask([](std::size_t bytes, void* mask) {
              if (bytes < 512) return false;
              std::memset(mask, 0xff, 300);
              return true;
            }),
            2400);
  EXPECT_EQ(cores_in_mask([](std::size_t, void*) { return false; }), 1);
}

TEST(Machine, TakesTheLeastQuotaOfAllGroupsAbove) {
  const std::string root = testing::TempDir() + "/convoy_cgroup";
  std::filesystem::remove_all(root);  // what an earlier run left
  const auto write = [&](const std::string& folder, const std::string& file,
                         const std::string& text) {
    std::string made = root;
    for (std::size_t at = 0; at != std::string::npos;) {
      static_cast<void>(mkdir(made.c_str(), 0755));
      const std::size_t next = folder.find('/', at + 1);
      made += folder.substr(at, next == std::string::npos ? next : next - at);
      at = next;
    }
    static_cast<void>(mkdir(made.c_str(), 0755));
    std::ofstream(made + "/" + file) << text;
  };
  write("/work.slice/batch.slice/job.scope", "cpu.max", "max 100000\n");
  write("/work.slice/batch.slice", "cpu.max", "800000 100000\n");
  write("/work.slice", "cpu.max", "300000 100000\n");
  EXPECT_EQ(quota_cores("0::/work.slice/batch.slice/job.scope\n", root), 3);
  EXPECT_EQ(quota_cores("0::/work.slice/batch.slice/\n", root), 3);
  EXPECT_EQ(quota_cores("0::/work.slice/not.there\n", root), 3);
  EXPECT_EQ(quota_cores("0::/elsewhere\n", root), 0);
  EXPECT_EQ(quota_cores("garbage\n", root), 0);
  EXPECT_EQ(quota_cores("0::no/slash/first\n", root), 0);
  write("", "cpu.max", "50000 100000\n");  // as a container sees its own group
  EXPECT_EQ(quota_cores("0::/elsewhere\n", root), 1);
  write("/cpu/a/b", "cpu.cfs_quota_us", "-1\n");
  write("/cpu/a/b", "cpu.cfs_period_us", "100000\n");
  write("/cpu/a", "cpu.cfs_quota_us", "450000\n");
  write("/cpu/a", "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota_cores("4:cpu,cpuacct:/a/b\n3:memory:/a\n", root), 5);
}

}  // namespace
}  // namespace convoy
