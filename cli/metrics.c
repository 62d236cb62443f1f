/*
 * metrics.c - a line and an event a logged step, and an evaluation; one object at the end.
 */
#include "cli/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run_dir.h"
#include "core/json.h"
#include "core/tfevents.h"

struct ls_metrics {
    char *path;
    FILE *file;
    off_t whole; /* bytes of whole lines */
    int   error; /* errno of the first write that failed */
    bool  told;

    ls_tfevents *events; /* NULL without */
};

typedef struct {
    char text[LS_JSON_DOUBLE_BYTES];
} number;

static const char *print(double x, number *n)
{
    ls_json_print_double(n->text, sizeof n->text, x);
    return n->text;
}

static ls_status open_lines(ls_metrics *m, const char *dir)
{
    m->path = ls_run_dir_path(dir, "metrics.jsonl");
    m->file = m->path ? fopen(m->path, "ae") : NULL;
    if (!m->file)
        return m->path ? ls_fail(LS_EIO, "%s: %s", m->path, strerror(errno)) : LS_ENOMEM;
    if (!fseeko(m->file, 0, SEEK_END))
        m->whole = ftello(m->file);
    return LS_OK;
}

ls_status ls_metrics_open(const char *dir, const ls_metrics_opts *opts, ls_metrics **metrics)
{
    ls_metrics *m      = ls_calloc(1, sizeof *m);
    ls_status   status = m ? LS_OK : LS_ENOMEM;

    *metrics = NULL;
    if (!status && opts->jsonl)
        status = open_lines(m, dir);
    if (!status && opts->tensorboard)
        status = ls_tfevents_open(dir, opts->from, &m->events);
    if (status) {
        ls_metrics_close(m);
        return status;
    }
    *metrics = m;
    return LS_OK;
}

/* Of a line, with its newline. */
static bool is_kept(const char *line, ssize_t n, int64_t step)
{
    long long of;

    return n && line[n - 1] == '\n' && sscanf(line, "{\"step\":%lld", &of) == 1 && of <= step;
}

/* Bytes of the lines to keep. */
static off_t kept_bytes(FILE *f, int64_t step)
{
    char   *line = NULL;
    size_t  room = 0;
    ssize_t n;
    off_t   kept = 0;

    while ((n = getline(&line, &room, f)) > 0 && is_kept(line, n, step))
        kept += n;
    free(line);
    return kept;
}

ls_status ls_metrics_cut(const char *dir, int64_t step)
{
    char     *path   = ls_run_dir_path(dir, "metrics.jsonl");
    FILE     *f      = path ? fopen(path, "r+e") : NULL;
    ls_status status = path ? LS_OK : LS_ENOMEM;

    if (path && !f && errno != ENOENT)
        status = ls_fail(LS_EIO, "%s: %s", path, strerror(errno));
    if (f) {
        off_t kept = kept_bytes(f, step);
        if (ferror(f) || ftruncate(fileno(f), kept))
            status = ls_fail(LS_EIO, "%s: cutting it to step %lld: %s", path, (long long)step,
                             strerror(errno));
        fclose(f);
    }
    free(path);
    return status;
}

void ls_metrics_close(ls_metrics *m)
{
    if (!m)
        return;
    if (m->file)
        fclose(m->file);
    ls_tfevents_close(m->events);
    free(m->path);
    free(m);
}

/* A line of which only a part could be written is taken away again. */
static void end_line(ls_metrics *m)
{
    if (!fflush(m->file) && !ferror(m->file)) {
        m->whole = ftello(m->file);
        return;
    }
    m->error = errno ? errno : EIO;
    if (ftruncate(fileno(m->file), m->whole))
        m->error = errno;
    fclose(m->file);
    m->file = NULL;
}

/* The fields of a line under TensorBoard's tags; a slash makes a group of charts. */
static void add_step_event(ls_tfevents *events, const ls_metrics_line *l)
{
    const ls_tfscalar scalars[] = {
        {"loss/train", l->step.loss},
        {"optim/lr", l->step.lr},
        {"optim/grad_norm", l->step.grad_norm},
        {"speed/tokens_per_s", l->tokens_per_s},
        {"speed/step_ms", l->step_ms},
        {"speed/comm_ms", (double)l->step.comm_ns / 1e6},
        {"speed/comm_exposed_ms", (double)l->step.exposed_ns / 1e6},
        {"memory/params", (double)l->mem.peak[LS_MEM_PARAMS]},
        {"memory/grads", (double)l->mem.peak[LS_MEM_GRADS]},
        {"memory/optim", (double)l->mem.peak[LS_MEM_OPTIM]},
        {"memory/activations", (double)l->mem.peak[LS_MEM_ACTIVATIONS]},
        {"memory/comm", (double)l->mem.peak[LS_MEM_COMM]},
        {"memory/peak", (double)l->mem.total_peak},
        {"memory/rss", (double)l->rss},
    };

    ls_tfevents_add(events, l->step.step, scalars, (int)(sizeof scalars / sizeof *scalars));
}

