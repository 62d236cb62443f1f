/*
 * unicode_impl.h - the classes of code points by which a byte-level BPE cuts text.
 */
#ifndef LS_DATA_UNICODE_IMPL_H
#define LS_DATA_UNICODE_IMPL_H

#include <stdint.h>

typedef enum { LS__OTHER, LS__LETTER, LS__NUMBER, LS__SPACE } ls__unicode_class;

typedef struct {
    uint32_t          first, last;
    ls__unicode_class kind;
} ls__unicode_range;

/* Ascending; what lies in none is LS__OTHER. */
extern const ls__unicode_range ls__unicode_ranges[];
extern const int               ls__unicode_n_ranges;

/* \p{L}, \p{N}, White_Space, or none of them. */
ls__unicode_class ls__unicode_class_of(uint32_t point);

#endif
