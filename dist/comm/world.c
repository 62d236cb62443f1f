/*
 * world.c - from a launcher's environment to the world's communicator.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "dist/comm/backend_impl.h"
#include "dist/comm/board.h"
#include "dist/comm/rendezvous.h"
#include "dist/comm/transport_mpi.h"

/*
 * The board of LOCKSTEP_BOARD_FD; NULL where there is none, also where the variable is an
 * ancestor's and its descriptor was not handed down.
 */
static ls_status open_board(const ls_launch_env *env, ls_board **board)
{
    const char *text = getenv("LOCKSTEP_BOARD_FD");
    char       *end  = NULL;

    *board = NULL;
    if (!text || !text[0])
        return LS_OK;
    long fd = strtol(text, &end, 10);
    if (*end || end == text || fd < 0 || fd > 1 << 20)
        return ls_fail(LS_ECONFIG, "LOCKSTEP_BOARD_FD=\"%.40s\" is not a file descriptor",
                       text);
    if (fcntl((int)fd, F_SETFD, FD_CLOEXEC) && errno == EBADF)
        return LS_OK;
    ls_status status = ls_board_open((int)fd, board);
    if (status)
        return ls_fail_in(status, "LOCKSTEP_BOARD_FD=%ld", fd);
    if (ls_board_world(*board) >= env->world)
        return LS_OK;
    status = ls_fail(LS_ECONFIG,
                     "LOCKSTEP_BOARD_FD=%ld is the board of %d ranks, of a world of "
                     "%d",
                     fd, ls_board_world(*board), env->world);
    ls_board_free(*board);
    *board = NULL;
    return status;
}

/* Several hosts under mpirun: MPI knows the way, also over what is no TCP. */
static bool prefers_mpi(const ls_join_opts *o, const ls_launch_env *env)
{
    bool mpirun = !strcmp(env->launcher, "Open MPI") || !strcmp(env->launcher, "MPICH");

    return ls__backend_find(o->backend) == &ls__backend_auto && mpirun &&
           env->local_world > 0 && env->local_world < env->world;
}

static ls_status join_mpi(const ls_join_opts *opts, ls_comm **world)
{
    ls_join_opts o = *opts;

    o.backend = "mpi";
    return ls_join(&o, world);
}

/* Takes the board. */
static ls_status meet_and_join(const ls_launch_env *env, const ls_rendezvous_opts *meet,
                               ls_join_opts *o, ls_comm **world)
{
    char      address[64];
    int      *sockets = ls_calloc((size_t)env->world, sizeof *sockets);
    ls_status status  = sockets ? ls_rendezvous(env, meet, sockets, address) : LS_ENOMEM;

    if (status) {
        ls_board_free(o->board);
        free(sockets);
        return status;
    }
    o->control = sockets;
    if (!o->address && address[0])
        o->address = address;
    status = ls_join(o, world);
    free(sockets);
    return status;
}

ls_status ls_world_join(const ls_join_opts *opts, const ls_rendezvous_opts *meet,
                        ls_comm **world)
{
    ls_rendezvous_opts m = meet ? *meet : (ls_rendezvous_opts){0};
    ls_join_opts       o = *opts;
    ls_launch_env      env;
    int                rank, size;
    const ls_backend  *backend = ls__backend_find(opts->backend);

    *world = NULL;
    if (backend && backend->in_process)
        return ls_fail(LS_ECONFIG, "backend %s: a launcher starts processes", opts->backend);
    if (backend && backend->start)
        return ls_join(opts, world);
    ls_status status = ls_launch_env_read(&env);
    if (status)
        return status;
    if (prefers_mpi(opts, &env) && ls_mpi_start(&rank, &size) != LS_EUNSUPPORTED)
        return join_mpi(opts, world);
    m.timeout_s = m.timeout_s > 0 ? m.timeout_s : opts->timeout_s;
    o.rank      = env.rank;
    o.world     = env.world;
    if (!o.ports[0] && !o.ports[1])
        memcpy(o.ports, m.ports, sizeof o.ports);
    if ((status = open_board(&env, &o.board)))
        return status;
    o.board_taken = o.board != NULL;
    return meet_and_join(&env, &m, &o, world);
}
