/*
 * bucket.c - see bucket.h.
 */
#include "dist/bucket.h"

#include <stdlib.h>

enum { FIRST_BYTES = 1 << 20 };

static int64_t bytes_of(const ls_named_tensor *p)
{
    return (int64_t)ls_tensor_grad_bytes(p->tensor);
}

static bool is_full(const ls_buckets *b, const ls_bucket *k, int64_t next, int64_t bytes)
{
    int64_t held = k->count * (int64_t)sizeof(ls_real);

    if (b->n == 1 && bytes > FIRST_BYTES)
        return held + next > FIRST_BYTES;
    return held >= bytes;
}

/* Deals the parameters out, last registered first. */
static void deal(ls_buckets *b, const ls_named_tensor *parameters, int64_t bytes)
{
    ls_bucket *k = NULL;

    for (int i = b->n_parameters - 1; i >= 0; i--) {
        if (!k || is_full(b, k, bytes_of(&parameters[i]), bytes)) {
            k  = &b->buckets[b->n++];
            *k = (ls_bucket){.first = i};
        }
        b->bucket_of[i] = b->n - 1;
        b->offset_of[i] = k->count;
        k->count += ls_tensor_numel(parameters[i].tensor);
        k->n++;
    }
}

ls_status ls_buckets_init(ls_buckets *b, ls_comm *comm, const ls_named_tensor *parameters,
                          int n, int64_t bytes)
{
    size_t room = (size_t)n + 1;

    *b           = (ls_buckets){.comm = comm, .n_parameters = n};
    b->buckets   = ls_calloc(room, sizeof *b->buckets);
    b->bucket_of = ls_calloc(room, sizeof *b->bucket_of);
    b->offset_of = ls_calloc(room, sizeof *b->offset_of);
    if (!b->buckets || !b->bucket_of || !b->offset_of)
        goto out_close;
    deal(b, parameters, bytes);
    for (int k = 0; k < b->n; k++) {
        b->buckets[k].data = ls_comm_alloc(comm, (size_t)b->buckets[k].count * sizeof(ls_real));
        if (!b->buckets[k].data)
            goto out_close;
    }
    ls_buckets_reset(b);
    return LS_OK;
out_close:
    ls_buckets_close(b);
    return LS_ENOMEM;
}

void ls_buckets_close(ls_buckets *b)
{
    for (int k = 0; b->buckets && k < b->n; k++)
        ls_comm_release(b->comm, b->buckets[k].data);
    free(b->buckets);
    free(b->bucket_of);
    free(b->offset_of);
    *b = (ls_buckets){0};
}

ls_real *ls_bucket_place(const ls_buckets *b, int i)
{
    return b->buckets[b->bucket_of[i]].data + b->offset_of[i];
}

void ls_buckets_reset(ls_buckets *b)
{
    for (int k = 0; k < b->n; k++)
        b->buckets[k].missing = b->buckets[k].n;
}
