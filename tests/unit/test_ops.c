/*
 * test_ops.c - the judge of all operators, over the table of op_rows.h.
 *
 * Compiled twice.  With ls_real = double it judges, with LS_OP_LIST as the roll call,
 *   - gradients against central differences, written and added to others: element by element
 *     for small rows, along random directions for wide and swept ones;
 *   - the n-th allocation failing, for every n: an error that survives, no leak;
 *   - wrong calls: status, operator's name and what was found in the message;
 * and, given a file, writes outputs and gradients of every row and swept size to it.  With
 * ls_real = float it reads that file, compares within the row's bound, and demands the same
 * bits from 1, 2 and 3 threads.
 *
 *     test_ops              the judgements in double
 *     test_ops FILE         writes FILE
 *     test_ops_f32 FILE     compares with FILE     (a further argument: shows the errors)
 */
#include <stdlib.h>
#include <string.h>

#include "core/kernels/gemm.h"
#include "core/rng.h"
#include "core/thread.h"
#include "op_rows.h"
#include "test.h"

static const int sweep[] = {1, 3, 7, 17, 33, 65, 129, 257};
enum { SWEEP = sizeof sweep / sizeof *sweep };

static const struct {
    const char  *name;
    const ls_op *op;
} roll_call[] = {
#define X(name) {#name, &ls_op_##name},
    LS_OP_LIST(X)
#undef X
};
enum { OPS = sizeof roll_call / sizeof *roll_call };

/* A row with its inputs made. */
typedef struct {
    const op_row *row;
    ls_tensor     tensor[ROW_INPUTS];
    ls_tensor    *in[ROW_INPUTS];
    int           n;
} op_case;

/* What a run leaves: the output and the gradient of each input (NULL where there is none). */
typedef struct {
    ls_real *array[1 + ROW_INPUTS];
    int64_t  n[1 + ROW_INPUTS];
} result;

static const ls_random draws = {.seed = 5, .step = 3, .first_sequence = 2};

/* Multiples of 2^-22 with 24 bits: the same in float and double, and no product of two is
 * exact. */
static double draw_real(op_fill fill, uint32_t draw)
{
    double x = (double)(draw >> 8) * 0x1p-22 - 2;

    if (fill == WEIGHTS)
        return (double)(draw >> 9) * 0x1p-23 + 0.5;
    return fill == AWAY && fabs(x) < 0.25 ? x + (x < 0 ? -0.5 : 0.5) : x;
}

static int32_t draw_id(const op_input *want, int limit, uint32_t draw, int64_t i)
{
    if (want->fill == IGNORED || (want->fill == TARGETS && i % 5 == 3))
        return IGNORE;
    return (int32_t)(draw % (uint32_t)limit);
}

static void fill_tensor(ls_tensor *t, const op_input *want, int limit, uint32_t stream)
{
    for (int64_t i = 0; i < ls_tensor_numel(t); i++) {
        uint32_t draw = ls_rng_draw(1, LS_RNG_SAMPLE, stream, 0, (uint64_t)i).v[0];
        if (t->dtype == LS_I32)
            ls_ints(t)[i] = draw_id(want, limit, draw, i);
        else
            ls_reals(t)[i] = (ls_real)draw_real(want->fill, draw);
    }
}

static int swept(int64_t dim, int size)
{
    return (int)(dim < 0 ? -dim * size : dim);
}

static bool make_input(op_case *c, const op_input *want, int size)
{
    ls_tensor *t     = &c->tensor[c->n];
    ls_shape   shape = want->shape;

    for (int d = 0; d < shape.ndim; d++)
        shape.dim[d] = swept(shape.dim[d], size);
    *t = ls_tensor_header(want->fill >= IDS ? LS_I32 : LS_REAL, shape);
    if (!CHECK(ls_tensor_materialize(t, LS_MEM_PARAMS) == LS_OK))
        return false;
    t->requires_grad = want->fill < IDS;
    fill_tensor(t, want, swept(want->limit, size), (uint32_t)c->n);
    return true;
}

