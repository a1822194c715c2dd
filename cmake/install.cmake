# What is installed of the library (CONVOY_INSTALL): itself, its headers, and what finds them, for CMake and for
# pkg-config.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/convoy)
install(TARGETS convoy EXPORT convoy_targets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/convoy ${PROJECT_BINARY_DIR}/generated/convoy
        TYPE INCLUDE FILES_MATCHING PATTERN "*.hpp")
install(EXPORT convoy_targets NAMESPACE convoy:: FILE convoyTargets.cmake
        DESTINATION ${package_folder})
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/convoyConfig.cmake.in ${PROJECT_BINARY_DIR}/convoyConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
configure_file(${PROJECT_SOURCE_DIR}/cmake/convoyConfigVersion.cmake.in
               ${PROJECT_BINARY_DIR}/convoyConfigVersion.cmake @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/convoyConfig.cmake
              ${PROJECT_BINARY_DIR}/convoyConfigVersion.cmake DESTINATION ${package_folder})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# For builds without CMake. The prefix is told from where the file lies, so that an installed tree may be moved.
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${pkgconfig_folder})
  set(convoy_pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH convoy_pc_prefix /prefix/${pkgconfig_folder} /prefix)
  string(REGEX REPLACE "/$" "" convoy_pc_prefix "\${pcfiledir}/${convoy_pc_prefix}")
endif()
foreach(folder includedir libdir)
  string(TOUPPER CMAKE_INSTALL_${folder} variable)
  cmake_path(APPEND convoy_pc_${folder} "\${prefix}" ${${variable}})  # an absolute one replaces the prefix
endforeach()
# As in convoyConfig.cmake.in: a shared libconvoy brings along what it calls.
set(convoy_pc_requires)
set(convoy_pc_libs)
set(convoy_pc_cflags)
if(NOT BUILD_SHARED_LIBS)
  set(convoy_pc_requires "libhwy, zlib, fmt")
  set(convoy_pc_cflags " -DCONVOY_STATIC")
  if(CONVOY_HAS_CUDA)
    set(convoy_pc_libs "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lrt -lpthread -ldl")
  endif()
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/convoy.pc.in ${PROJECT_BINARY_DIR}/convoy.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/convoy.pc DESTINATION ${pkgconfig_folder})
