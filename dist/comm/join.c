/*
 * join.c - from sockets to the world's communicator.
 *
 *   1. hello      who is where: host, identity, settings (which must agree)
 *   2. memory     ranks of one identity pass each other their memfd; where that does not work
 * (another user's namespace, no Unix socket) the pair goes by TCP
 *   3. hello      contacts: where each rank's control block is, where it listens
 *   4. transport  and the watch thread
 */
#define _DEFAULT_SOURCE /* gethostname */
#include "dist/comm/join.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "core/host.h"
#include "dist/comm/backend_impl.h"
#include "dist/comm/comm_impl.h"

/* ---- who this rank is ---- */

/* The boot: the user namespace's view does not matter to a memfd. */
void ls__identity(char *identity, size_t size)
{
    char boot[LS_BOOT_BYTES];

    ls_boot_id(boot);
    if (boot[0])
        snprintf(identity, size, "boot %s", boot);
    else
        snprintf(identity, size, "process %ld", (long)getpid()); /* shares with nobody */
}

static ls_hello introduce(const ls_join_opts *o)
{
    ls_hello h = {.version = LS_HELLO_VERSION, .pid = getpid()};

    if (gethostname(h.host, sizeof h.host - 1))
        snprintf(h.host, sizeof h.host, "?");
    if (o->identity)
        snprintf(h.identity, sizeof h.identity, "%s", o->identity);
    else
        ls__identity(h.identity, sizeof h.identity);
    snprintf(h.config, sizeof h.config, "backend %s, algorithm %s, %s",
             o->backend ? o->backend : "auto", ls_algorithm_name(o->algorithm),
             o->fast ? "fast" : "lockstep");
    snprintf(h.fingerprint, sizeof h.fingerprint, "%s", o->fingerprint ? o->fingerprint : "");
    return h;
}

/* ---- what must agree ---- */

static ls_status differ(int rank, const char *what, const char *a, const char *b)
{
    return ls_fail(LS_ECONFIG, "ranks disagree on %s: rank 0 has \"%s\", rank %d \"%s\"", what,
                   a, rank, b);
}

static ls_status check_agreement(const ls_join_opts *o, const ls_hello *all)
{
    for (int r = 1; r < o->world; r++) {
        if (strcmp(all[r].config, all[0].config))
            return differ(r, "settings", all[0].config, all[r].config);
        if (!strcmp(all[r].fingerprint, all[0].fingerprint))
            continue;
        ls_status status = differ(r, "the machine", all[0].fingerprint, all[r].fingerprint);
        if (!o->fast)
            return status;
        if (o->event)
            o->event(o->context, LS_EVENT_WARNING, ls_error_message());
    }
    return LS_OK;
}

static ls_status check_opts(const ls_join_opts *o)
{
    if (o->world < 1 || o->rank < 0 || o->rank >= o->world)
        return ls_fail(LS_ECONFIG, "rank %d of a world of %d", o->rank, o->world);
    if (!ls_algorithm_fits(o->algorithm, o->world))
        return ls_fail(LS_ECONFIG, "algorithm halving needs a power of two, not %d ranks",
                       o->world);
    return LS_OK;
}

/* ---- where to listen ---- */

static void find_address(ls_endpoint *home)
{
    const ls_join_opts *o = &home->opts;

    snprintf(home->address, sizeof home->address, "%s", o->address ? o->address : "");
    for (int r = 0; r < home->world && !home->address[0]; r++)
        if (r != home->rank && !home->is_local[r])
            ls_control_address(home->control, r, home->address);
    if (!home->address[0])
        snprintf(home->address, sizeof home->address, "127.0.0.1");
}

/* ---- the endpoint ---- */

static ls_status open_log(ls_endpoint *home)
{
    const char *path = getenv("LOCKSTEP_COMM_LOG");

    if (!path || !path[0])
        return LS_OK;
    home->log = fopen(path, "ae");
    if (!home->log)
        return ls_fail(LS_EIO, "LOCKSTEP_COMM_LOG: %s: %s", path, strerror(errno));
    return LS_OK;
}

