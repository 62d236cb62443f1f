/*
 * test_fsdp_rules.c - what FSDP refuses, what it shares, how many units it has whole.
 *
 * Every row is a job of its own: some end with their group dead, as they must.
 */
#include "fsdp_chain.h"

/* ---- making units ---- */

static void wrapped(ls_comm *world, void *context)
{
    ls_fsdp *second = NULL;
    model    m;

    (void)context;
    open_model(&m, world);
    CHECK_OK(ls_fsdp_shard(m.layer[1], world, NULL));
    CHECK_FAILS(ls_fsdp_shard(m.layer[1], world, NULL), LS_ESTATE, "l1 is a unit already");
    CHECK_FAILS(ls_fsdp_shard(NULL, world, NULL), LS_EINVAL, "the module is NULL");
    CHECK_OK(ls_fsdp_new(m.root, world, NULL, &m.fsdp));
    CHECK_FAILS(ls_fsdp_shard(m.root, world, NULL), LS_ESTATE, "the root is a unit already");
    CHECK_FAILS(ls_fsdp_shard(m.layer[0], world, NULL), LS_ESTATE,
                "l0 stands below the root, which is a unit");
    CHECK_FAILS(ls_fsdp_new(m.root, world, NULL, &second), LS_ESTATE,
                "l1 belongs to a model that is sharded");
    CHECK(!second);
    CHECK_OK(ls_module_init(m.root, 1)); /* and the first is as it was */
    CHECK_OK(step(&m));
    ls_fsdp_free(m.fsdp);
    CHECK_OK(ls_fsdp_new(m.root, world, NULL, &m.fsdp)); /* free for another */
    CHECK(ls_fsdp_get_stats(m.fsdp).units == 1);
    close_model(&m);
}

static void refused(ls_comm *world, void *context)
{
    ls_module *twice[2], *nested[2];
    model      m;

    (void)context;
    open_model(&m, world);
    twice[0] = twice[1] = m.layer[0];
    nested[0]           = m.layer[2];
    nested[1]           = m.root;
    CHECK_FAILS(ls_fsdp_shard_group(twice, 2, world, NULL), LS_EINVAL, "is the same");
    CHECK_FAILS(ls_fsdp_shard_group(nested, 2, world, NULL), LS_EINVAL,
                "l2, which stands below");
    CHECK_FAILS(ls_fsdp_shard_group(twice, 0, world, NULL), LS_EINVAL, "0 modules");
    CHECK_FAILS(ls_fsdp_shard(m.root, NULL, NULL), LS_EINVAL, "the group is NULL");
    CHECK_FAILS(ls_fsdp_shard(m.root, world, &(ls_fsdp_opts){.prefetch = -1}), LS_EINVAL,
                "prefetch is -1");
    CHECK_FAILS(ls_fsdp_shard(m.root, world, &(ls_fsdp_opts){.kind = (ls_shard_kind)7}),
                LS_EINVAL, "kind of sharding: 7");
    CHECK(!m.root->hook.before && !m.layer[0]->hook.before && !m.layer[2]->hook.before);
    close_model(&m);
}

/* A hook of somebody else stays his. */
static ls_tensor *as_it_is(void *context, ls_module *m, ls_tape *tape, ls_tensor *x)
{
    (void)context;
    (void)m;
    (void)tape;
    return x;
}

static void hooked(ls_comm *world, void *context)
{
    model m;

    (void)context;
    open_model(&m, world);
    ls_module_set_hook(m.layer[3], (ls_module_hook){as_it_is, NULL, NULL});
    CHECK_FAILS(ls_fsdp_shard(m.layer[3], world, NULL), LS_ESTATE, "l3 has a hook");
    CHECK(m.layer[3]->hook.before == as_it_is);
    close_model(&m);
}

