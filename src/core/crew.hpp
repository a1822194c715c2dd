// The worker threads of the process, and jobs that several threads do together.
//
// A job never depends on a thread that does not come: the caller works too, and whoever works to
// the end of a job leaves nothing of it. So a thread that can't be started, or a pool that throws,
// costs speed and nothing else. Nothing here allocates or throws.
#pragma once

#include "convoy/threads.hpp"

namespace convoy {

/// What each thread of a job calls with a number of its own, below the job's count. One call that
/// returns leaves no work that has not begun. It must not throw.
struct Job {
  void (*work)(void* context, int number) = nullptr;
  void* context = nullptr;
};

/// Starts worker threads until there are `count`, or as many as this process has cores beside the
/// caller's, or the system gives no more. They are the process's, and stay until it ends.
void start_workers(int count) noexcept;

/// How many worker threads there are.
int workers() noexcept;

/// Calls job.work with number 0 here and with others below count on workers that are free, and
/// returns when all of these calls have.
void do_together(const Job& job, int count) noexcept;

/// The same on a caller's pool. If the pool throws, or returns before its threads have worked, the
/// calling thread does what is left and waits for those that are at work. A thread of the pool that
/// comes too late finds the job closed.
void do_together(const Job& job, int count, CallerThreads pool) noexcept;

}  // namespace convoy
