/*
 * attention.h - causal attention over packed heads, in tiles.
 *
 * B sequences, T tokens, H query heads, K key/value heads, D channels of a head.  A token's row
 * of qkv holds H*D query, K*D key and K*D value elements; out has rows of H*D.  Query head h
 * uses key/value head h / (H / K).
 *
 * Forward walks each query tile over the key tiles at or before it, with a running maximum m
 * and sum l (Dao et al. 2022, arXiv:2205.14135, algorithm 1); what backward needs of the
 * softmax is lse = m + log l, one number a row.  Backward forms the weights again from it.
 * A task is one (sequence, query head) in forward and one (sequence, key head) in backward,
 * so dK and dV have one writer, query heads in order; shapes alone decide.
 */
#ifndef LS_CORE_KERNELS_ATTENTION_H
#define LS_CORE_KERNELS_ATTENTION_H

#include "core/kernels/dropout.h"

typedef struct {
    int64_t                b, t, h, k, d;
    const ls_real         *qkv;
    ls_real               *out;     /* (B,T,H*D) */
    ls_real               *lse;     /* (B,H,T) */
    const ls_dropout_args *dropout; /* of the weights; NULL: none */
} ls_attention_args;

void ls_k_attention(const ls_attention_args *a);
void ls_k_attention_backward(const ls_attention_args *a, const ls_real *dout, ls_real *dqkv,
                             bool add);

/*
 * The same where qkv and out are BF16.  Products take BF16: q, k, v as they are, weights, dout
 * and the gradients of scores rounded tile by tile.  Sums, exponentials and running maxima are
 * in ls_real, and so are gradients; out is rounded once.  qkv16 and out16 stand in place of qkv
 * and out.
 */
typedef struct {
    ls_attention_args a;
    const uint16_t   *qkv16;
    uint16_t         *out16;
    void             *scratch; /* ls_k_attention_bf16_scratch() bytes */
} ls_attention_bf16_args;

size_t ls_k_attention_bf16_scratch(const ls_attention_args *a);
void   ls_k_attention_bf16(const ls_attention_bf16_args *a);
void   ls_k_attention_bf16_backward(const ls_attention_bf16_args *a, const ls_real *dout,
                                    ls_real *dqkv, bool add);

#endif
