/*
 * save.c - the states of a save, the same on all ranks.
 *
 *              all have written            rank 0 has committed
 *     WRITING ──────────────────> COMMITTING ──────────────────> IDLE
 *        └── one failed, or late ──> STOPPING ── all have stopped ──^
 *
 * Only ls_saver_poll() changes the state, by numbers that were summed over all ranks.  A job is
 * what a rank's thread does: it works on memory that nobody else touches until it is done.
 *
 * A job that does not end (a disk that hangs) is left to itself after the deadline and
 * GRACE_NS; until it has ended, saves of this rank fail.
 */
#include "checkpoint/save.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/atomic_file.h"
#include "checkpoint/save_manifest_impl.h"
#include "checkpoint/save_rank_impl.h"
#include "checkpoint/store.h"
#include "core/alloc.h"
#include "core/clock.h"
#include "core/gz.h"
#include "dist/comm/verdict.h"

enum { PAGE = 4096 };

static const int64_t SECOND = 1000000000, GRACE_NS = 5000000000, LOOK_NS = 10000000;

typedef enum { IDLE, WRITING, COMMITTING, STOPPING } state;

struct ls_saver {
    ls_saver_opts           opts;
    const ls_stored_tensor *list;
    size_t                  n;
    int                     rank, size, attempt;
    state                   state;
    int64_t                 begun, stalled_ns, deadline;
    char                   *temporary; /* of the save under way */
    ls__part                part;
    ls_manifest             manifest; /* of it; on the other ranks its texts alone */
    ls_save_end             end;      /* as far as it is known */

    pthread_t thread;
    bool      has_thread, warming;
    ls_status (*work)(struct ls_saver *s);
    atomic_int done, stop;
    ls_status  status; /* of the job, when it is done */
    char       text[600];
};

/* ---- the job ---- */

static void run_job(ls_saver *s)
{
    s->status = s->work(s);
    snprintf(s->text, sizeof s->text, "%s", s->status ? ls_error_message() : "");
    atomic_store(&s->done, 1);
}

static void *job_thread(void *context)
{
    run_job(context);
    return NULL;
}

static void start_job(ls_saver *s, ls_status (*work)(ls_saver *s))
{
    s->work       = work;
    s->status     = LS_OK;
    s->done       = 0;
    s->has_thread = !s->opts.no_thread && !pthread_create(&s->thread, NULL, job_thread, s);
    if (!s->has_thread)
        run_job(s);
}

static void end_job(ls_saver *s)
{
    if (s->has_thread && atomic_load(&s->done))
        pthread_join(s->thread, NULL);
    if (atomic_load(&s->done))
        s->has_thread = false;
}

static ls_status job_status(const ls_saver *s)
{
    return s->status ? ls_fail(s->status, "%s", s->text) : LS_OK;
}

static ls_status write_part(ls_saver *s)
{
    struct stat info;

    if (s->rank && stat(s->temporary, &info) && errno == ENOENT)
        return ls_fail(LS_EIO,
                       "%s, which rank 0 has made, is not there; a run's directory must be the "
                       "same one for all ranks",
                       s->temporary);
    return ls__part_write(&s->part, s->temporary, &s->stop);
}

static ls_status write_manifest(ls_saver *s)
{
    ls_atomic_file f;
    char          *path   = ls_sprintf("%s/manifest.json", s->temporary);
    char          *text   = path ? ls_manifest_print(&s->manifest) : NULL;
    ls_status      status = text ? ls_atomic_begin(&f, path) : LS_ENOMEM;

    if (!status) {
        status = ls_atomic_write(&f, text, strlen(text));
        if (!status)
            status = ls_atomic_commit(&f);
        ls_atomic_abandon(&f);
    }
    free(text);
    free(path);
    return status;
}

