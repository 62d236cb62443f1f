/*
 * test_ddp_rules.c - what ls_ddp refuses, what it shares, and what bf16 does to a sum.
 *
 * Every row is a job of its own: some end with their group dead, as they must.
 */
#include <stdlib.h>

#include "dist/ddp.h"
#include "lockstep.h"
#include "ranks.h"

enum { PARAMETERS = 3, LONG = 150000 };

/* Three parameters: loss = sum(a * x + b * x), c is for the row. */
typedef struct {
    ls_tensor       t[PARAMETERS];
    ls_named_tensor list[PARAMETERS];
    ls_tape        *tape;
    ls_ddp         *ddp;
    int             rank;
} model;

static void open_model(model *m, ls_comm *world)
{
    static const char *const names[]  = {"a", "b", "c"};
    const int64_t            shapes[] = {4, LONG, 5};

    *m = (model){.tape = ls_tape_new(), .rank = ls_comm_rank(world)};
    for (int i = 0; i < PARAMETERS; i++) {
        m->t[i]    = ls_tensor_header(LS_REAL, LS_SHAPE1(shapes[i]));
        m->list[i] = (ls_named_tensor){names[i], &m->t[i]};
        CHECK_OK(ls_tensor_materialize(&m->t[i], LS_MEM_PARAMS));
        for (int64_t k = 0; k < shapes[i]; k++)
            ls_reals(&m->t[i])[k] = (ls_real)(k % 7 + m->rank);
        m->t[i].requires_grad = i < 2;
    }
}

static void close_model(model *m)
{
    ls_ddp_free(m->ddp);
    ls_tape_free(m->tape);
    for (int i = 0; i < PARAMETERS; i++)
        ls_tensor_drop(&m->t[i]);
}

static void wrap(model *m, ls_comm *world, const ls_ddp_opts *opts)
{
    CHECK_OK(ls_ddp_new(world, m->list, PARAMETERS, opts, &m->ddp));
    CHECK_OK(ls_comm_barrier(world)); /* no rank's failure comes before another has its ddp */
}

static ls_tensor *forward(model *m)
{
    ls_tape_reset(m->tape);
    return ls_add(m->tape, ls_sum(m->tape, ls_scale(m->tape, &m->t[0], 0.1)),
                  ls_sum(m->tape, ls_scale(m->tape, &m->t[1], (double)m->rank + 1)));
}

static ls_status backward(model *m, ls_tensor *loss)
{
    ls_status status = ls_backward(m->tape, loss);

    return status ? status : ls_ddp_end_micro(m->ddp);
}

static ls_status micro(model *m, bool no_sync)
{
    ls_ddp_no_sync(m->ddp, no_sync);
    return backward(m, forward(m));
}

/* ---- frozen, thawed ---- */

static void frozen_later(ls_comm *world, void *context)
{
    int   which = *(const int *)context; /* 1 is trained, 2 is not */
    model m;

    open_model(&m, world);
    wrap(&m, world, &(ls_ddp_opts){0});
    CHECK_OK(ls_ddp_begin(m.ddp, m.tape));
    CHECK_OK(ls_ddp_finish(m.ddp, m.tape, micro(&m, false)));
    CHECK(!m.t[2].grad);
    CHECK_OK(ls_comm_barrier(world));
    m.t[which].requires_grad ^= true;
    ls_status status = ls_ddp_begin(m.ddp, m.tape);
    CHECK_FAILS(status, LS_ESTATE,
                which == 1 ? "parameter b was frozen" : "parameter c was thawed");
    CHECK_FAILS(ls_ddp_finish(m.ddp, m.tape, status), LS_ESTATE, "parameter");
    close_model(&m);
}

/* Frozen on one rank alone: that one says so, the others hear of it. */
static void frozen_on_one(ls_comm *world, void *context)
{
    model m;

    (void)context;
    open_model(&m, world);
    wrap(&m, world, &(ls_ddp_opts){0});
    m.t[0].requires_grad = m.rank != 1;
    ls_status status     = ls_ddp_begin(m.ddp, m.tape);
    if (!status)
        status = micro(&m, false);
    status = ls_ddp_finish(m.ddp, m.tape, status);
    CHECK(status == (m.rank == 1 ? LS_ESTATE : LS_EPEER));
    CHECK(strstr(ls_error_message(), "parameter a was frozen") != NULL);
    CHECK(m.rank == 1 || strstr(ls_error_message(), "rank 1"));
    close_model(&m);
}

