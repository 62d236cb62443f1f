/*
 * clones.h - run-time dispatch by instruction set.
 *
 * A function marked LS_CLONES is compiled for AVX-512, AVX2 and the baseline, and the dynamic
 * linker picks one when the program starts.  The source is one: with -ffp-contract=off each
 * element goes through the same IEEE operations in all of them, so the variants agree to the
 * bit wherever sums have fixed lanes.  Elsewhere (other processors and compilers, sanitizers,
 * whose runtime starts after the linker's choice) there is one variant, the compiler's.
 */
#ifndef LS_CORE_KERNELS_CLONES_H
#define LS_CORE_KERNELS_CLONES_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(LS_NO_CLONES)
#define LS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LS_CLONES
#endif

/* For the parts of such a function: inlined into each of its variants. */
#define LS_INLINE static inline __attribute__((always_inline))

#endif
