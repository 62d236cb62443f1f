/*
 * fsdp_impl.h - what the files of FSDP share.
 *
 *   fsdp.c        when            the table of states, the modules' hooks, a step
 *   fsdp_units.c  what            which parameters make a unit, where its rows lie
 *   fsdp_whole.c  whole forms     gathering, opening, dropping, the order of units
 *   fsdp_grads.c  gradients       buffers, reduce_scatter, the sum of the rounds
 */
#ifndef LS_DIST_FSDP_IMPL_H
#define LS_DIST_FSDP_IMPL_H

#include "core/tree_sum.h"
#include "dist/fsdp.h"
#include "dist/shard.h"
#include "dist/sync.h"

typedef enum {
    SHARDED,   /* the rank has its rows */
    GATHERING, /* the others are on their way */
    UNSHARDED, /* all rows are here */
    REDUCING,  /* the rank has its rows, and its part of the gradients is not yet summed */
    UNIT_STATES
} ls_unit_state;

/* Equal buffers in the symmetric heap, made when first needed and kept. */
typedef struct {
    ls_comm *comm;
    size_t   bytes;
    void   **idle; /* [room] */
    int      n_idle, n, room;
} ls_buffer_pool;

/* For whole forms, for gradients that form and travel, for those that travel as BF16. */
typedef struct {
    ls_buffer_pool wholes, grads, wires;
} ls_buffers;

/* Units whose gradients travel, or form, at a time, unless a model needs more. */
enum { LS_TRAVELLING = 2 };

typedef struct ls_unit {
    ls_fsdp         *fsdp;    /* NULL until ls_fsdp_new() */
    ls_module      **modules; /* [n_modules] that run one after the other */
    int              n_modules;
    ls_comm         *comm; /* as given, and these: to be compared with the root's */
    ls_fsdp_opts     opts;
    int              index;      /* in registration order; the root's is the last */
    ls_named_tensor *parameters; /* [n] */
    int              n;
    ls_named_tensor *trained; /* [n_trained] of these */
    int              n_trained;
    int             *number; /* [n_trained] their places among all that are trained */
    ls_unit_state    state;
    bool             shared; /* the ranks' rows lie in one array that all of them reach */
    bool             fresh;  /* shared: nothing has changed since it was last gathered */
    void            *block;  /* memory of this rank: of the shared array, or of the master */
    size_t           block_bytes, charged;
    bool             stays; /* the whole form is kept from one use to the next within a step */

    ls_shard_layout values;
    ls_shard       *shards; /* [n] */
    void *
        source; /* what is gathered: the rows, packed, or in the whole form if shared or kept */
    ls_real *master; /* in BF16: the rows, packed; source has them rounded.  Else NULL */
    size_t   master_charged;
    bool     rounded; /* since the rows last changed */
    char    *whole;   /* all rows, while they are here */
    ls_work *gather;

    ls_shard_layout  grads;
    ls_real         *grad;    /* all rows of the trained, while they form or travel */
    int              missing; /* gradients that are not complete */
    bool             complete, launched;
    ls_real         *home; /* the sum of the rank's rows, from the first round on */
    size_t           home_charged;
    uint16_t        *wire, *wire_rows; /* reduce_bf16: gradients on their way, and their sums */
    ls_work         *reduce;
    ls_storage      *reduced;             /* what it gives: the own rows, packed */
    ls_tree_sum      sum;                 /* over the rounds */
    ls_storage      *result;              /* of the step */
    ls_storage     **views;               /* [n_trained] of it */
    ls_boundary_hook at_backward, at_end; /* the unit's backward begins, is over */
} ls_unit;

struct ls_fsdp {
    ls_comm         *gathers, *reduces; /* groups of their own: neither waits for the other */
    ls_named_tensor *all;               /* [n_all] parameters and buffers of the root */
    int              n_all;
    ls_fsdp_opts     opts;
    ls_sync          sync;
    ls_unit        **units; /* [n]; the root last */
    int              n;
    int             *unit_of, *place_of; /* [sync.n] of what is trained */
    ls_buffers       of_units, of_root;  /* the root is larger than the others, or smaller */
    bool             alone;              /* abandoned: others may not be done */
    bool             stepping;           /* between begin and finish */
    bool             backward;           /* this micro-batch's has begun */
    int             *order, *recorded;   /* units in the order of a forward; of the first one */
    int              n_order, n_recorded, room, cursor;
    bool             is_recorded;
    int              launched, joined; /* reduce_scatters of the round, in their fixed order */
    uint8_t         *used_before; /* [sync.n] by this rank, in earlier rounds of the step */
    ls_unit        **next;        /* [n + prefetch] room for use() */
    int              open;        /* units without the root that are (becoming) whole */
    ls_fsdp_stats    stats;
    ls_trace        *trace; /* NULL: none */
};

static inline bool ls__is_root(const ls_unit *u)
{
    return u->index == u->fsdp->n - 1;
}

