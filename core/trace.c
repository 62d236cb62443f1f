/*
 * trace.c - spans in memory, and the Chrome trace of them.
 *
 * The array form of the format: events may also be read when the closing bracket is missing,
 * because the process died.  Times are microseconds with three decimals, printed from integers:
 * no rounding, no locale.
 */
#include "core/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"

struct ls_trace {
    ls_span *spans;
    int64_t  n, lost, step;
    int64_t  alike; /* added, kept or lost, that other ranks have too */
};

static const struct {
    const char *name, *category;
} kinds[LS_SPAN_COUNT] = {[LS_SPAN_STEP]           = {"step", "compute"},
                          [LS_SPAN_FORWARD]        = {"forward", "compute"},
                          [LS_SPAN_BACKWARD]       = {"backward", "compute"},
                          [LS_SPAN_WAIT]           = {"wait", "wait"},
                          [LS_SPAN_AGREE]          = {"agree", "wait"},
                          [LS_SPAN_UPDATE]         = {"update", "compute"},
                          [LS_SPAN_EVALUATION]     = {"evaluation", "compute"},
                          [LS_SPAN_ALL_REDUCE]     = {"all_reduce", "comm"},
                          [LS_SPAN_ALL_GATHER]     = {"all_gather", "comm"},
                          [LS_SPAN_REDUCE_SCATTER] = {"reduce_scatter", "comm"}};

static bool is_operation(int kind)
{
    return kind >= LS_SPAN_ALL_REDUCE;
}

/* What travels in an operation. */
static const char *traveller(int kind)
{
    return kind == LS_SPAN_ALL_REDUCE ? "bucket" : "unit";
}

/* ---- spans ---- */

ls_trace *ls_trace_new(void)
{
    ls_trace *t = ls_calloc(1, sizeof *t);

    if (t)
        t->spans = ls_calloc(LS_TRACE_CAPACITY, sizeof *t->spans);
    if (t && t->spans)
        return t;
    free(t);
    return NULL;
}

void ls_trace_free(ls_trace *t)
{
    if (!t)
        return;
    free(t->spans);
    free(t);
}

void ls_trace_add(ls_trace *t, const ls_span *span)
{
    if (!t)
        return;
    t->alike += span->kind != LS_SPAN_WAIT;
    if (t->n == LS_TRACE_CAPACITY) {
        t->lost++;
        return;
    }
    t->spans[t->n]        = *span;
    t->spans[t->n++].step = t->step;
}

void ls_trace_until_now(ls_trace *t, ls_span_kind kind, int64_t start, int64_t index)
{
    if (t)
        ls_trace_add(
            t, &(ls_span){
                   .kind = kind, .start = start, .end = ls_now_ns(), .index = (int32_t)index});
}

void ls_trace_set_step(ls_trace *t, int64_t step)
{
    if (t)
        t->step = step;
}

ls_span *ls_trace_spans(ls_trace *t, int64_t *n)
{
    *n = t->n;
    return t->spans;
}

void ls_trace_clear(ls_trace *t)
{
    t->n = t->alike = 0;
}

int64_t ls_trace_lost(const ls_trace *t)
{
    return t->lost;
}

int64_t ls_trace_alike(const ls_trace *t)
{
    return t->alike;
}

/* ---- the file ---- */

struct ls_trace_file {
    FILE   *file;
    char   *path;
    int     ranks, error; /* errno of the first write that failed */
    int     named;        /* ranks whose third track has a name */
    bool    begun;
    int64_t origin;
};

enum { COMPUTE, COMM, REDUCE };

typedef struct {
    char text[32];
} number;

/* Microseconds since the origin, or of a duration with an origin of 0. */
static const char *micros(int64_t ns, int64_t origin, number *text)
{
    int64_t  x    = ns - origin;
    uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;

    snprintf(text->text, sizeof text->text, "%s%" PRIu64 ".%03u", x < 0 ? "-" : "", size / 1000,
             (unsigned)(size % 1000));
    return text->text;
}

static void begin_event(ls_trace_file *f)
{
    fputs(f->begun ? ",\n{" : "[\n{", f->file);
    f->begun = true;
}

/* `argument` is a member of args, as JSON. */
static void write_name(ls_trace_file *f, const char *what, int rank, int track,
                       const char *argument)
{
    begin_event(f);
    fprintf(f->file, "\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{%s}}", what,
            rank, track, argument);
}

