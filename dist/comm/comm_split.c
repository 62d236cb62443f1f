/*
 * comm_split.c - a new group out of an old one.
 *
 * Two rounds of the old group: who goes where (colour, key), then how the members of each
 * new group reach each other (contacts).  A member that could not make what it needs says so in
 * its contact, and all of its new group fail together; the old group stays sound.  Without
 * memory before or after that, a rank fails both groups: others may count on it in either.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "dist/comm/comm_impl.h"

typedef struct {
    int32_t colour, key, rank, unused;
} choice;

/* Fixed-size messages of all, in rank order. */
static ls_status show_all(ls_comm *comm, const void *mine, void *all, size_t bytes)
{
    return ls__comm_run_as(comm,
                           &(ls_call){.kind  = LS_ALL_GATHER,
                                      .in    = mine,
                                      .out   = all,
                                      .count = (int64_t)bytes,
                                      .dtype = LS_U8},
                           LS_SPLIT);
}

static int by_key(const void *a, const void *b)
{
    const choice *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : 1;
}

/* Keeps those of `colour`, in their new order; returns how many. */
static int pick(choice *all, int n, int colour)
{
    int kept = 0;

    for (int r = 0; r < n; r++)
        if (all[r].colour == colour)
            all[kept++] = all[r];
    qsort(all, (size_t)kept, sizeof *all, by_key);
    return kept;
}

/* The same for all members, another for every other group that comes from the same world
 * (splitmix64, Steele et al. 2014). */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t group_id(uint64_t parent, uint64_t split, int colour)
{
    uint64_t id = mix(mix(mix(parent) ^ split) ^ (uint64_t)(uint32_t)colour);

    return id > LS_WORLD_ID ? id : LS_WORLD_ID + 1;
}

/* What both rounds fill in. */
typedef struct {
    choice     *choices;  /* [size of the old group], then those of the new one first */
    ls_contact *contacts; /* [size of the old group] */
    ls_contact *ours;     /* [members], in the new order */
    int        *members;  /* [members] world ranks */
    int         n;
} split;

static ls_status second_round(ls_comm *comm, split *s, ls_forming *f, bool joins)
{
    ls_contact none  = {0};
    ls_status  first = joins ? ls__form_begin(f) : LS_OK;
    char       why[LS_GUARD_TEXT];

    snprintf(why, sizeof why, "%s", first ? ls_error_message() : "");
    ls_status status = show_all(comm, joins ? &f->mine : &none, s->contacts, sizeof none);
    if (status && joins && !first)
        ls__form_drop(f);
    if (status)
        return status;
    if (first)
        return ls_fail(first, "split: %s", why);
    for (int i = 0; i < s->n; i++) {
        s->ours[i] = s->contacts[s->choices[i].rank];
        if (!status && s->ours[i].failed)
            status = ls_fail(LS_EPEER, "split: rank %d could not make its part of the group",
                             s->choices[i].rank);
    }
    if (status && joins)
        ls__form_drop(f);
    return status;
}

/* The others may have made the new group, and be in it. */
static ls_status give_up(ls_comm *comm, const ls_forming *f, ls_status status)
{
    status          = ls__comm_give_up(comm, status, "split");
    ls_guard *guard = ls_guard_new(comm->home->control, f->id, f->members, f->size, NULL, NULL);
    if (guard)
        (void)ls_guard_fail(guard, status, ls_error_message());
    ls_guard_free(guard);
    return status;
}

static ls_status make_group(ls_comm *comm, split *s, int colour, ls_comm **group)
{
    bool          joins = colour >= 0;
    ls_transport *t     = NULL;
    ls_forming    f     = {.home    = comm->home,
                           .id      = group_id(comm->id, ++comm->splits, colour),
                           .size    = s->n,
                           .members = s->members};

    for (int i = 0; i < s->n; i++) {
        s->members[i] = comm->members[s->choices[i].rank];
        if (s->choices[i].rank == comm->rank)
            f.rank = i;
    }
    ls_status status = second_round(comm, s, &f, joins);
    if (status || !joins)
        return status;
    status = ls__form_transport(&f, s->ours, ls_now_ns() + comm->home->policy.timeout_ns, &t);
    if (!status)
        status = ls__comm_new(comm->home, f.id, s->members, t, group);
    return status ? give_up(comm, &f, status) : LS_OK;
}

ls_status ls_comm_split(ls_comm *comm, int colour, int key, ls_comm **group)
{
    size_t    n      = (size_t)comm->size;
    split     s      = {.choices  = ls_calloc(n, sizeof *s.choices),
                        .contacts = ls_calloc(n, sizeof *s.contacts),
                        .ours     = ls_calloc(n, sizeof *s.ours),
                        .members  = ls_calloc(n, sizeof *s.members)};
    choice    mine   = {.colour = colour < 0 ? -1 : colour, .key = key, .rank = comm->rank};
    ls_status status = ls__comm_own(comm);

    bool has_memory = s.choices && s.contacts && s.ours && s.members;

    *group = NULL;
    if (!status && !has_memory)
        status = ls__comm_give_up(comm, LS_ENOMEM, "split");
    if (!status && has_memory)
        status = show_all(comm, &mine, s.choices, sizeof mine);
    if (!status && has_memory) {
        s.n    = pick(s.choices, comm->size, mine.colour);
        status = make_group(comm, &s, mine.colour, group);
    }
    free(s.choices);
    free(s.contacts);
    free(s.ours);
    free(s.members);
    return status;
}
