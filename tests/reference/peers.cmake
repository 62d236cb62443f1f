# The programs that compare collectives: ours, and those of gloo and MPI where they are found.
# All in one folder, so that bench/collectives_peers.py finds them.
add_library(collective_peer STATIC reference/collective_peer.c)
target_compile_definitions(collective_peer PRIVATE _POSIX_C_SOURCE=200809L)
target_include_directories(collective_peer PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/reference)
target_link_libraries(collective_peer PUBLIC m PRIVATE ls_warnings)

add_executable(comm_all_reduce reference/comm_all_reduce.c)
target_link_libraries(comm_all_reduce PRIVATE collective_peer ls_ranks ls_warnings)
add_executable(memory_rate bench/memory_rate.c)
target_compile_definitions(memory_rate PRIVATE _POSIX_C_SOURCE=200809L)
target_link_libraries(memory_rate PRIVATE Threads::Threads ls_warnings)

# A sanitizer would judge the peers, not us.
set(gloo_peer -)
set(mpi_peer -)
if(NOT LS_SANITIZE AND NOT LS_COVERAGE)
  include(CheckLanguage)
  check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    find_path(GLOO_INCLUDE_DIR gloo/allreduce.h)
    find_library(GLOO_LIBRARY gloo)
    mark_as_advanced(GLOO_INCLUDE_DIR GLOO_LIBRARY)
  endif()
  find_package(MPI QUIET COMPONENTS C)
  if(MPIEXEC_EXECUTABLE)
    execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE mpi_version ERROR_QUIET)
  endif()
endif()
if(GLOO_LIBRARY AND GLOO_INCLUDE_DIR AND CMAKE_CXX_COMPILER)
  add_executable(gloo_all_reduce reference/gloo_all_reduce.cc)
  target_compile_features(gloo_all_reduce PRIVATE cxx_std_17)
  target_compile_options(gloo_all_reduce PRIVATE -Wall -Wextra)
  target_include_directories(gloo_all_reduce SYSTEM PRIVATE ${GLOO_INCLUDE_DIR})
  target_link_libraries(gloo_all_reduce PRIVATE collective_peer ${GLOO_LIBRARY} Threads::Threads)
  set(gloo_peer $<TARGET_FILE:gloo_all_reduce>)
endif()
if(MPI_C_FOUND AND mpi_version MATCHES "Open MPI|OpenRTE") # whose options the scripts use
  add_executable(mpi_all_reduce reference/mpi_all_reduce.c)
  target_compile_definitions(mpi_all_reduce PRIVATE _POSIX_C_SOURCE=200809L)
  target_link_libraries(mpi_all_reduce PRIVATE collective_peer MPI::MPI_C ls_warnings)
  set(mpi_peer $<TARGET_FILE:mpi_all_reduce>)
endif()

add_test(NAME reference_collectives COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/reference/run_reference.sh
  ${CMAKE_CURRENT_SOURCE_DIR}/reference/check_collectives.py $<TARGET_FILE:comm_all_reduce>
  ${gloo_peer} ${mpi_peer} ${MPIEXEC_EXECUTABLE})
set_tests_properties(reference_collectives PROPERTIES LABELS "reference;dist" TIMEOUT 600 PROCESSORS 2
  SKIP_RETURN_CODE 77 ENVIRONMENT "LOCKSTEP_VENV=${PROJECT_BINARY_DIR}/venv")
