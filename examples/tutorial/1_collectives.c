/*
 * 1_collectives.c - the four collectives that training needs, beside what they must give.
 *
 *     lockstep run -n 2 -- build/tutorial/1_collectives
 *
 * Rank r holds the vector x[i] = 10 (r + 1) + i, two elements for each rank.  Every rank can
 * work out in its head what the others hold, so each result is checked against a loop.
 */
#include <stdio.h>
#include <string.h>

#include "lockstep.h"

enum { PART = 2, MOST = 64 };

static float value(int rank, int i)
{
    return (float)(10 * (rank + 1) + i);
}

static float sum(int size, int i)
{
    float s = 0;

    for (int r = 0; r < size; r++) /* small whole numbers: no sum rounds, any order will do */
        s += value(r, i);
    return s;
}

/* Prints what this rank has, and whether it is what a loop says. */
static ls_status show(const char *what, const float *got, const float *want, int n)
{
    bool equal = !memcmp(got, want, (size_t)n * sizeof *got);

    printf("%-15s", what);
    for (int i = 0; i < n; i++)
        printf(" %3.0f", (double)got[i]);
    printf("%s\n", equal ? "   as it must be" : "   WRONG");
    return equal ? LS_OK : ls_fail(LS_EMISMATCH, "%s is wrong", what);
}

/* Everybody gets what rank 0 holds. */
static ls_status broadcast(ls_comm *world, float *x, int n)
{
    float want[MOST] = {0};

    for (int i = 0; i < n; i++)
        want[i] = value(0, i);
    ls_status status = ls_comm_broadcast(world, x, n, LS_F32, 0);
    return status ? status : show("broadcast", x, want, n);
}

/* Everybody gets the sum of what all hold. */
static ls_status all_reduce(ls_comm *world, float *x, int n)
{
    float want[MOST] = {0};

    for (int i = 0; i < n; i++)
        want[i] = sum(ls_comm_size(world), i);
    ls_status status = ls_comm_all_reduce(world, x, x, n, LS_F32, LS_SUM);
    return status ? status : show("all_reduce", x, want, n);
}

/* The sum is cut into parts: rank r gets the r-th, and nobody all of it. */
static ls_status reduce_scatter(ls_comm *world, const float *x, float part[PART])
{
    int   rank       = ls_comm_rank(world);
    float want[PART] = {0};

    for (int i = 0; i < PART; i++)
        want[i] = sum(ls_comm_size(world), rank * PART + i);
    ls_status status = ls_comm_reduce_scatter(world, part, x, PART, LS_F32, LS_SUM);
    return status ? status : show("reduce_scatter", part, want, PART);
}

/* The parts of all ranks, one behind the other, for everybody. */
static ls_status all_gather(ls_comm *world, const float part[PART], int n)
{
    float whole[MOST], want[MOST] = {0};

    for (int i = 0; i < n; i++)
        want[i] = sum(ls_comm_size(world), i);
    ls_status status = ls_comm_all_gather(world, whole, part, PART, LS_F32);
    return status ? status : show("all_gather", whole, want, n);
}

static ls_status run(ls_comm *world)
{
    int       n = PART * ls_comm_size(world), rank = ls_comm_rank(world);
    float     x[MOST], part[PART], copy[MOST];
    ls_status status = n <= MOST ? LS_OK : ls_fail(LS_ECONFIG, "%d ranks are too many", n);

    for (int i = 0; i < n && !status; i++)
        copy[i] = x[i] = value(rank, i);
    if (!status)
        status = broadcast(world, copy, n);
    if (!status)
        memcpy(copy, x, sizeof copy);
    if (!status)
        status = all_reduce(world, copy, n);
    if (!status)
        status = reduce_scatter(world, x, part);
    return status ? status : all_gather(world, part, n); /* an all_reduce in two halves */
}

int main(void)
{
    ls_comm  *world  = NULL;
    ls_status status = ls_world_join(&(ls_join_opts){0}, NULL, &world);

    if (!status)
        status = run(world);
    if (status)
        fprintf(stderr, "%s\n", ls_error_message());
    ls_comm_free(world);
    return status != LS_OK;
}
