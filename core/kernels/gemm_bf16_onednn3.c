/*
 * gemm_bf16_onednn3.c - prepares a product with oneDNN 3: descriptors are objects.
 */
#include "core/kernels/gemm_bf16_onednn_impl.h"

/* a, b, c at their places, the bias at its own; the scratch has none of ours. */
typedef struct {
    dnnl_memory_desc_t of[LS__DNNL_MEMORIES];
} descriptors;

static bool describe(const ls__dnnl_key *k, const ls__dnnl_sides *s, descriptors *d)
{
    dnnl_data_type_t to = k->round ? dnnl_bf16 : dnnl_f32;

    *d = (descriptors){{NULL}};
    return !dnnl_memory_desc_create_with_strides(&d->of[LS__DNNL_A], 2, s->a, dnnl_bf16,
                                                 s->step_a) &&
           !dnnl_memory_desc_create_with_strides(&d->of[LS__DNNL_B], 2, s->b, dnnl_bf16,
                                                 s->step_b) &&
           !dnnl_memory_desc_create_with_strides(&d->of[LS__DNNL_C], 2, s->c, to, s->step_c) &&
           (!k->bias || !dnnl_memory_desc_create_with_strides(&d->of[LS__DNNL_BIAS], 2, s->bias,
                                                              dnnl_bf16, s->step_bias));
}

static void release(descriptors *d)
{
    for (int i = 0; i < LS__DNNL_MEMORIES; i++)
        if (d->of[i])
            dnnl_memory_desc_destroy(d->of[i]);
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
    bool fine = !dnnl_post_ops_append_sum(after, 1, 0, dnnl_data_type_undef) &&
                !dnnl_primitive_attr_set_post_ops(attr, after);
    dnnl_post_ops_destroy(after);
    return fine;
}

static bool choose(dnnl_engine_t engine, const ls__dnnl_key *k, const descriptors *d,
                   dnnl_primitive_desc_t *chosen)
{
    dnnl_primitive_attr_t attr;

    if (dnnl_primitive_attr_create(&attr))
        return false;
    bool fine =
        describe_attributes(k, attr) &&
        !dnnl_matmul_primitive_desc_create(chosen, engine, d->of[LS__DNNL_A], d->of[LS__DNNL_B],
                                           d->of[LS__DNNL_BIAS], d->of[LS__DNNL_C], attr);
    dnnl_primitive_attr_destroy(attr);
    return fine;
}

static bool make_memories(dnnl_engine_t engine, const descriptors *d,
                          const_dnnl_memory_desc_t scratch, ls__dnnl_product *p)
{
    for (int i = 0; i < LS__DNNL_MEMORIES; i++) {
        const_dnnl_memory_desc_t of = i == LS__DNNL_SCRATCH ? scratch : d->of[i];
        if (of && dnnl_memory_create(&p->memory[i], of, engine, DNNL_MEMORY_NONE))
            return false;
    }
    return true;
}

bool ls__dnnl_prepare(dnnl_engine_t engine, const ls__dnnl_sides *sides, ls__dnnl_product *p)
{
    descriptors           d;
    dnnl_primitive_desc_t chosen = NULL;
    bool fine = describe(&p->key, sides, &d) && choose(engine, &p->key, &d, &chosen);

    if (fine) {
        const_dnnl_memory_desc_t scratch =
            dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
        p->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
        fine             = scratch && !dnnl_primitive_create(&p->primitive, chosen) &&
               make_memories(engine, &d, scratch, p);
    }
    if (chosen)
        dnnl_primitive_desc_destroy(chosen);
    release(&d);
    return fine;
}
