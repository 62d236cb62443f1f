/*
 * test_ddp.c - N ranks train to the bits of one process.
 *
 * A small GPT with dropout and tied embeddings, an MLP, and a model with a buffer take steps of
 * M micro-batches, with clipping by the exact norm and AdamW: in one process through
 * ls_grad_sum, and on N ranks through ls_ddp, over transports, bucket sizes, algorithms and
 * thread counts.  Parameters and buffers must be equal to the bit, on every rank.
 */
#include <stdlib.h>

#include "dist/ddp.h"
#include "lockstep.h"
#include "ranks.h"

enum { STEPS = 4, MICRO = 2, T = 8, V = 29, MOST_FLOATS = 40000 };
enum { ROWS = MICRO * T, IN = 12, HIDDEN = 40 }; /* of the MLPs: as many targets */

typedef enum { GPT, LLAMA, MLP, BUFFERED } style;

typedef struct {
    const char  *name;
    const char  *backend;
    int          ranks, micros;
    double       bucket_mb;
    bool         no_overlap;
    style        style;
    ls_algorithm algorithm;
    int          threads;
} row;

static const row rows[] = {
    {"one rank", "shm", 1, 4, 0, false, GPT, LS_AUTO, 1},
    {"two ranks", "shm", 2, 4, 0, false, GPT, LS_AUTO, 1},
    {"two ranks, one micro-batch each", "shm", 2, 2, 0, false, GPT, LS_AUTO, 1},
    {"two ranks, small buckets", "shm", 2, 8, 0.001, false, GPT, LS_AUTO, 2},
    {"two ranks, no overlap", "shm", 2, 4, 0.001, true, GPT, LS_AUTO, 1},
    {"three ranks, M = 3", "shm", 3, 3, 0.01, false, GPT, LS_AUTO, 1},
    {"three ranks, M = 6", "shm", 3, 6, 0.01, false, LLAMA, LS_AUTO, 1},
    {"four ranks, tree", "shm", 4, 4, 0.01, false, LLAMA, LS_TREE, 1},
    {"four ranks, halving", "shm", 4, 8, 0.01, false, GPT, LS_HALVING, 1},
    {"four ranks, tcp", "tcp", 4, 4, 0.01, false, GPT, LS_AUTO, 1},
    {"four ranks, mixed", "mixed", 4, 8, 0.01, false, LLAMA, LS_AUTO, 1},
    {"threads", "threads", 3, 6, 0.001, false, GPT, LS_AUTO, 1},
    {"interleaved, M/N = 3", "shm", 2, 6, 0.01, false, GPT, LS_AUTO, 1},
    {"interleaved, M/N = 5", "tcp", 2, 10, 0.001, false, LLAMA, LS_AUTO, 1},
    {"interleaved, four ranks", "threads", 4, 12, 0.01, true, GPT, LS_AUTO, 1},
    {"eight ranks", "shm", 8, 8, 0.01, false, GPT, LS_AUTO, 1},
    {"mlp, N 1, threads", "threads", 1, 4, 0.001, false, MLP, LS_AUTO, 1},
    {"mlp, N 1, shm", "shm", 1, 4, 0.001, false, MLP, LS_AUTO, 1},
    {"mlp, N 1, tcp", "tcp", 1, 4, 0.001, false, MLP, LS_AUTO, 1},
    {"mlp, N 2, threads", "threads", 2, 4, 0.001, false, MLP, LS_AUTO, 1},
    {"mlp, N 2, shm", "shm", 2, 8, 0.001, false, MLP, LS_AUTO, 1},
    {"mlp, N 2, tcp", "tcp", 2, 4, 0.001, true, MLP, LS_AUTO, 1},
    {"mlp, N 4, threads", "threads", 4, 4, 0.001, false, MLP, LS_AUTO, 1},
    {"mlp, N 4, shm", "shm", 4, 16, 0.001, false, MLP, LS_AUTO, 1},
    {"mlp, N 4, tcp", "tcp", 4, 4, 0.001, false, MLP, LS_AUTO, 1},
    {"mlp, interleaved", "shm", 2, 6, 0.001, false, MLP, LS_AUTO, 1},
    {"a buffer, N 2, threads", "threads", 2, 4, 0, false, BUFFERED, LS_AUTO, 1},
    {"a buffer, N 4, shm", "shm", 4, 8, 0, false, BUFFERED, LS_AUTO, 1},
    {"a buffer, N 2, tcp", "tcp", 2, 4, 0, false, BUFFERED, LS_AUTO, 1},
};