static inline ls_buffers *ls__buffers(const ls_unit *u)
{
    return ls__is_root(u) ? &u->fsdp->of_root : &u->fsdp->of_units;
}

/* The type of whole forms, and bytes of an element. */
static inline ls_dtype ls__unit_dtype(const ls_unit *u)
{
    return u->fsdp->opts.bf16 ? LS_BF16 : LS_REAL;
}

static inline size_t ls__unit_size(const ls_unit *u)
{
    return ls_dtype_bytes(ls__unit_dtype(u));
}

/* ---- fsdp_units.c ---- */

/* In BF16: what is to be gathered is the rows', as they are now. */
void ls__unit_round(ls_unit *u);

/* The unit of a module, or NULL. */
ls_unit *ls__unit_of(const ls_module *module);

/* Its path, for messages. */
const char *ls__unit_name(const ls_unit *u);

/* Units below root, inner ones and then root, in registration order; the list is the caller's.
 * ENOMEM. */
LS_MUST_CHECK ls_status ls__units_list(ls_module *root, ls_unit ***units, int *n);

/* Gives a unit of a fsdp its layouts, its rows and its views; cuts what has values. */
LS_MUST_CHECK ls_status ls__unit_make(ls_unit *u);
void                    ls__unit_free(ls_unit *u); /* takes the hook off its module, too */

/* ---- fsdp_whole.c ---- */

LS_MUST_CHECK ls_status ls__whole_gather(ls_unit *u); /* SHARDED -> GATHERING */
LS_MUST_CHECK ls_status ls__whole_await(ls_unit *u);  /* GATHERING -> UNSHARDED, or SHARDED */
void                    ls__whole_drop(ls_unit *u);   /* UNSHARDED -> SHARDED, if it may */
void                    ls__whole_expire(ls_unit *u); /* UNSHARDED -> SHARDED: rows changed */

void ls__whole_release(ls_unit *u); /* its buffer, if that is a pool's */

/* A forward of the root begins; u begins its forward, its backward: the units that will
 * probably follow, at most opts.prefetch, into next; returns how many. */
void ls__order_begin(ls_fsdp *f);
int  ls__order_next(ls_unit *u, ls_unit **next);
void ls__order_end(ls_fsdp *f);

LS_MUST_CHECK ls_status ls__pool_init(ls_buffer_pool *p, ls_comm *comm, size_t bytes, int room);
void                   *ls__pool_take(ls_buffer_pool *p); /* NULL: none is idle */
void                   *ls__pool_get(ls_buffer_pool *p);  /* then a new one; NULL: ENOMEM */
void                    ls__pool_give(ls_buffer_pool *p, void *buffer);
void                    ls__pool_close(ls_buffer_pool *p);

/* ---- fsdp_grads.c ---- */

/* Where backward forms the gradients of u, if they are to be summed over ranks now. */
LS_MUST_CHECK ls_status ls__grads_prepare(ls_unit *u);

/* The sink of ls_sync. */
LS_MUST_CHECK ls_status ls__grads_place(void *fsdp, int i, ls_real **home);

/* What is complete leaves, in the fixed order: last unit first, the root at last. */
LS_MUST_CHECK ls_status ls__grads_launch(ls_fsdp *f);

/* All leaves, with +0 for what this rank did not use, and has arrived. */
LS_MUST_CHECK ls_status ls__grads_finish_round(ls_fsdp *f);

void ls__grads_begin_round(ls_fsdp *f);
void ls__grads_drop(ls_fsdp *f); /* of the last step */

/* The rows' gradients are the step's sums. */
void ls__grads_hand_out(ls_fsdp *f);

/* Its buffer, and where backward would form gradients in it. */
void ls__grads_release(ls_unit *u);

/* What travels as BF16, if it does. */
void ls__grads_unwire(ls_unit *u);

/* Work that was started is waited for, whatever comes of it. */
void ls__grads_abandon(ls_fsdp *f);

/* ---- fsdp.c ---- */

/* The hooks of a unit's module. */
ls_tensor *ls__fsdp_before(void *context, ls_module *m, ls_tape *tape, ls_tensor *x);
ls_tensor *ls__fsdp_after(void *context, ls_module *m, ls_tape *tape, ls_tensor *out);

/* The boundaries of a unit (context), in backward. */
LS_MUST_CHECK ls_status ls__fsdp_begin_backward(void *context);
LS_MUST_CHECK ls_status ls__fsdp_end_backward(void *context);

/* The sum of parameter i's gradients is formed on this rank; context is the ls_fsdp. */
LS_MUST_CHECK ls_status ls__fsdp_done(void *context, int i);

/* A reduce_scatter has arrived; an operation's times go to stats and trace. */
void                    ls__unit_arrived(ls_unit *u);
LS_MUST_CHECK ls_status ls__unit_wait(ls_unit *u, ls_work *work, ls_span_kind kind);

#endif