void ls__endpoint_release(ls_endpoint *home)
{
    if (atomic_fetch_sub(&home->groups, 1) > 1)
        return;
    ls_control_free(home->control);
    if (home->space)
        home->space->ops->close(home->space);
    if (home->log)
        fclose(home->log);
    if (home->opts.board_taken)
        ls_board_free(home->opts.board);
    free(home->is_local);
    free(home->own_recorder);
    free(home);
}

static void warn(void *context, const char *text)
{
    const ls_endpoint *home = context;

    if (home->opts.event)
        home->opts.event(home->opts.context, LS_EVENT_WARNING, text);
}

static void failed(void *context, const char *text)
{
    const ls_endpoint *home = context;

    if (home->opts.event)
        home->opts.event(home->opts.context, LS_EVENT_FAILURE, text);
}

static int local_ranks(const ls_endpoint *home, const ls_hello *all)
{
    int n = 0;

    for (int r = 0; r < home->world; r++)
        n += home->is_local[r] || (all && !strcmp(all[r].host, all[home->rank].host));
    return n;
}

static ls_status new_endpoint(const ls_join_opts *o, ls_endpoint **out)
{
    ls_endpoint *home = ls_calloc(1, sizeof *home);

    if (!home)
        return LS_ENOMEM;
    home->groups   = 1;
    home->pid      = getpid();
    home->rank     = o->rank;
    home->world    = o->world;
    home->opts     = *o;
    home->backend  = ls__backend_find(o->backend);
    home->next_tag = 1;
    home->is_local = ls_calloc((size_t)o->world, sizeof *home->is_local);
    if (o->board)
        home->recorder = ls_board_recorder(o->board, o->rank);
    else
        home->recorder = home->own_recorder = ls_calloc(1, sizeof *home->own_recorder);
    ls_status status = home->is_local && home->recorder ? LS_OK : LS_ENOMEM;
    if (status) {
        home->opts.board_taken = false; /* the caller's, until this has worked */
        ls__endpoint_release(home);
    } else {
        *out = home;
    }
    return status;
}

/* ---- joining ---- */

static ls_status check_all_take_part(const ls_hello *all, int world)
{
    for (int r = 0; r < world; r++)
        if (all[r].failed)
            return ls_fail(LS_EPEER, "rank %d could not make its part of the world", r);
    return LS_OK;
}

/* A rank that cannot take part says so in its hello, and all name it. */
static ls_status say_hello(ls_endpoint *home, ls_hello *mine, ls_hello *all, int64_t deadline)
{
    ls_status first = open_log(home);
    char      why[LS_GUARD_TEXT];

    snprintf(why, sizeof why, "%s", first ? ls_error_message() : "");
    mine->failed     = first != LS_OK;
    ls_status status = ls_control_hello(home->control, mine, all, deadline);
    if (first)
        return ls_fail(first, "%s", why);
    if (!status)
        status = check_all_take_part(all, home->world);
    return status ? status : check_agreement(&home->opts, all);
}

static void contacts_of(const ls_hello *all, int world, ls_contact *contacts)
{
    for (int r = 0; r < world; r++) {
        contacts[r] = (ls_contact){.place = all[r].place, .port = all[r].port};
        memcpy(contacts[r].token, all[r].token, sizeof contacts[r].token);
        memcpy(contacts[r].address, all[r].address, sizeof contacts[r].address);
    }
}

/* Shows the others where this rank is, learns where they are, and connects. */
static ls_status connect_all(ls_endpoint *home, ls_hello *mine, ls_hello *all, ls_forming *f,
                             int64_t deadline, ls_transport **t)
{
    ls_contact *contacts = ls_calloc((size_t)home->world, sizeof *contacts);
    ls_status   first    = contacts ? ls__form_begin(f) : LS_ENOMEM;
    char        why[LS_GUARD_TEXT];

    snprintf(why, sizeof why, "%s", first ? ls_error_message() : "");
    mine->failed = first != LS_OK;
    mine->place  = f->mine.place;
    mine->port   = f->mine.port;
    memcpy(mine->token, f->mine.token, sizeof mine->token);
    memcpy(mine->address, f->mine.address, sizeof mine->address);
    ls_status status = ls_control_hello(home->control, mine, all, deadline);
    if (first)
        status = ls_fail(first, "%s", why);
    else if (!status)
        status = check_all_take_part(all, home->world);
    if (!status && contacts) {
        contacts_of(all, home->world, contacts);
        status = ls__form_transport(f, contacts, deadline, t);
    } else if (!first) {
        ls__form_drop(f);
    }
    free(contacts);
    return status;
}

