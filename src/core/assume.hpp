// What the code relies on, stated where it relies on it.
//
// CONVOY_ASSUME(condition) ends the program with the place and the condition where it does not
// hold, in builds for debugging, with sanitizers and for fuzzing. A release compiles it away: a
// condition that input can break is an Error or a Status instead.
#pragma once

#if defined(CONVOY_CHECK_ASSUMPTIONS)
#include <cstdio>
#include <cstdlib>
#define CONVOY_ASSUME(condition)                                                                 \
  ((condition) ? static_cast<void>(0)                                                            \
               : (static_cast<void>(std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, \
                                                 __LINE__, #condition)),                         \
                  std::abort()))
#else
#define CONVOY_ASSUME(condition) static_cast<void>(0)
#endif
