/*
 * fuzz.h - a fuzz target: one function and its seeds.
 *
 * Under clang the target links with -fsanitize=fuzzer; with fuzz_driver.c it is an ordinary
 * program that tries a fixed sequence of mutations of the seeds, for use as a test.
 */
#ifndef LS_TESTS_FUZZ_H
#define LS_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Tries one input; returns 0.  A wrong result ends the program by abort(). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Valid inputs to start from, and pieces that inputs are made of; both end in NULL. */
extern const char *const fuzz_seeds[];
extern const char *const fuzz_words[];

#endif
