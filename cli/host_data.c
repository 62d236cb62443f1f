/*
 * host_data.c - see host_data.h.
 *
 *     all        who would read the same        all_gather of identities
 *     readers    memory, empty                  all_gather of places
 *     readers    files, tokens, into it         others wait; a death or a failure ends that
 *     all        agree that it went well, take what is not their own, compare
 */
#include "cli/host_data.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/host.h"
#include "data/dataset_share.h"

static const int64_t LOOK_NS = 1000000, /* how often a rank looks whether tokens are there */
    LOOKS_A_CHECK            = 100;     /* and then also whether their maker stands still */

/* What a rank tells of itself. */
typedef struct {
    char boot[LS_BOOT_BYTES];
    char files[LS_SHA256_HEX]; /* "": it reads for itself */
} identity;

typedef struct {
    const ls_ranks        *ranks;
    const ls_dataset_opts *opts;
    int                    reader;  /* the rank that reads for this one */
    int                    readers; /* ranks that it reads for, itself too */
    ls_shared             *memory;  /* NULL: the dataset has its own */
    char                   fingerprint[LS_FINGERPRINT_BYTES];
} loading;

static bool reads_for(const identity *a, const identity *b)
{
    return a->files[0] && a->boot[0] && !memcmp(a, b, sizeof *a);
}

/* The lowest rank that would read the same. */
static void find_reader(loading *l, const identity *all)
{
    const identity *mine = &all[l->ranks->rank];

    l->reader = l->ranks->rank;
    for (int r = l->ranks->size - 1; r >= 0; r--)
        if (reads_for(&all[r], mine)) {
            l->readers++;
            l->reader = r;
        }
}

static ls_status meet(loading *l)
{
    identity  mine   = {0};
    identity *all    = ls_calloc((size_t)l->ranks->size, sizeof *all);
    ls_status status = all ? ls_dataset_identity(l->opts, mine.files) : LS_ENOMEM;

    ls_boot_id(mine.boot);
    status = ls_ranks_agree(l->ranks, status);
    if (!status)
        status = ls_comm_all_gather(l->ranks->world, all, &mine, sizeof mine, LS_U8);
    if (!status && all)
        find_reader(l, all);
    free(all);
    return status;
}

static bool is_reader(const loading *l)
{
    return l->reader == l->ranks->rank;
}

/* Memory of this rank, or that of the rank that reads for it; none where there is no way. */
static ls_status open_memory(loading *l)
{
    ls_shared_place  mine = {.fd = -1};
    ls_shared_place *all  = ls_calloc((size_t)l->ranks->size, sizeof *all);

    if (all && is_reader(l) && l->readers > 1 && ls_shared_new(&l->memory, &mine))
        l->memory = NULL;
    ls_status status = ls_ranks_agree(l->ranks, all ? LS_OK : LS_ENOMEM);
    if (!status)
        status = ls_comm_all_gather(l->ranks->world, all, &mine, sizeof mine, LS_U8);
    if (!status && all && !is_reader(l) && ls_shared_open(&all[l->reader], &l->memory))
        l->memory = NULL;
    free(all);
    return status;
}

/* Reads, and gives it to whoever waits. */
static ls_status read_files(loading *l, ls_dataset *d)
{
    ls_status status = ls_dataset_load(l->opts, d);

    if (!status)
        status = ls_dataset_fingerprint(d, l->fingerprint);
    if (!l->memory)
        return status;
    if (!status)
        return ls_dataset_publish(d, l->fingerprint, l->memory);
    ls_shared_fail(l->memory, status);
    return status;
}

/* However long it takes; one that stands still is left to the next operation's timeout. */
static ls_status wait_for_reader(const loading *l)
{
    ls_status status = LS_OK;

    for (int64_t i = 1; !status && !ls_shared_is_filled(l->memory); i++) {
        if (i % LOOKS_A_CHECK == 0 && ls_shared_is_stopped(l->memory))
            break;
        ls_sleep_ns(LOOK_NS);
        status = ls_comm_check(l->ranks->world);
    }
    return status;
}

static ls_status load(loading *l, ls_dataset *d)
{
    bool      waits  = !is_reader(l) && l->memory;
    ls_status status = waits ? wait_for_reader(l) : read_files(l, d);

    if (waits && !status && ls_shared_is_filled(l->memory))
        status = ls_dataset_take(l->memory, d, l->fingerprint);
    status = ls_ranks_agree(l->ranks, status);
    if (waits && !status && !d->vocab_size) /* its reader stood still for a while */
        status = ls_dataset_take(l->memory, d, l->fingerprint);
    status = ls_ranks_agree(l->ranks, status);
    if (!status)
        status = ls_ranks_compare(l->ranks, l->fingerprint);
    return status;
}

ls_status ls_host_data_load(const ls_ranks *ranks, const ls_dataset_opts *opts,
                            ls_shared **memory, ls_dataset *d)
{
    loading l = {.ranks = ranks, .opts = opts};

    *memory = NULL;
    *d      = (ls_dataset){0};
    if (ranks->size == 1)
        return ls_dataset_load(opts, d);
    ls_status status = meet(&l);
    if (!status)
        status = open_memory(&l);
    if (!status)
        status = load(&l, d);
    if (l.memory)
        ls_shared_hide(l.memory);
    if (status) {
        ls_dataset_close(d);
        ls_shared_free(l.memory);
        return status;
    }
    *memory = l.memory;
    return LS_OK;
}
