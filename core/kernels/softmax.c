/*
 * softmax.c - one row at a time, blocks of rows over the pool.
 */
#include "core/kernels/softmax.h"

#include <string.h>

#include "core/kernels/bf16.h"
#include "core/kernels/clones.h"
#include "core/kernels/lanes.h"
#include "core/kernels/real_math.h"
#include "core/kernels/reduce.h"
#include "core/thread.h"

enum { GRAIN = 16384 };

typedef struct {
    ls_real       *out;
    const ls_real *x, *y;
    int64_t        rows, n;
    bool           add;
    void (*row)(ls_real *out, const ls_real *x, const ls_real *y, int64_t n, bool add);
} job;

static int64_t row_grain(int64_t n)
{
    return n < GRAIN ? GRAIN / (n ? n : 1) : 1;
}

static void rows_task(void *context, int64_t index)
{
    const job *j     = context;
    ls_block   range = ls_block_at(j->rows, row_grain(j->n), index);

    for (int64_t r = range.first; r < range.end; r++)
        j->row(j->out + r * j->n, j->x + r * j->n, j->y ? j->y + r * j->n : NULL, j->n, j->add);
}

static void each_row(job j)
{
    ls_parallel(ls_block_count(j.rows, row_grain(j.n)), rows_task, &j);
}

LS_INLINE double log_sum_exp(const ls_real *x, int64_t n)
{
    ls_real max = ls_lanes_max(x, n);
    double  sum;

    LS_LANES_SUM(sum, i, n, (double)ls_exp(x[i] - max));
    return (double)max + log(sum);
}

LS_CLONES static void softmax_row(ls_real *out, const ls_real *x, const ls_real *y, int64_t n,
                                  bool add)
{
    ls_real max = ls_lanes_max(x, n);
    double  sum;

    (void)y, (void)add;
    for (int64_t i = 0; i < n; i++)
        out[i] = ls_exp(x[i] - max);
    LS_LANES_SUM(sum, i, n, (double)out[i]);
    ls_real factor = (ls_real)(1 / sum);
    for (int64_t i = 0; i < n; i++)
        out[i] *= factor;
}

LS_CLONES static void log_softmax_row(ls_real *out, const ls_real *x, const ls_real *y,
                                      int64_t n, bool add)
{
    double lse = log_sum_exp(x, n);

    (void)y, (void)add;
    for (int64_t i = 0; i < n; i++)
        out[i] = (ls_real)((double)x[i] - lse);
}

/* y (dy - dy . y) */
LS_CLONES static void softmax_backward_row(ls_real *dx, const ls_real *dy, const ls_real *y,
                                           int64_t n, bool add)
{
    ls_real dot = (ls_real)ls_k_row_dot(dy, y, n);

    for (int64_t i = 0; i < n; i++) {
        ls_real d = y[i] * (dy[i] - dot);
        dx[i]     = add ? dx[i] + d : d;
    }
}

/* dy - exp(y) sum(dy) */
LS_CLONES static void log_softmax_backward_row(ls_real *dx, const ls_real *dy, const ls_real *y,
                                               int64_t n, bool add)
{
    ls_real sum = (ls_real)ls_k_row_sum(dy, n);

    for (int64_t i = 0; i < n; i++) {
        ls_real d = dy[i] - ls_exp(y[i]) * sum;
        dx[i]     = add ? dx[i] + d : d;
    }
}

void ls_k_softmax(ls_real *y, const ls_real *x, int64_t rows, int64_t n)
{
    each_row((job){.out = y, .x = x, .rows = rows, .n = n, .row = softmax_row});
}

void ls_k_log_softmax(ls_real *y, const ls_real *x, int64_t rows, int64_t n)
{
    each_row((job){.out = y, .x = x, .rows = rows, .n = n, .row = log_softmax_row});
}

void ls_k_softmax_backward(ls_real *dx, const ls_real *dy, const ls_real *y, int64_t rows,
                           int64_t n, bool add)
{
    each_row((job){dx, dy, y, rows, n, add, softmax_backward_row});
}

void ls_k_log_softmax_backward(ls_real *dx, const ls_real *dy, const ls_real *y, int64_t rows,
                               int64_t n, bool add)
{
    each_row((job){dx, dy, y, rows, n, add, log_softmax_backward_row});
}

typedef struct {
    const ls_scored *s;
    double          *loss, *lse; /* of the forward */
    const double    *lse_of;     /* of the backward, with what follows */
    ls_real         *d;
    ls_real          scale;
    bool             add;
    bool             half; /* gradients in place are BF16 */
} scored_job;

LS_CLONES static void loss_task(void *context, int64_t index)
{
    const scored_job *j     = context;
    const ls_scored  *s     = j->s;
    ls_block          range = ls_block_at(s->rows, row_grain(s->n), index);

    for (int64_t r = range.first; r < range.end; r++) {
        const ls_real *x      = s->logits + r * s->n;
        bool           counts = s->target[r] != s->ignore;
        j->lse[r]             = counts ? log_sum_exp(x, s->n) : 0;
        j->loss[r]            = counts ? j->lse[r] - (double)x[s->target[r]] : 0;
    }
}