/* What is not trained has no place in a bucket, and holds none back. */
static void buckets_of_trained(ls_comm *world, void *context)
{
    model m;

    (void)context;
    open_model(&m, world);
    wrap(&m, world, &(ls_ddp_opts){.bucket_mb = 1e-6});
    CHECK(ls_ddp_get_stats(m.ddp).buckets == 2);
    CHECK_OK(ls_ddp_begin(m.ddp, m.tape));
    CHECK_OK(micro(&m, false));
    CHECK(ls_ddp_get_stats(m.ddp).all_reduces == 2); /* both left before the end */
    CHECK_OK(ls_ddp_finish(m.ddp, m.tape, LS_OK));
    close_model(&m);
}

/* ---- no_sync ---- */

typedef struct {
    const char *name;
    int         first, then, second; /* no_sync: before forward, before backward (-1: not set),
                                        and of a second micro-batch (-1: there is none) */
    const char *error;               /* NULL: none */
} toggle;

static const toggle toggles[] = {
    {"no_sync stays on, then off", 1, 1, 0, NULL},
    {"no_sync never set", -1, -1, -1, NULL},
    {"no_sync turned off", 1, 0, -1, "no_sync was turned off between a forward"},
    {"no_sync turned on", 0, 1, -1, "no_sync was turned on between a forward"},
    {"no_sync turned on after its default", -1, 1, -1, "no_sync was turned on between"},
    {"no_sync left on", 1, -1, -1, "no micro-batch of the step was synchronised"},
    {"no_sync turned on too late", 0, -1, 1, "after the one that was synchronised"},
    {"no_sync never on", 0, -1, 0, "after the one that was synchronised"},
};

static void toggled(ls_comm *world, void *context)
{
    const toggle *t = context;
    model         m;

    open_model(&m, world);
    wrap(&m, world, &(ls_ddp_opts){0});
    ls_status status = ls_ddp_begin(m.ddp, m.tape);
    CHECK_OK(status);
    if (t->first >= 0)
        ls_ddp_no_sync(m.ddp, t->first);
    ls_tensor *loss = forward(&m);
    if (t->then >= 0)
        ls_ddp_no_sync(m.ddp, t->then);
    status = backward(&m, loss);
    CHECK_OK(ls_comm_barrier(world)); /* who fails first fails the others' operations */
    if (!status && t->second >= 0)
        status = micro(&m, t->second);
    int64_t sent = ls_ddp_get_stats(m.ddp).all_reduces;
    status       = ls_ddp_finish(m.ddp, m.tape, status);
    if (t->error) {
        CHECK_FAILS(status, LS_ESTATE, t->error);
        CHECK(sent == 0 || t->second >= 0);
        CHECK(!m.t[0].grad);
    } else {
        CHECK_OK(status);
        CHECK(m.t[0].grad != NULL);
    }
    close_model(&m);
}

/* Turned off and on again before any forward is no toggle, nor is a second step's default. */
static void set_twice(ls_comm *world, void *context)
{
    model m;

    (void)context;
    open_model(&m, world);
    wrap(&m, world, &(ls_ddp_opts){0});
    for (int step = 0; step < 2; step++) {
        CHECK_OK(ls_ddp_begin(m.ddp, m.tape));
        ls_ddp_no_sync(m.ddp, false);
        CHECK_OK(micro(&m, true));
        ls_ddp_no_sync(m.ddp, true);
        CHECK_OK(ls_ddp_finish(m.ddp, m.tape, micro(&m, false)));
        for (int k = 0; k < 4 && m.t[0].grad; k++)
            CHECK_CLOSE(ls_tensor_grad(&m.t[0])[k], 0.4, 1e-6); /* two ranks, two each */
    }
    close_model(&m);
}

/* ---- construction ---- */

