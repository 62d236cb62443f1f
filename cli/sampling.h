/*
 * sampling.h - the choice of the next token from its logits.
 */
#ifndef LS_CLI_SAMPLING_H
#define LS_CLI_SAMPLING_H

#include "core/dtype.h"
#include "core/error.h"

typedef struct {
    double   temperature; /* 0: always the likeliest token, the first of equal ones */
    int64_t  top_k;       /* only the k likeliest; 0: all */
    double   top_p; /* of these, only as many of the likeliest as make up p of their weight */
    uint64_t seed;
} ls_sampling;

/* A token and its logit or weight. */
typedef struct {
    int32_t token;
    double  weight;
} ls_candidate;

/*
 * The token number `index` of a text, a function of seed, index and logits alone: softmax of
 * logits / temperature, cut down by top_k, then by top_p (Holtzman et al. 2020,
 * arXiv:1904.09751), and one draw.  room: n candidates.  ENOTFINITE for logits that are NaN or
 * have no largest.
 */
LS_MUST_CHECK ls_status ls_sample(const ls_sampling *s, const ls_real *logits, int64_t n,
                                  uint64_t index, ls_candidate *room, int32_t *token);

#endif
