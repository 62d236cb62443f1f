/*
 * ops.h - the operators.  One line in LS_OP_LIST, one prototype, one file in ops/.
 *
 * All take and return tensors of ls_real unless said otherwise.  Inputs are borrowed; a result
 * is the tape's until its reset, or until its scope lets go.  An operator that fails returns
 * NULL and makes the tape fail: ESHAPE for shapes and dtypes, with what was found and wanted;
 * EINVAL for a NULL, another tape's tensor or a number out of range; ESTATE for a value that
 * was released; ENOMEM.  "last" is the last dimension; (...) are any leading ones.
 *
 * BF16 (docs/mixed_precision.md) is taken where it is a parameter of linear, embedding, norms
 * and the head, and between them: linear and the head round an x of ls_real themselves, norms
 * with BF16 weights give BF16, activations, swiglu, rope and attention give what they get.
 * Sums are in ls_real everywhere, and so are gradients.
 */
#ifndef LS_AUTOGRAD_OPS_H
#define LS_AUTOGRAD_OPS_H

#include "autograd/tape.h"

#define LS_OP_LIST(X)     \
    X(cast)               \
    X(contiguous)         \
    X(matmul)             \
    X(linear)             \
    X(add)                \
    X(mul)                \
    X(scale)              \
    X(sum)                \
    X(mean)               \
    X(reshape)            \
    X(permute)            \
    X(slice)              \
    X(concat)             \
    X(embedding)          \
    X(softmax)            \
    X(log_softmax)        \
    X(cross_entropy)      \
    X(head_cross_entropy) \
    X(layernorm)          \
    X(rmsnorm)            \
    X(relu)               \
    X(gelu)               \
    X(gelu_tanh)          \
    X(silu)               \
    X(tanh)               \
    X(swiglu)             \
    X(dropout)            \
    X(residual)           \
    X(attention)          \
    X(rope)               \
    X(boundary)           \
    X(recompute)

#define X(name) extern const ls_op ls_op_##name;
LS_OP_LIST(X)
#undef X

/*
 * Between LS_REAL and BF16: widened as they are, or rounded once to nearest even.  x itself
 * where it has that dtype.  The gradient passes through as it is.
 */
ls_tensor *ls_cast(ls_tape *tape, ls_tensor *x, ls_dtype dtype);

/* The same values in row-major order: x itself where it is so already. */
ls_tensor *ls_contiguous(ls_tape *tape, ls_tensor *x);

/*
 * (...,m,k) x (...,k,n) -> (...,m,n).  With transpose_a, a is (...,k,m); with transpose_b, b is
 * (...,n,k).  Leading dimensions are equal, or those of one side are absent and it serves all.
 */
ls_tensor *ls_matmul(ls_tape *tape, ls_tensor *a, ls_tensor *b, bool transpose_a,
                     bool transpose_b);

/* x W^T + b: x (...,k), W (n,k), b (n) or NULL -> (...,n). */
ls_tensor *ls_linear(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *b);

/* The same for what only products, activations and attention read: BF16 where w is. */
ls_tensor *ls_linear_narrow(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *b);

/* Elementwise; b's shape is a's or its trailing dimensions (a scalar too), repeated over the
 * rest. */
ls_tensor *ls_add(ls_tape *tape, ls_tensor *a, ls_tensor *b);
ls_tensor *ls_mul(ls_tape *tape, ls_tensor *a, ls_tensor *b);

/* factor * x, the factor rounded to ls_real. */
ls_tensor *ls_scale(ls_tape *tape, ls_tensor *x, double factor);

/* Of all elements, a scalar (ndim 0), summed in double; ls_item() gives it before rounding. */
ls_tensor *ls_sum(ls_tape *tape, ls_tensor *x);
ls_tensor *ls_mean(ls_tape *tape, ls_tensor *x);

/* The same elements in row-major order under another shape; one dimension may be -1.  A view.
 */
ls_tensor *ls_reshape(ls_tape *tape, ls_tensor *x, ls_shape shape);

/* Dimension i of the result is dimension order[i] of x; ndim of them.  A view; any dtype. */
ls_tensor *ls_permute(ls_tape *tape, ls_tensor *x, const int *order);

/* Exchanges two dimensions, negative ones counted from the end.  A view. */
ls_tensor *ls_transpose(ls_tape *tape, ls_tensor *x, int dim0, int dim1);

/* Elements start .. start + length - 1 along a dimension (negative: from the end).  A view. */
ls_tensor *ls_slice(ls_tape *tape, ls_tensor *x, int dim, int64_t start, int64_t length);