/* From the rename on the checkpoint is there; what fails after that is told all the same. */
static ls_status commit(ls_saver *s)
{
    const ls_saver_opts *o      = &s->opts;
    int64_t              step   = s->manifest.step;
    ls_status            status = write_manifest(s);

    if (!status)
        status = ls_store_commit(o->store, s->temporary, step);
    if (status) {
        ls_store_abandon(s->temporary);
        return status;
    }
    status = ls_store_set_latest(o->store, step);
    return status ? status : ls_store_prune(o->store, step, o->keep, o->best);
}

/* ---- construction ---- */

ls_status ls_saver_new(const ls_saver_opts *opts, const ls_stored_tensor *list, size_t n,
                       ls_saver **out)
{
    ls_saver *s = ls_calloc(1, sizeof *s);

    *out = NULL;
    if (s) {
        s->opts = *opts;
        s->list = list;
        s->n    = n;
        s->rank = opts->comm ? ls_comm_rank(opts->comm) : 0;
        s->size = opts->comm ? ls_comm_size(opts->comm) : 1;
        s->done = 1;
        if (!s->opts.keep)
            s->opts.keep = 3;
        if (!(s->opts.timeout_s > 0))
            s->opts.timeout_s = 600;
    }
    ls_status status = s ? LS_OK : LS_ENOMEM;
    if (!status && !s->rank)
        status = ls_store_open(opts->store);
    status = ls_comm_agree(opts->comm, status);
    if (status) {
        free(s);
        return status;
    }
    *out = s;
    return LS_OK;
}

static void forget(ls_saver *s)
{
    ls__part_close(&s->part);
    ls_manifest_free(&s->manifest);
    free(s->temporary);
    s->temporary = NULL;
}

void ls_saver_free(ls_saver *s)
{
    if (!s)
        return;
    atomic_store(&s->stop, 1);
    int64_t until = ls_now_ns() + GRACE_NS;
    while (!atomic_load(&s->done) && ls_now_ns() < until)
        ls_sleep_ns(LOOK_NS);
    if (!atomic_load(&s->done))
        return; /* the thread still uses it */
    end_job(s);
    if (s->state != IDLE && !s->rank && s->temporary)
        ls_store_abandon(s->temporary);
    forget(s);
    free(s);
}

static ls_status warm(ls_saver *s)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < s->n; i++)
        bytes += ls_rows_share(s->list[i].tensor, s->rank, s->size).rows *
                 ls_row_bytes_of(s->list[i].tensor);
    char *block = ls_mem_alloc((size_t)bytes, LS_MEM_SNAPSHOT);
    for (uint64_t at = 0; block && at < bytes && !s->stop; at += PAGE)
        block[at] = 0;
    ls_mem_free(block, (size_t)bytes, LS_MEM_SNAPSHOT);
    return LS_OK;
}

void ls_saver_warm(ls_saver *s)
{
    if (!s->opts.async || s->opts.no_thread || s->begun || !atomic_load(&s->done))
        return;
    s->warming = true;
    start_job(s, warm);
}

/* ---- begin ---- */

static uint64_t bytes_of_all(const ls_saver *s)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < s->n; i++)
        bytes += ls_rows_of(s->list[i].tensor) * ls_row_bytes_of(s->list[i].tensor);
    return bytes;
}

static ls_status copy_facts(ls_saver *s, const ls_save_facts *facts)
{
    ls_manifest *m = &s->manifest;

    *m = (ls_manifest){.step       = facts->step,
                       .world      = s->size,
                       .compressed = s->opts.compressed,
                       .strategy   = ls_strdup(facts->strategy),
                       .state      = ls_strdup(facts->state),
                       .config     = ls_strdup(facts->config),
                       .tokenizer  = ls_strdup(facts->tokenizer)};
    return m->strategy && m->state && m->config && m->tokenizer ? LS_OK : LS_ENOMEM;
}

