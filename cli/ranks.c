/*
 * ranks.c - joining a job, and agreeing in it.
 */
#include "cli/ranks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/train.h"
#include "core/alloc.h"
#include "core/thread.h"
#include "dist/comm/rendezvous.h"
#include "dist/comm/transport_mpi.h"
#include "dist/comm/verdict.h"

const ls_ranks ls_ranks_alone = {.size = 1, .local = 1};

bool ls_ranks_are_crowded(const ls_config *cfg, const ls_ranks *ranks)
{
    return ranks->local * (cfg->run.threads + 1) > ls_cpu_count();
}

/* "1, 2, 4" */
static void worlds_that_fit(int64_t micros, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int64_t n = 1; n <= micros && used + 24 < size; n++)
        if (micros % n == 0)
            used += (size_t)snprintf(text + used, size - used, "%s%lld", used ? ", " : "",
                                     (long long)n);
}

ls_status ls_ranks_check(const ls_config *cfg, int size)
{
    int64_t micros = cfg->batch.global / cfg->batch.micro;
    char    fit[200];

    if (size > 1 && cfg->parallel.strategy == LS_CFG_STRATEGY_SINGLE)
        return ls_fail(LS_ECONFIG, "parallel.strategy \"single\" with %d ranks", size);
    if (size > 2 && cfg->parallel.algorithm == LS_CFG_ALGORITHM_RING &&
        cfg->run.determinism == LS_CFG_DETERMINISM_LOCKSTEP)
        return ls_fail(LS_ECONFIG,
                       "parallel.algorithm \"ring\" with %d ranks adds in another order, which "
                       "run.determinism \"lockstep\" does not allow; \"fast\" does",
                       size);
    if (micros % size == 0)
        return LS_OK;
    worlds_that_fit(micros, fit, sizeof fit);
    return ls_fail(LS_EWORLD,
                   "%d ranks do not divide the %lld micro-batches of a step (batch.global %lld "
                   "/ batch.micro %lld); "
                   "these would do: %s",
                   size, (long long)micros, (long long)cfg->batch.global,
                   (long long)cfg->batch.micro, fit);
}

/* Somebody reports the failure that ends this process, and then ends it. */
static atomic_flag told = ATOMIC_FLAG_INIT;

void ls_ranks_tell(const ls_ranks *ranks)
{
    while (ranks->world && atomic_flag_test_and_set(&told))
        pause();
}