/* What a run leaves: its last gradient norm and all parameters, one after another. */
typedef struct {
    double  norm;
    int64_t n;
    float   values[MOST_FLOATS];
} outcome;

static ls_module *new_gpt(bool llama)
{
    ls_gpt_opts o = {.vocab_size     = V,
                     .n_layer        = 2,
                     .n_head         = 2,
                     .n_kv_head      = llama ? 1 : 2,
                     .d_model        = 16,
                     .d_ff           = 48,
                     .context        = T,
                     .dropout        = 0.1,
                     .bias           = !llama,
                     .tie_embeddings = !llama,
                     .norm           = llama ? LS_NORM_RMS : LS_NORM_LAYER,
                     .norm_eps       = 1e-5,
                     .mlp            = llama ? LS_MLP_SWIGLU : LS_MLP_GELU_TANH,
                     .rope           = llama,
                     .rope_base      = 10000};

    return ls_gpt_new(&o);
}

/* One layer over inputs that a buffer shifts: the loss depends on it, nobody trains it. */
typedef struct {
    ls_module     base;
    ls_parameter *shift; /* (ROWS,IN) */
} shifted;

static ls_tensor *shifted_forward(ls_module *self, ls_tape *tape, ls_tensor *x,
                                  ls_tensor *targets)
{
    x = ls_add(tape, x, &((shifted *)self)->shift->tensor);
    return ls_cross_entropy(tape, ls_module_call(self->children, tape, x), targets, LS_IGNORE);
}

static const ls_module_class shifted_class = {"shifted", shifted_forward};

static ls_module *new_shifted(void)
{
    ls_init  uniform = {LS_INIT_UNIFORM, 0.3};
    shifted *m       = ls_module_new(&shifted_class, sizeof *m, NULL, "");

    m->shift = ls_module_add_buffer(&m->base, "shift", LS_SHAPE2(ROWS, IN), uniform);
    CHECK(m->shift &&
          ls_linear_new(&m->base, "fc", &(ls_linear_opts){IN, 4 * V, true, uniform, uniform}));
    return &m->base;
}

static ls_module *new_model(style which)
{
    static const int64_t sizes[] = {IN, HIDDEN, HIDDEN, V};

    switch (which) {
    case MLP:
        return ls_mlp_new(&(ls_mlp_opts){4, sizes, LS_MLP_TANH});
    case BUFFERED:
        return new_shifted();
    case GPT:
    case LLAMA:
        break;
    }
    return new_gpt(which == LLAMA);
}

typedef struct {
    ls_module       *model;
    ls_named_tensor *parameters, *state; /* state: buffers too */
    int              n, n_state;
    ls_optimizer    *optimizer;
    ls_tape         *tape;
    style            style;
} training;

