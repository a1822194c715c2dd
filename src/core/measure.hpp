// What this machine reaches right now: measured, for `bench`, `explain` and `devices`. Selection
// never asks, or its answer would differ from run to run.
#pragma once

namespace convoy {

// Both take no more threads than there are usable cores: more reach no more. Throw Error where a
// thread can't be started or memory is missing.

/// fp32 operations a second (a fused multiply-add is two) of `threads` threads that do nothing but
/// independent FMAs in registers, for about `seconds`.
double measure_peak_flops(int threads, double seconds = 0.02);

/// Bytes a second, read and written both counted, of `threads` threads that copy blocks too large
/// for the caches, for about `seconds`. Allocates 64 MiB a thread, and at most 4 GiB in all.
double measure_copy_bandwidth(int threads, double seconds = 0.05);

}  // namespace convoy
