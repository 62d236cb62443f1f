/*
 * verdict.c - gathers what each rank has to say, and lets the lowest failure speak.
 */
#include "dist/comm/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

typedef struct {
    int64_t status;
    char    text[504];
} verdict;

static bool all_alike(const verdict *all, int size)
{
    for (int r = 1; r < size; r++)
        if (all[r].status != all[0].status || strcmp(all[r].text, all[0].text))
            return false;
    return true;
}

static ls_status judge(const verdict *all, int size)
{
    bool alike = all_alike(all, size);

    for (int r = 0; r < size; r++)
        if (all[r].status && alike)
            return ls_fail((ls_status)all[r].status, "%.500s", all[r].text);
        else if (all[r].status)
            return ls_fail((ls_status)all[r].status, "rank %d: %.500s", r, all[r].text);
    return LS_OK;
}

ls_status ls_comm_agree(ls_comm *comm, ls_status own)
{
    verdict mine = {.status = (int64_t)own}, *all;
    int64_t any  = own != LS_OK;

    if (!comm)
        return own;
    if (own)
        snprintf(mine.text, sizeof mine.text, "%s", ls_error_message());
    ls_status agreed = ls_comm_all_reduce(comm, &any, &any, 1, LS_I64, LS_MAX);
    if (agreed || !any) /* as a rule all are well */
        return agreed;
    int size = ls_comm_size(comm);
    all      = ls_calloc((size_t)size, sizeof *all);
    if (!all)
        return LS_ENOMEM;
    ls_status status = ls_comm_all_gather(comm, all, &mine, sizeof mine, LS_U8);
    if (!status)
        status = judge(all, size);
    free(all);
    return status;
}
