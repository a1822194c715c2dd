#include "core/crew.hpp"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "core/machine.hpp"
#include "core/process.hpp"
#include "core/threads.hpp"

namespace convoy {
namespace {

using Word = std::atomic<std::uint32_t>;

void sleep_while(Word& word, std::uint32_t value) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void wake(Word& word, int count) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// How long a thread looks on before it sleeps: some 10 us, then some 100 us in which others that
// need the core get it. The kernels of a network follow each other more quickly than that.
constexpr int pauses = 300, yields = 200;

/// Looks on until done() or the time is over; whether it is done.
template <class Done>
bool look_on(const Done& done) noexcept {
  for (int i = 0; i < pauses + yields; ++i) {
    if (done()) return true;
    i < pauses ? pause() : static_cast<void>(::sched_yield());
  }
  return done();
}

/// A place for one job after the other. Places are never freed, so that a thread may look at one
/// whose job is over: it finds no way in.
class alignas(128) Place {
 public:
  /// Held by the thread whose job it is.
  Claim claim;

  /// Lets in `others` threads, with numbers below count; 0 is taken where it is the caller's.
  void open(const Job& job, int count, int others, bool zero_taken) noexcept {
    job_ = job;
    count_ = count;
    for (int word = 0; word <= (count - 1) / 64; ++word)
      taken_[static_cast<std::size_t>(word)].store(word == 0 && zero_taken ? 1 : 0,
                                                   std::memory_order_relaxed);
    state_.store(static_cast<std::uint32_t>(others) * one_open, std::memory_order_release);
  }

  /// Does the job with the others, if another thread is still let in; whether it was. number: the
  /// one that is wanted.
  bool join(int number) noexcept {
    std::uint32_t seen = state_.load(std::memory_order_relaxed);
    do {
      if ((seen & open_bits) == 0) return false;
    } while (!state_.compare_exchange_weak(seen, seen - one_open + one_inside,
                                           std::memory_order_acquire, std::memory_order_relaxed));
    job_.work(job_.context, take(number));
    seen = state_.fetch_sub(one_inside, std::memory_order_acq_rel);
    // Who is told may have opened the place for another job by now: it looks again.
    if ((seen & is_awaited) && (seen & inside_bits) == one_inside) wake(state_, 1);
    return true;
  }

  /// Lets nobody in any more and waits for those who are inside. Whether anybody ever was.
  bool close() noexcept {
    const std::uint32_t before = state_.fetch_and(~open_bits, std::memory_order_acq_rel);
    const auto empty = [&] { return (state_.load(std::memory_order_acquire) & inside_bits) == 0; };
    if ((before & inside_bits) != 0 && !look_on(empty)) {
      std::uint32_t seen = state_.fetch_or(is_awaited, std::memory_order_acq_rel) | is_awaited;
      while ((seen & inside_bits) != 0) {
        sleep_while(state_, seen);
        seen = state_.load(std::memory_order_acquire);
      }
    }
    for (int word = 0; word <= (count_ - 1) / 64; ++word)
      if (taken_[static_cast<std::size_t>(word)].load(std::memory_order_relaxed) != 0) return true;
    return false;
  }

  int open_places() const noexcept {
    return static_cast<int>((state_.load(std::memory_order_relaxed) & open_bits) / one_open);
  }
  int inside() const noexcept {
    return static_cast<int>(state_.load(std::memory_order_relaxed) & inside_bits);
  }

 private:
  static constexpr std::uint32_t one_inside = 1, inside_bits = (1U << 15) - 1;
  static constexpr std::uint32_t one_open = 1U << 15, open_bits = inside_bits << 15;
  static constexpr std::uint32_t is_awaited = 1U << 30;
  static_assert(most_threads < static_cast<int>(inside_bits));