/* An input of NOTHING between others is a NULL. */
static bool case_open(op_case *c, const op_row *row, int size)
{
    *c = (op_case){.row = row};
    for (; c->n < ROW_INPUTS; c->n++) {
        if (row->in[c->n].fill == NOTHING)
            continue;
        if (!make_input(c, &row->in[c->n], size))
            return false;
        c->in[c->n] = &c->tensor[c->n];
    }
    return true;
}

static void case_close(op_case *c)
{
    for (int i = 0; i < c->n; i++)
        ls_tensor_drop(&c->tensor[i]);
}

static void drop_grads(op_case *c)
{
    for (int i = 0; i < c->n; i++)
        ls_tensor_zero_grad(&c->tensor[i]);
}

/* The call, or two that are added, so that the first one's gradients join the second's. */
static ls_tensor *build_once(const op_case *c, ls_tape *tape, bool twice)
{
    ls_tape_set_random(tape, &draws);
    ls_tensor *y = c->row->build(tape, c->in);
    return twice ? ls_add(tape, y, c->row->build(tape, c->in)) : y;
}

/* Elements in row-major order, whatever the strides. */
static int64_t read_values(const ls_tensor *t, ls_real *out)
{
    int64_t index[LS_MAX_DIMS] = {0}, n = ls_tensor_numel(t);

    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < t->shape.ndim; d++)
            at += index[d] * t->stride[d];
        out[i] = ls_reals(t)[at];
        for (int d = t->shape.ndim - 1; d >= 0 && ++index[d] == t->shape.dim[d]; d--)
            index[d] = 0;
    }
    return n;
}

/*
 * The linear functional of the output that is differentiated: factors in [-1, 3), of mean 1 so
 * that the gradient of a scalar that stands everywhere is not what is left of a cancellation.
 */
static ls_real *make_seed(int64_t n)
{
    ls_real *seed = malloc((size_t)(n ? n : 1) * sizeof *seed);

    for (int64_t i = 0; seed && i < n; i++) {
        uint32_t draw = ls_rng_draw(2, LS_RNG_SAMPLE, 9, 0, (uint64_t)i).v[0];
        seed[i]       = (ls_real)(draw_real(REALS, draw) + 1);
    }
    return seed;
}

static void keep_array(result *r, int at, const ls_real *x, int64_t n)
{
    r->array[at] = malloc((size_t)(n ? n : 1) * sizeof *x);
    r->n[at]     = n;
    if (r->array[at])
        memcpy(r->array[at], x, (size_t)n * sizeof *x);
}

static void result_free(result *r)
{
    for (int i = 0; i <= ROW_INPUTS; i++)
        free(r->array[i]);
}

static void keep_result(op_case *c, const ls_tensor *y, result *r)
{
    ls_real *values = malloc((size_t)(ls_tensor_numel(y) + 1) * sizeof *values);

    *r = (result){{0}, {0}};
    keep_array(r, 0, values, read_values(y, values));
    free(values);
    for (int i = 0; i < c->n; i++)
        if (c->in[i] && ls_tensor_grad(c->in[i]))
            keep_array(r, 1 + i, ls_tensor_grad(c->in[i]), ls_tensor_numel(c->in[i]));
}

/* Forward and backward; r may be NULL. */
static ls_status run_case(op_case *c, bool twice, result *r)
{
    ls_tape *tape = ls_tape_new();
    if (!tape)
        return LS_ENOMEM;
    ls_tensor *y      = build_once(c, tape, twice);
    ls_real   *seed   = y ? make_seed(ls_tensor_numel(y)) : NULL;
    ls_status  status = ls_tape_status(tape);

    if (!status)
        status = ls_backward_with(tape, y, &(ls_backward_opts){.retain = true, .seed = seed});
    if (!status && r)
        keep_result(c, y, r);
    ls_tape_free(tape);
    free(seed);
    drop_grads(c);
    return status;
}

static const char *row_name(const op_row *row, int size)
{
    static char name[128];

    snprintf(name, sizeof name, size ? "%s %s %d" : "%s %s", row->op->name, row->what, size);
    return name;
}

