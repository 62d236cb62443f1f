/*
 * launch_impl.h - what the files of the launcher share.
 *
 *     launch.c          attempts: the job, started again
 *     launch_job.c      one attempt, from the first start to the last end: the loop
 *     launch_start.c    a rank's start: environment, descriptors, fork and exec
 *     launch_output.c   lines, and where they go
 *     launch_input.c    a terminal's text to rank 0
 *     launch_signals.c  signals as bytes in a pipe
 *     launch_guard.c    the guardian that outlives the launcher
 *     launch_groups.c   which process groups still run
 *     launch_port.c     where the ranks meet
 */
#ifndef LS_DIST_COMM_LAUNCH_IMPL_H
#define LS_DIST_COMM_LAUNCH_IMPL_H

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "core/strbuf.h"
#include "dist/comm/launch.h"

/* ---- launch_signals.c ---- */

enum { LS__SIGNALS = 8 };

typedef struct {
    int              pipe[2];
    struct sigaction saved[LS__SIGNALS], saved_pipe;
    bool             caught[LS__SIGNALS];
    sigset_t         mask; /* the caller's */
} ls__signals;

/* From here to the end a signal is a byte, its number, to read from pipe[0]. */
LS_MUST_CHECK ls_status ls__signals_begin(ls__signals *s);
void                    ls__signals_end(ls__signals *s);

/* In a child, between fork and exec, with all signals blocked: as they were, stops default. */
void ls__signals_reset(const ls__signals *s);

/* ---- launch_output.c ---- */

/* The launcher's stdout or stderr: what waits to be written. */
typedef struct {
    int       fd;
    ls_strbuf pending;
    size_t    sent;  /* bytes of pending that are out */
    int       error; /* errno that ended it; 0: none.  Text is thrown away then. */
} ls__sink;

void          ls__sink_flush(ls__sink *s);      /* as much as goes without waiting */
struct pollfd ls__sink_poll(const ls__sink *s); /* for room, while it is busy */
bool          ls__sink_full(const ls__sink *s); /* no more should be read for it now */
void          ls__sink_free(ls__sink *s);

/* The stdout or stderr of a rank: the pipe's end, and the line that is not whole yet. */
typedef struct {
    int       fd; /* -1: ended */
    char      prefix[16];
    ls_strbuf held;
    ls__sink *to;
} ls__stream;

/* Reads once; closes at the end of the pipe.  False where there was nothing to read. */
bool ls__stream_read(ls__stream *s);
void ls__stream_close(ls__stream *s); /* completes the last line */

/* Where the lines go, the same for all attempts. */
typedef struct {
    ls__sink  sinks[2]; /* stdout, stderr; one alone where both are the same file */
    ls__sink *out, *err;
} ls__outputs;

/* A line of the launcher's own. */
void ls__say(ls__sink *to, const char *fmt, ...) LS_PRINTF(2, 3);

/* Writes all that is pending; a stop signal gives it up.  The signal, or 0. */
int ls__outputs_finish(ls__outputs *outputs, const ls__signals *signals);

/* ---- launch_input.c ---- */

typedef struct {
    int    from, to; /* terminal, pipe to rank 0; to -1: nothing is passed on */
    char   data[4096];
    size_t used, sent;
} ls__input;

struct pollfd ls__input_poll(const ls__input *in);
void          ls__input_move(ls__input *in, short events);
void          ls__input_close(ls__input *in);

/* ---- launch_guard.c ---- */

/* Starts the guardian; *fd is its life line.  When that closes it kills the groups it knows. */
LS_MUST_CHECK ls_status ls__guard_begin(int *fd);
void                    ls__guard_add(int fd, pid_t group);
void                    ls__guard_remove(int fd, pid_t group);

/* ---- launch_groups.c ---- */

typedef struct {
    pid_t group;
    bool  lives; /* has a member that is no zombie */
} ls__group;

/* Sets `lives`; how many do.  Where /proc is not there all are taken to. */
int ls__groups_living(ls__group *groups, int n);

/* ---- launch_port.c ---- */

typedef struct {
    char host[256];
    int  port;
} ls__address;

/* "HOST:PORT" or "[ADDRESS]:PORT"; ECONFIG. */
LS_MUST_CHECK ls_status ls__address_parse(const char *text, ls__address *address);

/*
 * A socket that listens there, close-on-exec; port 0 becomes the one that was found.  -1 where
 * the address is not this host's, or none yet: rank 0 tries itself, and longer.
 */
LS_MUST_CHECK ls_status ls__listen(ls__address *address, int *fd);

/* A free port of loopback, kept free as long as fd is open.  EIO. */
LS_MUST_CHECK ls_status ls__reserve(int *port, int *fd);

/* ---- launch_start.c ---- */

/* What all ranks of an attempt share. */
typedef struct {
    const ls_launch_opts *opts;
    const char           *path; /* of the program */
    int                   n;    /* ranks on this host now */
    int                   restart;
    ls__address           master;        /* where our own ranks meet */
    int                   programs_port; /* MASTER_PORT: nobody listens there yet */
    char                  run_id[128];
    const char           *secret;
    int                   listen_fd, reserved_fd, board_fd, trouble_fd, guard;
    const ls__signals    *signals;
    struct rlimit         files; /* the ranks' limit */
} ls__place;

/* One rank's ends of the pipes; the child's are closed by ls__rank_start(). */
typedef struct {
    pid_t pid;
    int   in, out, err; /* in: write end for a terminal's text, else -1 */
} ls__started;

/* What a child that could not exec writes to trouble_fd. */
typedef struct {
    int rank, error;
} ls__trouble;

/* Where the program lies, by PATH as a shell would look: ECONFIG. */
LS_MUST_CHECK ls_status ls__find_program(const char *name, char **path);

/* Starts local rank i.  EIO, ENOMEM: not started. */
LS_MUST_CHECK ls_status ls__rank_start(const ls__place *place, int i, ls__started *started);

/* ---- launch_job.c ---- */

/* How an attempt ended. */
typedef struct {
    int   status;  /* exit status; 0: well */
    int   rank;    /* that failed first; -1: none did */
    pid_t pid;     /* its process */
    int   how;     /* its status of waitpid() */
    int   stopped; /* the signal that was passed on, or killed it all; 0: none */
} ls__outcome;

/* One attempt, with signals caught and the guardian there. */
LS_MUST_CHECK ls_status ls__attempt(ls__place *place, ls__outputs *outputs,
                                    ls__outcome *outcome);

/* "rank 2 (pid 123) was killed by signal 9 (Killed)" */
void ls__outcome_text(const ls__outcome *o, char *text, size_t size);

#endif
