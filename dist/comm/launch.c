#define _GNU_SOURCE /* getrandom */
/*
 * launch.c - the job: its options, what all attempts share, and when there is another one.
 */
#include "dist/comm/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/sha256.h"
#include "dist/comm/launch_impl.h"

enum { SECRET_BYTES = 32, RUN_ID_BYTES = 8, OTHER_FILES = 64, WRONG_WORLD = 3 };

typedef struct {
    const ls_launch_opts *opts;
    ls__place             place;
    ls__outputs           outputs;
    ls__signals           signals;
    int                   restarts;
    char                  secret[2 * SECRET_BYTES + 1];
} launch;

/* ---- options ---- */

static int n_nodes(const ls_launch_opts *o)
{
    return o->nodes > 0 ? o->nodes : 1;
}

static int least(const ls_launch_opts *o)
{
    return o->min_n > 0 ? o->min_n : o->n;
}

static ls_status check_nodes(const ls_launch_opts *o)
{
    if (o->node < 0 || o->node >= n_nodes(o))
        return ls_fail(LS_ECONFIG, "run: node rank %d, want 0 to %d", o->node, n_nodes(o) - 1);
    if (n_nodes(o) == 1)
        return LS_OK;
    if (n_nodes(o) > LS_LAUNCH_MOST)
        return ls_fail(LS_ECONFIG, "run: %d nodes, want 1 to %d", o->nodes, LS_LAUNCH_MOST);
    if (!o->rendezvous)
        return ls_fail(LS_ECONFIG, "run: %d nodes need --rdzv HOST:PORT, an address of node 0",
                       o->nodes);
    if (o->min_n > 0)
        return ls_fail(LS_ECONFIG, "run: --min-nproc %d is for one node, not for %d", o->min_n,
                       o->nodes);
    return LS_OK;
}

static ls_status check(const ls_launch_opts *o)
{
    if (o->n < 1 || o->n > LS_LAUNCH_MOST)
        return ls_fail(LS_ECONFIG, "run: %d ranks, want 1 to %d", o->n, LS_LAUNCH_MOST);
    if (!o->argv || !o->argv[0] || !o->argv[0][0])
        return ls_fail(LS_ECONFIG, "run: no program");
    if (o->min_n < 0 || o->min_n > o->n)
        return ls_fail(LS_ECONFIG, "run: --min-nproc %d, want 1 to %d", o->min_n, o->n);
    if (o->max_restarts < 0)
        return ls_fail(LS_ECONFIG, "run: %d restarts, want 0 or more", o->max_restarts);
    return check_nodes(o);
}

/* ---- what all attempts share ---- */

static ls_status random_hex(char *hex, size_t bytes)
{
    unsigned char raw[SECRET_BYTES];

    if (getrandom(raw, bytes, 0) != (ssize_t)bytes)
        return ls_fail(LS_EIO, "run: no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", raw[i]);
    return LS_OK;
}

static ls_status find_secret(launch *l)
{
    const char *exported = getenv("LOCKSTEP_SECRET");

    l->place.secret = l->secret;
    if (exported && *exported)
        l->place.secret = exported;
    else if (n_nodes(l->opts) > 1)
        return ls_fail(LS_ECONFIG,
                       "run: ranks on several nodes need the same LOCKSTEP_SECRET: make one "
                       "with `openssl rand -hex 32` and export it on every node");
    else
        return random_hex(l->secret, SECRET_BYTES);
    return LS_OK;
}

/* The launchers of several nodes come to the same name, each by itself. */
static ls_status shared_run_id(launch *l)
{
    const char *exported = getenv("LOCKSTEP_RUN_ID");
    char        address[sizeof l->place.master.host + 16];
    const char *parts[] = {"run id", l->place.secret, address};
    char        hex[LS_SHA256_HEX];
    ls_sha256   sha;
    ls_status   status;

    if (exported && *exported) {
        snprintf(l->place.run_id, sizeof l->place.run_id, "%s", exported);
        return LS_OK;
    }
    snprintf(address, sizeof address, "%s:%d", l->place.master.host, l->place.master.port);
    status = ls_sha256_init(&sha);
    for (int i = 0; i < 3 && !status; i++)
        status = ls_sha256_update(&sha, parts[i], strlen(parts[i]) + 1);
    if (!status)
        status = ls_sha256_final(&sha, hex);
    ls_sha256_close(&sha);
    if (!status)
        snprintf(l->place.run_id, sizeof l->place.run_id, "%.*s", 2 * RUN_ID_BYTES, hex);
    return status;
}

static ls_status name_run(launch *l)
{
    return n_nodes(l->opts) > 1 ? shared_run_id(l) : random_hex(l->place.run_id, RUN_ID_BYTES);
}

/* Two descriptors a rank; the ranks themselves keep the limit that the launcher was given. */
static ls_status allow_files(launch *l)
{
    struct rlimit limit;
    rlim_t        wanted = (rlim_t)(2 * l->opts->n + OTHER_FILES);

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return ls_fail(LS_EIO, "run: no limit of files: %s", strerror(errno));
    l->place.files = limit;
    if (limit.rlim_cur >= wanted)
        return LS_OK;
    if (limit.rlim_max < wanted)
        return ls_fail(LS_EIO, "run: %d ranks need %llu open files, the limit is %llu",
                       l->opts->n, (unsigned long long)wanted,
                       (unsigned long long)limit.rlim_max);
    limit.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        return ls_fail(LS_EIO, "run: no more open files: %s", strerror(errno));
    return LS_OK;
}