static bool is_swept(const op_row *row)
{
    for (int i = 0; i < ROW_INPUTS; i++)
        for (int d = 0; d < row->in[i].shape.ndim; d++)
            if (row->in[i].shape.dim[d] < 0)
                return true;
    return false;
}

/* Calls judge(case) for a row at each of its sizes. */
typedef void (*op_judge)(op_case *c, void *context);

static void for_sizes(const op_row *row, op_judge judge, void *context)
{
    int sizes = is_swept(row) ? SWEEP : 1;

    for (int s = 0; s < sizes; s++) {
        op_case c;
        TEST_ROW(row_name(row, is_swept(row) ? sweep[s] : 0));
        if (case_open(&c, row, sweep[s]))
            judge(&c, context);
        case_close(&c);
    }
}

#ifdef LS_REAL_F64

/* ---- the roll call ---- */

/* A rounding has no derivative to be compared with: test_ops_bf16.c judges this one. */
static bool is_judged_elsewhere(const ls_op *op)
{
    return op == &ls_op_cast;
}

static bool has_row(const ls_op *op)
{
    for (int i = 0; i < OP_ROWS; i++)
        if (op_rows[i].op == op && !op_rows[i].wide && !is_swept(&op_rows[i]))
            return true;
    return false;
}

static bool has_wrong(const ls_op *op)
{
    for (int i = 0; i < OP_WRONGS; i++)
        if (op_wrongs[i].op == op)
            return true;
    return false;
}

static void judge_roll_call(void)
{
    for (int i = 0; i < OPS; i++) {
        TEST_ROW(roll_call[i].name);
        CHECK(!strcmp(roll_call[i].op->name, roll_call[i].name));
        CHECK(has_row(roll_call[i].op) != is_judged_elsewhere(roll_call[i].op));
        CHECK(has_wrong(roll_call[i].op));
    }
}

/* The row really calls its operator. */
static void judge_call(op_case *c)
{
    ls_tape   *tape   = ls_tape_new();
    ls_tensor *y      = build_once(c, tape, false);
    bool       called = false;

    for (const ls_node *n = y ? y->node : NULL; n; n = n->prev)
        called |= n->op == c->row->op;
    if (!CHECK(called))
        printf("     %s\n", ls_error_message());
    ls_tape_free(tape);
}

/* ---- gradients ---- */

static double functional(const op_case *c, ls_tape *tape, bool twice, const ls_real *seed,
                         ls_real *values)
{
    double sum = 0;

    ls_tape_set_grad(tape, false);
    ls_tensor *y = build_once(c, tape, twice);
    int64_t    n = read_values(y, values);
    for (int64_t i = 0; i < n; i++)
        sum += seed[i] * values[i];
    ls_tape_reset(tape);
    return sum;
}

/* The truncation error is h^2 / 6 of a third derivative, the rounding error 2^-53 / h of a
 * value: both lie near 1e-10 of what the rows have. */
static double difference(const op_case *c, ls_tape *tape, bool twice, const ls_real *seed,
                         ls_real *values, ls_real *x)
{
    const double h = 1e-5, at = *x;

    *x           = at + h;
    double above = functional(c, tape, twice, seed, values);
    *x           = at - h;
    double below = functional(c, tape, twice, seed, values);
    *x           = at;
    return (above - below) / (2 * h);
}

static void compare_gradient(const op_case *c, int i, bool twice, const ls_real *grad,
                             int64_t n_out)
{
    int64_t  n    = ls_tensor_numel(c->in[i]);
    ls_tape *tape = ls_tape_new();
    ls_real *seed = make_seed(n_out), *values = malloc((size_t)(n_out + 1) * sizeof *values);
    double   worst = 0, largest = 1e-2;

    for (int64_t k = 0; k < n; k++) {
        double d = difference(c, tape, twice, seed, values, &ls_reals(c->in[i])[k]);
        double e = fabs(d - grad[k]);
        worst    = e > worst || isnan(e) ? e : worst;
        largest  = fmax(largest, fabs(d));
    }
    if (!CHECK_CLOSE(worst / largest, 0, 1e-8))
        printf("     input %d, %s\n", i, twice ? "added" : "written");
    ls_tape_free(tape);
    free(seed);
    free(values);
}