static void write_step_line(ls_metrics *m, const ls_metrics_line *l)
{
    number loss, lr, norm, speed, ms, comm, exposed;

    fprintf(m->file, "{\"step\":%lld,\"loss\":%s,\"lr\":%s,\"grad_norm\":%s,\"tokens\":%lld,",
            (long long)l->step.step, print(l->step.loss, &loss), print(l->step.lr, &lr),
            print(l->step.grad_norm, &norm), (long long)l->tokens);
    fprintf(m->file,
            "\"tokens_per_s\":%s,\"step_ms\":%s,\"comm_ms\":%s,\"comm_exposed_ms\":%s,",
            print(l->tokens_per_s, &speed), print(l->step_ms, &ms),
            print((double)l->step.comm_ns / 1e6, &comm),
            print((double)l->step.exposed_ns / 1e6, &exposed));
    fprintf(m->file,
            "\"mem\":{\"params\":%lld,\"grads\":%lld,\"optim\":%lld,\"activations\":%lld,"
            "\"comm\":%lld,\"peak\":%lld,\"rss\":%lld}}\n",
            (long long)l->mem.peak[LS_MEM_PARAMS], (long long)l->mem.peak[LS_MEM_GRADS],
            (long long)l->mem.peak[LS_MEM_OPTIM], (long long)l->mem.peak[LS_MEM_ACTIVATIONS],
            (long long)l->mem.peak[LS_MEM_COMM], (long long)l->mem.total_peak,
            (long long)l->rss);
    end_line(m);
}

void ls_metrics_step(ls_metrics *m, const ls_metrics_line *l)
{
    if (!m)
        return;
    if (m->file)
        write_step_line(m, l);
    add_step_event(m->events, l);
}

void ls_metrics_validation(ls_metrics *m, int64_t step, double loss, double accuracy)
{
    number n, a;

    if (!m)
        return;
    if (m->file) {
        fprintf(m->file, "{\"step\":%lld,\"val_loss\":%s", (long long)step, print(loss, &n));
        if (!isnan(accuracy))
            fprintf(m->file, ",\"val_accuracy\":%s", print(accuracy, &a));
        fputs("}\n", m->file);
        end_line(m);
    }
    ls_tfevents_add(m->events, step, &(ls_tfscalar){"loss/validation", loss}, 1);
    if (!isnan(accuracy))
        ls_tfevents_add(m->events, step, &(ls_tfscalar){"accuracy/validation", accuracy}, 1);
}

ls_status ls_metrics_check(ls_metrics *m)
{
    if (!m)
        return LS_OK;
    if (!m->error || m->told)
        return ls_tfevents_check(m->events);
    m->told = true;
    return ls_fail(LS_EIO, "%s: %s; no more metrics are written", m->path, strerror(m->error));
}

ls_status ls_summary_write(const char *dir, const ls_summary *s)
{
    bool   rows = s->has_validation && !isnan(s->val_accuracy);
    number loss, val, accuracy, seconds;
    char  *text = ls_sprintf(
         "{\"steps\":%lld,\"final_loss\":%s,\"val_loss\":%s%s%s,\"world_size\":%lld,"
          "\"strategy\":\"%s\",\"state_sha256\":\"%s\",\"params_sha256\":\"%s\","
          "\"seconds\":%s,\"tokens\":%lld}\n",
         (long long)s->steps, s->steps ? print(s->final_loss, &loss) : "null",
        s->has_validation ? print(s->val_loss, &val) : "null", rows ? ",\"val_accuracy\":" : "",
        rows ? print(s->val_accuracy, &accuracy) : "", (long long)s->world_size, s->strategy,
         s->state_sha256, s->params_sha256, print(s->seconds, &seconds), (long long)s->tokens);
    ls_status status = text ? ls_run_dir_write(dir, "summary.json", text) : LS_ENOMEM;

    free(text);
    return status;
}

int64_t ls_resident_bytes(void)
{
    long long size, resident = 0;
    FILE     *f = fopen("/proc/self/statm", "re");

    if (!f)
        return 0;
    if (fscanf(f, "%lld %lld", &size, &resident) != 2)
        resident = 0;
    fclose(f);
    return resident * sysconf(_SC_PAGESIZE);
}
