/*
 * coverage_exit.c - _exit() of a build with LS_COVERAGE, which writes the counters first.
 *
 * gcov's counters are written at exit(); ranks that were forked leave by _exit(), and what they
 * ran would not count.  The linker puts this in its place (-Wl,--wrap=_exit).
 */
void           __gcov_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);

void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}
