# `cmake --install`: the headers, a static and a shared library, a CMake package and a pkg-config
# file. A program links rnnlayout::rnnlayout (shared) or rnnlayout::static.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(rnnlayout_shared SHARED $<TARGET_OBJECTS:rnnlayout>)
target_link_libraries(rnnlayout_shared PRIVATE ${system_libraries})
target_include_directories(rnnlayout_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Before 1.0 a minor version may change the binary interface: docs/compatibility.md.
set_target_properties(rnnlayout_shared PROPERTIES OUTPUT_NAME rnnlayout EXPORT_NAME rnnlayout
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  target_link_options(rnnlayout_shared PRIVATE -Wl,-z,now,-z,relro)
endif()
set_target_properties(rnnlayout PROPERTIES EXPORT_NAME static)

install(FILES csrc/include/rnnlayout.h csrc/include/rnnlayout.hpp TYPE INCLUDE)
install(TARGETS rnnlayout rnnlayout_shared EXPORT rnnlayout)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/rnnlayout)
install(EXPORT rnnlayout NAMESPACE rnnlayout:: FILE targets.cmake DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rnnlayout-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES cmake/rnnlayout-config.cmake ${PROJECT_BINARY_DIR}/rnnlayout-config-version.cmake
  DESTINATION ${package})
configure_file(cmake/rnnlayout.pc.in ${PROJECT_BINARY_DIR}/rnnlayout.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/rnnlayout.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
