/*
 * main.c - a program that knows Lockstep by its installed tree alone: it checks the type sizes
 * that the headers promise, makes a failure and reads its message.
 */
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/error.h"
#include "core/tensor.h"

int main(void)
{
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
