/*
 * tensor.h - strided tensors over shared storage.
 *
 * A tensor is a small open header: shape, strides, dtype and a view of a storage.  A storage
 * is a counted block of bytes whose memory can be dropped and made again under a stable
 * address of the storage itself, so an address of elements is worked out when it is needed
 * and never kept:
 *
 *     header --> storage {refs, bytes, category, data} --> bytes
 *     address of element (i, j) = data + (offset + i * stride[0] + j * stride[1]) * size
 *
 * Headers are owned by a tape (what operators return) or by a module (parameters); storages
 * are shared by all headers that view them.  Strides count elements.  A leaf of your own:
 *
 *     ls_tensor t = ls_tensor_header(LS_REAL, LS_SHAPE2(3, 4));
 *     if (ls_tensor_materialize(&t, LS_MEM_PARAMS) == LS_OK)
 *         t.requires_grad = true;
 *     ...
 *     ls_tensor_drop(&t);         when no tape that used it is left to run
 */
#ifndef LS_CORE_TENSOR_H
#define LS_CORE_TENSOR_H

#include "core/alloc.h"
#include "core/dtype.h"

enum { LS_MAX_DIMS = 5 };

typedef struct {
    int     ndim; /* 0 is a scalar */
    int64_t dim[LS_MAX_DIMS];
} ls_shape;

#define LS_SHAPE0 ((ls_shape){0})
#define LS_SHAPE1(a) ((ls_shape){1, {a}})
#define LS_SHAPE2(a, b) ((ls_shape){2, {a, b}})
#define LS_SHAPE3(a, b, c) ((ls_shape){3, {a, b, c}})
#define LS_SHAPE4(a, b, c, d) ((ls_shape){4, {a, b, c, d}})

typedef struct ls_storage {
    int             refs; /* headers, nodes and others that hold it */
    size_t          bytes;
    ls_mem_category category;
    void           *data;    /* NULL while dropped */
    bool            is_view; /* of memory that somebody else owns and keeps longer */
} ls_storage;

typedef struct ls_node  ls_node;
typedef struct ls_tape  ls_tape;
typedef struct ls_shard ls_shard;

typedef struct ls_tensor {
    ls_shape    shape;
    int64_t     stride[LS_MAX_DIMS];
    int64_t     offset; /* of the first element in the storage, in elements */
    ls_dtype    dtype;
    ls_storage *storage; /* one reference; NULL before it is materialised and after release */

    bool        requires_grad;
    ls_storage *grad; /* row-major, ls_real; NULL where there is none */
    ls_real
        *grad_home; /* of a leaf: memory in which backward forms its gradient; NULL: its own */
    const void *reducer; /* of a leaf: who sums its gradient over ranks; NULL: nobody */
    ls_shard   *shard;   /* of a leaf: what of it this rank owns; NULL: all */

    /* autograd's part */
    ls_tape    *tape;    /* NULL for a leaf that lives outside any tape */
    ls_node    *node;    /* the call that made it, NULL for a leaf */
    int         holds;   /* of a tape's tensor: its scope and the nodes that need the value */
    bool        scoped;  /* its scope still holds it */
    bool        rebuilt; /* formed again in backward; goes with the call that made it */
    bool        marked;  /* on a path to the loss, during backward */
    int         pending; /* of a leaf: uses whose gradients have not arrived, during backward */
    bool        home_lent; /* of a leaf: a recorded call has formed its gradient in grad_home */
    ls_storage *grad_before; /* of a leaf: what earlier backwards left, during backward */
    bool        is_wide;     /* `wide` holds this scalar before its rounding to ls_real */
    double      wide;
} ls_tensor;

/*
 * The rows (dimension 0) of a tensor that this rank owns, where other ranks own the others; or
 * all of them, where the tensor itself is a BF16 copy for operators (nn/working.h).
 * The tensor's header keeps the shape of the whole; values, gradient and updates are here.
 */
struct ls_shard {
    ls_tensor rows;
    int64_t   first; /* row */
    void     *group; /* an ls_comm: its ranks own the others; borrowed.  NULL: there are none */
};