static void judge_gradient(op_case *c, bool twice)
{
    result r = {{0}, {0}};

    if (!CHECK_OK(run_case(c, twice, &r)))
        return;
    for (int i = 0; i < c->n; i++)
        if (c->in[i] && c->in[i]->requires_grad && CHECK(r.array[1 + i] != NULL))
            compare_gradient(c, i, twice, r.array[1 + i], r.n[0]);
    result_free(&r);
}

/* Moves input i by h times a fixed random direction; returns what gradient and direction give.
 */
static double move_input(const op_case *c, int i, double h, const ls_real *grad, double *size)
{
    ls_real *x   = ls_reals(c->in[i]);
    double   dot = 0;

    *size = 0;
    for (int64_t k = 0; k < ls_tensor_numel(c->in[i]); k++) {
        uint32_t draw = ls_rng_draw(4, LS_RNG_SAMPLE, (uint32_t)i, 0, (uint64_t)k).v[0];
        double   d    = draw_real(REALS, draw);
        x[k] += h * d;
        dot += grad[k] * d;
        *size += grad[k] * grad[k] * d * d;
    }
    *size = sqrt(*size);
    return dot;
}

/* Values of the output with input i moved by h. */
static void values_at(op_case *c, int i, double h, const ls_real *grad, bool twice, ls_real *y)
{
    double   unused;
    ls_tape *tape = ls_tape_new();
    int64_t  n    = ls_tensor_numel(c->in[i]);
    ls_real *keep = malloc((size_t)(n + 1) * sizeof *keep);

    ls_tape_set_grad(tape, false);
    memcpy(keep, ls_reals(c->in[i]), (size_t)n * sizeof *keep);
    move_input(c, i, h, grad, &unused);
    read_values(build_once(c, tape, twice), y);
    memcpy(ls_reals(c->in[i]), keep, (size_t)n * sizeof *keep);
    free(keep);
    ls_tape_free(tape);
}

/* Along a direction all elements count at once: one that is forgotten at a tail shows. */
static void compare_direction(op_case *c, int i, bool twice, const ls_real *grad, int64_t n_out)
{
    const double h    = 1e-5;
    size_t       room = (size_t)(n_out + 1) * sizeof(ls_real);
    ls_real     *seed = make_seed(n_out), *above = malloc(room), *below = malloc(room);
    double       sum = 0, size, want = move_input(c, i, 0, grad, &size);

    values_at(c, i, h, grad, twice, above);
    values_at(c, i, -h, grad, twice, below);
    for (int64_t k = 0; k < n_out; k++)
        sum += seed[k] * (above[k] - below[k]);
    if (!CHECK_CLOSE(sum / (2 * h), want, 1e-7 * fmax(size, 1e-2)))
        printf("     input %d, %s\n", i, twice ? "added" : "written");
    free(seed);
    free(above);
    free(below);
}

static void judge_direction(op_case *c, void *context)
{
    (void)context;
    for (int twice = 0; twice < 2; twice++) {
        result r = {{0}, {0}};
        if (!CHECK_OK(run_case(c, twice, &r)))
            return;
        for (int i = 0; i < c->n; i++)
            if (c->in[i] && c->in[i]->requires_grad && CHECK(r.array[1 + i] != NULL))
                compare_direction(c, i, twice, r.array[1 + i], r.n[0]);
        result_free(&r);
    }
}

/* Each gradient alone has the bits that it has in company: no rule leans on another's work. */
static void judge_alone(op_case *c)
{
    result all = {{0}, {0}};

    if (!CHECK_OK(run_case(c, false, &all)))
        return;
    for (int i = 0; i < c->n; i++) {
        result one = {{0}, {0}};
        if (!all.array[1 + i])
            continue;
        for (int j = 0; j < c->n; j++)
            c->tensor[j].requires_grad = j == i;
        if (CHECK_OK(run_case(c, false, &one)) && CHECK(one.array[1 + i] != NULL))
            CHECK_CLOSE(memcmp(one.array[1 + i], all.array[1 + i],
                               (size_t)all.n[1 + i] * sizeof(ls_real)),
                        0, 0);
        for (int j = 0; j < c->n; j++)
            CHECK(j == i || !one.array[1 + j]);
        result_free(&one);
    }
    for (int j = 0; j < c->n; j++)
        c->tensor[j].requires_grad = c->tensor[j].dtype == LS_REAL;
    result_free(&all);
}

