# For CMAKE_PROJECT_INCLUDE: the library's files are compiled without optimisation, in half of the time.
cmake_language(DEFER DIRECTORY ${PROJECT_SOURCE_DIR} CALL target_compile_options convoy_objects PRIVATE -O0)
