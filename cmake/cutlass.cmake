# CUTLASS's headers, which cutlass_pooled is made of: those that scripts/cutlass fetched, or
# CUTLASS_INCLUDE_DIR's. Where they are absent, incomplete or of another version, CONVOY_NO_CUTLASS
# says why, the sources that include them are left out, and the kernel refuses with that reason.
set(CUTLASS_INCLUDE_DIR "" CACHE PATH "The folder of CUTLASS's headers, where it is not scripts/cutlass's")
set(CONVOY_CUTLASS_SOURCES "^sm80/cutlass_pooled_128x[0-9]+\\.cu$")

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
file(GLOB cutlass_units ${PROJECT_SOURCE_DIR}/src/cuda/sm80/cutlass_pooled_128x*.cu)
set_source_files_properties(${cutlass_units} PROPERTIES COMPILE_OPTIONS "-isystem;${CONVOY_CUTLASS_INCLUDE}")
if(CONVOY_NO_CUTLASS)
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/src/cuda/sm80/cutlass_pooled.cpp ${PROJECT_SOURCE_DIR}/src/cuda/sm80/cutlass_pooled_kernel.cpp
    PROPERTIES COMPILE_DEFINITIONS "CONVOY_NO_CUTLASS=\"${CONVOY_NO_CUTLASS}\"")
endif()
