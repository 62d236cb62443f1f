/*
 * test_comm_bits.c - sums have the same bits whichever way they are computed.
 *
 * The parent makes every rank's contribution, and their sums by core/tree_sum.h, which knows
 * nothing of ranks.  All ranks of all runs (transport, algorithm, memory, message size, alone
 * or with others in one buffer) compare what they get with these sums, so all equal each other.
 *
 *     give[dtype][rank][element]  --tree_sum-->  want[dtype][element]      for N ranks
 *
 * Contributions differ in magnitude by 2^30, so that another order shows in most elements;
 * that it would is checked, too.
 *
 *     test_comm_bits BACKEND
 */
#include "ranks.h"

#include <stdlib.h>

#include "core/tree_sum.h"

#ifdef __SANITIZE_THREAD__ /* which is fifty times slower */
enum { MOST = (1 << 18) + 3 };
#else
enum { MOST = (1 << 20) + 3 };
#endif

enum { MOST_RANKS = 8, DTYPES = 2 };

static const int64_t counts[] = {1, 3, 7, 1000, (1 << 16) + 1, MOST};

enum { COUNTS = sizeof counts / sizeof *counts };

/* What the ranks inherit. */
typedef struct {
    float    give_f32[MOST_RANKS][MOST];
    uint16_t give_bf16[MOST_RANKS][MOST];
    float    want_f32[MOST];
    uint16_t want_bf16[MOST];
    float    ring[MOST_RANKS][MOST]; /* what each rank got from the ring */
    int      rows[MOST_RANKS];       /* compared by each rank in this run */
} page;

typedef struct {
    page *p;
} scene;

/* ---- values ---- */

