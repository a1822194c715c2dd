# The CUDA families, their bench and their tests; see enable_cuda.cmake.
#
# The families stand in a library of their own until the planner lists them: what they need of the
# core (stages, errors) comes from `convoy`. cudart is linked statically and libcuda not at all, so
# the library loads on a machine without a driver.
find_package(CUDAToolkit REQUIRED)

file(GLOB CUDA_HOST_SOURCES CONFIGURE_DEPENDS src/cuda/*.cpp src/cuda/sm90/*.cpp)
file(GLOB SM90_SOURCES CONFIGURE_DEPENDS src/cuda/sm90/*.cu)

# wgmma and setmaxnreg exist in machine code for 9.0a alone.
add_library(convoy_sm90 OBJECT ${SM90_SOURCES})
set_target_properties(convoy_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)

# Code for every GPU: machine code for 7.5, 8.0 and 9.0, and PTX for what comes later.
add_library(convoy_cuda STATIC src/cuda/general.cu ${CUDA_HOST_SOURCES} $<TARGET_OBJECTS:convoy_sm90>)
set_target_properties(convoy_cuda PROPERTIES CUDA_ARCHITECTURES "75-real;80-real;90-real;90-virtual")
target_link_libraries(convoy_sm90 PUBLIC convoy)
target_link_libraries(convoy_cuda PUBLIC convoy CUDA::cudart_static)

foreach(target convoy_sm90 convoy_cuda)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(${target} SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS})
endforeach()

add_executable(gpu_bench bench/gpu.cu)
set_target_properties(gpu_bench PROPERTIES CUDA_ARCHITECTURES "75-real;80-real;90-real;90-virtual" CUDA_STANDARD 20
                                           CUDA_RUNTIME_LIBRARY Static)
target_link_libraries(gpu_bench PRIVATE convoy_cuda)

if(CONVOY_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  enable_testing()
  # Index maps, boxes, tensor maps and the cost model: no GPU needed.
  file(GLOB cuda_test_sources CONFIGURE_DEPENDS tests/cuda/*.cpp)
  add_executable(cuda_host_tests ${cuda_test_sources})
  target_link_libraries(cuda_host_tests PRIVATE convoy_cuda nlohmann_json::nlohmann_json GTest::gtest_main)
  target_compile_definitions(cuda_host_tests PRIVATE CONVOY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(cuda_host_tests DISCOVERY_TIMEOUT 60)
  # On a GPU: exit code 77 says that there is none.
  foreach(family halo first few)
    add_test(NAME cuda_verify_${family}
             COMMAND gpu_bench verify ${PROJECT_SOURCE_DIR}/tests/cuda/${family}-stages.txt)
    add_test(NAME cuda_invariance_${family}
             COMMAND gpu_bench invariance ${PROJECT_SOURCE_DIR}/tests/cuda/${family}-stages.txt)
    set_tests_properties(cuda_verify_${family} cuda_invariance_${family} PROPERTIES LABELS gpu SKIP_RETURN_CODE 77)
  endforeach()
endif()
