/*
 * op.h - what an operator is: one const table, and what its rules get to see.
 *
 *     infer      checks the inputs and plans the call: shape, dtype, scratch; it alone may fail
 *     forward    writes call->out, and call->aux, which backward will want
 *     backward   gets the gradient of the output; writes, or adds, those of the inputs
 *
 * All memory that a call needs is named by infer's plan and provided by the tape, so the other
 * rules cannot fail.  Gradients are row-major arrays of ls_real with the logical shape of
 * their tensor.
 */
/*
 * Note [what is kept]
 * saves     values that backward's rule reads.  The call holds them, so that they outlive their
 *           scope, and lets go of each when its own turn in backward is over.
 * rebuilds  the output is cheap to form.  Calls that save it do not hold it; backward runs this
 *           call's forward once more for them and drops the result after this call's turn.  All
 *           that forward needs is there, as such a call holds its inputs whoever made them.
 * early     gradients that forward forms beside its result, for dout = 1 (a fused loss); in
 *           backward they are scaled and handed over, and the rule is not called for them.
 * passes    gradients that are dout itself: handed on as they are, the storage shared until
 *           someone must add to it.
 */
#ifndef LS_AUTOGRAD_OP_H
#define LS_AUTOGRAD_OP_H

#include "core/tensor.h"

typedef struct ls_op ls_op;

enum { LS_MAX_INPUTS = 8, LS_MAX_ATTRS = 8 };

/* Which values backward reads; what no one reads is released. */
enum {
    LS_SAVE_NONE   = 0,
    LS_SAVE_IN0    = 1 << 0,
    LS_SAVE_IN1    = 1 << 1,
    LS_SAVE_IN2    = 1 << 2,
    LS_SAVE_IN3    = 1 << 3,
    LS_SAVE_INPUTS = (1 << LS_MAX_INPUTS) - 1,
    LS_SAVE_OUT    = 1 << LS_MAX_INPUTS
};

/* Numbers and one pointer that an operator's wrapper hands to its rules. */
typedef struct {
    int64_t     i[LS_MAX_ATTRS];
    double      f[LS_MAX_ATTRS];
    const void *p; /* borrowed; must live as long as the call */
} ls_attr;

/* Where random draws of a step come from (architecture.md, rule 1 of the law). */
typedef struct {
    uint64_t seed;
    uint32_t step;
    uint32_t first_sequence; /* index in the step of the micro-batch's first sequence */
} ls_random;

/* What infer decides.  Zeroed before the call, with saves set to the operator's. */
typedef struct {
    ls_shape shape;
    ls_dtype dtype;
    bool     view; /* out shares in[0]'s storage, with these: */
    int64_t  stride[LS_MAX_DIMS];
    int64_t  offset;
    unsigned saves;
    size_t   aux_bytes;             /* kept from forward to backward */
    size_t   forward_scratch_bytes; /* only while the rule runs */
    size_t   backward_scratch_bytes;
    unsigned early; /* inputs (bits) whose gradients forward forms itself, for dout = 1 */
} ls_plan;

/* One recorded call. */
struct ls_node {
    const ls_op *op;
    int          n_in;
    ls_tensor   *in[LS_MAX_INPUTS];
    ls_tensor   *out;
    ls_attr      attr;
    ls_random    random;
    uint32_t     site;     /* number of this call among the random ones of its step */
    bool         training; /* dropout is on */
    bool         recorded; /* a backward may follow */
    unsigned     saves;
    unsigned     held; /* those of the saves that the call keeps alive */
    ls_storage  *aux;
    ls_storage  *early[LS_MAX_INPUTS]; /* gradients formed by forward; NULL where not wanted */
    void        *scratch;
    size_t       backward_scratch_bytes;
    bool         consumed; /* backward has used and released what was saved */
    ls_tape     *tape;
    void        *extra; /* of boundary and recompute */
    ls_node     *prev;  /* recorded just before this one */
};

/*
 * Where the gradient of an input goes.  data is NULL where none is wanted; add says that a
 * gradient is there already and this one joins it, else every element is to be written.
 */
typedef struct {
    ls_real *data;
    bool     add;
} ls_grad;

struct ls_op {
    const char *name;
    int         n_in; /* -1: any number from 1 to LS_MAX_INPUTS */
    ls_status (*infer)(const ls_node *call, ls_plan *plan);
    void (*forward)(ls_node *call);
    void (*backward)(const ls_node *call, const ls_real *dout, ls_grad *din);
    unsigned saves;
    bool     strided;  /* takes inputs of any strides; else the tape makes them contiguous */
    bool     random;   /* takes a site */
    bool     rebuilds; /* cheap: backward forms its output again rather than saving it */
    unsigned passes; /* inputs (bits) whose gradient is dout itself, same number of elements */
    ls_status (*replay)(ls_node *call); /* in backward's place, may fail: boundary, recompute */
};

/* What forward keeps for backward; NULL where infer's plan asked for no bytes. */
static inline void *ls_aux(const ls_node *call)
{
    return call->aux ? call->aux->data : NULL;
}

#endif
