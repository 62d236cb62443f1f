# What `cmake --install` gives: the command, both libraries, the public headers, pkg-config, the CMake package
# `lockstep`, the man page and bash completion.  tests/consumer/ uses all of it.
include(CMakePackageConfigHelpers)

ls_add_library(ls_shared SHARED ls_objects)
set_target_properties(ls_shared PROPERTIES OUTPUT_NAME lockstep EXPORT_NAME lockstep
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
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
install(FILES dist/ddp.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/dist)
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

install(FILES docs/man/lockstep.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES cmake/lockstep.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME lockstep)
