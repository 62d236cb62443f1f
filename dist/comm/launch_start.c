#define _GNU_SOURCE /* prctl, pipe2, execvpe: Linux's own */
/*
 * launch_start.c - a rank's start: environment and descriptors, then fork and exec.
 *
 * All that allocates happens before the fork; between fork and exec stand only calls that are
 * safe there.  A child that cannot exec says so through the trouble pipe, which closes by
 * itself in those that can.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "dist/comm/launch_impl.h"

extern char **environ;

/* ---- the program ---- */

static bool is_program(const char *path)
{
    struct stat about;

    if (stat(path, &about))
        return false;
    if (!S_ISREG(about.st_mode) || access(path, X_OK)) {
        errno = EACCES;
        return false;
    }
    return true;
}

/* dir/name; an empty entry of PATH is the working directory. */
static char *in_directory(const char *dir, size_t n, const char *name)
{
    return n ? ls_sprintf("%.*s/%s", (int)n, dir, name) : ls_sprintf("./%s", name);
}

static ls_status no_program(const char *name, int error)
{
    if (error == EACCES)
        return ls_fail(LS_ECONFIG, "run: %s: not a program that may be executed", name);
    return ls_fail(LS_ECONFIG, "run: %s: program not found%s%s", name,
                   strchr(name, '/') ? "" : " in PATH; for one that lies here write ./",
                   strchr(name, '/') ? "" : name);
}

ls_status ls__find_program(const char *name, char **path)
{
    const char *at    = getenv("PATH");
    int         error = ENOENT;

    *path = NULL;
    if (strchr(name, '/')) {
        if (!is_program(name))
            return no_program(name, errno);
        *path = ls_strdup(name);
        return *path ? LS_OK : LS_ENOMEM;
    }
    for (at = at ? at : "/usr/bin:/bin"; *name; at++) {
        size_t n    = strcspn(at, ":");
        char  *some = in_directory(at, n, name);
        if (!some)
            return LS_ENOMEM;
        if (is_program(some)) {
            *path = some;
            return LS_OK;
        }
        free(some);
        error = errno == EACCES ? EACCES : error;
        at += n;
        if (!*at)
            break;
    }
    return no_program(name, error);
}

/* ---- the environment ---- */

/* What is set anew, and what other launchers say of a rank; '*': all that start so. */
static const char *const replaced[] = {"RANK",
                                       "WORLD_SIZE",
                                       "LOCAL_RANK",
                                       "LOCAL_WORLD_SIZE",
                                       "GROUP_RANK",
                                       "GROUP_WORLD_SIZE",
                                       "MASTER_ADDR",
                                       "MASTER_PORT",
                                       "LOCKSTEP_RUN_ID",
                                       "LOCKSTEP_RESTART",
                                       "LOCKSTEP_SECRET",
                                       "LOCKSTEP_LISTEN_FD",
                                       "LOCKSTEP_BOARD_FD",
                                       "ROLE_*",
                                       "TORCHELASTIC_*",
                                       "OMPI_*",
                                       "PMIX_*",
                                       "PMI_*",
                                       "MPI_LOCAL*",
                                       "MV2_COMM_WORLD_*",
                                       "SLURM_PROCID",
                                       "SLURM_LOCALID",
                                       "SLURM_NODEID",
                                       "SLURM_NTASKS*",
                                       "SLURM_NPROCS",
                                       "SLURM_STEP_NUM_*",
                                       "SLURM_STEP_TASKS_*",
                                       "SLURM_TASKS_PER_NODE",
                                       "SLURM_TASK_PID",
                                       "SLURM_GTIDS"};

static bool is_replaced(const char *variable)
{
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        size_t n = strlen(replaced[i]);
        if (replaced[i][n - 1] == '*'
                ? !strncmp(variable, replaced[i], n - 1)
                : !strncmp(variable, replaced[i], n) && variable[n] == '=')
            return true;
    }
    return false;
}

/* [ pointers into environ | own texts | NULL ] */
typedef struct {
    char **variable;
    size_t n, kept;
    bool   failed;
} environment;

enum { OWN_VARIABLES = 16 };

static void set(environment *e, char *text)
{
    if (text)
        e->variable[e->n++] = text;
    else
        e->failed = true;
}

static void environment_free(environment *e)
{
    for (size_t i = e->kept; i < e->n; i++)
        free(e->variable[i]);
    free(e->variable);
}

static bool keep_environment(environment *e)
{
    size_t n = 0;

    while (environ && environ[n])
        n++;
    e->variable = ls_calloc(n + OWN_VARIABLES, sizeof *e->variable);
    if (!e->variable)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_replaced(environ[i]))
            e->variable[e->n++] = environ[i];
    e->kept = e->n;
    return true;
}