static void write_names(ls_trace_file *f, int rank)
{
    char text[64];

    snprintf(text, sizeof text, "\"name\":\"rank %d\"", rank);
    write_name(f, "process_name", rank, COMPUTE, text);
    snprintf(text, sizeof text, "\"sort_index\":%d", rank);
    write_name(f, "process_sort_index", rank, COMPUTE, text);
    write_name(f, "thread_name", rank, COMPUTE, "\"name\":\"compute\"");
    write_name(f, "thread_name", rank, COMM, "\"name\":\"comm\"");
}

static void write_arguments(ls_trace_file *f, const ls_span *s)
{
    fprintf(f->file, "\"args\":{\"step\":%" PRId64, s->step);
    if (s->kind == LS_SPAN_FORWARD || s->kind == LS_SPAN_BACKWARD)
        fprintf(f->file, ",\"micro_batch\":%d", s->index);
    if (is_operation(s->kind))
        fprintf(f->file, ",\"%s\":%d,\"bytes\":%" PRId64 ",\"sequence\":%" PRIu64,
                traveller(s->kind), s->index, s->bytes, s->sequence);
    fputs("}", f->file);
}

/* reduce_scatters have a group of their own, so they may run beside all_gathers. */
static int track_of(int kind)
{
    if (!is_operation(kind))
        return COMPUTE;
    return kind == LS_SPAN_REDUCE_SCATTER ? REDUCE : COMM;
}

static void write_span(ls_trace_file *f, int rank, const ls_span *s)
{
    number start, length;

    begin_event(f);
    fprintf(f->file,
            "\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%s,"
            "\"dur\":%s,",
            kinds[s->kind].name, kinds[s->kind].category, rank, track_of(s->kind),
            micros(s->start, f->origin, &start), micros(s->end, s->start, &length));
    write_arguments(f, s);
    fputs("}", f->file);
}

/* Of an operation among all of a rank: groups count for themselves. */
static uint64_t number_of(const ls_span *s)
{
    return s->sequence * LS_SPAN_COUNT + (uint64_t)s->kind;
}

/* From launch to end, queue included: these may overlap each other. */
static void write_flight(ls_trace_file *f, int rank, const ls_span *s)
{
    for (int end = 0; end < 2; end++) {
        number at;
        begin_event(f);
        fprintf(f->file,
                "\"ph\":\"%s\",\"name\":\"%s %d\",\"cat\":\"%s\",\"id2\":{\"local\":"
                "\"%" PRIx64 "\"},\"pid\":%d,\"tid\":%d,\"ts\":%s,",
                end ? "e" : "b", traveller(s->kind), s->index, traveller(s->kind), number_of(s),
                rank, track_of(s->kind), micros(end ? s->end : s->launched, f->origin, &at));
        write_arguments(f, s);
        fputs("}", f->file);
    }
}

static void write_arrow_end(ls_trace_file *f, const char *ph, int rank, int to,
                            const ls_span *s, int64_t when)
{
    number at;

    begin_event(f);
    fprintf(f->file,
            "\"ph\":\"%s\",%s\"name\":\"last to come\",\"cat\":\"flow\",\"id\":\"%" PRIx64
            "\",\"pid\":%d,\"tid\":%d,\"ts\":%s}",
            ph, *ph == 'f' ? "\"bp\":\"e\"," : "", number_of(s) << 16 | (unsigned)to, rank,
            track_of(s->kind), micros(when, f->origin, &at));
}

/* The operation like `op` among the spans of a rank; those of a kind are in order. */
static const ls_span *find(const ls_span *s, int64_t n, const ls_span *op, int64_t *from)
{
    for (int64_t i = *from; i < n; i++) {
        if (s[i].kind != op->kind || s[i].sequence < op->sequence)
            continue;
        *from = i;
        return s[i].sequence == op->sequence ? &s[i] : NULL;
    }
    *from = n;
    return NULL;
}

