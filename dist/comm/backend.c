/*
 * backend.c - who shares memory, and what carries bytes to the others: the tables.
 */
#include "dist/comm/backend_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/alloc.h"
#include "dist/comm/transport_mpi.h"

/* ---- memory ---- */

static ls_status share_by_threads(ls_endpoint *home, const ls_hello *all, int64_t deadline)
{
    (void)all;
    (void)deadline;
    for (int r = 0; r < home->world; r++)
        home->is_local[r] = true;
    return ls_space_threads(&home->space);
}

/* Nothing is shared: the heap is ordinary memory. */
ls_status ls__share_nothing(ls_endpoint *home, const ls_hello *all, int64_t deadline)
{
    (void)all;
    (void)deadline;
    home->is_local[home->rank] = true;
    return ls_space_threads(&home->space);
}

static ls_status pass_files(ls_endpoint *home, const bool *wanted, int64_t deadline)
{
    int  own = -1;
    int *fds = ls_calloc((size_t)home->world, sizeof *fds);

    ls_status status = fds ? ls_space_shm_file(&own) : LS_ENOMEM;
    if (!status)
        status = ls_control_pass(home->control, own, wanted, fds, deadline);
    if (status) {
        if (own >= 0)
            close(own);
    } else {
        for (int r = 0; r < home->world; r++)
            home->is_local[r] = r == home->rank || fds[r] >= 0;
        status = ls_space_shm(home->rank, home->world, own, fds, &home->space);
    }
    free(fds);
    return status;
}

ls_status ls__share_by_files(ls_endpoint *home, const ls_hello *all, int64_t deadline)
{
    bool *wanted = ls_calloc((size_t)home->world, sizeof *wanted);

    if (!wanted)
        return LS_ENOMEM;
    for (int r = 0; r < home->world; r++)
        wanted[r] = r != home->rank && !strcmp(all[r].identity, all[home->rank].identity);
    ls_status status = pass_files(home, wanted, deadline);
    free(wanted);
    return status;
}

/* All ranks must share. */
static ls_status share_with_all(ls_endpoint *home, const ls_hello *all, int64_t deadline)
{
    ls_status status = ls__share_by_files(home, all, deadline);

    for (int r = 0; r < home->world && !status; r++)
        if (!home->is_local[r])
            status = ls_fail(
                LS_ECONFIG,
                "backend shm: rank %d (host %s) shares no memory with rank %d (host %s)",
                home->rank, all[home->rank].host, r, all[r].host);
    return status;
}

/* ---- TCP ---- */

ls_status ls__offer_tcp(ls_forming *f)
{
    ls_endpoint *home = f->home;

    if (getrandom(f->mine.token, sizeof f->mine.token, 0) != (ssize_t)sizeof f->mine.token)
        return ls_fail(LS_EIO, "getrandom gives no bytes");
    ls_status status =
        ls_tcp_listen(home->address, home->opts.ports[0], home->opts.ports[1], &f->listener);
    if (status)
        return status;
    memcpy(f->mine.address, f->listener.address, sizeof f->mine.address);
    f->mine.port = f->listener.port;
    return LS_OK;
}

ls_status ls__connect_tcp(ls_forming *f, const ls_contact *all, int64_t deadline,
                          ls_transport **t)
{
    ls_tcp_peer *peers = ls_calloc((size_t)f->size, sizeof *peers);

    if (!peers)
        return LS_ENOMEM;
    for (int r = 0; r < f->size; r++) {
        memcpy(peers[r].address, all[r].address, sizeof peers[r].address);
        memcpy(peers[r].token, all[r].token, sizeof peers[r].token);
        peers[r].port    = all[r].port;
        peers[r].needed  = r != f->rank && !f->home->is_local[f->members[r]];
        peers[r].control = ls_control_socket(f->home->control, f->members[r]);
    }
    ls_tcp_listener listener = f->listener;
    f->listener.fd           = -1;
    ls_status status = ls_transport_tcp(&listener, f->id, f->rank, f->size, peers, deadline, t);
    free(peers);
    return status;
}

/* ---- MPI ---- */

static ls_status connect_mpi(ls_forming *f, const ls_contact *all, int64_t deadline,
                             ls_transport **t)
{
    int tag = 0;

    (void)deadline;
    for (int r = 0; r < f->size; r++)
        tag = all[r].tag > tag ? all[r].tag : tag;
    atomic_store(&f->home->next_tag, tag + 1);
    return ls_transport_mpi(f->members, f->rank, f->size, tag, 0, t);
}

/* ---- the tables ---- */

const ls_backend ls__backend_auto    = {"auto", .share = ls__share_by_files,
                                        .offer = ls__offer_tcp, .connect = ls__connect_tcp};
const ls_backend ls__backend_shm     = {"shm", .share = share_with_all};
const ls_backend ls__backend_threads = {"threads", .share = share_by_threads,
                                        .in_process = true};
const ls_backend ls__backend_tcp = {"tcp", .share = ls__share_nothing, .offer = ls__offer_tcp,
                                    .connect = ls__connect_tcp};
const ls_backend ls__backend_mpi = {"mpi", .share = ls__share_nothing, .connect = connect_mpi,
                                    .start = ls_mpi_start};

static const ls_backend *const backends[] = {
#define X(BACKEND, name) &ls__backend_##name,
    LS_BACKEND_LIST(X)
#undef X
};

const ls_backend *ls__backend_find(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (!strcmp(backends[i]->name, name ? name : "auto"))
            return backends[i];
    return name && !strcmp(name, "threads") ? &ls__backend_threads : NULL;
}