static ls_status join_world(ls_endpoint *home, ls_hello *all, int *members, ls_comm **world)
{
    ls_hello      mine     = introduce(&home->opts);
    ls_transport *t        = NULL;
    ls_forming    f        = {.home    = home,
                              .id      = LS_WORLD_ID,
                              .rank    = home->rank,
                              .size    = home->world,
                              .members = members};
    int64_t       deadline = ls_now_ns() + home->policy.timeout_ns;

    ls_status status = say_hello(home, &mine, all, deadline);
    if (!status)
        status = home->backend->share(home, all, deadline);
    if (status)
        return status;
    find_address(home);
    int here             = local_ranks(home, all);
    home->policy.spin_ns = ls_wait_policy_for(here, home->opts.timeout_s).spin_ns;
    status               = connect_all(home, &mine, all, &f, deadline, &t);
    if (!status)
        status = ls__comm_new(home, LS_WORLD_ID, members, t, world);
    if (!status && (status = ls_control_start(home->control, failed, home)))
        ls_comm_free(*world);
    return status;
}

/* Where a launcher of its own has brought the ranks together: no hello, no control. */
static ls_status join_started(ls_endpoint *home, int *members, ls_comm **world)
{
    ls_transport *t = NULL;
    ls_forming    f = {.home    = home,
                       .id      = LS_WORLD_ID,
                       .rank    = home->rank,
                       .size    = home->world,
                       .members = members};

    ls_status   status   = open_log(home);
    ls_contact *contacts = ls_calloc((size_t)home->world, sizeof *contacts);
    if (!status && !contacts)
        status = LS_ENOMEM;
    if (!status)
        status = home->backend->share(home, NULL, 0);
    for (int r = 0; r < home->world && !status; r++)
        contacts[r].tag = LS_WORLD_ID;
    if (!status)
        status = ls__form_begin(&f);
    if (!status)
        status = ls__form_transport(&f, contacts, 0, &t);
    if (!status)
        status = ls__comm_new(home, LS_WORLD_ID, members, t, world);
    free(contacts);
    return status;
}

static ls_status join(ls_endpoint *home, ls_comm **world)
{
    size_t    n       = (size_t)home->world;
    int      *members = ls_calloc(n, sizeof *members);
    ls_hello *all     = ls_calloc(n, sizeof *all);
    ls_status status  = members && all ? LS_OK : LS_ENOMEM;

    for (int r = 0; !status && r < home->world; r++)
        members[r] = r;
    home->policy         = ls_wait_policy_for(home->world, home->opts.timeout_s);
    home->policy.warn    = warn;
    home->policy.context = home;
    if (!status)
        status = home->control ? join_world(home, all, members, world)
                               : join_started(home, members, world);
    free(members);
    free(all);
    return status;
}

static void close_sockets(const ls_join_opts *o)
{
    for (int r = 0; o->control && r < o->world; r++)
        if (r != o->rank && o->control[r] >= 0)
            close(o->control[r]);
}

ls_status ls_join(const ls_join_opts *opts, ls_comm **world)
{
    ls_join_opts      o       = *opts;
    ls_endpoint      *home    = NULL;
    ls_status         status  = LS_OK;
    const ls_backend *backend = ls__backend_find(o.backend);

    *world = NULL;
    if (!backend)
        status = ls_fail(LS_ECONFIG, "no such backend: \"%s\"", o.backend);
    else if (backend->start)
        status = backend->start(&o.rank, &o.world);
    if (!status)
        status = check_opts(&o);
    if (!status)
        status = new_endpoint(&o, &home);
    if (status) {
        close_sockets(&o);
        if (o.board_taken && !home)
            ls_board_free(o.board);
        return status;
    }
    if (!home->backend->start)
        status = ls_control_new(o.rank, o.world, o.control, o.board, &home->control);
    home->opts.control = NULL; /* taken */
    if (!status)
        status = join(home, world);
    if (status)
        *world = NULL;
    ls__endpoint_release(home); /* the world holds its own reference */
    return status;
}