/* Nobody is done before the last has come, so its arrival lies in the spans of all. */
static void write_arrows(ls_trace_file *f, const ls_span *const *ops)
{
    int last = 0;

    for (int r = 0; r < f->ranks; r++) {
        if (!ops[r])
            return;
        if (ops[r]->start > ops[last]->start)
            last = r;
    }
    for (int r = 0; r < f->ranks; r++) {
        int64_t come = ops[last]->start, end = ops[r]->end;
        if (r == last || end < come)
            continue;
        write_arrow_end(f, "s", last, r, ops[r], come);
        write_arrow_end(f, "f", r, r, ops[r], come + (end - come) / 2);
    }
}

/* From each operation of a kind of rank 0 to those of the others; `ops` and `from` are scratch.
 */
static void write_kind_arrows(ls_trace_file *f, int kind, const ls_span *spans,
                              const int64_t *n, const ls_span **ops, int64_t *from)
{
    memset(from, 0, (size_t)f->ranks * sizeof *from);
    for (int64_t k = 0; k < n[0]; k++) {
        const ls_span *own = spans;
        if (spans[k].kind != kind)
            continue;
        for (int r = 0; r < f->ranks; own += n[r++])
            ops[r] = find(own, n[r], &spans[k], &from[r]);
        write_arrows(f, ops);
    }
}

static void write_all_arrows(ls_trace_file *f, const ls_span *spans, const int64_t *n,
                             const ls_span **ops, int64_t *from)
{
    for (int kind = 0; kind < LS_SPAN_COUNT; kind++)
        if (is_operation(kind))
            write_kind_arrows(f, kind, spans, n, ops, from);
}

/* The third track exists where something is on it. */
static void name_track(ls_trace_file *f, int rank, int kind)
{
    if (track_of(kind) != REDUCE || f->named > rank)
        return;
    for (; f->named < f->ranks; f->named++)
        write_name(f, "thread_name", f->named, REDUCE, "\"name\":\"comm, reduce_scatter\"");
}

static void write_all_spans(ls_trace_file *f, const ls_span *spans, const int64_t *n)
{
    for (int r = 0; r < f->ranks; r++)
        for (int64_t i = 0; i < n[r]; i++, spans++) {
            name_track(f, r, spans->kind);
            write_span(f, r, spans);
            if (is_operation(spans->kind))
                write_flight(f, r, spans);
        }
}

/* What could not be written is given up: half an event is the end of what can be read. */
static void settle(ls_trace_file *f)
{
    if (!fflush(f->file) && !ferror(f->file))
        return;
    f->error = errno ? errno : EIO;
    fclose(f->file);
    f->file = NULL;
}

ls_status ls_trace_file_open(const char *path, int ranks, int64_t origin, ls_trace_file **file)
{
    ls_trace_file *f = ls_calloc(1, sizeof *f);

    *file = NULL;
    if (!f)
        return LS_ENOMEM;
    f->ranks  = ranks;
    f->origin = origin;
    f->path   = ls_strdup(path);
    f->file   = f->path ? fopen(path, "we") : NULL;
    if (!f->file) {
        ls_status status =
            f->path ? ls_fail(LS_EIO, "%s: %s", path, strerror(errno)) : LS_ENOMEM;
        ls_trace_file_close(f);
        return status;
    }
    for (int r = 0; r < ranks; r++)
        write_names(f, r);
    settle(f);
    *file = f;
    return LS_OK;
}

void ls_trace_file_add(ls_trace_file *f, const ls_span *spans, const int64_t *n)
{
    size_t          ranks = (size_t)f->ranks;
    const ls_span **ops   = ls_calloc(ranks, sizeof *ops);
    int64_t        *from  = ls_calloc(ranks, sizeof *from);

    if (f->file) {
        write_all_spans(f, spans, n);
        if (ops && from && f->ranks > 1)
            write_all_arrows(f, spans, n, ops, from);
        settle(f);
    }
    free(ops);
    free(from);
}

void ls_trace_file_end(ls_trace_file *f)
{
    if (!f->file)
        return;
    fputs("\n]\n", f->file);
    settle(f);
    if (f->file)
        fclose(f->file);
    f->file = NULL;
}

ls_status ls_trace_file_check(ls_trace_file *f)
{
    int error = f->error;

    f->error = 0;
    return error ? ls_fail(LS_EIO, "%s: %s; the trace ends here", f->path, strerror(error))
                 : LS_OK;
}

void ls_trace_file_close(ls_trace_file *f)
{
    if (!f)
        return;
    ls_trace_file_end(f);
    free(f->path);
    free(f);
}
