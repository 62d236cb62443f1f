/*
 * fsdp_units.c - which parameters make a unit, and where its rows lie.
 *
 * A parameter's header keeps the shape of the whole and gets a storage of the unit's, whose
 * data is there only while the unit is whole; so a saved tensor that is a view of it is found
 * again in backward, and is never kept alive by being saved.  Its rows are a tensor of their
 * own (ls_tensor_owned) in the packed array of the rank's rows.  Where the whole form is kept
 * (ZeRO-1 and 2), or is one array for all ranks, the rows lie in it instead.
 *
 * In BF16 the whole form is of that type, and what lies there is a copy, rounded when a unit is
 * first gathered after an update; the rows themselves are ls_real in an array of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "core/kernels/bf16.h"
#include "dist/fsdp_impl.h"

enum { MOST_AHEAD = 1 << 20 }; /* units; beyond any model */

ls_unit *ls__unit_of(const ls_module *m)
{
    return m->hook.before == ls__fsdp_before ? m->hook.context : NULL;
}

/* What no unit below has. */
static int count_own(const ls_module *m, bool inner)
{
    int n = 0;

    if (inner && ls__unit_of(m))
        return 0;
    for (const ls_parameter *p = m->parameters; p; p = p->next)
        n += !p->is_buffer;
    for (const ls_module *c = m->children; c; c = c->next)
        n += count_own(c, true);
    return n;
}

static void collect_own(ls_module *m, bool inner, ls_unit *u)
{
    if (inner && ls__unit_of(m))
        return;
    for (ls_parameter *p = m->parameters; p; p = p->next)
        if (!p->is_buffer)
            u->parameters[u->n++] = (ls_named_tensor){p->path, &p->tensor};
    for (ls_module *c = m->children; c; c = c->next)
        collect_own(c, true, u);
}

static const char *path_of(const ls_module *m)
{
    return m->path[0] ? m->path : "the root";
}

static ls_status check_module(const ls_module *m)
{
    if (!m)
        return ls_fail(LS_EINVAL, "fsdp: the module is NULL");
    for (const ls_module *p = m; p; p = p->parent) {
        if (!ls__unit_of(p))
            continue;
        return p == m ? ls_fail(LS_ESTATE, "fsdp: %s is a unit already", path_of(m))
                      : ls_fail(LS_ESTATE,
                                "fsdp: %s stands below %s, which is a unit; shard inner "
                                "modules first",
                                path_of(m), path_of(p));
    }
    if (m->hook.before || m->hook.after)
        return ls_fail(LS_ESTATE, "fsdp: %s has a hook of somebody else", path_of(m));
    return LS_OK;
}

/* In a group no module stands twice, or below another. */
static ls_status check_apart(ls_module *const *modules, int n)
{
    for (int k = 0; k < n; k++)
        for (int j = 0; j < n; j++)
            for (const ls_module *p = k == j ? modules[j]->parent : modules[j]; p;
                 p                  = p->parent)
                if (p == modules[k])
                    return ls_fail(LS_EINVAL,
                                                    "fsdp: %s and %s, which %s, were to be in one unit",
                                                    path_of(p), path_of(modules[j]),
                                   p == modules[j] ? "is the same" : "stands below it");
    return LS_OK;
}

static ls_status check_opts(const ls_comm *comm, const ls_fsdp_opts *o)
{
    if (!comm)
        return ls_fail(LS_EINVAL, "fsdp: the group is NULL");
    if (o && (o->prefetch < 0 || o->prefetch > MOST_AHEAD))
        return ls_fail(LS_EINVAL, "fsdp: prefetch is %d, want 0 to %d", o->prefetch,
                       MOST_AHEAD);
    if (o && (unsigned)o->kind > LS_SHARD_OPTIMIZER)
        return ls_fail(LS_EINVAL, "fsdp: no such kind of sharding: %d", (int)o->kind);
    return LS_OK;
}