static ls_status environment_of(environment *e, const ls__place *p, int i)
{
    int nodes = p->opts->nodes > 0 ? p->opts->nodes : 1;
    int rank  = p->opts->node * p->n + i;

    if (!keep_environment(e))
        return LS_ENOMEM;
    set(e, ls_sprintf("RANK=%d", rank));
    set(e, ls_sprintf("WORLD_SIZE=%d", p->n * nodes));
    set(e, ls_sprintf("LOCAL_RANK=%d", i));
    set(e, ls_sprintf("LOCAL_WORLD_SIZE=%d", p->n));
    set(e, ls_sprintf("GROUP_RANK=%d", p->opts->node));
    set(e, ls_sprintf("GROUP_WORLD_SIZE=%d", nodes));
    set(e, ls_sprintf("MASTER_ADDR=%s", p->master.host));
    set(e, ls_sprintf("MASTER_PORT=%d", p->master.port));
    set(e, ls_sprintf("LOCKSTEP_RUN_ID=%s", p->run_id));
    set(e, ls_sprintf("LOCKSTEP_RESTART=%d", p->restart));
    set(e, ls_sprintf("LOCKSTEP_SECRET=%s", p->secret));
    set(e, ls_sprintf("LOCKSTEP_BOARD_FD=%d", p->board_fd));
    if (rank == 0 && p->listen_fd >= 0)
        set(e, ls_sprintf("LOCKSTEP_LISTEN_FD=%d", p->listen_fd));
    return e->failed ? LS_ENOMEM : LS_OK;
}

/* ---- descriptors ---- */

/* The child's ends of its standard streams. */
typedef struct {
    int in, out, err;
} ends;

static void close_ends(const ends *e)
{
    const int fd[] = {e->in, e->out, e->err};

    for (int i = 0; i < 3; i++)
        if (fd[i] > STDERR_FILENO)
            close(fd[i]);
}

static void close_started(const ls__started *s)
{
    close_ends(&(ends){s->in, s->out, s->err});
}

/* A pipe to read from a rank (`reads`) or to write to one; the launcher's end never waits. */
static bool make_pipe(bool reads, int *own, int *child)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC))
        return false;
    *own   = pair[reads ? 0 : 1];
    *child = pair[reads ? 1 : 0];
    fcntl(*own, F_SETFL, O_NONBLOCK);
    return true;
}

/* Rank 0 of the world inherits stdin, through a pipe where that is a terminal. */
static bool make_input(const ls__place *p, int i, ls__started *s, ends *e)
{
    if (i > 0 || p->opts->node > 0) {
        e->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return e->in >= 0;
    }
    e->in = STDIN_FILENO;
    return !isatty(STDIN_FILENO) || make_pipe(false, &s->in, &e->in);
}

static bool make_ends(const ls__place *p, int i, ls__started *s, ends *e)
{
    return make_input(p, i, s, e) && make_pipe(true, &s->out, &e->out) &&
           make_pipe(true, &s->err, &e->err);
}

/* ---- the child ---- */

static void hand_down(int fd)
{
    if (fd >= 0)
        fcntl(fd, F_SETFD, 0);
}

/*
 * With all signals blocked until its handlers are the caller's again.  It tells the guardian
 * itself: the launcher may be killed before it could.
 */
static void become_rank(const ls__place *p, int i, const ends *e)
{
    setpgid(0, 0);
    ls__guard_add(p->guard, getpid());
    if (e->in != STDIN_FILENO)
        dup2(e->in, STDIN_FILENO);
    dup2(e->out, STDOUT_FILENO);
    dup2(e->err, STDERR_FILENO);
    hand_down(p->board_fd);
    if (i == 0 && p->opts->node == 0)
        hand_down(p->listen_fd);
    setrlimit(RLIMIT_NOFILE, &p->files);
    ls__signals_reset(p->signals);
}

_Noreturn static void run_rank(const ls__place *p, int i, const ends *e, char **variables,
                               pid_t launcher)
{
    ls__trouble trouble = {.rank = i};
    ssize_t     told;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher)
        _exit(127); /* it died before that call */
    become_rank(p, i, e);
    execvpe(p->path, p->opts->argv, variables);
    trouble.error = errno;
    told          = write(p->trouble_fd, &trouble, sizeof trouble);
    (void)told;
    _exit(127);
}

static ls_status fork_rank(const ls__place *p, int i, const ends *e, char **variables,
                           pid_t *child)
{
    sigset_t all, before;
    pid_t    launcher = getpid();

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    *child = fork();
    if (*child == 0)
        run_rank(p, i, e, variables, launcher);
    int error = errno;
    if (*child > 0)
        setpgid(*child, *child); /* the child does the same; whoever comes first */
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (*child < 0)
        return ls_fail(LS_EIO, "run: rank %d of %d cannot be started: %s", i, p->n,
                       strerror(error));
    return LS_OK;
}

ls_status ls__rank_start(const ls__place *place, int i, ls__started *started)
{
    environment variables = {0};
    ends        e         = {-1, -1, -1};
    ls_status   status;

    *started = (ls__started){.in = -1, .out = -1, .err = -1};
    status   = environment_of(&variables, place, i);
    if (!status && !make_ends(place, i, started, &e))
        status = ls_fail(LS_EIO, "run: no descriptors for rank %d of %d: %s", i, place->n,
                         strerror(errno));
    if (!status)
        status = fork_rank(place, i, &e, variables.variable, &started->pid);
    close_ends(&e);
    if (status)
        close_started(started);
    environment_free(&variables);
    return status;
}
