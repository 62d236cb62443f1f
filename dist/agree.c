/*
 * agree.c - hashes over ranks, and what to say when they differ.
 *
 * A hash of values has four lanes that take eight bytes in turn:
 *
 *     lane = rotate(lane ^ word) * odd         one to one in the word, and in the lane
 *
 * so arrays that differ in one word never have the same hash.
 */
#include "dist/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 4, DESCRIPTION = 256, CHUNK = 1 << 16 };

static uint64_t mix(uint64_t h, uint64_t word)
{
    h ^= word;
    return (h << 29 | h >> 35) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t word_at(const unsigned char *p, size_t bytes)
{
    uint64_t word = 0;

    memcpy(&word, p, bytes);
    return word;
}

static uint64_t hash_bytes(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data, *end = p + bytes;
    uint64_t             lane[LANES] = {h, h + 1, h + 2, h + 3};

    for (; end - p >= 8 * LANES; p += 8 * LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = mix(lane[k], word_at(p + 8 * k, 8));
    for (; p < end; p += 8)
        lane[0] = mix(lane[0], word_at(p, end - p < 8 ? (size_t)(end - p) : 8));
    h = mix(lane[0], bytes);
    for (int k = 1; k < LANES; k++)
        h = mix(h, lane[k]);
    return h;
}

/* Name, shape, dtype, and whether it is trained. */
static uint64_t identity(const ls_named_tensor *p)
{
    const ls_tensor *t = p->tensor;
    uint64_t         h = hash_bytes(0, p->name, strlen(p->name));

    h = hash_bytes(h, t->shape.dim, sizeof t->shape.dim[0] * (size_t)t->shape.ndim);
    h = mix(h, (uint64_t)t->dtype);
    return mix(h, t->requires_grad);
}

static uint64_t values(const ls_named_tensor *p)
{
    const ls_tensor *t = ls_tensor_owned(p->tensor);
    return hash_bytes(0, ls_tensor_data(t), ls_tensor_bytes(t));
}

/*
 * The first tensor for which ranks have different hashes, and the first rank whose hash is not
 * rank 0's; *which = n where there is none.
 */
static ls_status find_difference(ls_comm *comm, const ls_named_tensor *list, int n,
                                 uint64_t (*hash)(const ls_named_tensor *), int *which,
                                 int *rank)
{
    int       size   = ls_comm_size(comm);
    uint64_t *mine   = ls_calloc((size_t)n + 1, sizeof *mine);
    uint64_t *all    = ls_calloc(((size_t)n + 1) * (size_t)size, sizeof *all);
    ls_status status = mine && all ? LS_OK : LS_ENOMEM;

    for (int i = 0; i < n && !status; i++)
        mine[i] = hash(&list[i]);
    if (!status)
        status = ls_comm_all_gather(comm, all, mine, n, LS_I64);
    *which = n;
    for (int i = 0; i < n && !status && *which == n; i++)
        for (int r = size - 1; r > 0; r--)
            if (all[(size_t)r * (size_t)n + (size_t)i] != all[i]) {
                *which = i;
                *rank  = r;
            }
    free(mine);
    free(all);
    return status;
}

/* ---- lists ---- */

static ls_status compare_counts(ls_comm *comm, int n)
{
    int       size = ls_comm_size(comm);
    int64_t   mine = n, *all = ls_calloc((size_t)size, sizeof *all);
    ls_status status = all ? ls_comm_all_gather(comm, all, &mine, 1, LS_I64) : LS_ENOMEM;

    for (int r = 1; r < size && !status; r++)
        if (all[r] != all[0])
            status = ls_fail(LS_EMISMATCH, "rank 0 has %lld parameters, rank %d has %lld",
                             (long long)all[0], r, (long long)all[r]);
    free(all);
    return status;
}

/* "h.0.ln_1.weight F32 (128)" */
static void describe(const ls_named_tensor *p, char text[DESCRIPTION])
{
    ls_shape_text shape;

    snprintf(text, DESCRIPTION, "%s %s %s%s", p->name, ls_dtype_name(p->tensor->dtype),
             ls_shape_print(&p->tensor->shape, &shape),
             p->tensor->requires_grad ? "" : ", frozen");
}

static ls_status name_list_difference(ls_comm *comm, const ls_named_tensor *p, int i, int rank)
{
    char     *texts             = ls_calloc((size_t)ls_comm_size(comm), DESCRIPTION);
    char      mine[DESCRIPTION] = "";
    ls_status status            = texts ? LS_OK : LS_ENOMEM;

    describe(p, mine);
    if (!status)
        status = ls_comm_all_gather(comm, texts, mine, DESCRIPTION, LS_U8);
    if (!status)
        status = ls_fail(LS_EMISMATCH, "parameter %d is %s on rank 0 and %s on rank %d", i,
                         texts, texts + (size_t)rank * DESCRIPTION, rank);
    free(texts);
    return status;
}

ls_status ls_agree_on_list(ls_comm *comm, const ls_named_tensor *list, int n)
{
    int       which = n, rank = 0;
    ls_status status = compare_counts(comm, n);

    if (!status)
        status = find_difference(comm, list, n, identity, &which, &rank);
    return status || which == n ? status
                                : name_list_difference(comm, &list[which], which, rank);
}

/* ---- values ---- */

/* An element as a message shows it. */
static void print_element(ls_dtype dtype, const void *p, char text[DESCRIPTION])
{
    union {
        float    f32;
        double   f64;
        uint16_t bf16;
        int32_t  i32;
        int64_t  i64;
        uint8_t  u8;
    } x = {.i64 = 0};

    memcpy(&x, p, ls_dtype_bytes(dtype));
    if (dtype == LS_I32 || dtype == LS_I64 || dtype == LS_U8)
        snprintf(text, DESCRIPTION, "%lld",
                 dtype == LS_I32   ? (long long)x.i32
                 : dtype == LS_I64 ? (long long)x.i64
                                   : (long long)x.u8);
    else
        snprintf(text, DESCRIPTION, "%.9g (0x%0*llx)",
                 dtype == LS_F64   ? x.f64
                 : dtype == LS_F32 ? (double)x.f32
                                   : (double)ls_bf16_to_f32(x.bf16),
                 2 * (int)ls_dtype_bytes(dtype), (unsigned long long)x.i64);
}

/* Where this rank's tensor and rank 0's part; the number of elements where they do not. */
static ls_status first_element(ls_comm *comm, const ls_tensor *t, int64_t *first)
{
    size_t         bytes = ls_dtype_bytes(t->dtype);
    int64_t        n     = ls_tensor_numel(t);
    unsigned char *piece = ls_calloc(CHUNK, bytes), *mine = ls_tensor_data(t);
    ls_status      status = piece ? LS_OK : LS_ENOMEM;

    *first = n;
    for (int64_t at = 0; at < n && !status; at += CHUNK) {
        int64_t        here = n - at < CHUNK ? n - at : CHUNK;
        unsigned char *my   = mine + (size_t)at * bytes;
        if (ls_comm_rank(comm) == 0)
            memcpy(piece, my, (size_t)here * bytes);
        status = ls_comm_broadcast(comm, piece, here * (int64_t)bytes, LS_U8, 0);
        for (int64_t i = 0; i < here && *first == n && !status; i++)
            if (memcmp(piece + (size_t)i * bytes, my + (size_t)i * bytes, bytes))
                *first = at + i;
    }
    free(piece);
    return status;
}

typedef struct {
    int64_t first; /* element that is not rank 0's */
    char    value[DESCRIPTION];
} finding;

/* Once where each rank's first difference is, once what stands at the one to be named. */
static ls_status gather_findings(ls_comm *comm, const ls_tensor *t, int rank, finding *all)
{
    finding   mine   = {0};
    ls_status status = first_element(comm, t, &mine.first);

    if (!status)
        status = ls_comm_all_gather(comm, all, &mine, sizeof mine, LS_U8);
    if (status)
        return status;
    const unsigned char *data = ls_tensor_data(t);
    print_element(t->dtype, data + (size_t)all[rank].first * ls_dtype_bytes(t->dtype),
                  mine.value);
    return ls_comm_all_gather(comm, all, &mine, sizeof mine, LS_U8);
}

static ls_status name_value_difference(ls_comm *comm, const ls_named_tensor *p, int rank)
{
    int       size = ls_comm_size(comm), others = 0;
    finding  *all = ls_calloc((size_t)size, sizeof *all);
    ls_status status =
        all ? gather_findings(comm, ls_tensor_owned(p->tensor), rank, all) : LS_ENOMEM;

    for (int r = 1; r < size && !status; r++)
        others += all[r].first < ls_tensor_numel(p->tensor);
    if (!status)
        status = ls_fail(LS_EMISMATCH,
                         "parameter %s differs: element %lld is %s on rank 0 and %s on "
                         "rank %d; %d of the other %d ranks differ%s from rank 0",
                         p->name, (long long)all[rank].first, all[0].value, all[rank].value,
                         rank, others, size - 1, others == 1 ? "s" : "");
    free(all);
    return status;
}

ls_status ls_agree_on_values(ls_comm *comm, const ls_named_tensor *list, int n)
{
    int       which = n, rank = 0;
    ls_status status = find_difference(comm, list, n, values, &which, &rank);

    return status || which == n ? status : name_value_difference(comm, &list[which], rank);
}

ls_status ls_share_values(ls_comm *comm, const ls_named_tensor *list, int n)
{
    ls_status status = LS_OK;

    for (int i = 0; i < n && !status; i++) {
        const ls_tensor *t = ls_tensor_owned(list[i].tensor);
        status =
            ls_comm_broadcast(comm, ls_tensor_data(t), (int64_t)ls_tensor_bytes(t), LS_U8, 0);
    }
    return status;
}
