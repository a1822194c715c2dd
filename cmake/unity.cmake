# CONVOY_UNITY compiles several files of a folder as one. What they include is then read once: a
# whole build takes two thirds of the time, one after a small change more. For builds that are made
# anew each time, as all in .ci/run. Names in files of one folder must differ, in all folders of cpu too,
# also those that no other file sees.
set(CONVOY_UNITY OFF CACHE STRING "Compile several files of a folder as one: ON, OFF or the targets to do it for")

# Sets ${result} to those of the target's files that have vector loops: Highway compiles them once for each instruction
# set.
function(convoy_loops target result)
  set(found)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(path ${source} ABSOLUTE)
    if(NOT EXISTS ${path})
      continue()
    endif()
    file(STRINGS ${path} loops REGEX "HWY_TARGET_INCLUDE" LIMIT_COUNT 1)
    if(loops)
      list(APPEND found ${source})
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()

# Left out are files with vector loops, and those that a build with CUDA or another clone lacks or compiles otherwise:
# the others' unions are then the same in both, and the compiler cache has them.
function(convoy_unite target)
  if(NOT CONVOY_UNITY STREQUAL ON AND NOT target IN_LIST CONVOY_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  convoy_loops(${target} loops)
  foreach(source IN LISTS sources)
    if(source IN_LIST loops OR source MATCHES "/(no_gpu[a-z_]*|kernel_table|add_kernels|gpu_facts|source_path)\\.cpp$")
      continue()
    endif()
    get_filename_component(path ${source} ABSOLUTE)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${path})
    get_filename_component(folder ${path} DIRECTORY)
    if(NOT folder MATCHES "^(src/(core|cpu/.*|cuda(/.*)?|io|network|plan|verify|(inspect|teaching)(/.*)?)|cli|bench|report|tests/.*)$")
      continue()
    endif()
    string(REGEX REPLACE "^src/(cpu|cuda|inspect|teaching)/.*" "src/\\1" folder ${folder})  # few files each
    string(MAKE_C_IDENTIFIER ${folder} name)
    math(EXPR count_${name} "${count_${name}} + 1")
    math(EXPR group "(${count_${name}} - 1) / 24")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${group})
  endforeach()
  # Types that no other file sees are in a file that is included, and that is what it is about. The compiler's garbage
  # collector waits for 1 GB: on less, which is the default, it spends a twentieth of the time.
  target_compile_options(
    ${target}
    PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage;--param=ggc-min-heapsize=1048576>")
endfunction()
