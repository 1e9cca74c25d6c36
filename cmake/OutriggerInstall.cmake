# SPDX-License-Identifier: Apache-2.0
# Headers, the shared library, a pkg-config file and a CMake package; all may be moved afterwards. Components: library (with the
# plugins), development, tools.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(OTR_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/outrigger)

install(TARGETS outrigger EXPORT outrigger-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(TARGETS outrigger_simulated outrigger_cuda outrigger_mpi outrigger_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY c_api/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)

install(EXPORT outrigger-targets NAMESPACE outrigger:: DESTINATION ${OTR_PACKAGE_DIR} COMPONENT development)
configure_package_config_file(cmake/outrigger-config.cmake.in outrigger-config.cmake
  INSTALL_DESTINATION ${OTR_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may break its predecessor's programs.
write_basic_package_version_file(outrigger-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/outrigger-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/outrigger-config-version.cmake
  DESTINATION ${OTR_PACKAGE_DIR} COMPONENT development)

# pkg-config: paths are told from where the .pc file lies.
file(RELATIVE_PATH OTR_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/outrigger.pc.in outrigger.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/outrigger.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

if(PROJECT_IS_TOP_LEVEL)
  include(OutriggerPackages)
endif()
