# Turns CUDA on where a compiler for it is found (CONVOY_HAS_CUDA); elsewhere says so in a line and goes on without.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc 12 and later accept C++20.
  if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  # cudart is linked statically and libcuda not at all, so the library loads on a machine without a
  # driver.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  find_package(CUDAToolkit REQUIRED)
  set(CONVOY_HAS_CUDA ON)
else()
  message(STATUS "CUDA: off, no nvcc was found. Put it on PATH or set CUDACXX to build the GPU kernels.")
endif()
