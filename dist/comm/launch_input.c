/*
 * launch_input.c - a terminal's text to rank 0.
 *
 * To the terminal every rank is a background job, which is stopped (SIGTTIN) when it reads.
 * So the launcher reads, while it is in the foreground, and passes the text on.
 */
#include <errno.h>
#include <unistd.h>

#include "dist/comm/launch_impl.h"

static bool in_foreground(int terminal)
{
    return tcgetpgrp(terminal) == getpgrp();
}

/* What to wait for: room in the pipe while there is text, else text. */
struct pollfd ls__input_poll(const ls__input *in)
{
    if (in->to < 0)
        return (struct pollfd){.fd = -1};
    if (in->sent < in->used)
        return (struct pollfd){.fd = in->to, .events = POLLOUT};
    return (struct pollfd){.fd = in_foreground(in->from) ? in->from : -1, .events = POLLIN};
}

static void pass_on(ls__input *in)
{
    ssize_t n = write(in->to, in->data + in->sent, in->used - in->sent);

    if (n >= 0)
        in->sent += (size_t)n;
    else if (errno != EAGAIN && errno != EINTR)
        ls__input_close(in); /* rank 0 reads no more */
}

void ls__input_move(ls__input *in, short events)
{
    if (in->to < 0 || !events)
        return;
    if (in->sent == in->used) {
        ssize_t n = read(in->from, in->data, sizeof in->data);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            ls__input_close(in);
            return;
        }
        in->used = (size_t)n;
        in->sent = 0;
    }
    pass_on(in);
}

void ls__input_close(ls__input *in)
{
    if (in->to >= 0)
        close(in->to);
    in->to   = -1;
    in->used = in->sent = 0;
}
