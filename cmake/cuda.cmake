# The GPU kernels as object libraries, which library.cmake makes a part of `convoy`. The host side of
# the families (src/cuda/**/*.cpp) is ordinary C++ and compiled with the rest of the library.

# What the .cu files of a folder of src/cuda are compiled for: machine code for these GPUs (-real),
# and PTX (-virtual) for what comes later. Those directly in src/cuda count as any/.
set(CONVOY_CUDA_ARCHITECTURES "75-real;80-real;90-real;90-virtual")  # every GPU
set(architectures_of_any ${CONVOY_CUDA_ARCHITECTURES})
set(architectures_of_wrap ${CONVOY_CUDA_ARCHITECTURES})
set(architectures_of_sm80 "80-real;90-real;90-virtual")
set(architectures_of_sm90 "90a-real")  # wgmma and setmaxnreg exist in machine code for 9.0a alone

# An object library of .cu files.
function(add_gpu_library name architectures)
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${ARGN})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  target_include_directories(
    ${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/generated)
  # A switch over types or activations says what it does with each of them.
  target_compile_options(${name} PRIVATE -Xcompiler=-Werror=switch)
endfunction()

# Sets `libraries` to an object library for each folder, and `compiled` to their architectures.
function(add_gpu_folders libraries compiled)
  set(root ${PROJECT_SOURCE_DIR}/src/cuda)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${root} ${root}/*.cu)
  set(folders)
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    if(folder STREQUAL "")
      set(folder any)
    endif()
    list(APPEND folders "${folder}")
    list(APPEND sources_of_${folder} ${root}/${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(made)
  set(all)
  foreach(folder IN LISTS folders)
    if(NOT DEFINED architectures_of_${folder})
      message(FATAL_ERROR "src/cuda/${folder} has .cu files, and cmake/cuda.cmake does not say what "
                          "they are compiled for. Give it a line architectures_of_${folder}.")
    endif()
    string(MAKE_C_IDENTIFIER "convoy_gpu_${folder}" library)
    add_gpu_library(${library} "${architectures_of_${folder}}" ${sources_of_${folder}})
    if(NOT BUILD_SHARED_LIBS)
      target_compile_definitions(${library} PRIVATE CONVOY_STATIC)
    endif()
    list(APPEND made ${library})
    list(APPEND all ${architectures_of_${folder}})
  endforeach()
  list(REMOVE_DUPLICATES all)
  list(SORT all)
  set(${libraries} ${made} PARENT_SCOPE)
  set(${compiled} "${all}" PARENT_SCOPE)
endfunction()

add_gpu_folders(convoy_gpu_libraries convoy_gpu_compiled)
# "75-real 80-real ...": what src/cuda/gpu.cpp tells `convoy devices`.
list(JOIN convoy_gpu_compiled " " compiled)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/cuda/gpu.cpp
                            PROPERTIES COMPILE_DEFINITIONS CONVOY_GPU_COMPILED="${compiled}")
