#define _GNU_SOURCE /* pipe2: both ends close on exec from the start */
/*
 * launch_signals.c - signals as bytes in a pipe.
 *
 * Blocking them and reading a signalfd would need every thread of the process to block them,
 * and a BLAS library may have started threads of its own before.  So there are handlers, which
 * write to a pipe.
 *
 * Note [the handler's pipe]: a handler knows only what is static, hence the one variable here
 * and one job at a time in a process.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "dist/comm/launch_impl.h"

static const int numbers[LS__SIGNALS] = {SIGINT,  SIGTERM, SIGHUP,  SIGUSR1,
                                         SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};

static atomic_int pipe_in = -1; /* Note [the handler's pipe] */

static void on_signal(int number)
{
    int           saved = errno;
    unsigned char byte  = (unsigned char)number;

    ssize_t written = write(atomic_load(&pipe_in), &byte, 1);
    (void)written; /* a full pipe wakes the loop as well */
    errno = saved;
}

/* A shell's background job has SIGINT ignored; it must end all the same.  Not so nohup. */
static bool stays_ignored(int number)
{
    struct sigaction now;

    return (number == SIGHUP || number == SIGTSTP) && !sigaction(number, NULL, &now) &&
           now.sa_handler == SIG_IGN;
}

ls_status ls__signals_begin(ls__signals *s)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t         ours;
    int              none = -1;

    if (pipe2(s->pipe, O_CLOEXEC | O_NONBLOCK))
        return ls_fail(LS_EIO, "run: no pipe: %s", strerror(errno));
    if (!atomic_compare_exchange_strong(&pipe_in, &none, s->pipe[1])) {
        close(s->pipe[0]);
        close(s->pipe[1]);
        return ls_fail(LS_ESTATE, "run: another job of this process is running");
    }
    sigemptyset(&ours);
    sigemptyset(&ignore.sa_mask);
    sigfillset(&action.sa_mask);
    for (int i = 0; i < LS__SIGNALS; i++) {
        s->caught[i] = !stays_ignored(numbers[i]);
        if (s->caught[i])
            sigaction(numbers[i], &action, &s->saved[i]);
        sigaddset(&ours, numbers[i]);
    }
    sigaction(SIGPIPE, &ignore, &s->saved_pipe);
    sigprocmask(SIG_UNBLOCK, &ours, &s->mask);
    return LS_OK;
}

void ls__signals_end(ls__signals *s)
{
    sigprocmask(SIG_SETMASK, &s->mask, NULL);
    for (int i = 0; i < LS__SIGNALS; i++)
        if (s->caught[i])
            sigaction(numbers[i], &s->saved[i], NULL);
    sigaction(SIGPIPE, &s->saved_pipe, NULL);
    atomic_store(&pipe_in, -1);
    close(s->pipe[0]);
    close(s->pipe[1]);
}

void ls__signals_reset(const ls__signals *s)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    sigemptyset(&action.sa_mask);
    for (int i = 0; i < LS__SIGNALS; i++)
        if (s->caught[i])
            sigaction(numbers[i], &action, NULL);
    sigaction(SIGXFSZ, &action, NULL); /* the command ignores it for itself */
    sigaction(SIGPIPE, &s->saved_pipe, NULL);
    sigprocmask(SIG_SETMASK, &s->mask, NULL);
}