/* What differs between a unit and its root. */
static void differs(ls_comm *world, void *context)
{
    static const ls_fsdp_opts others[] = {{.kind = LS_SHARD_GRADIENTS, .prefetch = 1},
                                          {.prefetch = 2},
                                          {.prefetch = 1, .blocks = true},
                                          {.prefetch = 1, .find_unused = true},
                                          {.prefetch = 1, .no_share = true}};
    ls_comm                  *other    = NULL;
    ls_fsdp                  *fsdp     = NULL;
    model                     m;

    (void)context;
    open_model(&m, world);
    CHECK_OK(ls_comm_split(world, 0, 0, &other));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CHECK_OK(ls_fsdp_shard(m.layer[4], world, &others[i]));
        CHECK_FAILS(ls_fsdp_new(m.root, world, NULL, &fsdp), LS_EINVAL,
                    "l4 was sharded with other options than its root");
        CHECK(!fsdp && !m.layer[4]->hook.before && !m.root->hook.before);
    }
    CHECK_OK(ls_fsdp_shard(m.layer[4], other, NULL));
    CHECK_FAILS(ls_fsdp_new(m.root, world, NULL, &fsdp), LS_EINVAL,
                "l4 was sharded over another group than its root");
    CHECK(!fsdp && !m.layer[4]->hook.before);
    CHECK_OK(ls_fsdp_shard(m.layer[4], world, &(ls_fsdp_opts){.prefetch = 1})); /* kept: may */
    CHECK_OK(ls_fsdp_new(m.root, world, NULL, &m.fsdp));
    CHECK_OK(ls_module_init(m.root, 1));
    CHECK_OK(step(&m));
    close_model(&m);
    ls_comm_free(other);
}

/* One rank has another list of parameters, or is short of the module. */
static void disagree(ls_comm *world, void *context)
{
    ls_fsdp *fsdp = NULL;
    model    m;

    (void)context;
    open_model(&m, world);
    m.list[3].tensor->requires_grad = m.rank != 1;
    CHECK_FAILS(ls_fsdp_new(m.root, world, NULL, &fsdp), LS_EMISMATCH, "l1.bias");
    CHECK(!fsdp && !m.root->hook.before);
    m.list[3].tensor->requires_grad = true;
    CHECK_OK(ls_fsdp_new(m.root, world, NULL, &m.fsdp)); /* the world itself is sound */
    close_model(&m);
}

/* ddp and fsdp of the same parameters */
static void both(ls_comm *world, void *context)
{
    ls_fsdp *fsdp = NULL;
    ls_ddp  *ddp  = NULL;
    model    m;

    (void)context;
    open_model(&m, world);
    CHECK_OK(ls_module_init(m.root, 1));
    CHECK_OK(ls_ddp_new(world, m.list, m.n, &(ls_ddp_opts){0}, &ddp));
    CHECK_FAILS(ls_fsdp_new(m.root, world, NULL, &fsdp), LS_ESTATE,
                "parameter l0.weight is already wrapped");
    CHECK(!fsdp && !m.root->hook.before && m.list[0].tensor->storage);
    ls_ddp_free(ddp);
    CHECK_OK(ls_comm_barrier(world));
    CHECK_OK(ls_fsdp_new(m.root, world, NULL, &m.fsdp));
    CHECK_FAILS(ls_ddp_new(world, m.list, m.n, &(ls_ddp_opts){0}, &ddp), LS_ESTATE,
                "parameter l0.weight is already wrapped");
    close_model(&m);
}

/* ---- forwards ---- */

static void before_the_root(ls_comm *world, void *context)
{
    model m;

    (void)context;
    open_model(&m, world);
    CHECK_OK(ls_module_init(m.root, 1));
    CHECK_OK(ls_fsdp_shard(m.layer[2], world, NULL));
    CHECK(!forward(&m));
    CHECK_FAILS(ls_tape_status(m.tape), LS_ESTATE, "l2 is a unit, and its root is none yet");
    ls_fsdp_forget(m.root);
    CHECK(forward(&m) != NULL);
    close_model(&m);
}

