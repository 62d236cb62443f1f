/*
 * tape_impl.h - what tape.c, backward.c, recompute.c and boundary.c share.
 *
 * The tape's memory is an arena of chunks that survives a reset.  Tensors and nodes are two
 * lists through it, newest first:
 *
 *     tape->cells --> cell --> cell --> ...      all tensors, walked by scopes and reset
 *     tape->last  --> node --> node --> ...      recorded calls, walked by backward
 */
#ifndef LS_AUTOGRAD_TAPE_IMPL_H
#define LS_AUTOGRAD_TAPE_IMPL_H

#include "autograd/profile.h"
#include "autograd/tape.h"

typedef struct ls__cell {
    struct ls__cell *prev;
    ls_tensor        tensor;
} ls__cell;

/* Leaves that a recomputed segment uses, each once. */
typedef struct ls__leaf {
    struct ls__leaf *prev;
    ls_tensor       *leaf;
} ls__leaf;

typedef struct ls__chunk {
    struct ls__chunk *next;
    size_t            used;
} ls__chunk;

struct ls_tape {
    ls__chunk   *first, *chunk; /* arena: all chunks, and the one being filled */
    ls__cell    *cells;
    ls_node     *last;
    uint64_t     recorded; /* calls, since the tape was made */
    ls_status    failed;
    bool         grad, training;
    ls_random    random;
    uint32_t     site;
    bool         counting; /* in a segment's first run: note leaves instead of recording */
    ls__leaf    *leaves;
    ls_leaf_hook on_leaf;
    void        *on_leaf_context;
    ls_profile  *profile; /* NULL: no one asks */
};

/* Zeroed memory that lives until the tape is reset; NULL makes the tape fail. */
void *ls__tape_alloc(ls_tape *tape, size_t bytes);

/* Records a call that infer and forward have no part in (boundary, recompute). */
ls_node *ls__tape_record(ls_tape *tape, const ls_op *op, ls_tensor *in, ls_tensor *out);

/* Fails with EINVAL, "<what> is NULL", unless the tape has failed before; returns NULL. */
ls_tensor *ls__tape_null(ls_tape *tape, const char *what);

/* An input is there, the tape's own or no tape's, and has a value; else EINVAL or ESTATE. */
LS_MUST_CHECK ls_status ls__check_input(const ls_tape *tape, const ls_op *op,
                                        const ls_tensor *t, int i);

/* Releases what a call owns beside its tensors. */
void ls__call_release(ls_node *call);

/* Room for t's gradient, contents undefined; NULL (ENOMEM). */
ls_storage *ls__new_grad(const ls_tensor *t);

void ls__tensor_let_go(ls_tensor *t);

/* A second header of the tape for the same values. */
ls_tensor *ls__tape_alias(ls_tape *tape, ls_tensor *x);

/* backward.c: replays the calls from `last` on, whose outputs that matter have gradients. */
ls_status ls__mark(ls_tape *tape, ls_tensor *root);
ls_status ls__replay(ls_tape *tape, bool retain);

/* One use of a leaf has delivered (or will not): at the last one the hook fires. */
ls_status ls__leaf_used(ls_tape *tape, ls_tensor *leaf);

/* t's gradient becomes, or grows by, the given one (shared where that is possible). */
ls_status ls__grad_pass(ls_tensor *t, ls_storage *grad);

/* profile.c: seconds now (0 without a profile), and what went by since, to an operator's row.
 */
double ls__profile_now(const ls_tape *tape);
void   ls__profile_forward(const ls_tape *tape, const ls_op *op, double since);
void   ls__profile_backward(const ls_tape *tape, const ls_op *op, double since);

#endif
