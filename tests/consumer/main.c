/*
 * main.c - a program that knows Lockstep by its installed tree alone: it checks the type sizes
 * that the headers promise, makes a failure and reads its message, and lets two ranks add up.
 */
#include <stdio.h>
#include <string.h>

#include "lockstep.h"

static ls_status add_up(ls_comm *world, void *context)
{
    float     mine = (float)ls_comm_rank(world) + 1, sum = 0;
    ls_status status = ls_comm_all_reduce(world, &sum, &mine, 1, LS_F32, LS_SUM);

    (void)context;
    return !status && sum != 3 ? ls_fail(LS_EINVAL, "1 + 2 is %g", (double)sum) : status;
}

int main(void)
{
    if (ls_local_world(&(ls_local_opts){.n = 2}, add_up, NULL)) {
        fprintf(stderr, "%s\n", ls_error_message());
        return 1;
    }
    ls_tensor t = ls_tensor_header(LS_REAL, LS_SHAPE2(2, 3));
    if (ls_tensor_materialize(&t, LS_MEM_OTHER) != LS_OK)
        return 1;
    ls_reals(&t)[5] = 1.0f;
    int64_t bytes   = (int64_t)ls_tensor_bytes(&t);
    ls_tensor_drop(&t);
    ls_status status = ls_fail(LS_ESHAPE, "a consumer's %s", "message");
    printf("%lld bytes, %s: %s\n", (long long)bytes, ls_status_text(status),
           ls_error_message());
    return bytes == 24 && !strcmp(ls_error_message(), "a consumer's message") ? 0 : 1;
}