/* A unit by itself is as good as in its root; what belongs to the root's unit says why not. */
static void outside(ls_comm *world, void *context)
{
    ls_fsdp_opts opts = *(const ls_fsdp_opts *)context;
    ls_real      want[ROWS * W];
    model        m;

    open_model(&m, world);
    CHECK_OK(ls_module_init(m.root, 3));
    ls_tensor *y = ls_module_call(m.layer[5], m.tape, input(&m));
    memcpy(want, ls_reals(y), sizeof want);
    wrap(&m, world, &opts, 1);
    for (int k = 0; k < 3; k++) {
        ls_tape_reset(m.tape);
        bool grad = ls_tape_set_grad(m.tape, k != 1);
        y         = ls_module_call(m.layer[5], m.tape, input(&m));
        CHECK(y && !memcmp(want, ls_reals(y), sizeof want));
        ls_tape_set_grad(m.tape, grad);
        ls_tape_reset(m.tape);
        CHECK(!ls_module_call(m.layer[0], m.tape, input(&m)));
        CHECK_FAILS(ls_tape_status(m.tape), LS_ESTATE,
                    "sharded parameter, which is whole only");
        CHECK_OK(step(&m));
    }
    close_model(&m);
}

/* Values that change without a step: whoever says so gets them. */
static void changed(ls_comm *world, void *context)
{
    ls_fsdp_opts opts = *(const ls_fsdp_opts *)context;
    model        m;

    open_model(&m, world);
    wrap(&m, world, &opts, 0);
    double first = evaluate(&m);
    for (int k = 0; k < 2; k++) {
        ls_tape_reset(m.tape); /* leaves the next unit on its way, where it is gathered ahead */
        CHECK(ls_module_call(m.layer[2], m.tape, input(&m)) != NULL);
        CHECK_OK(ls_comm_barrier(world)); /* others may still read */
        for (int i = 0; i < m.n; i++) {
            ls_tensor *t = ls_tensor_owned(m.list[i].tensor);
            for (int64_t j = 0; j < ls_tensor_numel(t); j++)
                ls_reals(t)[j] *= -1;
        }
        ls_fsdp_reshard(m.fsdp);
        double now = evaluate(&m);
        CHECK(k ? now == first : now != first && isfinite(now));
    }
    close_model(&m);
}

/* ---- values ---- */

enum { WIDE = 512 };

/* What has no values yet gets those of its own rows, and no others ever exist. */
static int64_t make_rows(ls_comm *world, ls_module *root)
{
    int64_t  before = ls_mem_get_stats().total;
    ls_fsdp *fsdp   = NULL;

    ls_mem_reset_peaks();
    CHECK_OK(ls_fsdp_shard(root->children, world, NULL));
    CHECK_OK(ls_fsdp_new(root, world, NULL, &fsdp));
    CHECK_OK(ls_module_init(root, 3));
    int64_t grown = ls_mem_get_stats().total_peak - before;
    ls_fsdp_free(fsdp);
    return grown;
}

static void rows_alone(ls_comm *world, void *context)
{
    ls_init        init   = {LS_INIT_NORMAL, 0.4};
    ls_linear_opts linear = {WIDE, WIDE, false, init, init};
    ls_module     *root   = ls_module_new(&chain_class, sizeof(chain), NULL, "");
    int64_t        whole  = 2 * WIDE * WIDE * (int64_t)sizeof(ls_real);

    (void)context;
    CHECK(ls_linear_new(root, "first", &linear) && ls_linear_new(root, "second", &linear));
    for (int k = 0; k < 9; k++) {
        int64_t grown = make_rows(world, root);
        CHECK(grown >= whole / 2 && grown < whole / 2 + whole / 16); /* and their gradients' */
    }
    CHECK(ls_mem_get_stats().total < whole / 16); /* nothing but a few of the groups' blocks */
    ls_module_free(root);
}

/* Rank 0's, whatever the others had; buffers too, which stay whole. */
static void shared_values(ls_comm *world, void *context)
{
    char  hex[2][LS_SHA256_HEX];
    model m;

    (void)context;
    open_model(&m, world);
    ls_parameter *b = ls_module_add_buffer(m.root, "mean", LS_SHAPE1(2), (ls_init){0});
    CHECK_OK(ls_module_init(m.root, 5));
    CHECK_OK(ls_params_sha256(m.list, (size_t)m.n, hex[0]));
    CHECK_OK(ls_module_init(m.root, 5 + (uint64_t)m.rank));
    ls_reals(&b->tensor)[1] = (ls_real)m.rank + 7;
    CHECK_OK(ls_fsdp_new(m.root, world, NULL, &m.fsdp));
    CHECK_OK(ls_params_sha256(m.list, (size_t)m.n, hex[1]));
    CHECK(m.rank || !strcmp(hex[0], hex[1]));
    CHECK(!b->tensor.shard && ls_reals(&b->tensor)[1] == 7);
    CHECK_OK(ls_fsdp_check(m.fsdp));
    ls_reals(&b->tensor)[0] = (ls_real)(m.rank == 1);
    CHECK_FAILS(ls_fsdp_check(m.fsdp), LS_EMISMATCH, "mean differs: element 0");
    close_model(&m);
}