/* ---- allocations ---- */

/* Like run_case, but after a failure goes on calling: nothing may happen, the message stays. */
static ls_status run_stubbornly(op_case *c)
{
    char     message[256];
    ls_tape *tape = ls_tape_new();

    if (!tape)
        return LS_ENOMEM;
    ls_tensor *y      = build_once(c, tape, true);
    ls_real   *seed   = y ? make_seed(ls_tensor_numel(y)) : NULL;
    ls_status  status = ls_backward_with(tape, y, &(ls_backward_opts){.seed = seed});
    free(seed);
    snprintf(message, sizeof message, "%s", ls_error_message());
    if (status) {
        CHECK(ls_tape_status(tape) == status);
        CHECK(!build_once(c, tape, false));
        CHECK(ls_backward(tape, y) == status);
        CHECK(!strcmp(message, ls_error_message()));
    }
    ls_tape_free(tape);
    drop_grads(c);
    return status;
}

static void judge_allocations(op_case *c)
{
    int64_t before = ls_mem_get_stats().total, n = 0;

    for (; n < 1000; n++) {
        ls_alloc_fail_after(n);
        ls_status status = run_stubbornly(c);
        ls_alloc_fail_after(-1);
        CHECK(ls_mem_get_stats().total == before);
        if (!status)
            break;
        CHECK_FAILS(status, LS_ENOMEM, "injected");
    }
    CHECK(n > 2 && n < 1000);
}

/* ---- wrong calls ---- */

static void judge_wrong(const op_wrong *wrong)
{
    op_row  row = {.op = wrong->op, .what = wrong->text, .build = wrong->build};
    op_case c;

    memcpy(row.in, wrong->in, sizeof row.in);
    TEST_ROW(row_name(&row, 0));
    if (case_open(&c, &row, 1)) {
        ls_tape *tape = ls_tape_new();
        CHECK(!build_once(&c, tape, false));
        CHECK_FAILS(ls_tape_status(tape), wrong->status, wrong->text);
        size_t name = strlen(wrong->op->name);
        if (!CHECK(!strncmp(ls_error_message(), wrong->op->name, name) &&
                   ls_error_message()[name] == ':'))
            printf("     %s\n", ls_error_message());
        ls_tape_free(tape);
    }
    case_close(&c);
}

static void judge_small(op_case *c, void *context)
{
    (void)context;
    judge_call(c);
    judge_gradient(c, false);
    judge_gradient(c, true);
    judge_alone(c);
    judge_allocations(c);
}

static void judge_all(void)
{
    judge_roll_call();
    for (int i = 0; i < OP_ROWS; i++)
        for_sizes(&op_rows[i],
                  op_rows[i].wide || is_swept(&op_rows[i]) ? judge_direction : judge_small,
                  NULL);
    for (int i = 0; i < OP_WRONGS; i++)
        judge_wrong(&op_wrongs[i]);
}

/* ---- the file for the float program ---- */

static void write_result(FILE *f, const result *r)
{
    for (int i = 0; i <= ROW_INPUTS; i++) {
        CHECK(fwrite(&r->n[i], sizeof r->n[i], 1, f) == 1);
        if (r->n[i])
            CHECK(fwrite(r->array[i], sizeof(double), (size_t)r->n[i], f) == (size_t)r->n[i]);
    }
}

static void write_case(op_case *c, void *file)
{
    for (int twice = 0; twice < 2; twice++) {
        result r = {{0}, {0}};
        CHECK_OK(run_case(c, twice, &r));
        write_result(file, &r);
        result_free(&r);
    }
}

static void use_file(const char *path)
{
    FILE *f = fopen(path, "wb");
    if (!CHECK(f != NULL))
        return;
    for (int i = 0; i < OP_ROWS; i++)
        for_sizes(&op_rows[i], write_case, f);
    CHECK(fclose(f) == 0);
}

