# The library `convoy_teaching`, for the program and the tests: kernels to learn from and to compare with. They are no
# part of `convoy`, and teaching::add_kernels() puts them into its kernel table. Not installed; without CUDA it is empty.
set(teaching ${PROJECT_SOURCE_DIR}/src/teaching)
set(teaching_sources ${teaching}/add_kernels.cpp)
if(CONVOY_HAS_CUDA)
  file(GLOB_RECURSE teaching_sources CONFIGURE_DEPENDS ${teaching}/*.cpp)
endif()
add_part(convoy_teaching convoy_internal ${teaching_sources})

if(CONVOY_HAS_CUDA)
  include(${CMAKE_CURRENT_LIST_DIR}/cutlass.cmake)
  set_source_files_properties(${teaching}/add_kernels.cpp PROPERTIES COMPILE_DEFINITIONS CONVOY_CUDA)
  target_include_directories(convoy_teaching SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  # As in cuda.cmake: what the .cu files of a folder are compiled for.
  set(architectures_of_ladder ${CONVOY_CUDA_ARCHITECTURES})  # Turing and later ones
  set(architectures_of_cutlass_pooled ${architectures_of_sm80})
  foreach(folder ladder cutlass_pooled)
    file(GLOB kernels CONFIGURE_DEPENDS ${teaching}/${folder}/*.cu)
    if(CONVOY_NO_CUTLASS)
      list(REMOVE_ITEM kernels ${cutlass_units})
    endif()
    set(library convoy_gpu_teaching_${folder})
    add_gpu_library(${library} "${architectures_of_${folder}}" ${kernels})
    # It is linked with a static library in any case (convoy_internal).
    target_compile_definitions(${library} PRIVATE CONVOY_STATIC)
    target_sources(convoy_teaching PRIVATE $<TARGET_OBJECTS:${library}>)
  endforeach()
endif()