  bool take_if_free(int number) noexcept {
    const std::uint64_t bit = std::uint64_t{1} << (number % 64);
    auto& word = taken_[static_cast<std::size_t>(number / 64)];
    return (word.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }
  /// A number that no other thread of the job has; `wanted` where it is free. No more threads are
  /// let in than there are numbers.
  int take(int wanted) noexcept {
    if (wanted >= 0 && wanted < count_ && take_if_free(wanted)) return wanted;
    for (;;)
      for (int number = 0; number < count_; ++number)
        if (take_if_free(number)) return number;
  }

  Word state_{0};
  int count_ = 1;
  Job job_;
  std::array<std::atomic<std::uint64_t>, (most_threads + 63) / 64> taken_{};
};

// All that workers touch beside their jobs: never destroyed, for they run until the process ends.
struct Crew {  // NOLINT(clang-analyzer-optin.performance.Padding): the padding keeps lines apart
  alignas(128) Word posted{0};  // jobs that there were, modulo 2^32; workers wait for the next
  alignas(128) std::atomic<int> asleep{0};
  std::atomic<int> started{0};
  std::atomic<int> used{0};  // the places from this one on never had a job
  std::array<Place, 64> places;
  std::mutex starting;  // of threads; the process that has them alone takes it
};
constinit Crew crew;

Place* find_place() noexcept {
  for (std::size_t i = 0; i < crew.places.size(); ++i) {
    if (!crew.places[i].claim.take()) continue;
    const int number = static_cast<int>(i) + 1;
    int used = crew.used.load(std::memory_order_relaxed);
    while (used < number && !crew.used.compare_exchange_weak(used, number)) {
    }
    return &crew.places[i];
  }
  return nullptr;
}

/// Wakes up to two workers where a job wants more than are awake and free. Each of the two does so
/// again: waking many is a system call each, which no one thread shall make for all.
void wake_for(int wanted) noexcept {
  const int asleep = crew.asleep.load(std::memory_order_seq_cst);
  if (asleep <= 0 || wanted <= 0) return;
  int free = crew.started.load(std::memory_order_relaxed) - asleep;
  const int used = crew.used.load(std::memory_order_relaxed);
  for (int i = 0; i < used; ++i) free -= crew.places[static_cast<std::size_t>(i)].inside();
  const int more = std::min({2, asleep, wanted - std::max(free, 0)});
  if (more > 0) wake(crew.posted, more);
}

bool help(int number, bool woken) noexcept {
  const int used = crew.used.load(std::memory_order_acquire);
  for (int i = 0; i < used; ++i) {
    Place& place = crew.places[static_cast<std::size_t>(i)];
    const int open = place.open_places();
    if (open == 0) continue;
    if (woken) wake_for(open);
    if (place.join(number)) return true;
  }
  return false;
}

void* worker(void* its_number) {
  static_cast<void>(::pthread_setname_np(::pthread_self(), "convoy"));
  use_cores_of_process();
  const int number = static_cast<int>(reinterpret_cast<std::intptr_t>(its_number));
  for (bool woken = true;;) {
    const std::uint32_t seen = crew.posted.load(std::memory_order_seq_cst);
    const bool helped = help(number, woken);
    woken = false;
    if (helped || look_on([&] { return crew.posted.load(std::memory_order_relaxed) != seen; }))
      continue;
    // Counted before it looks again, which the system does: a job is seen there, or its caller
    // sees that somebody sleeps.
    crew.asleep.fetch_add(1, std::memory_order_seq_cst);
    sleep_while(crew.posted, seen);
    crew.asleep.fetch_sub(1, std::memory_order_seq_cst);
    woken = true;
  }
  return nullptr;
}

/// The code of the workers stays where it is if a program unloads the library that holds it.
void keep_this_library() noexcept {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<void*>(&worker), &here) != 0 && here.dli_fname)
    static_cast<void>(::dlopen(here.dli_fname, RTLD_NOLOAD | RTLD_LAZY | RTLD_NODELETE));
}

/// A detached thread that gets none of the program's signals.
bool start_worker(int number) noexcept {
  pthread_attr_t how;
  if (::pthread_attr_init(&how) != 0) return false;
  ::pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
  ::pthread_attr_setstacksize(&how, 4 << 20);
  sigset_t all, former;
  ::sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
    ::sigdelset(&all, own);
  ::pthread_sigmask(SIG_SETMASK, &all, &former);
  pthread_t thread{};
  const int failure = ::pthread_create(&thread, &how, worker,
                                       reinterpret_cast<void*>(static_cast<std::intptr_t>(number)));
  ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  ::pthread_attr_destroy(&how);
  return failure == 0;
}

}  // namespace

void start_workers(int count) noexcept {
#if defined(__SANITIZE_THREAD__)
  const int most = 7;  // it shall see bodies side by side, however few cores there are
#else
  const int most = cores_of_process() - 1;
#endif
  count = std::min(count, most);
  if (count <= crew.started.load(std::memory_order_acquire)) return;
  const std::lock_guard<std::mutex> lock(crew.starting);
  int started = crew.started.load(std::memory_order_relaxed);
  if (started == 0) keep_this_library();
  // Number 0 is the caller's.
  while (started < count && start_worker(started + 1))
    crew.started.store(++started, std::memory_order_release);
}

int workers() noexcept {
  return crew.started.load(std::memory_order_relaxed);
}

void do_together(const Job& job, int count) noexcept {
  const int others = std::min(count - 1, workers());
  Place* const place = others > 0 ? find_place() : nullptr;
  if (!place) {
    job.work(job.context, 0);
    return;
  }
  place->open(job, count, others, true);
  crew.posted.fetch_add(1, std::memory_order_seq_cst);
  wake_for(others);
  job.work(job.context, 0);
  static_cast<void>(place->close());
  place->claim.give();
}

void do_together(const Job& job, int count, CallerThreads pool) noexcept {
  Place* const place = find_place();
  if (!place) {
    job.work(job.context, 0);
    return;
  }
  place->open(job, count, count, false);
  try {
    pool(
        count, [](void* its, int number) { static_cast<Place*>(its)->join(number); }, place);
  } catch (...) {  // NOLINT(bugprone-empty-catch): what the pool did not do is done here
  }
  if (!place->close()) job.work(job.context, 0);
  place->claim.give();
}

}  // namespace convoy