static uint32_t hash(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static float value(int rank, int64_t i, int round)
{
    uint32_t h = hash((uint32_t)i * 31u + (uint32_t)rank * 1000003u + (uint32_t)round * 7919u);

    return ldexpf((float)(int32_t)h * 0x1p-31f, (int)(hash(h) % 31) - 15);
}

static void make_contributions(page *p)
{
    for (int r = 0; r < MOST_RANKS; r++)
        for (int64_t i = 0; i < MOST; i++) {
            p->give_f32[r][i]  = value(r, i, 0);
            p->give_bf16[r][i] = ls_bf16_from_f32(p->give_f32[r][i]);
        }
}

static ls_storage *leaf(const page *p, int rank, ls_dtype dtype)
{
    ls_storage *s = ls_storage_new(sizeof p->want_f32, LS_MEM_GRADS);
    float      *x = s->data;

    for (int64_t i = 0; i < MOST; i++)
        x[i] = dtype == LS_F32 ? p->give_f32[rank][i] : ls_bf16_to_f32(p->give_bf16[rank][i]);
    return s;
}

static void make_sums(page *p, int n)
{
    for (int d = 0; d < DTYPES; d++) {
        ls_tree_sum sum;
        ls_tree_sum_init(&sum);
        for (int r = 0; r < n; r++)
            CHECK_OK(ls_tree_sum_push(&sum, leaf(p, r, (ls_dtype)d)));
        ls_storage  *s = ls_tree_sum_finish(&sum);
        const float *x = s->data;
        for (int64_t i = 0; i < MOST; i++)
            if (d == LS_F32)
                p->want_f32[i] = x[i];
            else
                p->want_bf16[i] = ls_bf16_from_f32(x[i]);
        ls_storage_release(s);
    }
}

/* Rank after rank gives other bits in a fair part of the elements: else nothing is proved. */
static void check_that_order_shows(const page *p, int n)
{
    int other = 0;

    for (int i = 0; i < 10000; i++) {
        float sum = p->give_f32[n - 1][i];
        for (int r = n - 2; r >= 0; r--)
            sum += p->give_f32[r][i];
        other += memcmp(&sum, &p->want_f32[i], sizeof sum) != 0;
    }
    CHECK(n < 3 || other > 500);
}

/* ---- one rank's buffers ---- */

typedef struct {
    ls_comm *world;
    page    *p;
    int      n, r;
    ls_dtype dtype;
    size_t   size; /* of an element */
    bool     heap;
    char    *in, *out; /* [MOST + 2 * MARGIN] */
} bench;

enum { MARGIN = 512 }; /* elements of neighbours in a bucket */

static char *memory(const bench *b)
{
    size_t bytes = (MOST + 2 * MARGIN) * sizeof(float);

    return b->heap ? ls_comm_alloc(b->world, bytes) : calloc(bytes, 1);
}

static void give_back(const bench *b, char *p)
{
    if (b->heap)
        ls_comm_release(b->world, p);
    else
        free(p);
}

static const char *given(const bench *b)
{
    return b->dtype == LS_F32 ? (const char *)b->p->give_f32[b->r]
                              : (const char *)b->p->give_bf16[b->r];
}

static const char *wanted(const bench *b)
{
    return b->dtype == LS_F32 ? (const char *)b->p->want_f32 : (const char *)b->p->want_bf16;
}

/* `n` elements from element `at` on of what came to out[at_out ...]. */
static void same(bench *b, int64_t at_out, int64_t at, int64_t n, const char *what)
{
    b->p->rows[b->r]++;
    if (!CHECK_BITS(b->out + (size_t)at_out * b->size, wanted(b) + (size_t)at * b->size,
                    (size_t)n * b->size))
        printf("     %s: rank %d of %d, %s, %lld elements from %lld on, heap %d\n", what, b->r,
               b->n, ls_dtype_name(b->dtype), (long long)n, (long long)at, b->heap);
}

static void fill(bench *b, int64_t at_in, int64_t count)
{
    memcpy(b->in + (size_t)at_in * b->size, given(b), (size_t)count * b->size);
    memset(b->out, 0x5a, (size_t)(count + 2 * MARGIN) * b->size);
}

/* ---- the ways ---- */

static void alone(bench *b, int64_t count)
{
    fill(b, 0, count);
    CHECK_OK(ls_comm_all_reduce(b->world, b->out, b->in, count, b->dtype, LS_SUM));
    same(b, 0, 0, count, "all_reduce");
    memcpy(b->out, given(b), (size_t)count * b->size);
    CHECK_OK(ls_comm_all_reduce(b->world, b->out, b->out, count, b->dtype, LS_SUM));
    same(b, 0, 0, count, "all_reduce in place");
}

static void to_a_root(bench *b, int64_t count)
{
    int root = (int)(count % b->n);

    fill(b, 0, count);
    CHECK_OK(ls_comm_reduce(b->world, b->out, b->in, count, b->dtype, LS_SUM, root));
    if (b->r == root)
        same(b, 0, 0, count, "reduce");
}

static void to_slices(bench *b, int64_t count)
{
    ls_slice_segment segment[MOST_RANKS];
    ls_segment_list  slice[MOST_RANKS];

    for (int r = 0; r < b->n; r++) {
        int64_t first = r * count / b->n;
        segment[r]    = (ls_slice_segment){first, (r + 1) * count / b->n - first};
        slice[r]      = (ls_segment_list){&segment[r], 1};
    }
    fill(b, 0, count);
    CHECK_OK(ls_comm_run(b->world, &(ls_call){.kind   = LS_REDUCE_SCATTER,
                                              .in     = b->in,
                                              .out    = b->out,
                                              .count  = count,
                                              .dtype  = b->dtype,
                                              .op     = LS_SUM,
                                              .slices = slice}));
    same(b, 0, segment[b->r].offset, segment[b->r].count, "reduce_scatter of lists");
    int64_t each = count / b->n;
    if (!each)
        return;
    fill(b, 0, each * b->n);
    CHECK_OK(ls_comm_reduce_scatter(b->world, b->out, b->in, each, b->dtype, LS_SUM));
    same(b, 0, b->r * each, each, "reduce_scatter");
}

/* Between neighbours that are sums of their own. */
static void fused(bench *b, int64_t count)
{
    int64_t margin = count < MARGIN ? count : MARGIN, right = margin + count;

    fill(b, margin, count);
    memcpy(b->in, given(b), (size_t)margin * b->size);
    memcpy(b->in + (size_t)right * b->size, given(b), (size_t)margin * b->size);
    CHECK_OK(ls_comm_all_reduce(b->world, b->out, b->in, right + margin, b->dtype, LS_SUM));
    same(b, 0, 0, margin, "left neighbour");
    same(b, margin, 0, count, "fused");
    same(b, right, 0, margin, "right neighbour");
}

static void in_thirds(bench *b, int64_t count)
{
    fill(b, 0, count);
    for (int k = 0; k < 3; k++) {
        int64_t first = k * count / 3, n = (k + 1) * count / 3 - first;
        char   *out = b->out + (size_t)first * b->size, *in = b->in + (size_t)first * b->size;
        CHECK_OK(ls_comm_all_reduce(b->world, out, in, n, b->dtype, LS_SUM));
    }
    same(b, 0, 0, count, "in thirds");
}

static void each_way(bench *b, int64_t count)
{
    alone(b, count);
    to_a_root(b, count);
    to_slices(b, count);
    fused(b, count);
    in_thirds(b, count);
}

static void everything(ls_comm *world, void *context)
{
    scene *s = context;

    for (int i = 0; i < 2 * DTYPES; i++) {
        bench b = {.world = world,
                   .p     = s->p,
                   .n     = ls_comm_size(world),
                   .r     = ls_comm_rank(world),
                   .heap  = i & 1,
                   .dtype = (ls_dtype)(i / 2)};
        b.size  = ls_dtype_bytes(b.dtype);
        b.in    = memory(&b);
        b.out   = memory(&b);
        CHECK(b.in && b.out);
        for (int k = 0; k < COUNTS; k++)
            each_way(&b, counts[k]);
        give_back(&b, b.in);
        give_back(&b, b.out);
    }
}

/* ---- reduce_scatter, again and again, with other data each time ---- */

static float tree(int first, int n, int64_t i, int round)
{
    int half = 1;

    if (n == 1)
        return value(first, i, round);
    while (2 * half < n)
        half *= 2;
    return tree(first, half, i, round) + tree(first + half, n - half, i, round);
}

/* Counts from 1 to 260: with 4 ranks and less they go in one posting and in place in turn. */
static void repeated(ls_comm *world, void *context)
{
    enum { ROUNDS = 1000, MOST_EACH = 260 };
    scene *s = context;
    int    n = ls_comm_size(world), r = ls_comm_rank(world), wrong = 0;
    float *heap = ls_comm_alloc(world, sizeof(float) * MOST_EACH * (size_t)(n + 1));
    float *own  = calloc((size_t)MOST_EACH * (size_t)(n + 1), sizeof(float));

    for (int round = 1; round <= ROUNDS; round++) {
        int64_t each = 1 + round * 37 % MOST_EACH;
        float  *in = round % 3 ? heap : own, *out = in + n * each;
        for (int64_t i = 0; i < n * each; i++)
            in[i] = value(r, i, round);
        CHECK_OK(ls_comm_reduce_scatter(world, out, in, each, LS_F32, LS_SUM));
        for (int64_t i = 0; i < each; i++) {
            float want = tree(0, n, r * each + i, round);
            wrong += memcmp(&want, &out[i], sizeof want) != 0;
        }
        s->p->rows[r]++;
    }
    CHECK(wrong == 0);
    ls_comm_release(world, heap);
    free(own);
}

/* ---- the ring ---- */

static void by_ring(ls_comm *world, void *context)
{
    scene  *s     = context;
    int     r     = ls_comm_rank(world);
    int64_t count = 100003;
    float  *got   = s->p->ring[r];

    CHECK_OK(ls_comm_all_reduce(world, got, s->p->give_f32[r], count, LS_F32, LS_SUM));
    s->p->rows[r]++;
    CHECK_OK(ls_comm_barrier(world));
    CHECK_BITS(got, s->p->ring[0], sizeof(float) * (size_t)count);
    if (ls_comm_size(world) <= 2) /* a + b is b + a */
        CHECK_BITS(got, s->p->want_f32, sizeof(float) * (size_t)count);
    else
        CHECK(memcmp(got, s->p->want_f32, sizeof(float) * (size_t)count) != 0);
}

/* ---- runs ---- */

static void run(const char *backend, int n, ls_algorithm algorithm, ranks_body body,
                const char *what, scene *s)
{
    char       name[120];
    ranks_opts opts = {.backend   = backend,
                       .n         = n,
                       .hosts     = n == 5 ? 3 : 2,
                       .algorithm = algorithm,
                       .fast      = algorithm == LS_RING,
                       .limit_s   = 200,
                       .timeout_s = 60};

    snprintf(name, sizeof name, "%s, %s, %d ranks, %s", what, backend, n,
             ls_algorithm_name(algorithm));
    TEST_ROW(name);
    memset(s->p->rows, 0, sizeof s->p->rows);
    CHECK(ranks_run(&opts, body, s) == 0);
    for (int r = 0; r < n; r++)
        CHECK(s->p->rows[r] > 0);
}

static void all_of(const char *backend, int n, scene *s)
{
    TEST_ROW("sums by core/tree_sum.h");
    make_sums(s->p, n);
    check_that_order_shows(s->p, n);
    for (int a = 0; a < LS_RING; a++)
        if (ls_algorithm_fits((ls_algorithm)a, n)) {
            run(backend, n, (ls_algorithm)a, everything, "equal bits", s);
            if (n == 4 || n == 3)
                run(backend, n, (ls_algorithm)a, repeated, "1000 reduce_scatters", s);
        }
    if (n > 1)
        run(backend, n, LS_RING, by_ring, "ring", s);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    const char      *backend = argc > 1 ? argv[1] : "shm";
    scene            s       = {.p = ranks_shared(sizeof(page))};

    if (!s.p) {
        printf("comm_bits: no memory\n");
        return 1;
    }
    make_contributions(s.p);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        if (sizes[k] > 1 || strcmp(backend, "mixed"))
            all_of(backend, sizes[k], &s);
    ranks_unshare(s.p, sizeof(page));
    ls_mem_trim();
    return test_summary("comm_bits");
}
