# Warnings and sanitizers as targets that are linked PRIVATE, so users never inherit them.
add_library(ls_warnings INTERFACE)
target_compile_options(ls_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
  -Wundef -Wvla -Wwrite-strings -Wswitch-enum -Wpointer-arith)
if(LS_WERROR)
  target_compile_options(ls_warnings INTERFACE -Werror)
endif()
if(LS_SANITIZE)
  target_compile_options(ls_warnings INTERFACE
    -fsanitize=${LS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ls_warnings INTERFACE -fsanitize=${LS_SANITIZE})
endif()
if(LS_COVERAGE)
  add_library(ls_coverage STATIC tests/coverage_exit.c)
  target_compile_options(ls_warnings INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(ls_warnings INTERFACE --coverage -Wl,--wrap=_exit)
  target_link_libraries(ls_warnings INTERFACE ls_coverage)
endif()
