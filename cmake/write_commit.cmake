# Run at every build: writes the commit that is built to OUT, and touches the file only if that changed. SOURCE: the
# source tree. GIVEN: the commit's name where the tree is no clone (CONVOY_COMMIT).
set(commit "${GIVEN}")
set(dirty false)
if(commit STREQUAL "")
  find_program(GIT git)
  if(GIT)
    execute_process(COMMAND ${GIT} rev-parse --show-toplevel WORKING_DIRECTORY ${SOURCE}
                    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    get_filename_component(here ${SOURCE} REALPATH)
    # A copy inside somebody else's repository has no commit of its own.
    if(top STREQUAL here)
      execute_process(COMMAND ${GIT} rev-parse --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
                      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      execute_process(COMMAND ${GIT} status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE}
                      OUTPUT_VARIABLE changes ERROR_QUIET)
      if(NOT changes STREQUAL "")
        set(dirty true)
      endif()
    endif()
  endif()
endif()
set(text "// Written by cmake/write_commit.cmake.\n#define CONVOY_COMMIT \"${commit}\"\n#define CONVOY_DIRTY ${dirty}\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUT} "${text}")
endif()