static bool same_file(int a, int b)
{
    struct stat x, y;

    return !fstat(a, &x) && !fstat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Lines of stdout and stderr that go to one place must not cut each other: one queue then. */
static ls_status open_outputs(ls__outputs *o, FILE *out, FILE *err)
{
    o->sinks[0] = (ls__sink){.fd = fileno(out ? out : stdout)};
    o->sinks[1] = (ls__sink){.fd = fileno(err ? err : stderr)};
    if (o->sinks[0].fd < 0 || o->sinks[1].fd < 0)
        return ls_fail(LS_EINVAL, "run: the output is no file");
    fflush(out ? out : stdout);
    fflush(err ? err : stderr);
    o->out = &o->sinks[0];
    o->err = same_file(o->sinks[0].fd, o->sinks[1].fd) ? &o->sinks[0] : &o->sinks[1];
    return LS_OK;
}

static ls_status find_master(launch *l)
{
    l->place.master = (ls__address){.host = "127.0.0.1"};
    return l->opts->rendezvous ? ls__address_parse(l->opts->rendezvous, &l->place.master)
                               : LS_OK;
}

/* ---- attempts ---- */

/* Whether there is another attempt, and with how many ranks; says so. */
static bool goes_on(launch *l, const ls__outcome *o)
{
    const ls_launch_opts *opts = l->opts;
    int                  *n    = &l->place.n;
    char                  text[256];

    if (!o->status || o->stopped)
        return false;
    ls__outcome_text(o, text, sizeof text);
    if (o->status == WRONG_WORLD && *n > least(opts)) {
        --*n;
        ls__say(l->outputs.err, "lockstep: warning: %s: %d ranks do not fit; trying %d", text,
                *n + 1, *n);
    } else if (o->status != WRONG_WORLD && l->restarts < opts->max_restarts) {
        l->restarts++;
        if (o->status > 128 && *n > least(opts))
            --*n;
        ls__say(l->outputs.err, "lockstep: warning: %s; restart %d of %d with %d rank%s", text,
                l->restarts, opts->max_restarts, *n, *n == 1 ? "" : "s");
    } else {
        return false;
    }
    l->place.restart++;
    return true;
}

static ls_status run_attempts(launch *l, ls__outcome *outcome)
{
    ls_status status;

    do {
        status = find_master(l);
        if (!status)
            status = ls__attempt(&l->place, &l->outputs, outcome);
    } while (!status && goes_on(l, outcome));
    return status;
}

/* The error line, the last of all. */
static void say_failure(launch *l, const ls__outcome *o)
{
    char text[256], sizes[64] = "";

    if (o->rank < 0 || (l->opts->plain && WIFEXITED(o->how)))
        return;
    ls__outcome_text(o, text, sizeof text);
    if (o->status == WRONG_WORLD && least(l->opts) < l->opts->n)
        snprintf(sizes, sizeof sizes, "; no number of ranks from %d down to %d fits",
                 l->opts->n, least(l->opts));
    ls__say(l->outputs.err, "lockstep: error: %s%s", text, sizes);
}

/* Gets everything out; the exit status. */
static int finish(launch *l, const ls__outcome *o)
{
    int stopped = ls__outputs_finish(&l->outputs, &l->signals);
    int lost    = l->outputs.sinks[0].error;

    if (lost && !o->status) {
        ls__say(l->outputs.err, "lockstep: error: writing to stdout: %s", strerror(lost));
        stopped = ls__outputs_finish(&l->outputs, &l->signals);
    }
    if (o->status)
        return o->status;
    return stopped ? 128 + stopped : lost ? 1 : 0;
}

static ls_status run_job(launch *l, int *exit_status)
{
    ls__outcome outcome = {.rank = -1};
    ls_status   status  = ls__guard_begin(&l->place.guard);

    if (!status) {
        status = run_attempts(l, &outcome);
        close(l->place.guard);
    }
    if (!status)
        say_failure(l, &outcome);
    *exit_status = finish(l, &outcome);
    return status;
}

ls_status ls_launch(const ls_launch_opts *opts, int *exit_status)
{
    launch    l    = {.opts = opts};
    char     *path = NULL;
    ls_status status;

    *exit_status = 1;
    l.place      = (ls__place){.opts = opts, .n = opts->n, .signals = &l.signals};
    status       = check(opts);
    if (!status)
        status = find_master(&l);
    if (!status)
        status = ls__find_program(opts->argv[0], &path);
    if (!status)
        status = find_secret(&l);
    if (!status)
        status = name_run(&l);
    if (!status)
        status = open_outputs(&l.outputs, opts->out, opts->err);
    if (!status)
        status = allow_files(&l);
    if (!status)
        status = ls__signals_begin(&l.signals);
    if (!status) {
        l.place.path = path;
        status       = run_job(&l, exit_status);
        ls__signals_end(&l.signals);
        setrlimit(RLIMIT_NOFILE, &l.place.files);
    }
    ls__sink_free(&l.outputs.sinks[0]);
    ls__sink_free(&l.outputs.sinks[1]);
    free(path);
    return status;
}