static void wrapped_twice(ls_comm *world, void *context)
{
    bool    one = *(const bool *)context; /* on one rank alone */
    model   m;
    ls_ddp *second = NULL;

    open_model(&m, world);
    wrap(&m, world, &(ls_ddp_opts){0});
    for (int i = 0; i < PARAMETERS && one && m.rank == 0; i++)
        m.t[i].reducer = NULL; /* as if another model was wrapped before */
    ls_status status = ls_ddp_new(world, m.list, PARAMETERS, &(ls_ddp_opts){0}, &second);
    CHECK(status == (one && m.rank == 0 ? LS_EPEER : LS_ESTATE));
    CHECK(strstr(ls_error_message(), "parameter a is already wrapped") != NULL);
    CHECK(!second);
    ls_ddp_free(m.ddp);
    m.ddp = NULL;
    CHECK_OK(ls_comm_barrier(world)); /* the world itself is sound */
    wrap(&m, world, &(ls_ddp_opts){0});
    close_model(&m);
}

/* Trained, frozen, of another type: all are rank 0's afterwards. */
static void shared_values(ls_comm *world, void *context)
{
    ls_tensor       count = ls_tensor_header(LS_I32, LS_SHAPE1(3));
    ls_named_tensor list[PARAMETERS + 1];
    model           m;

    (void)context;
    open_model(&m, world);
    CHECK_OK(ls_tensor_materialize(&count, LS_MEM_PARAMS));
    for (int k = 0; k < 3; k++)
        ls_ints(&count)[k] = 10 * m.rank + k;
    memcpy(list, m.list, sizeof m.list);
    list[PARAMETERS] = (ls_named_tensor){"count", &count};
    CHECK_OK(ls_ddp_new(world, list, PARAMETERS + 1, &(ls_ddp_opts){0}, &m.ddp));
    for (int i = 0; i < PARAMETERS; i++)
        for (int64_t k = 0; k < ls_tensor_numel(&m.t[i]); k++)
            if (ls_reals(&m.t[i])[k] != (ls_real)(k % 7)) {
                CHECK(ls_reals(&m.t[i])[k] == (ls_real)(k % 7));
                break;
            }
    CHECK(ls_ints(&count)[0] == 0 && ls_ints(&count)[2] == 2);
    CHECK_OK(ls_ddp_check(m.ddp));
    ls_ints(&count)[1] += m.rank == 1;
    CHECK_FAILS(ls_ddp_check(m.ddp), LS_EMISMATCH,
                "parameter count differs: element 1 is 1 on rank 0 and 2 on rank 1");
    close_model(&m);
    ls_tensor_drop(&count);
}

/* A module's buffers are in its list. */
static void buffers(ls_comm *world, void *context)
{
    ls_module    *root = ls_module_new(&(ls_module_class){"t", NULL}, sizeof *root, NULL, "");
    ls_parameter *p    = ls_module_add_parameter(root, "w", LS_SHAPE1(2), (ls_init){0});
    ls_parameter *b    = ls_module_add_buffer(root, "mean", LS_SHAPE1(2), (ls_init){0});
    int           n    = 0;
    ls_ddp       *ddp  = NULL;
    ls_named_tensor *list = NULL;

    (void)context;
    CHECK_OK(ls_module_init(root, 1));
    list = ls_module_list(root, true, &n);
    CHECK(n == 2 && p && b);
    ls_reals(&b->tensor)[1] = (ls_real)(5 + ls_comm_rank(world));
    CHECK_OK(ls_ddp_new(world, list, n, &(ls_ddp_opts){0}, &ddp));
    CHECK(ls_reals(&b->tensor)[1] == 5);
    CHECK(ls_ddp_get_stats(ddp).buckets == 1);
    ls_ddp_free(ddp);
    free(list);
    ls_module_free(root);
}

/* ---- check ---- */

typedef struct {
    const char *name;
    int         who; /* the rank whose value changes */
    int         tensor;
    int64_t     element;
    float       value;
    const char *error;
} change;

