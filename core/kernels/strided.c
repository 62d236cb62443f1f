/*
 * strided.c - a walk over rows of the last dimension, after joining dimensions that lie
 * without gaps on both sides.
 */
#include "core/kernels/strided.h"

#include <string.h>

#include "core/tensor.h"
#include "core/thread.h"

enum { GRAIN = 16384 };

typedef struct {
    char       *dst;
    const char *src;
    size_t      bytes; /* of an element */
    bool        add;   /* elements are ls_real */
    int         ndim;
    int64_t     dim[LS_MAX_DIMS], to[LS_MAX_DIMS], from[LS_MAX_DIMS];
    int64_t     rows, grain;
} walk;

/* Appends a dimension, joined to the last one where both sides step through the two as one. */
static void append(walk *w, int64_t dim, int64_t to, int64_t from)
{
    int i = w->ndim - 1;

    if (dim == 1)
        return;
    if (i >= 0 && w->to[i] == dim * to && w->from[i] == dim * from) {
        w->dim[i] *= dim;
    } else {
        i         = w->ndim++;
        w->dim[i] = dim;
    }
    w->to[i]   = to;
    w->from[i] = from;
}

/* Called with constant bytes, so that each memcpy becomes one move. */
static inline void copy_each(const walk *w, char *dst, const char *src, size_t bytes)
{
    size_t n    = (size_t)w->dim[w->ndim - 1];
    size_t to   = (size_t)w->to[w->ndim - 1] * bytes;
    size_t from = (size_t)w->from[w->ndim - 1] * bytes;

    for (size_t i = 0; i < n; i++)
        memcpy(dst + i * to, src + i * from, bytes);
}

static void copy_elements(const walk *w, char *dst, const char *src)
{
    int last = w->ndim - 1;

    if (w->to[last] == 1 && w->from[last] == 1)
        memcpy(dst, src, (size_t)w->dim[last] * w->bytes);
    else if (w->bytes == 4)
        copy_each(w, dst, src, 4);
    else if (w->bytes == 8)
        copy_each(w, dst, src, 8);
    else
        copy_each(w, dst, src, w->bytes);
}

static void add_elements(const walk *w, char *dst, const char *src)
{
    int64_t  n = w->dim[w->ndim - 1], to = w->to[w->ndim - 1], from = w->from[w->ndim - 1];
    ls_real *y       = (ls_real *)(void *)dst;
    const ls_real *x = (const ls_real *)(const void *)src;

    for (int64_t i = 0; i < n; i++)
        y[i * to] += x[i * from];
}

static void row(const walk *w, int64_t index)
{
    int64_t to = 0, from = 0;

    for (int i = w->ndim - 2; i >= 0; i--) {
        int64_t at = index % w->dim[i];
        index /= w->dim[i];
        to += at * w->to[i];
        from += at * w->from[i];
    }
    char       *dst = w->dst + to * (int64_t)w->bytes;
    const char *src = w->src + from * (int64_t)w->bytes;
    if (w->add)
        add_elements(w, dst, src);
    else
        copy_elements(w, dst, src);
}

static void rows_task(void *context, int64_t index)
{
    const walk *w     = context;
    ls_block    range = ls_block_at(w->rows, w->grain, index);

    for (int64_t r = range.first; r < range.end; r++)
        row(w, r);
}

static void run(walk *w, int ndim, const int64_t *dim, const int64_t *to, const int64_t *from)
{
    for (int i = 0; i < ndim; i++) {
        if (dim[i] == 0)
            return;
        append(w, dim[i], to[i], from[i]);
    }
    if (w->ndim == 0) { /* one element */
        w->ndim   = 1;
        w->dim[0] = w->to[0] = w->from[0] = 1;
    }
    int64_t n = w->dim[w->ndim - 1];
    w->rows   = 1;
    for (int i = 0; i < w->ndim - 1; i++)
        w->rows *= w->dim[i];
    w->grain = n < GRAIN ? GRAIN / n : 1;
    ls_parallel(ls_block_count(w->rows, w->grain), rows_task, w);
}

static void row_major(int ndim, const int64_t *dim, int64_t *stride)
{
    int64_t step = 1;

    for (int i = ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step *= dim[i];
    }
}

void ls_k_copy_strided(void *dst, const void *src, size_t elem_bytes, int ndim,
                       const int64_t *dim, const int64_t *src_stride)
{
    walk    w = {.dst = dst, .src = src, .bytes = elem_bytes};
    int64_t to[LS_MAX_DIMS];

    row_major(ndim, dim, to);
    run(&w, ndim, dim, to, src_stride);
}

void ls_k_gather_strided(ls_real *dst, const ls_real *src, int ndim, const int64_t *dim,
                         const int64_t *src_stride, bool add)
{
    walk w = {.dst = (char *)dst, .src = (const char *)src, .bytes = sizeof *dst, .add = add};
    int64_t to[LS_MAX_DIMS];

    row_major(ndim, dim, to);
    run(&w, ndim, dim, to, src_stride);
}

void ls_k_scatter_strided(ls_real *dst, const ls_real *src, int ndim, const int64_t *dim,
                          const int64_t *dst_stride, bool add)
{
    walk w = {.dst = (char *)dst, .src = (const char *)src, .bytes = sizeof *dst, .add = add};
    int64_t from[LS_MAX_DIMS];

    row_major(ndim, dim, from);
    run(&w, ndim, dim, dst_stride, from);
}
