/*
 * nproc.c - the launcher behind --nproc.
 */
#include "cli/nproc.h"

#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/ranks.h"
#include "core/alloc.h"
#include "dist/comm/launch.h"
#include "dist/comm/rendezvous.h"

/* The arguments without --nproc, behind the name of this program; freed with free(). */
static char **rank_arguments(int argc, char **argv)
{
    char **args = ls_calloc((size_t)argc + 2, sizeof *args);
    int    n    = 0;

    if (!args)
        return NULL;
    args[n++] = (char *)(uintptr_t) "/proc/self/exe";
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "--nproc"))
            i++;
        else if (strncmp(argv[i], "--nproc=", 8))
            args[n++] = argv[i];
    return args;
}

static ls_status read_nproc(const char *text, int *n)
{
    char *end;
    long  value = strtol(text, &end, 10);

    if (end == text || *end || value < 1 || value > LS_LAUNCH_MOST)
        return ls_fail(LS_ECONFIG, "--nproc %s, want 1 to %d", text, LS_LAUNCH_MOST);
    *n = (int)value;
    return LS_OK;
}

static ls_status check_nproc(const ls_config *cfg, const char *text, const char *command,
                             int *n)
{
    ls_launch_env env;
    ls_status     status = read_nproc(text, n);

    if (!status)
        status = ls_launch_env_read(&env);
    if (!status && env.world > 1)
        status = ls_fail(LS_ECONFIG, "--nproc %s inside a job of %d ranks, which %s started",
                         text, env.world, env.launcher);
    if (!status && cfg->parallel.backend == LS_CFG_BACKEND_MPI)
        status =
            ls_fail(LS_ECONFIG,
                    "parallel.backend \"mpi\" with --nproc: start the ranks with mpirun -n %d "
                    "lockstep %s ... instead",
                    *n, command);
    return status ? status : ls_ranks_check(cfg, *n);
}

ls_status ls_nproc_check(const ls_config *cfg, const char *nproc, const char *command)
{
    int n = 0;

    return check_nproc(cfg, nproc, command, &n);
}

int ls_nproc_launch(const ls_config *cfg, const char *nproc, int argc, char **argv)
{
    int       n = 0, code = 0;
    ls_status status = check_nproc(cfg, nproc, argv[0], &n);
    char    **args   = status ? NULL : rank_arguments(argc, argv);

    if (!status)
        status = args ? ls_launch(&(ls_launch_opts){.n = n, .argv = args, .plain = true}, &code)
                      : LS_ENOMEM;
    free(args);
    return status ? ls_report(status) : code;
}
