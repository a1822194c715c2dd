# The library `convoy`, and `convoy_internal` for the program and the tests, which call below the
# public headers.
include(GNUInstallDirs)

configure_file(${PROJECT_SOURCE_DIR}/cmake/version.hpp.in
               ${PROJECT_BINARY_DIR}/generated/convoy/version.hpp @ONLY)

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpp)
list(FILTER sources EXCLUDE REGEX "/src/(inspect|teaching|verify)/")
if(CONVOY_HAS_CUDA)
  include(${PROJECT_SOURCE_DIR}/cmake/cuda.cmake)
  list(FILTER sources EXCLUDE REGEX "/src/core/no_gpu")
else()
  list(FILTER sources EXCLUDE REGEX "/src/cuda/")
endif()
# The GPU families' host arithmetic, which `explain --map` shows where there is no CUDA, too: there it
# is a part of convoy_inspect.
set(gpu_arithmetic device_facts known_gpus limits refusals stage_facts any/depthwise_tile any/few_filters_layout any/fma_tile sm80/window_box sm80/window_cost
    sm80/window_tile sm90/few_tile sm90/first_tile sm90/halo_cost sm90/halo_layout sm90/halo_maps sm90/halo_rings sm90/halo_taps sm90/halo_tile sm90/halo_walk sm90/pair_tile
    wrap/winograd_tile)

