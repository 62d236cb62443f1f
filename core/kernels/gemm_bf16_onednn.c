/*
 * gemm_bf16_onednn.c - runs tiles with oneDNN, one thread a call.
 *
 * A product is prepared once for its shape: the code is generated and the memory objects are
 * made, so that a later call only puts addresses in.  Both belong to the thread, in a table of
 * SLOTS that starts over when it is half full (a text that is generated makes ever new shapes;
 * oneDNN keeps the code itself longer).
 *
 * Debian's oneDNN computes with OpenMP's threads.  Each of our threads tells OpenMP that it
 * shall be alone, so oneDNN starts none and our pool is the only one.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/kernels/gemm_bf16_impl.h"
#include "core/kernels/gemm_bf16_onednn_impl.h"

enum { SLOTS = 1024 }; /* a power of two */

/* The engine is the processor: one per process, never released. */
static struct {
    pthread_once_t once;
    dnnl_engine_t  engine; /* NULL: there is none */
} state = {.once = PTHREAD_ONCE_INIT};

typedef struct {
    dnnl_stream_t    stream;
    int              used;
    ls__dnnl_product slot[SLOTS];
} products;

static void make_engine(void)
{
    if (dnnl_engine_create(&state.engine, dnnl_cpu, 0))
        state.engine = NULL;
}

static bool has(dnnl_cpu_isa_t isa)
{
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
}

bool ls__bf16_native(char *text, size_t size)
{
    const dnnl_version_t *v   = dnnl_version();
    bool                  amx = has(dnnl_cpu_isa_avx512_core_amx);

    pthread_once(&state.once, make_engine);
    bool fine = state.engine && has(dnnl_cpu_isa_avx512_core_bf16);
    if (fine)
        snprintf(text, size, "oneDNN %d.%d.%d, %s", v->major, v->minor, v->patch,
                 amx ? "AMX" : "AVX512-BF16");
    else
        snprintf(text, size, "widened to f32 (oneDNN %d.%d.%d: no AMX, no AVX512-BF16)",
                 v->major, v->minor, v->patch);
    return fine;
}

/* By name, as it is oneDNN that brings OpenMP, of one vendor or another, or does without. */
static void be_alone(void)
{
    void *found = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    void (*set_threads)(int);

    memcpy(&set_threads, &found, sizeof found);
    if (found)
        set_threads(1);
}

static products *products_of(ls__bf16_thread *thread)
{
    products *p = thread->products;

    if (p)
        return p;
    be_alone();
    p = ls_calloc(1, sizeof *p);
    if (p && dnnl_stream_create(&p->stream, state.engine, dnnl_stream_default_flags)) {
        free(p);
        p = NULL;
    }
    thread->products = p;
    return p;
}

static void release(ls__dnnl_product *p)
{
    for (int i = 0; i < LS__DNNL_MEMORIES; i++)
        if (p->memory[i])
            dnnl_memory_destroy(p->memory[i]);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    memset(p, 0, sizeof *p);
}

static void release_all(products *p)
{
    for (int i = 0; i < SLOTS; i++)
        release(&p->slot[i]);
    p->used = 0;
}

void ls__bf16_native_forget(ls__bf16_thread *thread)
{
    products *p = thread->products;

    if (!p)
        return;
    release_all(p);
    dnnl_stream_destroy(p->stream);
    free(p);
    thread->products = NULL;
}

static uint64_t hash_of(const ls__dnnl_key *key)
{
    const unsigned char *byte = (const unsigned char *)key;
    uint64_t             hash = 0xcbf29ce484222325u, word;

    for (size_t i = 0; i < sizeof *key; i += sizeof word) {
        memcpy(&word, byte + i, sizeof word);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static ls__dnnl_key key_of(const ls_gemm_bf16_args *g)
{
    return (ls__dnnl_key){.m           = g->m,
                          .n           = g->n,
                          .k           = g->k,
                          .lda         = g->lda,
                          .ldb         = g->ldb,
                          .ldc         = g->ldc,
                          .transpose_a = g->transpose_a,
                          .transpose_b = g->transpose_b,
                          .add         = g->add,
                          .round       = g->round,
                          .bias        = g->bias != NULL,
                          .used        = 1};
}

static bool prepare(ls__dnnl_product *p, const ls__dnnl_key *k)
{
    ls__dnnl_sides s = {.a         = {k->m, k->k},
                        .b         = {k->k, k->n},
                        .c         = {k->m, k->n},
                        .bias      = {1, k->n},
                        .step_a    = {k->transpose_a ? 1 : k->lda, k->transpose_a ? k->lda : 1},
                        .step_b    = {k->transpose_b ? 1 : k->ldb, k->transpose_b ? k->ldb : 1},
                        .step_c    = {k->ldc, 1},
                        .step_bias = {k->n, 1}};

    p->key = *k;
    if (ls__dnnl_prepare(state.engine, &s, p))
        return true;
    release(p);
    return false;
}

/* The prepared product for a key; NULL: it could not be had. */
static ls__dnnl_product *find(products *all, const ls__dnnl_key *key)
{
    uint64_t at = hash_of(key);

    for (;; at++) {
        ls__dnnl_product *p = &all->slot[at % SLOTS];
        if (!p->key.used)
            break;
        if (!memcmp(&p->key, key, sizeof *key))
            return p;
    }
    if (all->used >= SLOTS / 2) {
        release_all(all);
        at = hash_of(key);
    }
    ls__dnnl_product *p = &all->slot[at % SLOTS];
    if (!prepare(p, key))
        return NULL;
    all->used++;
    return p;
}

bool ls__bf16_native_tile(ls__bf16_thread *thread, const ls_gemm_bf16_args *g)
{
    static const int  names[LS__DNNL_MEMORIES] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                                  DNNL_ARG_SCRATCHPAD, DNNL_ARG_BIAS};
    ls__dnnl_key      key                      = key_of(g);
    products         *all                      = products_of(thread);
    ls__dnnl_product *p                        = all ? find(all, &key) : NULL;
    void             *scratch = p ? ls__bf16_scratch(thread, p->scratch_bytes) : NULL;
    void             *data[LS__DNNL_MEMORIES] = {(void *)g->a, (void *)g->b, g->c, scratch,
                                                 (void *)g->bias};
    dnnl_exec_arg_t   args[LS__DNNL_MEMORIES];
    int               n = g->bias ? LS__DNNL_MEMORIES : LS__DNNL_BIAS;

    if (!p || (p->scratch_bytes && !scratch))
        return false;
    for (int i = 0; i < n; i++) {
        if (dnnl_memory_set_data_handle(p->memory[i], data[i]))
            return false;
        args[i] = (dnnl_exec_arg_t){names[i], p->memory[i]};
    }
    return !dnnl_primitive_execute(p->primitive, all->stream, n, args);
}
