/*
 * rendezvous_rank.c - one rank of a job, for test_rendezvous.py and test_namespaces.py.
 *
 *     rendezvous_rank [interface=X] [ports=A-B] [timeout=S] [cycles=N] [hold=S] [backend=X]
 *
 * Joins by the environment, adds up the ranks, stays for a while, leaves; N times.  Prints a
 * line a join:
 *
 *     joined RANK of WORLD over TRANSPORT in SECONDS s, FDS fds
 *     failed STATUS: MESSAGE                                     and ends with status 1
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "dist/comm/rendezvous.h"

typedef struct {
    ls_join_opts       join;
    ls_rendezvous_opts meet;
    int                cycles;
    double             hold_s;
} options;

static int count_fds(void)
{
    int  n      = 0;
    DIR *folder = opendir("/proc/self/fd");

    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n - 3; /* ".", "..", its own */
}

/* "name=value" or NULL */
static const char *value_of(const char *argument, const char *name)
{
    size_t n = strlen(name);

    return !strncmp(argument, name, n) && argument[n] == '=' ? argument + n + 1 : NULL;
}

static bool parse(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *v;
        if ((v = value_of(argv[i], "interface")))
            o->meet.interface = v;
        else if ((v = value_of(argv[i], "ports")))
            sscanf(v, "%d-%d", &o->meet.ports[0], &o->meet.ports[1]);
        else if ((v = value_of(argv[i], "timeout")))
            o->meet.timeout_s = strtod(v, NULL);
        else if ((v = value_of(argv[i], "cycles")))
            o->cycles = (int)strtol(v, NULL, 10);
        else if ((v = value_of(argv[i], "hold")))
            o->hold_s = strtod(v, NULL);
        else if ((v = value_of(argv[i], "backend")))
            o->join.backend = v;
        else
            return false;
    }
    return true;
}

static ls_status once(const options *o)
{
    ls_comm  *world;
    int64_t   start  = ls_now_ns();
    ls_status status = ls_world_join(&o->join, &o->meet, &world);
    int64_t   took   = ls_now_ns() - start;
    int32_t   sum    = 0;

    if (status)
        return status;
    int rank = ls_comm_rank(world), size = ls_comm_size(world);
    status = ls_comm_all_reduce(world, &sum, &rank, 1, LS_I32, LS_SUM);
    if (!status && sum != size * (size - 1) / 2)
        status = ls_fail(LS_EMISMATCH, "the sum of the ranks is %d", sum);
    if (!status)
        printf("joined %d of %d over %s in %.3f s, %d fds\n", rank, size,
               ls_comm_transport(world), (double)took * 1e-9, count_fds());
    fflush(stdout);
    ls_sleep_ns((int64_t)(o->hold_s * 1e9));
    if (!status)
        status = ls_comm_barrier(world);
    ls_comm_free(world);
    return status;
}

int main(int argc, char **argv)
{
    options   o      = {.cycles = 1, .join.timeout_s = 20};
    ls_status status = LS_OK;

    if (!parse(&o, argc, argv)) {
        fprintf(stderr, "rendezvous_rank: see its source for what it takes\n");
        return 2;
    }
    for (int i = 0; i < o.cycles && !status; i++)
        status = once(&o);
    if (status)
        printf("failed %s: %s\n", ls_status_text(status), ls_error_message());
    return status != LS_OK;
}
