/*
 * clock.h - time that only goes forward.
 */
#ifndef LS_CORE_CLOCK_H
#define LS_CORE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC; the same clock in all processes of a host. */
int64_t ls_now_ns(void);

/* Nanoseconds of processor time that the calling thread has used. */
int64_t ls_thread_cpu_ns(void);

/* Sleeps at least so many nanoseconds, through signals too. */
void ls_sleep_ns(int64_t ns);

#endif
