# The Python package (CONVOY_PYTHON): the extension module with the library in it, its stubs, the program and the
# demo's model. scikit-build-core installs the component `python` into the wheel (pyproject.toml).
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)

file(GLOB python_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/bindings/*.cpp)
# nanobind's own part is the package nanobind-backend, so that one module serves Python 3.11 and later: below 3.12 its
# code is no part of the stable interface.
nanobind_add_module(convoy_python BACKEND_MODULE nanobind_backend STABLE_ABI_VERSION 3.11 NB_DOMAIN convoy
                    NB_SUPPRESS_WARNINGS NOMINSIZE ${python_sources})
set_target_properties(convoy_python PROPERTIES OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python)
# Calls are measured in hundreds of nanoseconds.
target_compile_options(convoy_python PRIVATE -O2)
target_link_libraries(convoy_python PRIVATE convoy_internal)
install(TARGETS convoy_python LIBRARY DESTINATION convoy COMPONENT python)

nanobind_add_stub(convoy_stub MODULE _core OUTPUT ${PROJECT_BINARY_DIR}/python/_core.pyi
                  PYTHON_PATH ${PROJECT_BINARY_DIR}/python DEPENDS convoy_python)
install(FILES ${PROJECT_BINARY_DIR}/python/_core.pyi DESTINATION convoy COMPONENT python)

install(PROGRAMS $<TARGET_FILE:convoy_cli> DESTINATION convoy/bin COMPONENT python)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/fashion-scnn DESTINATION convoy/models COMPONENT python)
