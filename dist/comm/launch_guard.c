#define _GNU_SOURCE /* prctl, close_range: Linux's own */
/*
 * launch_guard.c - the guardian: a process that kills the ranks' groups when the launcher is
 * gone, also when it was killed by a signal that nobody can catch.
 *
 *     rank, before exec ── +group ──┐
 *     launcher          ── -group ──┴── pipe ──> guardian
 *
 * A rank itself dies with the launcher by PR_SET_PDEATHSIG, at once; what it started does not,
 * and a shell script between launcher and program is common.  The guardian is started by a
 * child that ends at once, so it is no child of the launcher.  It holds nothing but its pipe.
 * A group is taken off the list before its number can belong to somebody else.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dist/comm/launch_impl.h"

static void close_all_but(int fd)
{
    int kept = 0;

    if (fd != kept && dup2(fd, kept) < 0)
        _exit(1);
#ifdef SYS_close_range
    if (!syscall(SYS_close_range, kept + 1, ~0U, 0))
        return;
#endif
    for (int i = kept + 1; i < 1 << 16; i++)
        close(i);
}

/* Reads groups until the launcher is gone; kills those that are left.  Calls that are safe
 * after fork() alone, and memory of its own. */
_Noreturn static void guard(int fd)
{
    static const char name[] = "lockstep-guard";
    pid_t             groups[LS_LAUNCH_MOST], word;
    int               n = 0;

    setsid();
    prctl(PR_SET_NAME, name, 0, 0, 0);
    close_all_but(fd);
    while (true) {
        ssize_t got = read(0, &word, sizeof word);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != sizeof word)
            break;
        if (word > 0 && n < LS_LAUNCH_MOST)
            groups[n++] = word;
        for (int i = 0; word < 0 && i < n; i++)
            if (groups[i] == -word)
                groups[i--] = groups[--n];
    }
    for (int i = 0; i < n; i++)
        kill(-groups[i], SIGKILL);
    _exit(0);
}

/* In a child of the launcher, with all signals blocked. */
_Noreturn static void start_guard(int fd)
{
    pid_t pid = fork();

    if (pid == 0)
        guard(fd);
    _exit(pid < 0 ? errno & 0x7f : 0);
}

ls_status ls__guard_begin(int *fd)
{
    int      ends[2], status = 0;
    sigset_t all, before;

    *fd = -1;
    if (pipe2(ends, O_CLOEXEC))
        return ls_fail(LS_EIO, "run: no pipe: %s", strerror(errno));
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        start_guard(ends[0]);
    }
    int error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status)) {
        *fd = ends[1];
        return LS_OK;
    }
    close(ends[1]);
    return ls_fail(LS_EIO, "run: no process for the guardian: %s",
                   strerror(pid < 0 ? error : WEXITSTATUS(status)));
}

static void tell(int fd, pid_t word)
{
    /* Fails only where somebody killed the guardian; the ranks still have their own way. */
    while (write(fd, &word, sizeof word) < 0 && errno == EINTR)
        ;
}

void ls__guard_add(int fd, pid_t group)
{
    tell(fd, group);
}

void ls__guard_remove(int fd, pid_t group)
{
    tell(fd, -group);
}