static ls_status fill_unit(ls_unit *u, ls_module *const *modules, int n)
{
    int parameters = 0;

    for (int k = 0; k < n; k++)
        parameters += count_own(modules[k], false);
    u->modules    = ls_calloc((size_t)n, sizeof(ls_module *));
    u->parameters = ls_calloc((size_t)parameters + 1, sizeof *u->parameters);
    if (!u->modules || !u->parameters)
        return LS_ENOMEM;
    for (int k = 0; k < n; k++) {
        u->modules[u->n_modules++] = modules[k];
        collect_own(modules[k], false, u);
        ls_module_set_hook(modules[k], (ls_module_hook){ls__fsdp_before, ls__fsdp_after, u});
    }
    return LS_OK;
}

ls_status ls_fsdp_shard_group(ls_module *const *modules, int n, ls_comm *comm,
                              const ls_fsdp_opts *opts)
{
    ls_status status = n > 0 ? LS_OK : ls_fail(LS_EINVAL, "fsdp: a unit of %d modules", n);

    if (!status)
        status = check_opts(comm, opts);
    for (int k = 0; k < n && !status; k++)
        status = check_module(modules[k]);
    if (!status)
        status = check_apart(modules, n);
    if (status)
        return status;
    ls_unit *u = ls_calloc(1, sizeof *u);
    if (!u)
        return LS_ENOMEM;
    *u     = (ls_unit){.comm = comm, .opts = opts ? *opts : ls_fsdp_defaults};
    status = fill_unit(u, modules, n);
    if (status)
        ls__unit_free(u);
    return status;
}

ls_status ls_fsdp_shard(ls_module *m, ls_comm *comm, const ls_fsdp_opts *opts)
{
    return ls_fsdp_shard_group(&m, 1, comm, opts);
}

void ls_fsdp_forget(ls_module *root)
{
    ls_unit *u = root ? ls__unit_of(root) : NULL;

    if (!root)
        return;
    for (ls_module *c = root->children; c; c = c->next)
        ls_fsdp_forget(c);
    if (u && !u->fsdp)
        ls__unit_free(u);
}

static int count_units(ls_module *m, ls_unit **units)
{
    int n = 0;

    for (ls_module *c = m->children; c; c = c->next)
        n += count_units(c, units ? units + n : NULL);
    if (ls__unit_of(m) && ls__unit_of(m)->modules[0] == m) {
        if (units)
            units[n] = ls__unit_of(m);
        n++;
    }
    return n;
}

ls_status ls__units_list(ls_module *root, ls_unit ***units, int *n)
{
    *units = ls_calloc((size_t)count_units(root, NULL) + 1, sizeof(ls_unit *));
    if (!*units)
        return LS_ENOMEM;
    *n = count_units(root, *units);
    return LS_OK;
}

static ls_status list_trained(ls_unit *u)
{
    u->trained = ls_calloc((size_t)u->n + 1, sizeof *u->trained);
    u->number  = ls_calloc((size_t)u->n + 1, sizeof *u->number);
    if (!u->trained || !u->number)
        return LS_ENOMEM;
    for (int i = 0; i < u->n; i++)
        if (u->parameters[i].tensor->requires_grad)
            u->trained[u->n_trained++] = u->parameters[i];
    return LS_OK;
}

/* Of a source, and of what is always ls_real; no array is empty. */
static size_t source_bytes(const ls_unit *u, int64_t count)
{
    return (size_t)(count + 1) * ls__unit_size(u);
}

static size_t real_bytes(int64_t count)
{
    return (size_t)(count + 1) * sizeof(ls_real);
}

/* Without its charge: see charge(). */
static void *alloc_block(ls_comm *comm, size_t bytes)
{
    ls_mem_discharge(bytes, LS_MEM_COMM); /* before, so that no peak and no limit sees it */
    void *block = ls_comm_alloc(comm, bytes);
    if (!block)
        (void)!ls_mem_charge(bytes, LS_MEM_COMM);
    return block;
}

static void release_block(ls_comm *comm, void *block, size_t bytes)
{
    if (block)
        (void)!ls_mem_charge(bytes, LS_MEM_COMM); /* which its release takes back */
    ls_comm_release(comm, block);
}

/*
 * One array for all ranks, where they share memory: each writes its rows, all read all, and
 * gathering moves nothing.  The ranks take turns in giving it.
 */
