/*
 * transport_mpi_process.c - MPI itself, and what it holds on to.
 *
 * A request that is under way when its transport is closed cannot always be taken back (a send
 * whose receiver refused).  Its half is then kept until MPI has let go of it, or ends.
 */
#include <stdlib.h>

#include "core/clock.h"
#include "dist/comm/transport_mpi_impl.h"

enum { LOOK_NS = 200000 }; /* between looks at a request that is to end */

ls__mpi_state ls__mpi = {.lock = PTHREAD_MUTEX_INITIALIZER, .calls = PTHREAD_MUTEX_INITIALIZER};

void ls__mpi_enter(void)
{
    if (ls__mpi.serial)
        pthread_mutex_lock(&ls__mpi.calls);
}

void ls__mpi_leave(void)
{
    if (ls__mpi.serial)
        pthread_mutex_unlock(&ls__mpi.calls);
}

/* ---- giving up ---- */

/* Has MPI let go of all its requests? */
static bool is_free(ls__mpi_half *h)
{
    bool all = true;

    for (int i = 0; i < LS__MPI_UNDER_WAY; i++) {
        int flag = 1;

        ls__mpi_enter();
        if (h->requests[i] != MPI_REQUEST_NULL)
            MPI_Test(&h->requests[i], &flag, MPI_STATUS_IGNORE);
        ls__mpi_leave();
        all = all && flag;
    }
    return all;
}

static void cancel(ls__mpi_half *h)
{
    for (int i = 0; i < LS__MPI_UNDER_WAY; i++) {
        ls__mpi_enter();
        if (h->requests[i] != MPI_REQUEST_NULL)
            MPI_Cancel(&h->requests[i]);
        ls__mpi_leave();
    }
}

/* Frees those abandoned halves that MPI has let go of; with the lock. */
static void sweep(void)
{
    ls__mpi_half **at = &ls__mpi.abandoned;

    while (*at) {
        ls__mpi_half *h = *at;

        if (is_free(h)) {
            *at = h->next;
            free(h);
        } else {
            at = &h->next;
        }
    }
}

static void abandon(ls__mpi_half *h)
{
    pthread_mutex_lock(&ls__mpi.lock);
    sweep();
    h->next           = ls__mpi.abandoned;
    ls__mpi.abandoned = h;
    pthread_mutex_unlock(&ls__mpi.lock);
}

void ls__mpi_let_go(ls__mpi_half *h, int64_t until)
{
    if (!is_free(h))
        cancel(h);
    while (!is_free(h) && ls_now_ns() < until)
        ls_sleep_ns(LOOK_NS);
    if (is_free(h))
        free(h);
    else
        abandon(h);
}

/* ---- start and end ---- */

static ls_status initialise(int *level)
{
    int up = 0, down = 0, code;

    MPI_Finalized(&down);
    if (down)
        return ls_fail(LS_ESTATE, "MPI has been finalised and cannot start again");
    MPI_Initialized(&up);
    code =
        up ? MPI_Query_thread(level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, level);
    ls__mpi.ours = !up;
    return code == MPI_SUCCESS ? LS_OK : ls_fail(LS_EIO, "MPI does not start: error %d", code);
}

static int find_largest_tag(void)
{
    int *value = NULL, found = 0;

    MPI_Comm_get_attr(ls__mpi.comm, MPI_TAG_UB, &value, &found);
    return found ? *value : 32767; /* what the standard guarantees */
}

static ls_status start(void)
{
    int       level  = MPI_THREAD_SINGLE, code;
    ls_status status = initialise(&level);

    if (status)
        return status;
    code = MPI_Comm_dup(MPI_COMM_WORLD, &ls__mpi.comm);
    if (code != MPI_SUCCESS)
        return ls_fail(LS_EIO, "MPI_Comm_dup: error %d", code);
    MPI_Comm_set_errhandler(ls__mpi.comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ls__mpi.comm, &ls__mpi.rank);
    MPI_Comm_size(ls__mpi.comm, &ls__mpi.world);
    ls__mpi.largest_tag = find_largest_tag();
    ls__mpi.serial      = level != MPI_THREAD_MULTIPLE;
    ls__mpi.started     = true;
    return LS_OK;
}

ls_status ls_mpi_start(int *rank, int *world)
{
    ls_status status;

    pthread_mutex_lock(&ls__mpi.lock);
    status = ls__mpi.started ? LS_OK : start();
    *rank  = ls__mpi.rank;
    *world = ls__mpi.world;
    pthread_mutex_unlock(&ls__mpi.lock);
    return status;
}

static void free_requests(ls__mpi_half *h)
{
    for (int i = 0; i < LS__MPI_UNDER_WAY; i++)
        if (h->requests[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&h->requests[i]);
}

/* What MPI may still read or write stays where it is until MPI has ended. */
static void end(void)
{
    sweep();
    for (ls__mpi_half *h = ls__mpi.abandoned; h && ls__mpi.ours; h = h->next)
        free_requests(h);
    MPI_Comm_free(&ls__mpi.comm);
    if (ls__mpi.ours) {
        MPI_Finalize();
        sweep();
    }
}

void ls_mpi_end(void)
{
    pthread_mutex_lock(&ls__mpi.lock);
    if (ls__mpi.started)
        end();
    ls__mpi.started = false;
    pthread_mutex_unlock(&ls__mpi.lock);
}
