# oneDNN, which multiplies bf16: LS_BF16_SOURCES is what compiles with the one that is here, LS_ONEDNN_LIBRARIES what
# it links.  Its interface changed between 2 and 3, which have a file each.  Found by header and library: its own CMake
# package asks for the OpenCL and OpenMP that it was built with, which a program that links it does not need.
set(LS_BF16_SOURCES core/kernels/gemm_bf16_none.c)
set(LS_ONEDNN_LIBRARIES "")
if(NOT LS_ONEDNN MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LS_ONEDNN is ${LS_ONEDNN}, want AUTO, ON or OFF")
endif()
if(NOT LS_ONEDNN STREQUAL "OFF")
  find_path(LS_ONEDNN_INCLUDE oneapi/dnnl/dnnl.h)
  find_library(LS_ONEDNN_LIBRARY dnnl)
  mark_as_advanced(LS_ONEDNN_INCLUDE LS_ONEDNN_LIBRARY)
endif()
if(NOT LS_ONEDNN STREQUAL "OFF" AND LS_ONEDNN_INCLUDE AND LS_ONEDNN_LIBRARY)
  file(STRINGS ${LS_ONEDNN_INCLUDE}/oneapi/dnnl/dnnl_version.h LS_ONEDNN_VERSION
    REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]+" "" LS_ONEDNN_VERSION "${LS_ONEDNN_VERSION}")
  string(REPLACE ";" "." LS_ONEDNN_VERSION "${LS_ONEDNN_VERSION}")
  string(REGEX REPLACE "\\..*" "" LS_ONEDNN_MAJOR "${LS_ONEDNN_VERSION}")
  message(STATUS "oneDNN ${LS_ONEDNN_VERSION}: ${LS_ONEDNN_LIBRARY}")
endif()
if(LS_ONEDNN_MAJOR MATCHES "^[23]$")
  set(LS_BF16_SOURCES core/kernels/gemm_bf16_onednn.c core/kernels/gemm_bf16_onednn${LS_ONEDNN_MAJOR}.c)
  list(TRANSFORM CMAKE_DL_LIBS PREPEND -l OUTPUT_VARIABLE LS_ONEDNN_DL) # as lockstep.pc needs it
  set(LS_ONEDNN_LIBRARIES ${LS_ONEDNN_LIBRARY} ${LS_ONEDNN_DL})
  list(TRANSFORM LS_ONEDNN_LIBRARIES REPLACE "^dl$" "-ldl") # as pkg-config's file has it too
elseif(LS_ONEDNN STREQUAL "ON")
  message(FATAL_ERROR "LS_ONEDNN is ON, and no oneDNN 2 or 3 was found (Debian: libdnnl-dev)")
else()
  message(STATUS "without oneDNN: products of bf16 are widened to f32")
endif()