static void open_training(training *t, const row *r, uint64_t seed)
{
    ls_optimizer_opts adamw = {
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

    t->style      = r->style;
    t->model      = new_model(r->style);
    t->parameters = ls_module_list(t->model, false, &t->n);
    t->state      = ls_module_list(t->model, true, &t->n_state);
    t->optimizer  = ls_optimizer_new(t->parameters, t->n, &adamw);
    t->tape       = ls_tape_new();
    CHECK_OK(ls_module_init(t->model, seed));
}

static void close_training(training *t)
{
    ls_tape_free(t->tape);
    ls_optimizer_free(t->optimizer);
    free(t->parameters);
    free(t->state);
    ls_module_free(t->model);
}

/* Inputs of an MLP, of the tokens that a GPT would get. */
static ls_tensor *points(ls_tape *tape, const int32_t *tokens)
{
    ls_real x[ROWS * IN];

    for (int i = 0; i < ROWS * IN; i++)
        x[i] = (ls_real)((tokens[i / IN] * 7 + i % IN * 5) % V) / V - (ls_real)0.5;
    return ls_tape_input(tape, LS_REAL, LS_SHAPE2(ROWS, IN), x);
}

/* Tokens of sequence i of a step are a function of both. */
static ls_tensor *micro_loss(training *t, int step, int m)
{
    bool      gpt    = t->style == GPT || t->style == LLAMA;
    ls_shape  shape  = gpt ? LS_SHAPE2(MICRO, T) : LS_SHAPE1(ROWS);
    ls_random random = {7, (uint32_t)step, (uint32_t)(m * MICRO)};
    int32_t   in[ROWS], want[ROWS];

    for (int i = 0; i < ROWS; i++) {
        in[i]   = (int32_t)((step * 31 + (m * ROWS + i) * 17 + i * i) % V);
        want[i] = (int32_t)((in[i] * 5 + 3) % V);
    }
    ls_tape_reset(t->tape);
    ls_tape_set_random(t->tape, &random);
    return ls_module_call_with(t->model, t->tape,
                               gpt ? ls_tape_input(t->tape, LS_I32, shape, in)
                                   : points(t->tape, in),
                               ls_tape_input(t->tape, LS_I32, shape, want));
}

static double update(training *t, int micros)
{
    double       count = (double)micros * MICRO * T;
    ls_exact_sum squares;

    ls_exact_sum_init(&squares);
    CHECK_OK(ls_grad_squares(t->parameters, t->n, &squares));
    double norm = ls_grad_norm(&squares, count);
    ls_optimizer_step(t->optimizer, ls_clip_coefficient(norm, 0.5) / count);
    return norm;
}

/* Parameters and buffers. */
static void report(const training *t, double norm, outcome *o)
{
    o->norm = norm;
    o->n    = 0;
    for (int i = 0; i < t->n_state; i++) {
        int64_t n = ls_tensor_numel(t->state[i].tensor);
        if (!CHECK(o->n + n <= MOST_FLOATS))
            return;
        memcpy(o->values + o->n, ls_reals(t->state[i].tensor), (size_t)n * sizeof(float));
        o->n += n;
    }
}

static void alone(const row *r, outcome *o)
{
    training t;
    double   norm = 0;

    open_training(&t, r, 1337);
    ls_grad_sum *sum = ls_grad_sum_new(t.parameters, t.n);
    for (int step = 1; step <= STEPS; step++) {
        ls_grad_sum_begin(sum, t.tape);
        for (int m = 0; m < r->micros; m++) {
            CHECK_OK(ls_backward(t.tape, micro_loss(&t, step, m)));
            CHECK_OK(ls_grad_sum_end_micro(sum));
        }
        ls_grad_sum_finish(sum, t.tape);
        norm = update(&t, r->micros);
    }
    report(&t, norm, o);
    ls_grad_sum_free(sum);
    close_training(&t);
}

typedef struct {
    const row *row;
    outcome   *out; /* [ranks], shared */
} job;

static ls_status one_step(training *t, ls_ddp *ddp, const row *r, int step)
{
    int       each   = r->micros / r->ranks;
    ls_status status = ls_ddp_begin(ddp, t->tape);

    for (int k = 0; k < each && !status; k++) {
        ls_ddp_no_sync(ddp, k < each - 1);
        ls_tensor *loss = micro_loss(t, step, (int)ls_ddp_micro(ddp, r->micros, k));
        status          = ls_backward(t->tape, loss);
        if (!status)
            status = ls_ddp_end_micro(ddp);
    }
    return ls_ddp_finish(ddp, t->tape, status);
}

static void train(ls_comm *world, void *context)
{
    const job *j    = context;
    const row *r    = j->row;
    int        rank = ls_comm_rank(world);
    training   t;
    ls_ddp    *ddp  = NULL;
    double     norm = 0;

    CHECK_OK(ls_compute_start(r->threads));
    open_training(&t, r, rank == 0 ? 1337 : 1); /* the others get rank 0's */
    ls_ddp_opts opts = {.bucket_mb  = r->bucket_mb,
                        .no_overlap = r->no_overlap,
                        .interleaved =
                            (r->micros / r->ranks & (r->micros / r->ranks - 1)) != 0};
    CHECK_OK(ls_ddp_new(world, t.state, t.n_state, &opts, &ddp));
    for (int step = 1; step <= STEPS && ddp; step++) {
        CHECK_OK(one_step(&t, ddp, r, step));
        norm = update(&t, r->micros);
    }
    report(&t, norm, &j->out[rank]);
    ls_ddp_free(ddp);
    close_training(&t);
    ls_compute_stop();
}

static void run_row(const row *r)
{
    ranks_opts opts  = {.backend = r->backend, .n = r->ranks, .algorithm = r->algorithm};
    size_t     bytes = (size_t)r->ranks * sizeof(outcome);
    outcome   *out = ranks_shared(bytes), *want = calloc(1, sizeof *want);
    job        j = {r, out};

    TEST_ROW(r->name);
    alone(r, want);
    CHECK(ranks_run(&opts, train, &j) == 0);
    for (int i = 0; i < r->ranks; i++) {
        CHECK(out[i].n == want->n && want->n > 1000);
        CHECK_BITS(out[i].values, want->values, sizeof want->values);
        CHECK_BITS(&out[i].norm, &want->norm, sizeof want->norm);
    }
    ranks_unshare(out, bytes);
    free(want);
}

/* ---- what ranks must agree on ---- */

static void other_shape(ls_comm *world, void *context)
{
    (void)context;
    int       rank         = ls_comm_rank(world);
    ls_tensor a            = ls_tensor_header(LS_REAL, LS_SHAPE1(3)),
              b            = ls_tensor_header(LS_REAL, LS_SHAPE1(rank == 1 ? 5 : 4));
    ls_named_tensor list[] = {{"first", &a}, {"second", &b}};
    ls_ddp         *ddp;

    CHECK_OK(ls_tensor_materialize(&a, LS_MEM_PARAMS));
    CHECK_OK(ls_tensor_materialize(&b, LS_MEM_PARAMS));
    CHECK_FAILS(
        ls_ddp_new(world, list, 2, &(ls_ddp_opts){0}, &ddp), LS_EMISMATCH,
        "parameter 1 is second F32 (4), frozen on rank 0 and second F32 (5), frozen on rank 1");
    CHECK_FAILS(ls_ddp_new(world, list, rank == 0 ? 2 : 1, &(ls_ddp_opts){0}, &ddp),
                LS_EMISMATCH, "rank 0 has 2 parameters, rank 1 has 1");
    ls_tensor_drop(&a);
    ls_tensor_drop(&b);
}

/* Rank 1 does not use the second parameter, nobody the third. */
static void unused(ls_comm *world, void *context)
{
    bool            find = *(const bool *)context;
    int             rank = ls_comm_rank(world);
    ls_tensor       p[3];
    ls_named_tensor list[] = {{"all", &p[0]}, {"some", &p[1]}, {"none", &p[2]}};
    ls_tape        *tape   = ls_tape_new();
    ls_ddp         *ddp;

    for (int i = 0; i < 3; i++) {
        p[i] = ls_tensor_header(LS_REAL, LS_SHAPE1(4));
        CHECK_OK(ls_tensor_materialize(&p[i], LS_MEM_PARAMS));
        for (int k = 0; k < 4; k++)
            ls_reals(&p[i])[k] = (ls_real)(k + 1);
        p[i].requires_grad = true;
    }
    CHECK_OK(ls_ddp_new(world, list, 3, &(ls_ddp_opts){.find_unused = find}, &ddp));
    CHECK_OK(ls_ddp_begin(ddp, tape));
    ls_ddp_no_sync(ddp, false);
    ls_tape_reset(tape);
    ls_tensor *x = rank == 1 ? &p[0] : ls_mul(tape, &p[0], &p[1]);
    CHECK_OK(ls_backward(tape, ls_sum(tape, x)));
    CHECK_OK(ls_ddp_end_micro(ddp));
    ls_status status = ls_ddp_finish(ddp, tape, LS_OK);
    if (find) {
        CHECK_OK(status);
        CHECK(p[2].grad == NULL && p[1].grad && p[0].grad);
        for (int k = 0; k < 4 && p[1].grad && p[0].grad; k++) {
            CHECK(ls_tensor_grad(&p[1])[k] == (ls_real)(k + 1)); /* rank 0's, and +0 */
            CHECK(ls_tensor_grad(&p[0])[k] == (ls_real)(k + 2));
        }
    } else {
        CHECK_FAILS(status, LS_EINVAL, "some, none (on any rank)");
        CHECK(!p[0].grad && !p[1].grad);
    }
    ls_ddp_free(ddp);
    ls_tape_free(tape);
    for (int i = 0; i < 3; i++)
        ls_tensor_drop(&p[i]);
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_row(&rows[i]);
    TEST_ROW("another shape on one rank");
    CHECK(ranks_run(&(ranks_opts){.n = 2}, other_shape, NULL) == 0);
    for (int find = 0; find < 2; find++) {
        bool context = find;
        TEST_ROW(find ? "unused, allowed" : "unused, an error");
        CHECK(ranks_run(&(ranks_opts){.n = 2}, unused, &context) == 0);
    }
    return test_summary("ddp");
}
