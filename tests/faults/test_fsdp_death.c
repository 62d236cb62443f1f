/*
 * test_fsdp_death.c - a rank of FSDP dies at a chosen place of a step.
 *
 * The places: in front of a layer in forward, in backward, in an evaluation, so that the others
 * wait in a gather or a reduce_scatter, and behind a step, where the optimizer works.  Every
 * survivor ends soon, names the rank and the signal, and gets nothing out of the model later.
 */
#include "fsdp_chain.h"
#include "outcome.h"

enum { SOON_MS = 2000, MOST_RANKS = 4 };

typedef enum { FORWARD, BACKWARD, OPTIMIZER, EVALUATION } place;

typedef struct {
    const char  *name, *backend;
    int          n, victim;
    place        where;
    int          layer; /* in front of it */
    ls_fsdp_opts opts;
} row;

#define FULL .reshard_after_forward = true

static const row rows[] = {
    {"forward, the first", "shm", 2, 1, FORWARD, 0, {FULL}},
    {"forward, tcp", "tcp", 4, 2, FORWARD, 5, {FULL, .prefetch = 1}},
    {"forward, kept", "shm", 3, 0, FORWARD, 3, {.prefetch = 2}},
    {"forward, gradients", "shm", 2, 0, FORWARD, 7, {.kind = LS_SHARD_GRADIENTS}},
    {"backward, a gather", "shm", 2, 0, BACKWARD, 6, {FULL}},
    {"backward, a gather, tcp", "tcp", 3, 1, BACKWARD, 4, {FULL}},
    {"backward, gathered ahead", "shm", 4, 3, BACKWARD, 2, {FULL, .prefetch = 2}},
    {"backward, a reduce_scatter", "shm", 2, 1, BACKWARD, 5, {.prefetch = 0}},
    {"backward, the last", "tcp", 4, 0, BACKWARD, 1, {.kind = LS_SHARD_GRADIENTS}},
    {"backward, optimizer", "shm", 3, 2, BACKWARD, 3, {.kind = LS_SHARD_OPTIMIZER}},
    {"the optimizer", "shm", 4, 1, OPTIMIZER, 0, {FULL, .prefetch = 1}},
    {"the optimizer, tcp", "tcp", 2, 0, OPTIMIZER, 0, {FULL}},
    {"an evaluation", "shm", 2, 1, EVALUATION, 4, {FULL, .prefetch = 1}},
    {"an evaluation, tcp", "tcp", 4, 3, EVALUATION, 1, {.prefetch = 1}},
};

/* ---- deaths ---- */

typedef struct {
    const row *row;
    outcome   *out;  /* [n], shared */
    int64_t   *died; /* shared; ns */
} job;

/* What a rank is at. */
typedef struct {
    const job       *job;
    bool             is_victim;
    place            now;
    ls_boundary_hook hook;
} part;

static void die(const part *p)
{
    *p->job->died = ls_now_ns();
    raise(SIGKILL);
}

static ls_status reached(void *context)
{
    die(context);
    return LS_OK;
}

static ls_tensor *before_layer(void *context, ls_tape *tape, ls_tensor *x, int k)
{
    part      *p = context;
    const row *r = p->job->row;

    if (!p->is_victim || r->layer != k || !x)
        return x;
    if (r->where == BACKWARD && p->now == FORWARD)
        return ls_boundary(tape, x, &p->hook);
    if (r->where == p->now)
        die(p);
    return x;
}

static ls_status evaluate_once(model *m)
{
    evaluate(m);
    return ls_tape_status(m->tape);
}

static ls_status until_a_death(model *m, part *p)
{
    ls_status status = step(m);

    if (!status && p->is_victim && p->job->row->where == OPTIMIZER)
        die(p);
    p->now = EVALUATION;
    if (!status)
        status = evaluate_once(m);
    return status ? status : step(m);
}

static void dying(ls_comm *world, void *context)
{
    const job *j    = context;
    int        rank = ls_comm_rank(world);
    part       p    = {j, rank == j->row->victim, FORWARD, {reached, &p}};
    model      m;

    open_model(&m, world);
    wrap(&m, world, &j->row->opts, 0);
    CHECK_OK(step(&m));
    CHECK_OK(ls_comm_barrier(world));
    ((chain *)m.root)->before  = before_layer;
    ((chain *)m.root)->context = &p;
    outcome_note(&j->out[rank], until_a_death(&m, &p), ls_now_ns());
    outcome_note_again(&j->out[rank], evaluate_once(&m));
    close_model(&m);
}

static void check_survivor(const job *j, int rank)
{
    const outcome *o = &j->out[rank];
    char           culprit[16];
    bool           ok;

    snprintf(culprit, sizeof culprit, "rank %d", j->row->victim);
    ok = CHECK(o->noted && o->status == LS_EPEER && o->again != LS_OK);
    ok = CHECK(strstr(o->text, culprit) && strstr(o->text, "signal 9")) && ok;
    ok = CHECK(o->at - *j->died < SOON_MS * MS * OUTCOME_SLOW) && ok;
    if (!ok)
        outcome_print(j->out, j->row->n);
}

static void run_death(const row *r)
{
    int        ended[MOST_RANKS];
    ranks_opts opts  = {.backend = r->backend, .n = r->n, .limit_s = 30, .ended = ended};
    size_t     bytes = MOST_RANKS * sizeof(outcome) + sizeof(int64_t);
    outcome   *out   = ranks_shared(bytes);
    job        j     = {r, out, (int64_t *)(out + MOST_RANKS)};

    TEST_ROW(r->name);
    CHECK(ranks_run(&opts, dying, &j) == 1);
    CHECK(*j.died > 0);
    for (int i = 0; i < r->n; i++)
        if (i != r->victim)
            check_survivor(&j, i);
    ranks_unshare(out, bytes);
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_death(&rows[i]);
    return test_summary("fsdp_death");
}