/* ---- no_sync, frozen ---- */

typedef struct {
    const char *name;
    int         first, then, second; /* no_sync: before forward, before backward (-1: not set),
                                        and of a second micro-batch (-1: there is none) */
    bool        blocks;
    const char *error; /* NULL: none */
} toggle;

static const toggle toggles[] = {
    {"no_sync stays on, then off", 1, 1, 0, true, NULL},
    {"no_sync stays on, then off, sharded", 1, 1, 0, false, NULL},
    {"no_sync never set", -1, -1, -1, false, NULL},
    {"no_sync turned off", 1, 0, -1, true, "no_sync was turned off between a forward"},
    {"no_sync turned on", 0, 1, -1, false, "no_sync was turned on between a forward"},
    {"no_sync turned on after its default", -1, 1, -1, true, "no_sync was turned on between"},
    {"no_sync left on", 1, -1, -1, true, "no micro-batch of the step was synchronised"},
    {"no_sync left on, sharded", 1, -1, -1, false, "no micro-batch of the step was"},
    {"no_sync turned on too late", 0, -1, 1, true, "after the one that was synchronised"},
    {"no_sync never on", 0, -1, 0, false, "after the one that was synchronised"},
};

static void toggled(ls_comm *world, void *context)
{
    const toggle *t = context;
    model         m;

    open_model(&m, world);
    wrap(&m, world, &(ls_fsdp_opts){.prefetch = 1, .blocks = t->blocks}, 0);
    ls_status status = ls_fsdp_begin(m.fsdp, m.tape);
    CHECK_OK(status);
    if (t->first >= 0)
        ls_fsdp_no_sync(m.fsdp, t->first);
    ls_tensor *loss = forward(&m);
    if (t->then >= 0)
        ls_fsdp_no_sync(m.fsdp, t->then);
    status = backward(&m, loss);
    CHECK_OK(ls_comm_barrier(world)); /* who fails first fails the others' operations */
    if (!status && t->second >= 0) {
        ls_fsdp_no_sync(m.fsdp, t->second);
        status = backward(&m, forward(&m));
        CHECK_OK(ls_comm_barrier(world));
    }
    CHECK(t->then < 0 || t->then == t->first || ls_fsdp_get_stats(m.fsdp).reduce_scatters == 0);
    status                 = ls_fsdp_finish(m.fsdp, m.tape, status);
    const ls_storage *grad = ls_tensor_owned(m.list[0].tensor)->grad;
    if (t->error)
        CHECK_FAILS(status, LS_ESTATE, t->error);
    else
        CHECK_OK(status);
    CHECK((grad != NULL) == !t->error);
    close_model(&m);
}

static void frozen_later(ls_comm *world, void *context)
{
    bool  thaw = *(const bool *)context;
    model m;

    open_model(&m, world);
    m.list[2].tensor->requires_grad = !thaw;
    wrap(&m, world, NULL, 0);
    CHECK_OK(step(&m));
    CHECK(!ls_tensor_owned(m.list[2].tensor)->grad == thaw);
    CHECK_OK(ls_comm_barrier(world));
    m.list[2].tensor->requires_grad = thaw;
    CHECK_FAILS(step(&m), LS_ESTATE,
                thaw ? "parameter l1.weight was thawed" : "parameter l1.weight was frozen");
    close_model(&m);
}