static const change changes[] = {
    {"check: the first element", 1, 0, 0, 2.5f,
     "parameter a differs: element 0 is 0 (0x00000000) on rank 0 and 2.5 (0x40200000) on rank "
     "1; 1 of the other 2 ranks differs"},
    {"check: far into a long tensor", 2, 1, LONG - 1, 0.25f,
     "parameter b differs: element 149999 is 3 (0x40400000) on rank 0 and 0.25 (0x3e800000) on "
     "rank 2; 1 of the other 2"},
    {"check: rank 0 is the odd one", 0, 1, 70001, 9,
     "element 70001 is 9 (0x41100000) on rank 0 and 1 (0x3f800000) on rank 1; 2 of the other 2 "
     "ranks differ from"},
    {"check: -0 is not 0", 1, 2, 0, -0.0f,
     "parameter c differs: element 0 is 0 (0x00000000) on rank 0 and -0 (0x80000000) on rank "
     "1"},
    {"check: a NaN", 1, 2, 4, NAN,
     "parameter c differs: element 4 is 4 (0x40800000) on rank 0"},
};

static void changed(ls_comm *world, void *context)
{
    const change *c = context;
    model         m;

    open_model(&m, world);
    wrap(&m, world, &(ls_ddp_opts){0});
    CHECK_OK(ls_ddp_check(m.ddp));
    ls_real *x = &ls_reals(&m.t[c->tensor])[c->element], was = *x;
    if (m.rank == c->who)
        *x = c->value;
    CHECK_FAILS(ls_ddp_check(m.ddp), LS_EMISMATCH, c->error);
    *x = was;
    CHECK_OK(ls_ddp_check(m.ddp)); /* the group is sound */
    *x = NAN;
    CHECK_OK(ls_ddp_check(m.ddp)); /* the same NaN everywhere */
    close_model(&m);
}

/* ---- out of memory ---- */

typedef struct {
    int64_t n;  /* allocations of rank 1 that succeed */
    bool   *ok; /* [ranks], shared: construction and check went well */
} shortage;

/* Whatever rank 1 lacks, rank 0 does not wait for it. */
static void short_of_memory(ls_comm *world, void *context)
{
    const shortage *s = context;
    model           m;

    open_model(&m, world);
    m.t[1].shape.dim[0] = 4; /* a small one: less to compare */
    CHECK_OK(ls_comm_barrier(world));
    if (m.rank == 1)
        ls_alloc_fail_after(s->n);
    ls_status status =
        ls_ddp_new(world, m.list, PARAMETERS, &(ls_ddp_opts){.bf16 = true}, &m.ddp);
    if (!status) {
        ls_reals(&m.t[0])[1] = (ls_real)m.rank;
        status               = ls_ddp_check(m.ddp);
    }
    ls_alloc_fail_after(-1);
    s->ok[m.rank] = status == LS_EMISMATCH; /* as it must be, memory given */
    CHECK(s->ok[m.rank] || status == LS_ENOMEM || (m.rank == 0 && status == LS_EPEER));
    CHECK(s->ok[m.rank] || m.rank == 1 || strstr(ls_error_message(), "rank 1"));
    close_model(&m);
}

static void run_short_of_memory(void)
{
    bool    *ok = ranks_shared(2);
    shortage s  = {.ok = ok};

    TEST_ROW("out of memory on one rank");
    for (bool enough = false; !enough && s.n < 200; s.n++) {
        ok[0] = ok[1] = false;
        CHECK(ranks_run(&(ranks_opts){.n = 2, .timeout_s = 5}, short_of_memory, &s) == 0);
        enough = ok[0] && ok[1];
    }
    CHECK(s.n > 10 && s.n < 200);
    printf("  %lld allocations\n", (long long)s.n);
    ranks_unshare(ok, 2);
}

/* ---- bf16 ---- */

/* Element k of rank r's gradient: 24 bits that bf16 does not hold. */
static float part(int r, int64_t k)
{
    return (float)((k * 2654435761 + (r + 1) * 40503) % 1000003) / 777.0f - 500.0f;
}