static ls_status share_array(ls_unit *u)
{
    ls_comm *comm  = u->fsdp->reduces;
    int      owner = u->index % ls_comm_size(comm);
    size_t   bytes = source_bytes(u, u->values.count);
    void    *here;

    if (ls_comm_rank(comm) == owner && !(u->block = alloc_block(comm, bytes)))
        return LS_ENOMEM;
    ls_status status = ls_comm_share(comm, u->block, bytes, owner, &here);
    u->source        = here;
    u->shared        = here != NULL;
    if (u->block && (status || !here)) {
        release_block(comm, u->block, bytes);
        u->block = NULL;
    }
    u->block_bytes = u->block ? bytes : 0;
    return status;
}

static ls_status own_array(ls_unit *u)
{
    u->block_bytes = source_bytes(u, u->stays ? u->values.count : u->values.owned);
    u->block       = alloc_block(u->fsdp->reduces, u->block_bytes);
    u->source      = u->block;
    return u->block ? LS_OK : LS_ENOMEM;
}

/* A block, by what it is for. */
static ls_status charge(size_t bytes, ls_mem_category category, size_t *charged)
{
    ls_status status = ls_mem_charge(bytes, category);

    *charged = status ? 0 : bytes;
    return status;
}

static ls_status make_sums(ls_unit *u)
{
    size_t bytes = real_bytes(u->grads.owned);

    u->home = alloc_block(u->fsdp->reduces, bytes);
    return u->home ? charge(bytes, LS_MEM_GRADS, &u->home_charged) : LS_ENOMEM;
}

/* In BF16 what is gathered is a copy, and the rows themselves are elsewhere. */
static ls_status make_master(ls_unit *u)
{
    size_t bytes = real_bytes(u->values.owned);

    if (!u->fsdp->opts.bf16)
        return LS_OK;
    u->master = alloc_block(u->fsdp->reduces, bytes);
    return u->master ? charge(bytes, LS_MEM_PARAMS, &u->master_charged) : LS_ENOMEM;
}

/* Parameters are charged to each rank as what it holds, whoever's memory it is. */
static size_t held_bytes(const ls_unit *u)
{
    return source_bytes(u, u->stays && !u->shared ? u->values.count : u->values.owned);
}

static ls_status make_memory(ls_unit *u)
{
    ls_status status = LS_OK;

    u->shards = ls_calloc((size_t)u->n + 1, sizeof *u->shards);
    u->views  = ls_calloc((size_t)u->n_trained + 1, sizeof(void *));
    if (!u->shards || !u->views)
        return LS_ENOMEM;
    if (ls_comm_size(u->fsdp->reduces) > 1 && !u->fsdp->opts.no_share)
        status = share_array(u);
    if (!status && !u->shared)
        status = own_array(u);
    if (!status)
        status = charge(held_bytes(u), LS_MEM_PARAMS, &u->charged);
    if (!status)
        status = make_master(u);
    return status ? status : make_sums(u);
}

static void free_memory(ls_unit *u)
{
    bool read = u->shared && u->fsdp->alone; /* others may still read it */

    ls_mem_discharge(u->charged + u->master_charged, LS_MEM_PARAMS);
    ls_mem_discharge(u->home_charged, LS_MEM_GRADS);
    if (!read)
        release_block(u->fsdp->reduces, u->block, u->block_bytes);
    release_block(u->fsdp->reduces, u->master, real_bytes(u->values.owned));
    release_block(u->fsdp->reduces, u->home, real_bytes(u->grads.owned));
}

/* Where the rank's rows of parameter i lie in what is gathered. */
static void *source_of(const ls_unit *u, int i)
{
    const ls_tensor *t  = u->parameters[i].tensor;
    int64_t          at = u->values.packed[i];

    if (u->stays || u->shared)
        at = u->values.offset[i] + u->shards[i].first * ls_tensor_row_elements(t);
    return (char *)u->source + (size_t)at * ls__unit_size(u);
}

static ls_real *rows_of(const ls_unit *u, int i)
{
    return u->master ? u->master + u->values.packed[i] : source_of(u, i);
}