/* A second backward of a micro-batch would write where the first's sums travel. */
static void two_backwards(ls_comm *world, void *context)
{
    bool  blocks = *(const bool *)context;
    model m;

    open_model(&m, world);
    wrap(&m, world, &(ls_fsdp_opts){.reshard_after_forward = true, .blocks = blocks}, 0);
    ls_status status = ls_fsdp_begin(m.fsdp, m.tape);
    CHECK_OK(ls_backward(m.tape, forward(&m)));
    CHECK_OK(ls_comm_barrier(world));
    status = ls_backward(m.tape, forward(&m));
    CHECK_OK(ls_comm_barrier(world));
    CHECK_FAILS(ls_fsdp_finish(m.fsdp, m.tape, status), LS_ESTATE, "a second backward");
    close_model(&m);
}

/* What a rank cannot do it says, and all end; afterwards every use fails, and none is wrong. */
static void gave_up(ls_comm *world, void *context)
{
    ls_fsdp_opts opts = *(const ls_fsdp_opts *)context;
    model        m;

    open_model(&m, world);
    wrap(&m, world, &opts, 1);
    CHECK_OK(step(&m));
    CHECK_OK(ls_comm_barrier(world));
    ls_status status = ls_fsdp_begin(m.fsdp, m.tape);
    if (m.rank == 1)
        status = ls_fail(LS_EINVAL, "no more data");
    else
        status = backward(&m, forward(&m));
    status = ls_fsdp_finish(m.fsdp, m.tape, status);
    CHECK(status == (m.rank == 1 ? LS_EINVAL : LS_EPEER));
    CHECK(strstr(ls_error_message(), "no more data") != NULL);
    CHECK(m.rank == 1 || strstr(ls_error_message(), "rank 1"));
    for (int k = 0; k < 2; k++) {
        CHECK(isnan(evaluate(&m)));
        CHECK(ls_tape_status(m.tape) != LS_OK);
        CHECK(step(&m) != LS_OK);
    }
    close_model(&m);
}

/* ---- what is whole at once, what travels ---- */

typedef struct {
    const char  *name;
    ls_fsdp_opts opts;
    int          open;    /* most layers at once */
    int          gathers; /* of a step and two evaluations */
} limit;

/* 8 layers, each gathered in forward and in backward, and the root, which is kept in between.
 */
static const limit limits[] = {
    {"whole: prefetch 0", {.reshard_after_forward = true}, 1, 35},
    {"whole: prefetch 1", {.reshard_after_forward = true, .prefetch = 1}, 2, 35},
    {"whole: prefetch 2", {.reshard_after_forward = true, .prefetch = 2}, 3, 35},
    {"whole: prefetch 20", {.reshard_after_forward = true, .prefetch = 20}, 8, 35},
    {"whole: kept", {.prefetch = 1}, 8, 27},
    {"whole: gradients", {.kind = LS_SHARD_GRADIENTS, .prefetch = 1}, 0, 9},
    {"whole: optimizer", {.kind = LS_SHARD_OPTIMIZER, .prefetch = 1}, 0, 9},
};

static void limited(ls_comm *world, void *context)
{
    const limit *l = context;
    model        m;

    open_model(&m, world);
    wrap(&m, world, &l->opts, 0);
    evaluate(&m);
    CHECK(ls_fsdp_get_stats(m.fsdp).units == LAYERS + 1);
    int most = ls_fsdp_get_stats(m.fsdp).most_open;
    CHECK(most == (l->open > l->opts.prefetch + 1 ? l->opts.prefetch + 1 : l->open));
    for (int k = 0; k < 3; k++) {
        ls_fsdp_stats before = ls_fsdp_get_stats(m.fsdp);
        CHECK_OK(step(&m));
        evaluate(&m);
        evaluate(&m);
        ls_fsdp_stats after = ls_fsdp_get_stats(m.fsdp);
        CHECK(after.all_gathers - before.all_gathers == l->gathers);
        CHECK(after.reduce_scatters - before.reduce_scatters == LAYERS);
    }
    CHECK(ls_fsdp_get_stats(m.fsdp).most_open == l->open);
    close_model(&m);
}

/* ---- out of memory ---- */

typedef struct {
    int64_t n;  /* allocations of rank 1 that succeed */
    bool   *ok; /* [ranks], shared: all went well */
} shortage;

