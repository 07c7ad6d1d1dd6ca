# sl_library, sl_test: the two ways a target enters the build. The DEPS of sl_library are the one
# source of the layer table; tools/check_layers reads them from the CMakeLists files.

add_library(sightline_flags INTERFACE)
target_compile_features(sightline_flags INTERFACE cxx_std_20)
target_compile_options(sightline_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers
  -ffp-contract=off -fno-math-errno)
if(SIGHTLINE_FUZZ)  # coverage of the libraries, which guides the fuzzer
  target_compile_options(sightline_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(SIGHTLINE_SANITIZE)
  target_compile_options(sightline_flags INTERFACE -fsanitize=${SIGHTLINE_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(sightline_flags INTERFACE -fsanitize=${SIGHTLINE_SANITIZE})
endif()

# sl_library(<folder> DEPS <folders> [LINK <third-party targets>]): a static library from every
# .cc of the calling folder (not of its subfolders), with public headers in include/sightline/<folder>.
# A folder in a folder is named with an underscore: subjects_dump for subjects/dump.
function(sl_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;LINK;SOURCES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  list(APPEND sources ${ARG_SOURCES})
  add_library(sightline_${name} STATIC ${sources})
  add_library(sightline::${name} ALIAS sightline_${name})
  set_target_properties(sightline_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(sightline_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(sightline_${name} PUBLIC cxx_std_20)
  target_link_libraries(sightline_${name} PRIVATE $<BUILD_INTERFACE:sightline_flags>)
  foreach(dep ${ARG_DEPS})
    target_link_libraries(sightline_${name} PUBLIC sightline_${dep})
  endforeach()
  target_link_libraries(sightline_${name} PRIVATE ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY SIGHTLINE_LIBRARIES sightline_${name})
  get_property(core_folders GLOBAL PROPERTY SIGHTLINE_CORE_FOLDERS)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  if(SIGHTLINE_INSTALL AND folder IN_LIST core_folders)
    install(TARGETS sightline_${name} EXPORT SightlineTargets ARCHIVE)
    get_filename_component(parent ${folder} DIRECTORY)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/sightline/${folder} DESTINATION include/sightline/${parent})
  endif()
endfunction()

# sl_test(<folder> DEPS <folders> [LINK <targets>] [LABELS <labels>]): one program per folder of tests/,
# from every *_test.cc in it, as one ctest test. Labels: fast (the default) runs everywhere, also under
# ASan and UBSan; threads also under TSan; full only in the whole ./verify. The target tests_<label> builds
# all programs of a label. A folder whose libraries are not in this build is left out.
function(sl_test name)
  cmake_parse_arguments(ARG "" "" "DEPS;LINK;LABELS" ${ARGN})
  foreach(dep ${ARG_DEPS})
    if(NOT TARGET sightline_${dep})
      message(STATUS "tests/${name}: left out, sightline_${dep} is not in this build")
      return()
    endif()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  add_executable(${name}_test ${sources})
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE sightline_flags GTest::gtest_main fmt::fmt ${ARG_LINK})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${name}_test PRIVATE sightline_${dep})
  endforeach()
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  add_test(NAME ${name} COMMAND ${name}_test)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "SIGHTLINE_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
  sl_label(${name} ${name}_test ${ARG_LABELS})
endfunction()

# sl_label(<test> <program> <labels>): labels a ctest test, and lets tests_<label> build its program.
function(sl_label test program)
  set_tests_properties(${test} PROPERTIES LABELS "${ARGN}")
  foreach(label ${ARGN})
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${program})
  endforeach()
endfunction()