void ls__unit_round(ls_unit *u)
{
    for (int i = 0; u->master && !u->rounded && i < u->n; i++) {
        const ls_tensor *rows = &u->shards[i].rows;
        ls_k_bf16_round(source_of(u, i), ls_reals(rows), ls_tensor_numel(rows));
    }
    u->rounded = true;
}

/* The parameter's values, if it has some, are cut down to the rank's rows. */
static ls_status cut(ls_unit *u, int i)
{
    ls_tensor  *t     = u->parameters[i].tensor;
    size_t      bytes = (size_t)ls_tensor_numel(t) * ls__unit_size(u);
    ls_storage *whole = ls_storage_view(NULL, bytes, LS_MEM_PARAMS);

    u->shards[i]        = ls_shard_header(t, u->fsdp->reduces);
    ls_tensor *rows     = &u->shards[i].rows;
    rows->requires_grad = t->requires_grad;
    rows->storage       = ls_storage_view(rows_of(u, i), ls_tensor_bytes(rows), LS_MEM_PARAMS);
    if (!whole || !rows->storage) {
        ls_storage_release(whole);
        ls_tensor_drop(rows);
        return LS_ENOMEM;
    }
    if (t->storage && ls_tensor_numel(rows))
        memcpy(ls_reals(rows), ls_reals(t) + u->shards[i].first * ls_tensor_row_elements(t),
               ls_tensor_bytes(rows));
    ls_tensor_drop(t);
    t->storage = whole;
    t->dtype   = ls__unit_dtype(u);
    t->shard   = &u->shards[i];
    return LS_OK;
}

static ls_status make_views(ls_unit *u)
{
    for (int i = 0; i < u->n_trained; i++) {
        size_t bytes = ls_tensor_grad_bytes(ls_tensor_owned(u->trained[i].tensor));
        u->views[i]  = ls_storage_view(NULL, bytes, LS_MEM_GRADS);
        if (!u->views[i])
            return LS_ENOMEM;
    }
    return LS_OK;
}

ls_status ls__unit_make(ls_unit *u)
{
    const ls_comm *comm = u->fsdp->gathers;
    int            rank = ls_comm_rank(comm), size = ls_comm_size(comm);

    u->stays         = u->opts.kind != LS_SHARD_FULL || size == 1;
    ls_status status = list_trained(u);
    if (!status)
        status = ls_shard_layout_init(&u->values, u->parameters, u->n, rank, size);
    if (!status)
        status = ls_shard_layout_init(&u->grads, u->trained, u->n_trained, rank, size);
    if (!status)
        status = make_memory(u);
    for (int i = 0; i < u->n && !status; i++)
        status = cut(u, i);
    return status ? status : make_views(u);
}

static void free_parameter(ls_unit *u, int i)
{
    ls_tensor *t = u->parameters[i].tensor;

    if (!u->shards || t->shard != &u->shards[i])
        return;
    t->grad_home = NULL;
    t->dtype     = LS_REAL;
    t->shard     = NULL;
    ls_tensor_drop(t);
    ls_tensor_drop(&u->shards[i].rows);
}

static void free_buffers(ls_unit *u)
{
    if (u->whole)
        ls__whole_release(u);
    if (u->grad)
        ls__grads_release(u);
    ls__grads_unwire(u);
    free_memory(u);
}

void ls__unit_free(ls_unit *u)
{
    for (int i = 0; i < u->n; i++)
        free_parameter(u, i);
    for (int i = 0; u->views && i < u->n_trained; i++)
        ls_storage_release(u->views[i]);
    ls_storage_release(u->reduced);
    ls_storage_release(u->result);
    ls_tree_sum_close(&u->sum);
    if (u->fsdp)
        free_buffers(u);
    ls_shard_layout_close(&u->values);
    ls_shard_layout_close(&u->grads);
    for (int k = 0; k < u->n_modules; k++)
        ls_module_set_hook(u->modules[k], (ls_module_hook){0});
    free(u->modules);
    free(u->shards);
    free(u->views);
    free(u->trained);
    free(u->number);
    free(u->parameters);
    free(u);
}
