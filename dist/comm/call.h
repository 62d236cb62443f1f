/*
 * call.h - what one operation on a group is: its arguments, and what it says of itself.
 *
 * An ls_call is what a rank asks for.  An ls_descriptor is its 32-byte summary: each rank
 * compares it with that of whomever data comes from, before any of that data is touched, so
 * ranks whose descriptors differ all fail.
 */
#ifndef LS_DIST_COMM_CALL_H
#define LS_DIST_COMM_CALL_H

#include <assert.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/reduce_op.h"

#define LS_COLLECTIVE_MAP(X)            \
    X(SEND, "send")                     \
    X(RECV, "recv")                     \
    X(BARRIER, "barrier")               \
    X(BROADCAST, "broadcast")           \
    X(REDUCE, "reduce")                 \
    X(ALL_REDUCE, "all_reduce")         \
    X(ALL_GATHER, "all_gather")         \
    X(REDUCE_SCATTER, "reduce_scatter") \
    X(GATHER, "gather")                 \
    X(SCATTER, "scatter")               \
    X(ALL_TO_ALL, "all_to_all")         \
    X(SPLIT, "split")

typedef enum {
#define X(name, text) LS_##name,
    LS_COLLECTIVE_MAP(X)
#undef X
        LS_COLLECTIVE_COUNT
} ls_collective;

#define LS_ALGORITHM_MAP(X) \
    X(AUTO, "auto")         \
    X(DIRECT, "direct")     \
    X(TREE, "tree")         \
    X(HALVING, "halving")   \
    X(RING, "ring")

typedef enum {
#define X(name, text) LS_##name,
    LS_ALGORITHM_MAP(X)
#undef X
        LS_ALGORITHM_COUNT
} ls_algorithm;

const char *ls_collective_name(ls_collective kind); /* "all_reduce"; a literal */
const char *ls_algorithm_name(ls_algorithm algorithm);
bool        ls_algorithm_parse(const char *name, ls_algorithm *algorithm);

/* Does it work in a group of `size`?  (Halving wants a power of two.) */
bool ls_algorithm_fits(ls_algorithm algorithm, int size);

/* Does it join what the ranks give?  Has it a root?  Is it between two ranks alone? */
bool ls_collective_reduces(unsigned kind);
bool ls_collective_is_rooted(unsigned kind);
bool ls_collective_is_paired(unsigned kind);

/* A piece of a flat buffer, in elements. */
typedef struct {
    int64_t offset, count;
} ls_slice_segment;

/* The pieces that belong to one rank, in the order in which they stand packed. */
typedef struct {
    const ls_slice_segment *segments; /* [n]; NULL where n is 0 */
    int64_t                 n;
} ls_segment_list;

typedef struct {
    ls_collective kind;
    const void   *in;
    void         *out;
    int64_t       count; /* elements; see comm.h for what they are of */
    ls_dtype      dtype;
    ls_reduce_op  op;
    int           root; /* of broadcast, reduce, gather, scatter; the peer of send and recv */
    const ls_segment_list *slices; /* [size of the group], or NULL */
    uint32_t tag; /* what it is of, to tell calls of equal size apart; not where there is a
                     root or a peer */
} ls_call;

typedef struct {
    uint64_t sequence; /* of the group, from 1; of the pair for send and recv */
    uint64_t count;
    uint8_t  kind, dtype, op, algorithm;
    uint32_t root;   /* of the kinds that have one; of the others the tag */
    uint64_t slices; /* hash of the segment lists, 0 without */
} ls_descriptor;

static_assert(sizeof(ls_descriptor) == 32, "half a cache line");

ls_descriptor ls_descriptor_of(const ls_call *call, int size, uint64_t sequence,
                               ls_algorithm algorithm);

enum { LS_DESCRIPTOR_TEXT = 160 };

/* "all_reduce #17 (F32, sum, count 1000)" into text; returns text. */
const char *ls_descriptor_text(char text[LS_DESCRIPTOR_TEXT], const ls_descriptor *d);

/*
 * EMISMATCH where a and b, of ranks rank_a and rank_b, differ, with both in the message (the
 * lower rank first, so all ranks say the same).
 */
LS_MUST_CHECK ls_status ls_descriptor_compare(const ls_descriptor *a, int rank_a,
                                              const ls_descriptor *b, int rank_b);

#endif
