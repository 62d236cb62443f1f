/*
 * comm_counters.c - what a group has done: counters, a log on request, predictions.
 *
 * LOCKSTEP_COMM_LOG=FILE adds a line of JSON for every operation of every rank to FILE; each
 * line is one write, so ranks may share the file.
 */
#include <inttypes.h>
#include <stdio.h>

#include "core/clock.h"
#include "dist/comm/collective_impl.h"
#include "dist/comm/comm_impl.h"
#include "dist/comm/tuner.h"

static void add(ls_comm_counters *to, const ls_comm_counters *from)
{
    to->calls += from->calls;
    to->payload += from->payload;
    to->sent += from->sent;
    to->wait_ns += from->wait_ns;
    to->copy_ns += from->copy_ns;
    to->reduce_ns += from->reduce_ns;
    to->total_ns += from->total_ns;
    to->algorithm = from->algorithm;
}

static void write_line(ls_comm *comm, const ls_operation *op, const ls_comm_counters *did,
                       ls_status status)
{
    const ls_descriptor *d = &op->running.what;

    fprintf(comm->home->log,
            "{\"time_ns\": %" PRId64 ", \"rank\": %d, \"group\": \"%016" PRIx64
            "\", \"size\": %d, \"seq\": %" PRIu64
            ", \"op\": \"%s\", \"dtype\": \"%s\", \"count\": %" PRIu64 ", \"bytes\": %" PRId64
            ", \"transport\": \"%s\", \"algorithm\": \"%s\", "
            "\"sent\": %" PRId64
            ", \"us\": %.3f, \"wait_us\": %.3f, \"copy_us\": %.3f, \"reduce_us\": %.3f, "
            "\"status\": \"%s\"}\n",
            ls_now_ns(), comm->home->rank, comm->id, comm->size, d->sequence,
            ls_collective_name((ls_collective)d->kind), ls_dtype_name((ls_dtype)d->dtype),
            d->count, did->payload, ls_comm_transport(comm), ls_algorithm_name(op->algorithm),
            did->sent, (double)did->total_ns / 1e3, (double)did->wait_ns / 1e3,
            (double)did->copy_ns / 1e3, (double)did->reduce_ns / 1e3, ls_status_text(status));
    fflush(comm->home->log);
}

void ls__comm_count(ls_comm *comm, const ls_operation *op, ls_comm_counters did,
                    ls_status status)
{
    const ls_descriptor *d = &op->running.what;

    did.calls     = 1;
    did.payload   = (int64_t)(d->count * ls_dtype_bytes((ls_dtype)d->dtype));
    did.wait_ns   = op->running.wait_ns;
    did.algorithm = op->algorithm;
    pthread_mutex_lock(&comm->lock);
    add(&comm->counted[d->kind], &did);
    pthread_mutex_unlock(&comm->lock);
    if (comm->home->log)
        write_line(comm, op, &did, status);
}

ls_comm_counters ls_comm_counted(ls_comm *comm, ls_collective kind)
{
    if (ls__comm_is_child(comm)) /* the lock may be held by a thread that it does not have */
        return comm->counted[kind];
    pthread_mutex_lock(&comm->lock);
    ls_comm_counters counted = comm->counted[kind];
    pthread_mutex_unlock(&comm->lock);
    return counted;
}

/* ---- predictions ---- */

typedef struct {
    char  *text;
    size_t size;
    int    used;
} page;

static void add_line(page *p, const ls_comm *comm, const ls_call *call, ls_algorithm a,
                     const char *mark)
{
    int    n    = comm->size;
    double us   = 1e6 * ls_tuner_predict(comm->state.tuner, call, a, n);
    size_t room = (size_t)p->used < p->size ? p->size - (size_t)p->used : 0;
    char  *text = p->text + (room ? p->used : 0);

    if (us < 0)
        p->used += snprintf(text, room, "  %-8s needs a power of two, not %d ranks\n",
                            ls_algorithm_name(a), n);
    else
        p->used += snprintf(
            text, room, "  %-8s %12.1f us%s%s\n", ls_algorithm_name(a), us,
            a == LS_RING ? "  (another order of sums: only made for speed)" : "", mark);
}

/* The group's constants are measured by a barrier that all members enter. */
static ls_status measure(ls_operation *op, const ls_call *call)
{
    ls_status status = ls__tune(op);

    op->call = call;
    return status || op->algorithm != LS_AUTO ? status : ls__choose(op);
}

ls_status ls__comm_explain(ls_comm *comm, ls_operation *op, const ls_call *call, char *text,
                           size_t size)
{
    const char *mark   = op->algorithm == LS_AUTO ? "  <- chosen" : "  <- forced";
    ls_status   status = measure(op, call);

    if (status)
        return status;
    const ls_tuner *t    = comm->state.tuner;
    int             used = snprintf(
                    text, size,
                    "%s of %lld %s on %d ranks over %s: an exchange takes %.2f us + %.3f us/MB, "
                                "joining %.3f us/MB\n",
                    ls_collective_name(call->kind), (long long)call->count, ls_dtype_name(call->dtype),
                    comm->size, ls_comm_transport(comm), 1e6 * t->alpha, 1e12 * t->beta, 1e12 * t->gamma);
    page p = {text, size, used};
    for (int a = LS_DIRECT; a < LS_ALGORITHM_COUNT; a++)
        add_line(&p, comm, call, (ls_algorithm)a, (ls_algorithm)a == op->algorithm ? mark : "");
    if (comm->transport->meet && (size_t)p.used < size)
        snprintf(text + p.used, size - (size_t)p.used,
                 "  buffers in the symmetric heap, and small ones, go direct in place: no "
                 "messages\n");
    return LS_OK;
}
