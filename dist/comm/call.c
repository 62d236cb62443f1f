/*
 * call.c - descriptors of operations: made, printed, compared.
 *
 * A descriptor holds what an operation means and zero for what it has no use for, so that the
 * op of a broadcast or the root of an all_reduce, left as they were, cause no mismatch.  It may
 * come from another process: every function here takes any bits.
 */
#include "dist/comm/call.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ls_collective_name(ls_collective kind)
{
    static const char *const name[] = {
#define X(id, text) [LS_##id] = text,
        LS_COLLECTIVE_MAP(X)
#undef X
    };
    return (unsigned)kind < LS_COLLECTIVE_COUNT ? name[kind] : "unknown operation";
}

static const char *const algorithm_name[] = {
#define X(id, text) [LS_##id] = text,
    LS_ALGORITHM_MAP(X)
#undef X
};

const char *ls_algorithm_name(ls_algorithm algorithm)
{
    return (unsigned)algorithm < LS_ALGORITHM_COUNT ? algorithm_name[algorithm]
                                                    : "unknown algorithm";
}

bool ls_algorithm_parse(const char *name, ls_algorithm *algorithm)
{
    for (int i = 0; i < LS_ALGORITHM_COUNT; i++)
        if (!strcmp(algorithm_name[i], name)) {
            *algorithm = (ls_algorithm)i;
            return true;
        }
    return false;
}

bool ls_algorithm_fits(ls_algorithm algorithm, int size)
{
    return algorithm != LS_HALVING || (size & (size - 1)) == 0;
}

static bool moves_data(unsigned kind)
{
    return kind != LS_BARRIER;
}

bool ls_collective_reduces(unsigned kind)
{
    return kind == LS_REDUCE || kind == LS_ALL_REDUCE || kind == LS_REDUCE_SCATTER;
}

bool ls_collective_is_paired(unsigned kind)
{
    return kind == LS_SEND || kind == LS_RECV;
}

bool ls_collective_is_rooted(unsigned kind)
{
    return kind == LS_BROADCAST || kind == LS_REDUCE || kind == LS_GATHER || kind == LS_SCATTER;
}

/* FNV-1a with a word at a time instead of a byte; the shift takes high bits down again. */
static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

/* The length goes in front of each list, so that segments cannot change lists unseen. */
static uint64_t hash_slices(const ls_segment_list *slices, int size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (int r = 0; r < size; r++) {
        hash = hash_word(hash, (uint64_t)slices[r].n);
        for (int64_t i = 0; i < slices[r].n; i++) {
            hash = hash_word(hash, (uint64_t)slices[r].segments[i].offset);
            hash = hash_word(hash, (uint64_t)slices[r].segments[i].count);
        }
    }
    return hash ? hash : 1; /* 0 says that there are none */
}

ls_descriptor ls_descriptor_of(const ls_call *call, int size, uint64_t sequence,
                               ls_algorithm algorithm)
{
    ls_descriptor d = {
        .sequence = sequence, .kind = (uint8_t)call->kind, .algorithm = (uint8_t)algorithm};

    if (moves_data(call->kind)) {
        d.count = (uint64_t)call->count;
        d.dtype = (uint8_t)call->dtype;
    }
    if (ls_collective_reduces(call->kind))
        d.op = (uint8_t)call->op;
    if (ls_collective_is_rooted(call->kind) || ls_collective_is_paired(call->kind))
        d.root = (uint32_t)call->root;
    else
        d.root = call->tag;
    if (call->slices)
        d.slices = hash_slices(call->slices, size);
    return d;
}

typedef struct {
    char  *text;
    size_t used;
} line;

static void add(line *l, const char *fmt, ...) LS_PRINTF(2, 3);

static void add(line *l, const char *fmt, ...)
{
    size_t  room = LS_DESCRIPTOR_TEXT - l->used;
    va_list args;

    va_start(args, fmt);
    int wanted = vsnprintf(l->text + l->used, room, fmt, args);
    va_end(args);
    if (wanted > 0)
        l->used += (size_t)wanted < room ? (size_t)wanted : room - 1;
}

static const char *dtype_name(unsigned dtype)
{
    return dtype < LS_DTYPE_COUNT ? ls_dtype_name((ls_dtype)dtype) : "unknown dtype";
}

const char *ls_descriptor_text(char text[LS_DESCRIPTOR_TEXT], const ls_descriptor *d)
{
    line l = {text, 0};

    add(&l, "%s #%" PRIu64, ls_collective_name(d->kind), d->sequence);
    if (!moves_data(d->kind)) {
        if (d->root)
            add(&l, " (tag %" PRIu32 ")", d->root);
        return text;
    }
    add(&l, " (%s", dtype_name(d->dtype));
    if (ls_collective_reduces(d->kind))
        add(&l, ", %s", ls_reduce_op_name(d->op));
    add(&l, ", count %" PRIu64, d->count);
    if (ls_collective_is_rooted(d->kind))
        add(&l, ", root %" PRIu32, d->root);
    if (ls_collective_is_paired(d->kind))
        add(&l, ", %s rank %" PRIu32, d->kind == LS_SEND ? "to" : "from", d->root);
    if (!ls_collective_is_rooted(d->kind) && !ls_collective_is_paired(d->kind) && d->root)
        add(&l, ", tag %" PRIu32, d->root);
    add(&l, ")");
    return text;
}

/* A send is the counterpart of the receive that names its sender, and the other way round. */
static bool are_pair(const ls_descriptor *a, int rank_a, const ls_descriptor *b, int rank_b)
{
    ls_descriptor other = *b;

    if (!ls_collective_is_paired(a->kind) || !ls_collective_is_paired(b->kind) ||
        a->kind == b->kind)
        return false;
    if (a->root != (uint32_t)rank_b || b->root != (uint32_t)rank_a)
        return false;
    other.kind = a->kind;
    other.root = a->root;
    return !memcmp(a, &other, sizeof other);
}

/* What the texts of a and b do not show, or "". */
static void hidden_difference(const ls_descriptor *a, const ls_descriptor *b, char *text,
                              size_t size)
{
    text[0] = '\0';
    if (a->algorithm != b->algorithm)
        snprintf(text, size, " (algorithms %s and %s)", ls_algorithm_name(a->algorithm),
                 ls_algorithm_name(b->algorithm));
    else if (a->slices != b->slices)
        snprintf(text, size, " (their segment lists differ)");
}

ls_status ls_descriptor_compare(const ls_descriptor *a, int rank_a, const ls_descriptor *b,
                                int rank_b)
{
    char text_a[LS_DESCRIPTOR_TEXT], text_b[LS_DESCRIPTOR_TEXT], more[64];

    if (!memcmp(a, b, sizeof *a) || are_pair(a, rank_a, b, rank_b))
        return LS_OK;
    if (rank_b < rank_a)
        return ls_descriptor_compare(b, rank_b, a, rank_a);
    hidden_difference(a, b, more, sizeof more);
    return ls_fail(LS_EMISMATCH, "ranks disagree: rank %d calls %s, rank %d calls %s%s", rank_a,
                   ls_descriptor_text(text_a, a), rank_b, ls_descriptor_text(text_b, b), more);
}