/* Whatever rank 1 lacks, rank 0 does not wait for it. */
static void short_of_memory(ls_comm *world, void *context)
{
    const shortage *s = context;
    model           m;

    open_model(&m, world);
    CHECK_OK(ls_fsdp_shard(m.layer[0], world, NULL));
    CHECK_OK(ls_fsdp_shard(m.layer[1], world, NULL));
    CHECK_OK(ls_comm_barrier(world));
    if (m.rank == 1)
        ls_alloc_fail_after(s->n);
    ls_status status = ls_fsdp_new(m.root, world, NULL, &m.fsdp);
    if (!status)
        status = ls_module_init(m.root, 1);
    if (!status)
        status = step(&m);
    ls_alloc_fail_after(-1);
    s->ok[m.rank] = !status;
    CHECK(!status || status == LS_ENOMEM || (m.rank == 0 && status == LS_EPEER));
    CHECK(!status || m.rank == 1 || strstr(ls_error_message(), "rank 1"));
    close_model(&m);
}

static void run_short_of_memory(void)
{
    bool    *ok = ranks_shared(2);
    shortage s  = {.ok = ok};

    TEST_ROW("out of memory on one rank");
    for (bool enough = false; !enough && s.n < 400; s.n++) {
        ok[0] = ok[1] = false;
        CHECK(ranks_run(&(ranks_opts){.n = 2, .timeout_s = 5, .limit_s = 15}, short_of_memory,
                        &s) == 0);
        enough = ok[0] && ok[1];
    }
    CHECK(s.n > 40 && s.n < 400);
    printf("  %lld allocations\n", (long long)s.n);
    ranks_unshare(ok, 2);
}

static void run(const char *name, const char *backend, int n, ranks_body body, void *context)
{
    TEST_ROW(name);
    CHECK(ranks_run(&(ranks_opts){.backend = backend, .n = n, .limit_s = 30}, body, context) ==
          0);
}

int main(void)
{
    bool         on[]  = {false, true};
    ls_fsdp_opts full  = {.reshard_after_forward = true, .prefetch = 1};
    ls_fsdp_opts kept  = {.prefetch = 2};
    ls_fsdp_opts zero2 = {.kind = LS_SHARD_GRADIENTS, .prefetch = 1};

    run("wrapped twice", NULL, 2, wrapped, NULL);
    run("refused", NULL, 1, refused, NULL);
    run("a hook of somebody else", NULL, 1, hooked, NULL);
    run("unlike the root", NULL, 2, differs, NULL);
    run("ranks disagree", NULL, 3, disagree, NULL);
    run("ddp and fsdp", NULL, 2, both, NULL);
    run("a forward before the root", NULL, 2, before_the_root, NULL);
    run("outside of the root", NULL, 2, outside, &full);
    run("outside of the root, kept", "tcp", 2, outside, &kept);
    run("outside of the root, gradients", "threads", 3, outside, &zero2);
    run("changed from outside", NULL, 2, changed, &full);
    run("changed from outside, kept", NULL, 3, changed, &kept);
    run("changed from outside, gradients", NULL, 2, changed, &zero2);
    run("values of rank 0", NULL, 2, shared_values, NULL);
    run("rows alone", NULL, 4, rows_alone, NULL);
    for (size_t i = 0; i < sizeof toggles / sizeof *toggles; i++) {
        toggle t = toggles[i];
        run(t.name, NULL, 2, toggled, &t);
    }
    run("frozen later", NULL, 2, frozen_later, &on[0]);
    run("thawed later", NULL, 2, frozen_later, &on[1]);
    run("two backwards", NULL, 2, two_backwards, &on[0]);
    run("two backwards, local", NULL, 2, two_backwards, &on[1]);
    run("a rank gives up", NULL, 2, gave_up, &full);
    run("a rank gives up, kept", "tcp", 3, gave_up, &kept);
    run("a rank gives up, gradients", NULL, 2, gave_up, &zero2);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        limit l = limits[i];
        run(l.name, i % 2 ? "threads" : "shm", 2, limited, &l);
    }
    run_short_of_memory();
    return test_summary("fsdp_rules");
}
