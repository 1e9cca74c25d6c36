include(GNUInstallDirs)
install(TARGETS outrigger EXPORT outrigger-targets)
install(FILES c_api/include/outrigger.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