static ls_status prepare(ls_saver *s, const ls_save_facts *facts)
{
    if (s->warming && s->has_thread)
        pthread_join(s->thread, NULL); /* it only works */
    if (s->warming)
        s->has_thread = s->warming = false;
    if (!atomic_load(&s->done))
        return ls_fail(LS_ETIMEOUT, "%s: an earlier save still waits for the disk",
                       s->opts.store);
    end_job(s);
    forget(s);
    s->stop          = 0;
    s->part          = (ls__part){.list       = s->list,
                                  .n          = s->n,
                                  .rank       = s->rank,
                                  .size       = s->size,
                                  .step       = facts->step,
                                  .compressed = s->opts.compressed};
    ls_status status = copy_facts(s, facts);
    if (!status)
        status = ls__part_plan(&s->part);
    s->temporary = ls_store_temporary(s->opts.store, facts->step, s->attempt);
    if (!status && !s->temporary)
        status = LS_ENOMEM;
    if (!status && !s->rank && !s->opts.compressed)
        status = ls_store_check_space(s->opts.store, s->end.bytes);
    return status || s->rank ? status : ls_store_begin(s->temporary);
}

/* Of the save under way: tells how it ended. */
static void finish(ls_saver *s, ls_status status, ls_save_end *end)
{
    s->state       = IDLE;
    s->end.status  = status;
    s->end.seconds = (double)(ls_now_ns() - s->begun) / (double)SECOND;
    s->end.stall_s = s->stalled_ns ? (double)s->stalled_ns / (double)SECOND : s->end.seconds;
    snprintf(s->end.text, sizeof s->end.text, "%s", status ? ls_error_message() : "");
    *end = s->end;
    if (atomic_load(&s->done)) {
        end_job(s);
        forget(s);
    }
}

/* A failure of the group is returned; another one is how the save ends. */
static ls_status fail_save(ls_saver *s, ls_status status, ls_save_end *end)
{
    char text[600];

    snprintf(text, sizeof text, "%s", ls_error_message());
    if (s->opts.comm && ls_comm_check(s->opts.comm))
        return ls_fail(status, "%s", text);
    if (!s->rank && s->temporary && atomic_load(&s->done))
        ls_store_abandon(s->temporary);
    ls_fail(status, "%s", text);
    finish(s, status, end);
    return LS_OK;
}

/* All ranks take a snapshot, or none. */
static ls_status take_snapshots(ls_saver *s)
{
    int64_t   without = ls__part_snapshot(&s->part) != LS_OK;
    ls_status status  = LS_OK;

    if (s->opts.comm)
        status = ls_comm_all_reduce(s->opts.comm, &without, &without, 1, LS_I64, LS_SUM);
    s->end.no_snapshot = without != 0;
    return status;
}

ls_status ls_saver_begin(ls_saver *s, const ls_save_facts *facts, ls_save_end *end)
{
    *end = (ls_save_end){0};
    if (s->state != IDLE)
        return ls_fail(LS_ESTATE, "a save is under way already");
    s->attempt++;
    s->begun         = ls_now_ns();
    s->stalled_ns    = 0;
    s->deadline      = s->begun + (int64_t)(s->opts.timeout_s * (double)SECOND);
    s->end           = (ls_save_end){.step = facts->step, .bytes = bytes_of_all(s)};
    ls_status status = ls_comm_agree(s->opts.comm, prepare(s, facts));
    if (status)
        return fail_save(s, status, end);
    bool async = s->opts.async && !facts->wait;
    if (async)
        status = take_snapshots(s);
    if (status)
        return status;
    s->state = WRITING;
    start_job(s, write_part);
    if (!async || s->end.no_snapshot)
        status = ls_saver_wait(s, end);
    s->stalled_ns = ls_now_ns() - s->begun;
    return status;
}

/* ---- poll ---- */

enum { BUSY, FAILED, LATE, OVERDUE, FLAGS };

