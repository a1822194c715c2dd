# The tests of src/cuda.
if(CONVOY_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  enable_testing()
  # Index maps, boxes, tensor maps and the cost model need no GPU; what does need one skips itself.
  file(GLOB cuda_test_sources CONFIGURE_DEPENDS tests/cuda/*.cpp tests/cuda/*.cu)
  list(APPEND cuda_test_sources tests/unit/count_allocations.cpp tests/network/draw_graph.cpp
       tests/network/drawn_case.cpp bench/fit/measured_tiles.cpp)
  add_executable(cuda_tests ${cuda_test_sources})
  set_target_properties(cuda_tests PROPERTIES CUDA_ARCHITECTURES "${CONVOY_CUDA_ARCHITECTURES}")
  target_compile_options(cuda_tests PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${convoy_tests_compiled_quickly}>")
  convoy_unite(cuda_tests)
  target_link_libraries(cuda_tests PRIVATE convoy_inspect convoy_teaching CUDA::cudart_static GTest::gtest)
  target_include_directories(cuda_tests PRIVATE ${PROJECT_SOURCE_DIR})
  # Fits the cost model's constants to measured tiles; the test sees that it still does.
  add_executable(fit_halo_cost bench/fit/halo_cost.cpp bench/fit/measured_tiles.cpp)
  target_include_directories(fit_halo_cost PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(fit_halo_cost PRIVATE convoy_verify CUDA::cudart_static)
  set(tiles ${PROJECT_SOURCE_DIR}/bench/fit/h200/tiles.json)
  add_test(NAME cuda_fit_halo_cost
           COMMAND fit_halo_cost --check ${tiles})
  gtest_discover_tests(cuda_tests TEST_PREFIX cuda. TEST_FILTER -Gpu* TEST_LIST no_gpu
                       DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
  gtest_discover_tests(cuda_tests TEST_PREFIX cuda. TEST_FILTER Gpu* TEST_LIST with_gpu
                       DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600 LABELS gpu)
  add_test(NAME cuda_library_contents
           COMMAND /usr/bin/env python3 ${PROJECT_SOURCE_DIR}/tests/cuda/library_contents.py $<TARGET_FILE:convoy>
                   $<TARGET_FILE:convoy_teaching> ${PROJECT_BINARY_DIR}/cmake_install.cmake)
  add_test(NAME cuda_check_cutlass COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/tests/cuda/check_cutlass.cmake)
  if(CONVOY_CLI)
    # Every tile of a kernel on stages that are awkward for it: KERNEL-stages.txt; that each kernel
    # has one is tested in stage_lists_test.cpp. The rungs of the ladder share one, but for those
    # with a list of their own. Skipped at what is said without a GPU.
    function(add_gpu_verify kernel list)
      add_test(NAME cuda_verify_${kernel}
               COMMAND convoy_cli verify --device cuda --kernel ${kernel} --shapes ${list})
      set_tests_properties(cuda_verify_${kernel} PROPERTIES LABELS gpu SKIP_REGULAR_EXPRESSION
                           "device cuda:0: [^\n]*; or use cpu;built without CUTLASS")
    endfunction()
    file(GLOB lists CONFIGURE_DEPENDS tests/cuda/*-stages.txt)
    foreach(list IN LISTS lists)
      string(REGEX REPLACE ".*/(.*)-stages.txt" "\\1" kernel ${list})
      if(NOT kernel STREQUAL ladder)
        add_gpu_verify(${kernel} ${list})
      endif()
    endforeach()
    file(GLOB rungs CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} src/teaching/ladder/ladder_[0-9]*.cuh)
    foreach(rung IN LISTS rungs)
      cmake_path(GET rung STEM kernel)
      if(NOT EXISTS ${PROJECT_SOURCE_DIR}/tests/cuda/${kernel}-stages.txt)
        add_gpu_verify(${kernel} ${PROJECT_SOURCE_DIR}/tests/cuda/ladder-stages.txt)
      endif()
    endforeach()
    # Outputs of every kernel as they were; the program is that of tests/CMakeLists.txt.
    add_test(NAME cuda_fingerprints
             COMMAND fingerprints --device cuda --check ${PROJECT_SOURCE_DIR}/tests/fingerprints/h200.txt)
    set_tests_properties(cuda_fingerprints PROPERTIES LABELS gpu SKIP_REGULAR_EXPRESSION
                         "device cuda:0: [^\n]*; or use cpu;skipped: ")
    # Kernels with workspace: the check and what is timed run on different streams.
    add_test(NAME cuda_bench_workspace
             COMMAND convoy_cli bench --device cuda --rounds 1 --seconds 0.001
                     --stage f16:n2h9c16k24r3pad1nchw+bias+relu --stage f16:n2h9c16k24r3pad1+relu+max3s1)
    set_tests_properties(cuda_bench_workspace PROPERTIES LABELS gpu SKIP_REGULAR_EXPRESSION
                           "device cuda:0: [^\n]*; or use cpu;built without CUTLASS")
    # The python3 of the machine that runs it: the one that configured may lie elsewhere there, and a
    # test whose program is not found is "Not Run", without a word.
    add_test(NAME cuda_sanitizers COMMAND /usr/bin/env python3 ${PROJECT_SOURCE_DIR}/tests/cuda/sanitize.py
                                          $<TARGET_FILE:convoy_cli> $<TARGET_FILE:cuda_tests>)
    set_tests_properties(cuda_sanitizers PROPERTIES LABELS gpu SKIP_RETURN_CODE 77)
  endif()
endif()
