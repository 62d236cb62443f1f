/*
 * init.c - four elements from each Philox block.
 */
#include "nn/init.h"

#include "core/rng.h"
#include "core/thread.h"

enum { ELEMENTS = 4096 }; /* of a task; a multiple of four */

typedef struct {
    const ls_init *init;
    uint64_t       seed, stream;
    int64_t        first, n;
    ls_real       *out;
} job;

/* The four values of the group that holds elements 4 * group .. 4 * group + 3. */
static void group_values(const job *j, int64_t group, double v[4])
{
    ls_philox_block x = ls_rng_draw(j->seed, LS_RNG_INIT, (uint32_t)j->stream,
                                    (uint32_t)(j->stream >> 32), (uint64_t)group);

    if (j->init->kind == LS_INIT_NORMAL) {
        ls_rng_normal(x.v[0], x.v[1], v);
        ls_rng_normal(x.v[2], x.v[3], v + 2);
        for (int i = 0; i < 4; i++)
            v[i] *= j->init->value;
    } else {
        for (int i = 0; i < 4; i++)
            v[i] = (2 * ls_rng_unit(x.v[i]) - 1) * j->init->value;
    }
}

static void fill_block(void *context, int64_t index)
{
    const job *j = context;
    ls_block   b = ls_block_at(j->n, ELEMENTS, index);
    double     v[4];

    for (int64_t i = b.first; i < b.end; i++) {
        int64_t element = j->first + i;
        if (j->init->kind == LS_INIT_CONSTANT) {
            j->out[i] = (ls_real)j->init->value;
            continue;
        }
        if (i == b.first || element % 4 == 0)
            group_values(j, element / 4, v);
        j->out[i] =
            (ls_real)(float)v[element % 4]; /* the double library starts from the same */
    }
}

void ls_init_fill(const ls_init *init, uint64_t seed, const char *name, int64_t first,
                  int64_t n, ls_real *out)
{
    job j = {init, seed, ls_rng_hash(name), first, n, out};
    ls_parallel(ls_block_count(n, ELEMENTS), fill_block, &j);
}
