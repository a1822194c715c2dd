# convoy_options: what every file of ours is compiled with; nothing of it reaches a consumer.
add_library(convoy_options INTERFACE)

# -ffp-contract=off: a multiply-add is fused only where the code says so, or the bits would depend
# on the compiler's mood.
set(options_for_cxx -ffp-contract=off -Wall -Wextra -Wshadow -Wpedantic -Wnon-virtual-dtor
                    -Woverloaded-virtual -Wextra-semi $<$<BOOL:${CONVOY_WERROR}>:-Werror>)
target_compile_options(convoy_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${options_for_cxx}>")

# GCC 12 warns of overlapping copies inside std::string that can't happen (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(convoy_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

# Which instruction sets Highway compiles a kernel for: AVX2, AVX-512 and NEON, and the machine's
# baseline for everything older. What is left out would cost compile time and gain nothing.
set(without HWY_SSSE3|HWY_SSE4|HWY_AVX3_DL|HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)
if(CONVOY_FUZZ)
  string(APPEND without |HWY_AVX3)
endif()
target_compile_definitions(convoy_options INTERFACE "HWY_DISABLED_TARGETS=(${without})")

# CONVOY_SANITIZE: a list for -fsanitize, "address,undefined" or "thread".
set(CONVOY_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
if(CONVOY_SANITIZE)
  # GCC sees values that may be unset in code that the sanitizers have rewritten; they are not.
  target_compile_options(
    convoy_options
    INTERFACE -fsanitize=${CONVOY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
              $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(convoy_options INTERFACE -fsanitize=${CONVOY_SANITIZE})
  # Programs at a fixed address with the sanitizers' runtime in them start in two thirds of the time, since the undefined
  # sanitizer describes each check by addresses (1.9 million in `convoy`), and checks call the runtime directly.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT BUILD_SHARED_LIBS AND NOT CONVOY_PYTHON)
    set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(convoy_options INTERFACE -fno-pie)
    target_link_options(convoy_options INTERFACE -no-pie)
    foreach(library asan ubsan tsan)
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${library}.a
                      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(IS_ABSOLUTE "${found}")
        target_link_options(convoy_options INTERFACE -static-lib${library})
      endif()
    endforeach()
  endif()
  # Sanitizers look at what this machine runs, its best instruction set, and Highway compiles nothing
  # else: its emulated vectors, which run in the release's tests, take most of a kernel's file.
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(convoy_options INTERFACE -march=native)
  endif()
  target_compile_definitions(convoy_options INTERFACE HWY_COMPILE_ONLY_STATIC)
  find_program(LLD ld.lld)  # links these programs of up to 150 MB in a fifth of the time
  if(LLD)
    target_link_options(convoy_options INTERFACE -fuse-ld=lld)
  endif()
endif()

# For the program and the tests. What they do themselves is quick; to optimise it takes half of the time to
# build them.
if(CONVOY_SANITIZE)
  set(convoy_compiled_quickly -O0)
else()
  set(convoy_compiled_quickly $<$<CONFIG:Release>:-O1>)
endif()
set(convoy_tests_compiled_quickly ${convoy_compiled_quickly})
# An emulator runs all tests, and of the program a few stages.
if(CMAKE_CROSSCOMPILING)
  set(convoy_compiled_quickly -O0)
endif()

# For the tests alone: where address sanitizer is, a null pointer or an address that is off stops a test anyway. What
# looks for these at each access would take a third of the time to compile them.
if(CONVOY_SANITIZE MATCHES undefined)
  list(APPEND convoy_tests_compiled_quickly -fno-sanitize=null,alignment,object-size,vptr)
endif()

# CONVOY_ASSUME (src/core/assume.hpp) is checked where somebody looks for mistakes.
if(CONVOY_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_definitions(convoy_options INTERFACE CONVOY_CHECK_ASSUMPTIONS)
endif()
