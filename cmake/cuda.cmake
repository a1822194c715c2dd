# The GPU kernels as object libraries, which library.cmake makes a part of `convoy`. The host side of
# the families (src/cuda/**/*.cpp) is ordinary C++ and compiled with the rest of the library.

# Code for every GPU: machine code for 7.5, 8.0 and 9.0, and PTX for what comes later.
set(CONVOY_CUDA_ARCHITECTURES "75-real;80-real;90-real;90-virtual")
file(GLOB any_gpu_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
add_library(convoy_any_gpu OBJECT ${any_gpu_sources})
set_target_properties(convoy_any_gpu PROPERTIES CUDA_ARCHITECTURES "${CONVOY_CUDA_ARCHITECTURES}")

# wgmma and setmaxnreg exist in machine code for 9.0a alone.
file(GLOB sm90_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/sm90/*.cu)
add_library(convoy_sm90 OBJECT ${sm90_sources})
set_target_properties(convoy_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)

foreach(target convoy_any_gpu convoy_sm90)
  target_include_directories(
    ${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                      ${PROJECT_BINARY_DIR}/generated)
  if(NOT BUILD_SHARED_LIBS)
    target_compile_definitions(${target} PRIVATE CONVOY_STATIC)
  endif()
endforeach()