#else

/* ---- float against double, threads against none ---- */

typedef struct {
    FILE    *file;
    bool     show;
    double   worst; /* of the row's sizes, in 2^-24 of the largest element */
    uint64_t bits;  /* FNV-1a of all results, to compare the variants of the kernels */
} comparison;

/* Error in units of 2^-24 of the largest element. */
static double error_of(const ls_real *got, const double *want, int64_t n)
{
    double worst = 0, largest = 0;

    for (int64_t i = 0; i < n; i++) {
        double e = fabs((double)got[i] - want[i]);
        worst    = e > worst || isnan(e) ? e : worst;
        largest  = fmax(largest, fabs(want[i]));
    }
    return worst == 0 ? 0 : worst / largest * 0x1p24;
}

static void add_bits(comparison *k, const void *data, size_t bytes)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < bytes; i++)
        k->bits = (k->bits ^ p[i]) * 0x100000001B3u;
}

static bool compare_array(comparison *k, const op_case *c, const result *r, int at)
{
    int64_t n = -1;

    if (r->n[at] > 0)
        add_bits(k, r->array[at], (size_t)r->n[at] * sizeof(ls_real));

    if (!CHECK(fread(&n, sizeof n, 1, k->file) == 1) || !CHECK(n == r->n[at]))
        return false;
    double *want = malloc((size_t)(n ? n : 1) * sizeof *want);
    if (CHECK(fread(want, sizeof *want, (size_t)n, k->file) == (size_t)n) && n) {
        double e = error_of(r->array[at], want, n);
        k->worst = e > k->worst || isnan(e) ? e : k->worst;
        if (!CHECK_CLOSE(e, 0, c->row->bound))
            printf("     %s %d\n", at ? "gradient of input" : "output", at ? at - 1 : 0);
    }
    free(want);
    return true;
}

static void compare_threads(op_case *c, bool twice, const result *alone)
{
    for (int threads = 2; threads <= 3; threads++) {
        result   r    = {{0}, {0}};
        ls_pool *pool = ls_pool_new(threads);
        ls_pool_use(pool);
        CHECK_OK(run_case(c, twice, &r));
        ls_pool_use(NULL);
        ls_pool_free(pool);
        for (int i = 0; i <= ROW_INPUTS; i++)
            if (alone->n[i] && CHECK(r.n[i] == alone->n[i]))
                CHECK_BITS(r.array[i], alone->array[i], (size_t)r.n[i] * sizeof(ls_real));
        result_free(&r);
    }
}

static void compare_case(op_case *c, void *context)
{
    comparison *k = context;

    for (int twice = 0; twice < 2 && k->file; twice++) {
        result r = {{0}, {0}};
        CHECK_OK(run_case(c, twice, &r));
        for (int i = 0; i <= ROW_INPUTS && k->file; i++)
            if (!compare_array(k, c, &r, i))
                k->file = NULL; /* out of step: what follows means nothing */
        compare_threads(c, twice, &r);
        result_free(&r);
    }
}

static void use_file(const char *path, bool show)
{
    FILE      *f = fopen(path, "rb");
    comparison k = {.file = f, .show = show, .bits = 0xCBF29CE484222325u};

    if (!CHECK(f != NULL))
        return;
    for (int i = 0; i < OP_ROWS; i++) {
        k.worst = 0;
        for_sizes(&op_rows[i], compare_case, &k);
        if (k.show)
            printf("%-20s %-22s %8.2f of %g\n", op_rows[i].op->name, op_rows[i].what, k.worst,
                   op_rows[i].bound);
    }
    printf("bits %016llx\n", (unsigned long long)k.bits);
    TEST_ROW("end of file");
    CHECK(fgetc(f) == EOF);
    fclose(f);
}

#endif

int main(int argc, char **argv)
{
    ls_blas_init();
#ifdef LS_REAL_F64
    if (argc > 1)
        use_file(argv[1]);
    else
        judge_all();
#else
    CHECK(argc > 1);
    if (argc > 1)
        use_file(argv[1], argc > 2);
    (void)roll_call;
#endif
    ls_mem_trim();
    return test_summary("ops");
}