/* A tensor under the name that files and messages give it; neither is owned. */
typedef struct {
    const char *name;
    ls_tensor  *tensor;
} ls_named_tensor;

/*
 * Memory can exist for such a tensor: 0 to LS_MAX_DIMS dimensions, none negative, and at most
 * LS_MAX_BYTES without counting dimensions of 0.  That is far beyond any memory and leaves room
 * for sums of sizes.  ESHAPE, EINVAL for a dtype that is none.
 */
#define LS_MAX_BYTES ((int64_t)1 << 56)
LS_MUST_CHECK ls_status ls_shape_check(const ls_shape *shape, ls_dtype dtype);

/* Elements: the product of the dimensions, 1 for a scalar; INT64_MAX where that is too small.
 */
int64_t ls_shape_numel(const ls_shape *shape);
bool    ls_shape_equal(const ls_shape *a, const ls_shape *b);

/* "(2,3,4)" in a buffer of the caller's; returns that buffer. */
typedef struct {
    char text[128];
} ls_shape_text;
const char *ls_shape_print(const ls_shape *shape, ls_shape_text *buffer);

/* Row-major strides of a shape. */
void ls_shape_strides(const ls_shape *shape, int64_t *stride);

/*
 * A storage with one reference, contents undefined, or NULL (ENOMEM).  Retain adds a reference
 * and returns its argument; the last release frees.
 */
ls_storage *ls_storage_new(size_t bytes, ls_mem_category category);
ls_storage *ls_storage_view(void *data, size_t bytes,
                            ls_mem_category category); /* of borrowed memory */
ls_storage *ls_storage_retain(ls_storage *storage);
void        ls_storage_release(ls_storage *storage); /* NULL is allowed */

int64_t ls_tensor_numel(const ls_tensor *t);
size_t  ls_tensor_bytes(const ls_tensor *t);

/* Address of the first element; the storage must not be dropped. */
void *ls_tensor_data(const ls_tensor *t);

/* Elements lie in row-major order without gaps. */
bool ls_tensor_is_contiguous(const ls_tensor *t);

/* A header for a contiguous tensor with no storage yet. */
ls_tensor ls_tensor_header(ls_dtype dtype, ls_shape shape);

/*
 * Gives a header without storage fresh memory of its own, contents undefined.  ENOMEM; errors
 * of ls_shape_check().
 */
LS_MUST_CHECK ls_status ls_tensor_materialize(ls_tensor *t, ls_mem_category category);

/* Other ranks own rows of t. */
static inline bool ls_tensor_is_spread(const ls_tensor *t)
{
    return t->shard && t->shard->group;
}

/* Rows (dimension 0), and elements of one: a scalar is one row of one. */
int64_t ls_tensor_rows(const ls_tensor *t);
int64_t ls_tensor_row_elements(const ls_tensor *t);

/* Bytes of a gradient of t: of ls_real, whatever t's own dtype is. */
size_t ls_tensor_grad_bytes(const ls_tensor *t);

/* Where the values that this rank updates and saves are: t itself, or its shard. */
ls_tensor *ls_tensor_owned(ls_tensor *t);

/* The first element of these in t. */
int64_t ls_tensor_owned_first(const ls_tensor *t);

/* Releases storage and gradient.  The header itself stays with its owner. */
void ls_tensor_drop(ls_tensor *t);

/* Gradient of a leaf after ls_backward(), row-major; NULL where there is none. */
ls_real *ls_tensor_grad(const ls_tensor *t);

/* Releases the gradient, so that the next backward starts afresh. */
void ls_tensor_zero_grad(ls_tensor *t);

/* Value of a materialised scalar: in double where the operator that made it sums in double. */
double ls_item(const ls_tensor *t);

/* Elements of a tensor of that dtype, unchecked, from its first; row-major where contiguous. */
static inline ls_real *ls_reals(const ls_tensor *t)
{
    return (ls_real *)ls_tensor_data(t);
}

static inline uint16_t *ls_halves(const ls_tensor *t)
{
    return (uint16_t *)ls_tensor_data(t);
}

static inline int32_t *ls_ints(const ls_tensor *t)
{
    return (int32_t *)ls_tensor_data(t);
}

#endif