/* n tensors (at most LS_MAX_INPUTS) joined along a dimension; the others agree. */
ls_tensor *ls_concat(ls_tape *tape, ls_tensor *const *x, int n, int dim);

/* Rows of w (V,C) chosen by ids (...) I32 in 0..V-1 -> (...,C). */
ls_tensor *ls_embedding(ls_tape *tape, ls_tensor *w, ls_tensor *ids);

/* Over the last dimension. */
ls_tensor *ls_softmax(ls_tape *tape, ls_tensor *x);
ls_tensor *ls_log_softmax(ls_tape *tape, ls_tensor *x);

/*
 * Sum over rows of -log softmax(logits)[target]: logits (...,V), targets (...) I32 -> scalar.
 * Rows whose target is ignore add nothing.  A sum, not a mean: the division by the number of
 * rows that count comes last (architecture.md, rule 5).  Row losses are added in row order in
 * double.
 */
ls_tensor *ls_cross_entropy(ls_tape *tape, ls_tensor *logits, ls_tensor *targets,
                            int32_t ignore);

/* cross_entropy(x W^T, targets), a scalar, without ever holding all logits: x (...,C), W (V,C).
 */
ls_tensor *ls_head_cross_entropy(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *targets,
                                 int32_t ignore);

/* Rows of logits that it holds at once, of so many tokens and classes; for memory plans. */
int64_t ls_head_chunk_rows(int64_t tokens, int64_t classes);

/* (x - mean) / sqrt(var + eps) * w + b over last: w (C), b (C) or NULL.  Ba et al. 2016, eq. 4.
 */
ls_tensor *ls_layernorm(ls_tape *tape, ls_tensor *x, ls_tensor *w, ls_tensor *b, double eps);

/* x / sqrt(mean(x^2) + eps) * w over last.  Zhang and Sennrich 2019, eq. 4. */
ls_tensor *ls_rmsnorm(ls_tape *tape, ls_tensor *x, ls_tensor *w, double eps);

/* Elementwise, of any shape, to the same shape: max(x, 0). */
ls_tensor *ls_relu(ls_tape *tape, ls_tensor *x);
/* x * Phi(x).  Hendrycks and Gimpel 2016, arXiv:1606.08415; the second by its tanh form. */
ls_tensor *ls_gelu(ls_tape *tape, ls_tensor *x);
ls_tensor *ls_gelu_tanh(ls_tape *tape, ls_tensor *x);
/* x * sigmoid(x). */
ls_tensor *ls_silu(ls_tape *tape, ls_tensor *x);
ls_tensor *ls_tanh(ls_tape *tape, ls_tensor *x);
/* silu(gate) * up.  Shazeer 2020, arXiv:2002.05202. */
ls_tensor *ls_swiglu(ls_tape *tape, ls_tensor *gate, ls_tensor *up);

/*
 * Zero with probability p, 0 <= p < 1, else x / (1 - p), in training mode; x itself otherwise.
 * x is (sequences, ...); a draw depends on (seed, step, sequence, site, element in the
 * sequence).
 */
ls_tensor *ls_dropout(ls_tape *tape, ls_tensor *x, double p);

/* x + dropout(y, p) in one pass, with the bits of the two: x and y of one shape. */
ls_tensor *ls_residual(ls_tape *tape, ls_tensor *x, ls_tensor *y, double p);

/*
 * Heads inside a packed projection: qkv (B,T,(n_head + 2 n_kv_head) * D) holds for each token
 * the query heads, then the key heads, then the value heads.
 */
typedef struct {
    int n_head;
    int n_kv_head;  /* 0: n_head.  Query head h uses key and value head h / (n_head / n_kv_head)
                     */
    double dropout; /* of the attention weights, in training mode */
    double rope_base; /* of ls_rope; 0: 10000 */
} ls_heads;

/*
 * Causal attention, softmax(q k^T / sqrt(D)) v -> (B,T,n_head * D).  Tiles with running
 * maximum; nothing of size T x T exists.  Vaswani et al. 2017, eq. 1; Dao et al. 2022,
 * arXiv:2205.14135; grouped queries: Ainslie et al. 2023, arXiv:2305.13245.
 */
ls_tensor *ls_attention(ls_tape *tape, ls_tensor *qkv, const ls_heads *heads);

/*
 * Rotates query and key heads of a packed projection by their position, values untouched: pairs
 * (d, d + D/2), angle t * base^(-2d/D).  Su et al. 2021, arXiv:2104.09864; Hugging Face's
 * layout.
 */
ls_tensor *ls_rope(ls_tape *tape, ls_tensor *qkv, const ls_heads *heads);

#endif