/* From the watch thread: the main thread may be deep in a product.  One line, and out. */
static void on_event(void *context, ls_comm_event event, const char *text)
{
    char line[600];

    (void)context;
    if (event == LS_EVENT_FAILURE && atomic_flag_test_and_set(&told))
        return;
    int n = snprintf(line, sizeof line, "lockstep: %s: %s\n",
                     event == LS_EVENT_WARNING ? "warning" : "error", text);
    if (n > 0)
        (void)!write(STDERR_FILENO, line,
                     (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    if (event == LS_EVENT_FAILURE)
        _exit(1);
}

static ls_join_opts join_opts(const ls_config *cfg, const char *fingerprint)
{
#define NAME(BACKEND, name) #name,
    static const char *const backends[] = {LS_BACKEND_LIST(NAME)};
#undef NAME

    return (ls_join_opts){.backend     = backends[cfg->parallel.backend],
                          .algorithm   = (ls_algorithm)cfg->parallel.algorithm,
                          .fast        = cfg->run.determinism == LS_CFG_DETERMINISM_FAST,
                          .timeout_s   = cfg->parallel.timeout_s,
                          .fingerprint = fingerprint,
                          .event       = on_event};
}

/* "ddp" and its like do with one rank what they do with more. */
static bool takes_own_path(const ls_config *cfg)
{
    return cfg->parallel.strategy != LS_CFG_STRATEGY_AUTO &&
           cfg->parallel.strategy != LS_CFG_STRATEGY_SINGLE;
}

ls_status ls_ranks_join(const ls_config *cfg, ls_ranks *ranks)
{
    char               kernels[LS_KERNELS_TEXT];
    ls_launch_env      env;
    ls_join_opts       join   = join_opts(cfg, ls_describe_kernels(cfg, kernels));
    ls_rendezvous_opts meet   = {.interface = cfg->parallel.interface,
                                 .timeout_s = cfg->parallel.timeout_s};
    ls_status          status = ls_launch_env_read(&env);

    *ranks = ls_ranks_alone;
    if (!status)
        status = ls_ranks_check(cfg, env.world);
    if (status || (env.world == 1 && !takes_own_path(cfg)))
        return status;
    if (cfg->parallel.port_range.count == 2) {
        meet.ports[0] = (int)cfg->parallel.port_range.item[0];
        meet.ports[1] = (int)cfg->parallel.port_range.item[1];
    }
    status = ls_world_join(&join, &meet, &ranks->world);
    if (status)
        return status;
    ranks->rank  = ls_comm_rank(ranks->world);
    ranks->size  = ls_comm_size(ranks->world);
    ranks->local = env.local_world > 0 ? env.local_world : ranks->size;
    return LS_OK;
}

void ls_ranks_leave(ls_ranks *ranks, bool well)
{
    ls_comm_free(ranks->world);
    if (well)
        ls_mpi_end();
    *ranks = ls_ranks_alone;
}

ls_status ls_ranks_sum(const ls_ranks *ranks, ls_exact_sum *s, int64_t *flags, int n)
{
    struct {
        ls_exact_sum sum;
        int64_t      flags[LS_RANKS_FLAGS];
    } all;

    if (!ranks->world)
        return LS_OK;
    ls_exact_sum_carry(s);
    all.sum = *s;
    memset(all.flags, 0, sizeof all.flags);
    if (n)
        memcpy(all.flags, flags, (size_t)n * sizeof *flags);
    ls_status status = ls_comm_all_reduce(ranks->world, &all, &all,
                                          LS_EXACT_WORDS + LS_RANKS_FLAGS, LS_I64, LS_SUM);
    if (status)
        return status;
    *s = all.sum;
    if (n)
        memcpy(flags, all.flags, (size_t)n * sizeof *flags);
    return LS_OK;
}

ls_status ls_ranks_max(const ls_ranks *ranks, int64_t *values, int n)
{
    return ranks->world ? ls_comm_all_reduce(ranks->world, values, values, n, LS_I64, LS_MAX)
                        : LS_OK;
}

ls_status ls_ranks_agree(const ls_ranks *ranks, ls_status own)
{
    return ls_comm_agree(ranks->world, own);
}

static int shown(size_t bytes)
{
    enum { MOST = 120 };

    return bytes < MOST ? (int)bytes : MOST;
}

/* Two lines `name value` that are not the same. */
static ls_status differ(const char *mine, size_t a, const char *theirs, size_t b)
{
    size_t name = strcspn(mine, " \n");
    size_t skip = a > name && b > name && !memcmp(mine, theirs, name + 1) ? name + 1 : 0;

    return ls_fail(LS_ECONFIG, "%.*s is %.*s here, but %.*s on rank 0; all ranks need the same",
                   (int)name, mine, shown(a - skip), mine + skip, shown(b - skip),
                   theirs + skip);
}

/* The first line of mine that is not as in theirs. */
static ls_status compare_lines(const char *mine, const char *theirs)
{
    while (*mine || *theirs) {
        size_t a = strcspn(mine, "\n"), b = strcspn(theirs, "\n");
        if (a != b || memcmp(mine, theirs, a) || mine[a] != theirs[b])
            return differ(mine, a, theirs, b);
        mine += a + (mine[a] != '\0');
        theirs += b + (theirs[b] != '\0');
    }
    return LS_OK;
}

ls_status ls_ranks_compare(const ls_ranks *ranks, const char *text)
{
    int64_t bytes = (int64_t)strlen(text) + 1;

    if (ranks->size == 1)
        return LS_OK;
    ls_status status = ls_comm_broadcast(ranks->world, &bytes, 1, LS_I64, 0);
    if (status)
        return status;
    char *theirs = ls_calloc((size_t)bytes, 1);
    status       = ls_ranks_agree(ranks, theirs ? LS_OK : LS_ENOMEM);
    if (status || !theirs) {
        free(theirs);
        return status;
    }
    if (!ranks->rank)
        memcpy(theirs, text, (size_t)bytes);
    status = ls_comm_broadcast(ranks->world, theirs, bytes, LS_U8, 0);
    if (!status)
        status = ls_ranks_agree(ranks, compare_lines(text, theirs));
    free(theirs);
    return status;
}

ls_status ls_ranks_share(const ls_ranks *ranks, char **data, size_t *bytes)
{
    int64_t n = (int64_t)*bytes;

    if (!ranks->world)
        return *data ? LS_OK : LS_ENOMEM;
    ls_status status = ls_comm_broadcast(ranks->world, &n, 1, LS_I64, 0);
    if (status)
        return status;
    if (ranks->rank) {
        free(*data);
        *data = ls_calloc((size_t)n + 1, 1);
    }
    status = ls_ranks_agree(ranks, *data ? LS_OK : LS_ENOMEM);
    if (!status && n)
        status = ls_comm_broadcast(ranks->world, *data, n, LS_U8, 0);
    *bytes = (size_t)n;
    return status;
}
