/*
 * tape.h - records operators as they run and replays them backwards.
 *
 * A tape owns every tensor header that an operator returns; ls_tape_reset() drops them all at
 * once and keeps the memory for the next step, so expressions nest without naming temporaries:
 *
 *     ls_tensor *loss = ls_cross_entropy(tape, ls_linear(tape, x, w, b), targets, -100);
 *     if (ls_backward(tape, loss) != LS_OK) ...
 *
 * The first failure makes the tape refuse further work until it is reset: operators return
 * NULL, ls_backward() returns that failure.  One check per step is enough (compare ferror(3)).
 *
 * Values live while someone needs them.  An operator holds what its backward reads; a scope
 * (see ls_tape_scope_end) holds what was made in it; when the last of them lets go, the
 * storage is released and only the header remains.  Backward lets go as it consumes.
 *
 * A tape belongs to one thread.
 */
#ifndef LS_AUTOGRAD_TAPE_H
#define LS_AUTOGRAD_TAPE_H

#include "autograd/op.h"

/*
 * An empty tape that records; NULL: out of memory.  Holds BLAS to one thread a call, as
 * ls_compute_start() does (core/compute.h).
 */
ls_tape *ls_tape_new(void);
void     ls_tape_free(ls_tape *tape); /* with all its tensors; NULL is allowed */

/* Drops all its tensors, recorded calls and its failure; gradients of leaves stay. */
void ls_tape_reset(ls_tape *tape);

/* The failure that made the tape stop, or LS_OK; ls_error_message() has its text. */
ls_status ls_tape_status(const ls_tape *tape);

/* Makes the tape fail as if an operator had; for layers above that find something wrong. */
ls_tensor *ls_tape_fail(ls_tape *tape, ls_status status);

/*
 * A tensor of the tape with undefined contents; needs no gradient.  NULL: ENOMEM, or ESHAPE for
 * a shape that cannot be (see ls_shape_check).
 */
ls_tensor *ls_tape_tensor(ls_tape *tape, ls_dtype dtype, ls_shape shape);

/* The same with a copy of row-major data of that dtype; NULL also for data that is NULL. */
ls_tensor *ls_tape_input(ls_tape *tape, ls_dtype dtype, ls_shape shape, const void *data);

/* Calls recorded since the tape was made; a reset does not start anew. */
uint64_t ls_tape_recorded(const ls_tape *tape);

/* Calls op on in[0..n_in); attr may be NULL.  Used by the operators' own wrappers. */
ls_tensor *ls_tape_apply(ls_tape *tape, const ls_op *op, ls_tensor *const *in, int n_in,
                         const ls_attr *attr);

/* Recording on or off (off: nothing is kept for backward); returns what it was. */
bool ls_tape_set_grad(ls_tape *tape, bool on);
bool ls_tape_get_grad(const ls_tape *tape);

/* Training mode (dropout is active) on or off; returns what it was.  On in a new tape. */
bool ls_tape_set_training(ls_tape *tape, bool on);
bool ls_tape_get_training(const ls_tape *tape);

/* What the random draws from here on depend on; numbers their sites from 0 again. */
void ls_tape_set_random(ls_tape *tape, const ls_random *random);

/*
 * Scopes.  At the end, every tensor made since the mark is let go except keep (NULL: none);
 * what backward needs stays.  Using a tensor that was let go is an error of the tape.
 */
typedef struct {
    void *mark;
} ls_scope;
ls_scope ls_tape_scope_begin(ls_tape *tape);
void     ls_tape_scope_end(ls_tape *tape, ls_scope scope, ls_tensor *keep);

/*
 * Gradients of the scalar loss for every leaf with requires_grad, in leaf->grad: fresh, or
 * added to what the leaf has.  The tape's failure, if it has one; EINVAL for a loss that is
 * NULL or another tape's, ESHAPE for one that is no scalar, ESTATE for one that was released
 * and for a second backward through the same calls without retain; ENOMEM.
 */
LS_MUST_CHECK ls_status ls_backward(ls_tape *tape, ls_tensor *loss);

typedef struct {
    bool           retain; /* keep saved values, so that backward may run again */
    const ls_real *seed;   /* gradient of the root, row-major; NULL: root is a scalar, 1 */
} ls_backward_opts;        /* NULL: none of them */
LS_MUST_CHECK ls_status ls_backward_with(ls_tape *tape, ls_tensor *root,
                                         const ls_backward_opts *opts);

/*
 * First hook: the gradient of a leaf is complete, in leaf->grad; the hook may take it from
 * there (set leaf->grad to NULL).  Called once a backward for each leaf on a path to the
 * loss, in an order that the recorded calls fix.  A failure ends the backward.
 */
typedef ls_status (*ls_leaf_hook)(void *context, ls_tensor *leaf);
void ls_tape_on_leaf(ls_tape *tape, ls_leaf_hook hook, void *context);

/*
 * Second hook: an identity whose backward calls back, before any call recorded before it is
 * replayed.  boundary and its context must live until the tape is reset.
 */
typedef struct {
    ls_status (*reached)(void *context);
    void *context;
} ls_boundary_hook;
ls_tensor *ls_boundary(ls_tape *tape, ls_tensor *x, const ls_boundary_hook *boundary);

/*
 * Activation checkpointing (Chen et al. 2016, arXiv:1604.06174): calls run(context, x)
 * without keeping what its backward needs; backward runs it once more, with the same random
 * draws, and then goes through it.  The result and every gradient have the bits of a plain
 * call.  The segment must be a pure function of x, parameters and context; context must live
 * until the tape is reset.
 */
typedef ls_tensor *(*ls_segment)(void *context, ls_tape *tape, ls_tensor *x);
ls_tensor *ls_recompute(ls_tape *tape, ls_tensor *x, ls_segment run, void *context);

#endif
