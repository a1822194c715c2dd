/// @file
/// Your own threads, for plans and networks on the CPU.
#pragma once

namespace convoy {

/// A function that runs work on your own threads, for PlanOptions::caller_threads and
/// NetworkOptions::caller_threads. Use it if your program already has a pool of threads, because a
/// second pool would compete for the cores: OpenMP's threads, for example, spin for milliseconds
/// after each parallel region.
///
/// The function calls body(context, i) for distinct numbers i in [0, count), 0 among them, in
/// parallel, and returns after all these calls have returned. It may make fewer than count calls.
/// The number and the place of the calls change no result. `body` does not throw.
///
/// If the function throws, or returns before any of its threads has worked, `run` does the rest on
/// the calling thread: the results are the same, and the exception is dropped. A call of `body`
/// that comes later does no harm while the library is loaded.
///
///     void on_openmp(int count, void (*body)(void*, int), void* context) {
///     #pragma omp parallel num_threads(count)
///       body(context, omp_get_thread_num());
///     }
///     options.threads = 8, options.caller_threads = on_openmp;  // of PlanOptions
///
/// The thread that calls `run` calls the function, several times per run. If several threads run
/// plans at once, they call it at once. A child of fork() calls it too: if its pool has no threads
/// there, the function calls body(context, 0) only.
using CallerThreads = void (*)(int count, void (*body)(void* context, int i), void* context);

}  // namespace convoy