# Measured tables that ship with the library, as text in it.
file(GLOB tuned_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/plan/tuned/*.json)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tuned_files})
set(tuned_tables)
foreach(tuned_file IN LISTS tuned_files)
  file(READ ${tuned_file} table)
  string(APPEND tuned_tables "R\"json(${table})json\",\n")
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/src/plan/tuned/tables.cpp.in
               ${PROJECT_BINARY_DIR}/generated/tuned_tables.cpp @ONLY)

# Which build this is. The commit is looked up at every build, and only src/core/build.cpp is compiled again for it.
set(CONVOY_COMMIT "" CACHE STRING "The commit's name, where the source is no clone of the repository")
set(commit_header ${PROJECT_BINARY_DIR}/generated/commit.hpp)
add_custom_target(
  convoy_commit
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUT=${commit_header} "-DGIVEN=${CONVOY_COMMIT}"
          -P ${PROJECT_SOURCE_DIR}/cmake/write_commit.cmake
  BYPRODUCTS ${commit_header}
  COMMENT "Looking up the commit"
  VERBATIM)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
string(TOLOWER "${CMAKE_CXX_COMPILER_ID}" compiler)
string(REPLACE gnu gcc compiler "${compiler}")
set(cuda_compiler)
if(CONVOY_HAS_CUDA)
  set(cuda_compiler "nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} -ffp-contract=off" compiler_flags)
set_source_files_properties(
  ${PROJECT_SOURCE_DIR}/src/core/build.cpp
  PROPERTIES COMPILE_DEFINITIONS
             "CONVOY_COMPILER=\"${compiler} ${CMAKE_CXX_COMPILER_VERSION}\";CONVOY_CUDA_COMPILER=\"${cuda_compiler}\";CONVOY_FLAGS=\"${compiler_flags}\"")

add_library(convoy_objects OBJECT ${sources} ${PROJECT_BINARY_DIR}/generated/tuned_tables.cpp)
add_dependencies(convoy_objects convoy_commit)
convoy_unite(convoy_objects)
target_link_libraries(convoy_objects PRIVATE convoy_options hwy::hwy ${CMAKE_DL_LIBS} ZLIB::ZLIB fmt::fmt
                                             nlohmann_json::nlohmann_json)
# The tests wait for the oracle. Its innermost loops, over spans that reference.cpp has checked, run as the release's
# under sanitizers and emulators, too.
set(reference ${PROJECT_SOURCE_DIR}/src/reference)
if(NOT CMAKE_BUILD_TYPE STREQUAL Debug)
  set_source_files_properties(${reference}/products.cpp PROPERTIES COMPILE_OPTIONS -O3)
endif()
if(CONVOY_SANITIZE)
  set_source_files_properties(${reference}/reference.cpp PROPERTIES COMPILE_OPTIONS "-O2;-D_GLIBCXX_ASSERTIONS")
  set_source_files_properties(${reference}/products.cpp PROPERTIES COMPILE_OPTIONS "-O3;-fno-sanitize=all")
endif()
set(convoy_parts $<TARGET_OBJECTS:convoy_objects>)
if(CONVOY_HAS_CUDA)
  foreach(library IN LISTS convoy_gpu_libraries)
    list(APPEND convoy_parts $<TARGET_OBJECTS:${library}>)
  endforeach()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/plan/kernel_table.cpp PROPERTIES COMPILE_DEFINITIONS CONVOY_CUDA)
  target_include_directories(convoy_objects SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  set(convoy_cudart CUDA::cudart_static)
endif()
target_include_directories(
  convoy_objects
  PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/generated
  PRIVATE ${PROJECT_SOURCE_DIR}/src)

add_library(convoy ${convoy_parts})
add_library(convoy::convoy ALIAS convoy)
# Below 1.0 a minor version may change the interface, as CHANGELOG.md says.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(convoy_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
else()
  set(convoy_soversion ${PROJECT_VERSION_MAJOR})
endif()
set_target_properties(convoy PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${convoy_soversion})
target_compile_features(convoy INTERFACE cxx_std_20)
target_include_directories(
  convoy
  INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
            $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(
  convoy PRIVATE $<BUILD_INTERFACE:convoy_options> hwy::hwy ${CMAKE_DL_LIBS} ZLIB::ZLIB fmt::fmt
                 $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> ${convoy_cudart})

# A shared library hides what the program and the tests call, so they get the objects themselves.
add_library(convoy_internal INTERFACE)
target_include_directories(convoy_internal INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(convoy_internal INTERFACE convoy_options hwy::hwy ${CMAKE_DL_LIBS} ZLIB::ZLIB
                                                fmt::fmt nlohmann_json::nlohmann_json
                                                ${convoy_cudart})
if(BUILD_SHARED_LIBS)
  add_library(convoy_whole STATIC ${convoy_parts})
  target_include_directories(convoy_whole INTERFACE ${PROJECT_SOURCE_DIR}/include
                                                    ${PROJECT_BINARY_DIR}/generated)
  # Within one program nothing is imported; what uses it is compiled as in a static build, object for object.
  target_compile_definitions(convoy_whole INTERFACE CONVOY_STATIC)
  # Its own, so that they come behind it on the linker's line: --as-needed drops what comes before.
  target_link_libraries(convoy_whole INTERFACE hwy::hwy ${CMAKE_DL_LIBS} ZLIB::ZLIB fmt::fmt
                                               ${convoy_cudart})
  target_link_libraries(convoy_internal INTERFACE convoy_whole)
else()
  target_compile_definitions(convoy_objects PUBLIC CONVOY_STATIC)
  target_compile_definitions(convoy INTERFACE CONVOY_STATIC)
  target_link_libraries(convoy_internal INTERFACE convoy)
endif()

# For the program and the tests, not installed: convoy_verify, the parity engine, convoy_inspect, what takes networks
# and kernels apart, and convoy_teaching (teaching.cmake).
function(add_part name below)
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${ARGN})
  convoy_unite(${name})
  # It formats text, mostly: with address sanitizer the compiler needs twice the time to optimise that. For Arm
  # an emulator runs little of it.
  if(CONVOY_SANITIZE MATCHES address OR CMAKE_CROSSCOMPILING)
    target_compile_options(${name} PRIVATE ${convoy_compiled_quickly})
  endif()
  target_link_libraries(${name} PUBLIC ${below})
endfunction()
file(GLOB_RECURSE verify_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/verify/*.cpp)
file(GLOB_RECURSE inspect_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/inspect/*.cpp)
if(NOT CONVOY_HAS_CUDA)
  list(TRANSFORM gpu_arithmetic REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/cuda/\\1.cpp")
  list(APPEND inspect_sources ${gpu_arithmetic})
endif()
add_part(convoy_verify convoy_internal ${verify_sources})
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/verify/source_path.cpp
                            PROPERTIES COMPILE_DEFINITIONS CONVOY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
add_part(convoy_inspect convoy_verify ${inspect_sources})
include(${CMAKE_CURRENT_LIST_DIR}/teaching.cmake)