static ls_status look(ls_saver *s, int64_t flags[FLAGS])
{
    int64_t now  = ls_now_ns();
    bool    busy = !atomic_load(&s->done);

    flags[BUSY]    = busy;
    flags[FAILED]  = !busy && s->status;
    flags[LATE]    = now > s->deadline;
    flags[OVERDUE] = now > s->deadline + GRACE_NS;
    return s->opts.comm ? ls_comm_all_reduce(s->opts.comm, flags, flags, FLAGS, LS_I64, LS_SUM)
                        : LS_OK;
}

/* Of this rank's job; one that is not done is a failure where it is late. */
static ls_status own_status(const ls_saver *s, bool late)
{
    if (atomic_load(&s->done))
        return s->status == LS_EINTERRUPTED ? LS_OK : job_status(s);
    if (!late)
        return LS_OK;
    return ls_fail(LS_ETIMEOUT, "%s: not written after %.3g s (checkpoint.timeout_s)",
                   s->temporary, s->opts.timeout_s);
}

/* All agree on what went wrong now; the jobs are told to stop. */
static void stop(ls_saver *s, bool late)
{
    s->end.status = ls_comm_agree(s->opts.comm, own_status(s, late));
    snprintf(s->end.text, sizeof s->end.text, "%s", s->end.status ? ls_error_message() : "");
    atomic_store(&s->stop, 1);
    s->state = STOPPING;
}

static ls_status end_stopped(ls_saver *s, ls_save_end *end)
{
    ls_status status = s->end.status ? s->end.status : LS_ETIMEOUT;

    ls_fail(status, "%s", s->end.status ? s->end.text : "the save took too long");
    return fail_save(s, status, end);
}

static ls_status go_on_to_commit(ls_saver *s, ls_save_end *end)
{
    end_job(s);
    ls_status status = ls__manifest_gather(s->opts.comm, &s->part, s->temporary, &s->manifest);
    if (status)
        return fail_save(s, status, end);
    s->state = COMMITTING;
    if (!s->rank)
        start_job(s, commit);
    return LS_OK;
}

static ls_status end_commit(ls_saver *s, ls_save_end *end)
{
    ls_status status = s->rank ? LS_OK : own_status(s, true);

    status = ls_comm_agree(s->opts.comm, status);
    if (status && s->opts.comm && ls_comm_check(s->opts.comm))
        return status;
    finish(s, status, end);
    return LS_OK;
}

ls_status ls_saver_poll(ls_saver *s, ls_save_end *end)
{
    int64_t flags[FLAGS];

    *end = (ls_save_end){0};
    if (s->state == IDLE)
        return LS_OK;
    ls_status status = look(s, flags);
    if (status)
        return status;
    switch (s->state) {
    case WRITING:
        if (flags[FAILED] || (flags[BUSY] && flags[LATE]))
            stop(s, flags[LATE] != 0);
        else if (!flags[BUSY])
            return go_on_to_commit(s, end);
        break;
    case STOPPING:
        if (!flags[BUSY] || flags[OVERDUE])
            return end_stopped(s, end);
        break;
    case COMMITTING:
        if (!flags[BUSY] || flags[OVERDUE])
            return end_commit(s, end);
        break;
    case IDLE:
        break;
    }
    return LS_OK;
}

/* This rank's own job is waited for between looks, but never so long that others wait for it.
 */
static void wait_a_little(const ls_saver *s)
{
    int64_t until = ls_now_ns() + LOOK_NS;

    for (int64_t nap = 20000; !atomic_load(&s->done) && ls_now_ns() < until; nap += nap / 2)
        ls_sleep_ns(nap);
    if (s->opts.comm && atomic_load(&s->done))
        ls_sleep_ns(200000);
}

ls_status ls_saver_wait(ls_saver *s, ls_save_end *end)
{
    ls_status status = LS_OK;

    *end = (ls_save_end){0};
    while (!status && s->state != IDLE) {
        wait_a_little(s);
        status = ls_saver_poll(s, end);
    }
    return status;
}
