# find_package(Sightline COMPONENTS core) for projects outside the tree. The core is what is installed;
# the rest (models, text generation) is the program's.
if(NOT SIGHTLINE_INSTALL)
  return()
endif()
include(CMakePackageConfigHelpers)
set(package_folder lib/cmake/Sightline)
install(TARGETS sightline_core EXPORT SightlineTargets)
install(EXPORT SightlineTargets NAMESPACE sightline:: DESTINATION ${package_folder})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/SightlineConfig.cmake.in
  ${PROJECT_BINARY_DIR}/SightlineConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/SightlineConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/SightlineConfig.cmake ${PROJECT_BINARY_DIR}/SightlineConfigVersion.cmake
  DESTINATION ${package_folder})
