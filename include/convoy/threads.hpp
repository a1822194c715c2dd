// Threads of a caller's own, for plans and networks on the CPU.
#pragma once

namespace convoy {

/// Calls body(context, i) for distinct i in [0, count), 0 among them, side by side, and returns
/// when all of these calls have. Fewer than count will do; what runs where changes no result. body
/// throws nothing.
///
/// If it throws, or returns before any of its threads has worked, `run` does the rest on the
/// calling thread: results are the same, and the exception goes no further. A call of body that
/// comes after that does no harm as long as the library is loaded.
///
/// For programs whose other work runs on a pool of threads already: a second pool would take its
/// cores. OpenMP's threads, say, spin for milliseconds behind each parallel region.
///
///     void on_openmp(int count, void (*body)(void*, int), void* context) {
///     #pragma omp parallel num_threads(count)
///       body(context, omp_get_thread_num());
///     }
///     options.threads = 8, options.caller_threads = on_openmp;  // of PlanOptions
///
/// It is called by the thread that calls `run`, several times a run, by several threads at once
/// where they run plans at once, and in a forked child, whose pool may have no threads: then it
/// calls body(context, 0) alone.
using CallerThreads = void (*)(int count, void (*body)(void* context, int i), void* context);

}  // namespace convoy
