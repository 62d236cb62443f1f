/*
 * gemm_bf16_onednn2.c - prepares a product with oneDNN 2: descriptors are structs.
 */
#include "core/kernels/gemm_bf16_onednn_impl.h"

typedef struct {
    dnnl_memory_desc_t a, b, c, bias;
} descriptors;

static bool describe(const ls__dnnl_key *k, const ls__dnnl_sides *s, descriptors *d)
{
    dnnl_data_type_t to = k->round ? dnnl_bf16 : dnnl_f32;

    return !dnnl_memory_desc_init_by_strides(&d->a, 2, s->a, dnnl_bf16, s->step_a) &&
           !dnnl_memory_desc_init_by_strides(&d->b, 2, s->b, dnnl_bf16, s->step_b) &&
           !dnnl_memory_desc_init_by_strides(&d->c, 2, s->c, to, s->step_c) &&
           !dnnl_memory_desc_init_by_strides(&d->bias, 2, s->bias, dnnl_bf16, s->step_bias);
}

/* Scratch of the caller's; the sum with what is in c where asked for. */
static bool describe_attributes(const ls__dnnl_key *k, dnnl_primitive_attr_t attr)
{
    dnnl_post_ops_t after;

    if (dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user))
        return false;
    if (!k->add)
        return true;
    if (dnnl_post_ops_create(&after))
        return false;
    bool fine =
        !dnnl_post_ops_append_sum(after, 1) && !dnnl_primitive_attr_set_post_ops(attr, after);
    dnnl_post_ops_destroy(after);
    return fine;
}

static bool choose(dnnl_engine_t engine, const ls__dnnl_key *k, const descriptors *d,
                   dnnl_primitive_desc_t *chosen)
{
    dnnl_matmul_desc_t    product;
    dnnl_primitive_attr_t attr;

    if (dnnl_matmul_desc_init(&product, &d->a, &d->b, k->bias ? &d->bias : NULL, &d->c) ||
        dnnl_primitive_attr_create(&attr))
        return false;
    bool fine = describe_attributes(k, attr) &&
                !dnnl_primitive_desc_create(chosen, &product, attr, engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    return fine;
}

static bool make_memories(dnnl_engine_t engine, const descriptors *d,
                          const dnnl_memory_desc_t *scratch, ls__dnnl_product *p)
{
    const dnnl_memory_desc_t *all[] = {[LS__DNNL_A]       = &d->a,
                                       [LS__DNNL_B]       = &d->b,
                                       [LS__DNNL_C]       = &d->c,
                                       [LS__DNNL_SCRATCH] = scratch,
                                       [LS__DNNL_BIAS]    = p->key.bias ? &d->bias : NULL};

    for (int i = 0; i < LS__DNNL_MEMORIES; i++)
        if (all[i] && dnnl_memory_create(&p->memory[i], all[i], engine, DNNL_MEMORY_NONE))
            return false;
    return true;
}

bool ls__dnnl_prepare(dnnl_engine_t engine, const ls__dnnl_sides *sides, ls__dnnl_product *p)
{
    descriptors           d;
    dnnl_primitive_desc_t chosen;

    if (!describe(&p->key, sides, &d) || !choose(engine, &p->key, &d, &chosen))
        return false;
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    bool fine        = scratch && !dnnl_primitive_create(&p->primitive, chosen) &&
                make_memories(engine, &d, scratch, p);
    dnnl_primitive_desc_destroy(chosen);
    return fine;
}
