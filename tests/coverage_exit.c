/*
 * coverage_exit.c - what a build with LS_COVERAGE does at the end of a process.
 *
 * gcov's counters are written at exit(); ranks that were forked leave by _exit(), and what they
 * ran would not count.  The linker puts the function below in its place (-Wl,--wrap=_exit).  A
 * limit on the size of files, with which a test has played a full disk, would cut the counters
 * of all tests.
 */
#include <sys/resource.h>

void           __gcov_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);

/* Runs before gcov's own destructor. */
__attribute__((destructor)) static void lift_limit(void)
{
    struct rlimit limit;

    if (!getrlimit(RLIMIT_FSIZE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_FSIZE, &limit);
    }
}

void __wrap__exit(int status)
{
    lift_limit();
    __gcov_dump();
    __real__exit(status);
}