/* Left-balanced over ranks, of rounded parts. */
static float sum_of_rounded(int first, int n, int64_t k)
{
    int half = 1;

    if (n == 1)
        return ls_bf16_to_f32(ls_bf16_from_f32(part(first, k)));
    while (2 * half < n)
        half *= 2;
    return sum_of_rounded(first, half, k) + sum_of_rounded(first + half, n - half, k);
}

static void compressed(ls_comm *world, void *context)
{
    const ls_ddp_opts *opts  = context;
    int                wrong = 0, n = ls_comm_size(world);
    ls_real           *x = ls_calloc(LONG, sizeof *x);
    model              m;

    open_model(&m, world);
    wrap(&m, world, opts);
    for (int64_t k = 0; k < LONG; k++)
        x[k] = part(m.rank, k);
    for (int step = 0; step < 2; step++) {
        CHECK_OK(ls_ddp_begin(m.ddp, m.tape));
        ls_ddp_no_sync(m.ddp, false);
        ls_tape_reset(m.tape);
        ls_tensor *in   = ls_tape_input(m.tape, LS_REAL, LS_SHAPE1(LONG), x);
        ls_tensor *loss = ls_add(m.tape, ls_sum(m.tape, ls_mul(m.tape, &m.t[1], in)),
                                 ls_sum(m.tape, &m.t[0]));
        CHECK_OK(ls_ddp_finish(m.ddp, m.tape, backward(&m, loss)));
        for (int64_t k = 0; k < LONG && m.t[1].grad; k++) {
            float want = ls_bf16_to_f32(ls_bf16_from_f32(sum_of_rounded(0, n, k)));
            if (n == 1) /* nothing travels */
                want = x[k];
            wrong += memcmp(&want, &ls_tensor_grad(&m.t[1])[k], sizeof want) != 0;
        }
        CHECK(m.t[1].grad && wrong == 0);
        for (int k = 0; k < 4 && m.t[0].grad; k++)
            CHECK(ls_tensor_grad(&m.t[0])[k] == (ls_real)n);
    }
    close_model(&m);
    free(x);
}

static void run(const char *name, const char *backend, int n, ranks_body body, void *context)
{
    TEST_ROW(name);
    CHECK(ranks_run(&(ranks_opts){.backend = backend, .n = n}, body, context) == 0);
}

static void run_compressed(void)
{
    static const struct {
        const char *name, *backend;
        int         n;
        ls_ddp_opts opts;
    } rows[] = {
        {"bf16, one rank", "shm", 1, {.bf16 = true}},
        {"bf16, two ranks", "shm", 2, {.bf16 = true}},
        {"bf16, three ranks, small buckets", "shm", 3, {.bf16 = true, .bucket_mb = 1e-6}},
        {"bf16, tcp, in the buckets", "tcp", 3, {.bf16 = true, .bucket_mb = 0.1}},
        {"bf16, interleaved", "threads", 4, {.bf16 = true, .interleaved = true}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ls_ddp_opts opts = rows[i].opts;
        run(rows[i].name, rows[i].backend, rows[i].n, compressed, &opts);
    }
}

int main(void)
{
    int  which[]  = {1, 2};
    bool on_one[] = {false, true};

    run("frozen later", NULL, 2, frozen_later, &which[0]);
    run("thawed later", NULL, 2, frozen_later, &which[1]);
    run("frozen on one rank", NULL, 2, frozen_on_one, NULL);
    run("frozen from the start", NULL, 2, buckets_of_trained, NULL);
    for (size_t i = 0; i < sizeof toggles / sizeof *toggles; i++) {
        toggle t = toggles[i];
        run(t.name, NULL, 2, toggled, &t);
    }
    run("no_sync set twice", NULL, 2, set_twice, NULL);
    run("wrapped twice", NULL, 2, wrapped_twice, &on_one[0]);
    run("wrapped twice on one rank", NULL, 2, wrapped_twice, &on_one[1]);
    run("values of rank 0", NULL, 2, shared_values, NULL);
    run("buffers", NULL, 2, buffers, NULL);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        change c = changes[i];
        run(c.name, i % 2 ? "tcp" : NULL, 3, changed, &c);
    }
    run_short_of_memory();
    run_compressed();
    return test_summary("ddp_rules");
}