void ls_k_cross_entropy(double *loss, double *lse, const ls_scored *s)
{
    scored_job j = {.s = s, .loss = loss, .lse = lse};
    ls_parallel(ls_block_count(s->rows, row_grain(s->n)), loss_task, &j);
}

LS_INLINE ls_real probability(ls_real logit, double lse)
{
    return ls_exp((ls_real)((double)logit - lse));
}

/* The target's element is worked out first, as d may be x. */
LS_INLINE void score_row(const scored_job *j, ls_real *d, const ls_real *x, double lse,
                         int32_t target)
{
    ls_real at = j->scale * (probability(x[target], lse) - 1);
    if (j->add)
        at = d[target] + at;
    if (j->add)
        for (int64_t i = 0; i < j->s->n; i++)
            d[i] += j->scale * probability(x[i], lse);
    else
        for (int64_t i = 0; i < j->s->n; i++)
            d[i] = j->scale * probability(x[i], lse);
    d[target] = at;
}

LS_INLINE void clear_row(ls_real *d, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = 0;
}

LS_CLONES static void score_task(void *context, int64_t index)
{
    const scored_job *j     = context;
    const ls_scored  *s     = j->s;
    ls_block          range = ls_block_at(s->rows, row_grain(s->n), index);

    for (int64_t r = range.first; r < range.end; r++) {
        ls_real *d = j->d + r * s->n;
        if (s->target[r] != s->ignore)
            score_row(j, d, s->logits + r * s->n, j->lse_of[r], s->target[r]);
        else if (!j->add)
            clear_row(d, s->n);
    }
}

void ls_k_cross_entropy_backward(ls_real *d, const double *lse, const ls_scored *s,
                                 ls_real scale, bool add)
{
    scored_job j = {.s = s, .lse_of = lse, .d = d, .scale = scale, .add = add};
    ls_parallel(ls_block_count(s->rows, row_grain(s->n)), score_task, &j);
}

enum { ROUNDED_AT_ONCE = 256 };

/*
 * x times factor, and at the target 1 less, to BF16 at the start of x.  By way of a block, as
 * the compiler would not split a loop that writes where it reads.
 */
LS_INLINE void round_in_place(ls_real *x, int64_t n, ls_real factor, int32_t target)
{
    uint16_t block[ROUNDED_AT_ONCE];
    ls_real  at = x[target] * factor - 1;

    for (int64_t first = 0; first < n; first += ROUNDED_AT_ONCE) {
        int64_t count = n - first < ROUNDED_AT_ONCE ? n - first : ROUNDED_AT_ONCE;
        for (int64_t i = 0; i < count; i++)
            block[i] = ls_bf16_round((float)(x[first + i] * factor));
        memcpy((uint16_t *)x + first, block, (size_t)count * sizeof *block);
    }
    uint16_t at16 = ls_bf16_round((float)at);
    memcpy((uint16_t *)x + target, &at16, sizeof at16);
}

/* Row x becomes softmax(x) - onehot(target); returns its loss. */
LS_INLINE double score_in_place(ls_real *x, int64_t n, int32_t target, bool half)
{
    ls_real max = ls_lanes_max(x, n);
    double  at  = (double)x[target], sum;

    for (int64_t i = 0; i < n; i++)
        x[i] = ls_exp(x[i] - max);
    LS_LANES_SUM(sum, i, n, (double)x[i]);
    ls_real factor = (ls_real)(1 / sum);
    if (half) {
        round_in_place(x, n, factor, target);
    } else {
        for (int64_t i = 0; i < n; i++)
            x[i] *= factor;
        x[target] -= 1;
    }
    return (double)max + log(sum) - at;
}

LS_CLONES static void in_place_task(void *context, int64_t index)
{
    const scored_job *j     = context;
    const ls_scored  *s     = j->s;
    ls_block          range = ls_block_at(s->rows, row_grain(s->n), index);

    for (int64_t r = range.first; r < range.end; r++) {
        ls_real *x = j->d + r * s->n;
        j->loss[r] = 0;
        if (s->target[r] != s->ignore)
            j->loss[r] = score_in_place(x, s->n, s->target[r], j->half);
        else
            clear_row(x, s->n);
    }
}

void ls_k_cross_entropy_gradient(double *loss, ls_real *logits, const ls_scored *s)
{
    scored_job j = {.s = s, .loss = loss, .d = logits};
    ls_parallel(ls_block_count(s->rows, row_grain(s->n)), in_place_task, &j);
}

void ls_k_cross_entropy_gradient_bf16(double *loss, ls_real *logits, const ls_scored *s)
{
    scored_job j = {.s = s, .loss = loss, .d = logits, .half = true};
    ls_parallel(ls_block_count(s->rows, row_grain(s->n)), in_place_task, &j);
}

double ls_k_add_losses(double total, const double *loss, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        total += loss[i];
    return total;
}
