# CUTLASS's headers, which cutlass_pooled is made of: those that scripts/cutlass fetched, or
# CUTLASS_INCLUDE_DIR's. Where they are absent, incomplete or of another version, CONVOY_NO_CUTLASS
# says why, the sources that include them are left out, and the kernel refuses with that reason.
set(CUTLASS_INCLUDE_DIR "" CACHE PATH "The folder of CUTLASS's headers, where it is not scripts/cutlass's")
set(cutlass_pooled ${PROJECT_SOURCE_DIR}/src/teaching/cutlass_pooled)

include(${CMAKE_CURRENT_LIST_DIR}/check_cutlass.cmake)
set(CONVOY_CUTLASS_INCLUDE ${CUTLASS_INCLUDE_DIR})
if("${CONVOY_CUTLASS_INCLUDE}" STREQUAL "")
  set(CONVOY_CUTLASS_INCLUDE $ENV{CUTLASS_INCLUDE_DIR})
endif()
if("${CONVOY_CUTLASS_INCLUDE}" STREQUAL "")
  set(CONVOY_CUTLASS_INCLUDE ${PROJECT_SOURCE_DIR}/build/cutlass/include)
endif()
check_cutlass(${CONVOY_CUTLASS_INCLUDE} CONVOY_NO_CUTLASS)
if("${CONVOY_NO_CUTLASS}" STREQUAL "")
  message(STATUS "CUTLASS ${CONVOY_CUTLASS_VERSION}: ${CONVOY_CUTLASS_INCLUDE}")
else()
  message(STATUS "CUTLASS: off, ${CONVOY_NO_CUTLASS}. Run scripts/cutlass and configure again for cutlass_pooled.")
endif()

# Those that include it see it as a system's headers; the planner's side hears why it is not there.
file(GLOB cutlass_units CONFIGURE_DEPENDS ${cutlass_pooled}/cutlass_pooled_128x*.cu)
set_source_files_properties(${cutlass_units} PROPERTIES COMPILE_OPTIONS "-isystem;${CONVOY_CUTLASS_INCLUDE}")
if(CONVOY_NO_CUTLASS)
  set_source_files_properties(
    ${cutlass_pooled}/cutlass_pooled.cpp ${cutlass_pooled}/cutlass_pooled_kernel.cpp
    PROPERTIES COMPILE_DEFINITIONS "CONVOY_NO_CUTLASS=\"${CONVOY_NO_CUTLASS}\"")
endif()

# The peers of bench/peers_cutlass.py, not part of `all`: cmake --build --preset cuda --target cutlass_peers
function(add_cutlass_peers)
  add_custom_target(cutlass_peers)
  # Rows and filters of a CTA, filters of a warp, stages of the pipeline.
  foreach(tile "128;64;32;4" "128;128;64;4" "256;128;64;3" "128;256;64;3")
    list(GET tile 0 rows)
    list(GET tile 1 filters)
    list(GET tile 2 warp)
    list(GET tile 3 stages)
    set(name cutlass_conv_${rows}x${filters})
    add_library(${name} SHARED EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/cutlass_conv.cu)
    set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "90-real"
                                             LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/peers)
    target_compile_definitions(${name} PRIVATE TILE_M=${rows} TILE_N=${filters} WARP_N=${warp} STAGES=${stages})
    target_include_directories(${name} SYSTEM PRIVATE ${CONVOY_CUTLASS_INCLUDE})
    target_compile_options(${name} PRIVATE --expt-relaxed-constexpr)
    add_dependencies(cutlass_peers ${name})
  endforeach()
endfunction()
if(NOT CONVOY_NO_CUTLASS AND CONVOY_CLI)
  add_cutlass_peers()
endif()
