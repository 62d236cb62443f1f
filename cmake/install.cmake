# What `cmake --install` gives: the command, both libraries, the public headers, pkg-config, the CMake package
# `lockstep`, the man pages and bash completion.  tests/consumer/ uses all of it.
include(CMakePackageConfigHelpers)

# Before 1.0 a minor version may change the interface: the soname and the symbols' version name both.
set(LS_ABI ${PROJECT_VERSION_MAJOR})
if(LS_ABI EQUAL 0)
  set(LS_ABI ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
configure_file(cmake/lockstep.map.in ${PROJECT_BINARY_DIR}/lockstep.map @ONLY)
ls_add_library(ls_shared SHARED ls_objects)
set_target_properties(ls_shared PROPERTIES OUTPUT_NAME lockstep EXPORT_NAME lockstep
  VERSION ${PROJECT_VERSION} SOVERSION ${LS_ABI} LINK_DEPENDS ${PROJECT_BINARY_DIR}/lockstep.map)
target_link_options(ls_shared PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/lockstep.map)
set_target_properties(ls_static PROPERTIES OUTPUT_NAME lockstep EXPORT_NAME lockstep_static)
add_library(lockstep::lockstep ALIAS ls_shared)
add_library(lockstep::lockstep_static ALIAS ls_static)

install(TARGETS ls_shared ls_static EXPORT lockstep_targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET lockstep_command)
  install(TARGETS lockstep_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Public headers, folders as in the sources: private ones end in _impl.h, kernels are raw loops.
foreach(layer core autograd nn optim data checkpoint)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${layer})
    install(DIRECTORY ${layer} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep
      FILES_MATCHING PATTERN "*.h" PATTERN "*_impl.h" EXCLUDE PATTERN "kernels" EXCLUDE PATTERN "ops" EXCLUDE)
  endif()
endforeach()
# Of ranks: what a program calls; transports and algorithms stay inside.
foreach(header board call comm join local_world recorder rendezvous)
  install(FILES dist/comm/${header}.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/dist/comm)
endforeach()
install(FILES dist/ddp.h dist/fsdp.h dist/shard.h dist/strategy.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/dist)
install(FILES lockstep.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)

# Both find the tree from where they lie, so that it can be moved and staged.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
configure_package_config_file(cmake/lockstep-config.cmake.in ${PROJECT_BINARY_DIR}/lockstep-config.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(EXPORT lockstep_targets NAMESPACE lockstep:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/lockstep-config.cmake ${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH LS_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
# Not Requires.private: OpenBLAS's file asks for libgfortran, which a link with its shared library does not need.
string(JOIN " " LS_PC_PRIVATE ${OPENBLAS_LDFLAGS} ${CJSON_LDFLAGS} ${MPI_C_LIBRARIES} ${LS_ONEDNN_LIBRARIES})
configure_file(cmake/lockstep.pc.in ${PROJECT_BINARY_DIR}/lockstep.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lockstep.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Man pages and completion say what `lockstep COMMAND --help` says: ls_gen_man asks the command.
if(TARGET lockstep_command)
  add_executable(ls_gen_man cli/gen_man.c)
  target_compile_definitions(ls_gen_man PRIVATE _POSIX_C_SOURCE=200809L LS_VERSION="${PROJECT_VERSION}")
  target_link_libraries(ls_gen_man PRIVATE ls_cli ls_warnings)
  set(man_pages ${PROJECT_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${man_pages}/lockstep.1 ${man_pages}/lockstep.bash
    COMMAND ls_gen_man $<TARGET_FILE:lockstep_command> ${PROJECT_SOURCE_DIR}/docs/man ${man_pages}
    DEPENDS ls_gen_man lockstep_command docs/man/lockstep.1.in docs/man/lockstep.bash.in
    COMMENT "Generating man pages and completion" VERBATIM)
  add_custom_target(ls_man ALL DEPENDS ${man_pages}/lockstep.1)
  install(DIRECTORY ${man_pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
  install(FILES ${man_pages}/lockstep.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    RENAME lockstep)
endif()
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# `cpack` in the build folder makes lockstep_VERSION_ARCH.deb; what it depends on is found by dpkg-shlibdeps.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains neural networks on CPUs, to the same bits on one process or many")
set(CPACK_PACKAGE_CONTACT "The Lockstep authors")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "pkg-config, bash-completion")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
