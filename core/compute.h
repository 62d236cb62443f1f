/*
 * compute.h - makes a thread ready to compute: BLAS, its self-test, and a pool of threads.
 *
 *     if (ls_compute_start(0) != LS_OK) ...     once, before the first tape
 *     ...
 *     ls_compute_stop();
 *
 * A program that leaves this out computes the same bits on one thread, with a BLAS that nobody
 * has tested.
 */
#ifndef LS_CORE_COMPUTE_H
#define LS_CORE_COMPUTE_H

#include "core/error.h"

/*
 * Holds BLAS to one thread a call, tests it (under 20 ms), and lets kernels that the calling
 * thread starts work with `threads` threads, its own among them; 0: ls_cpu_count() of them.
 * Their number changes no bit.  EINVAL for threads < 0 and a BLAS that computes wrong, with
 * what to set; ENOMEM.  On failure there is nothing to stop.  A second start takes the place of
 * the first.
 */
LS_MUST_CHECK ls_status ls_compute_start(int threads);

/* Ends the calling thread's pool and returns cached memory to the system; may be repeated. */
void ls_compute_stop(void);

#endif
