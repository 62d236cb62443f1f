/*
 * launch_env.c - what the launcher says of this process, in whichever words it says it.
 *
 *     RANK, WORLD_SIZE          torchrun, `lockstep run`, by hand: the innermost, it wins
 *     OMPI_COMM_WORLD_*         Open MPI's mpirun
 *     PMI_RANK, PMI_SIZE        MPICH's mpirun
 *     SLURM_PROCID, _NTASKS     srun: the outermost
 *
 * What the winner does not say (who else is on this host, where rank 0 is) an outer one adds,
 * if it gives this process the same number in a world of the same size.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dist/comm/rendezvous.h"

typedef struct {
    const char *launcher, *rank, *world, *local_rank, *local_world;
} words;

static const words dialects[] = {
    {"environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL},
};

enum { PLAIN, SLURM = 3, DIALECTS };

/* What one of them says; there: it does. */
typedef struct {
    bool there;
    int  rank, world, local_rank, local_world;
} saying;

/* An empty variable is one that is not set. */
static const char *get(const char *name)
{
    const char *value = name ? getenv(name) : NULL;

    return value && value[0] ? value : NULL;
}

/* The first of them that is set, NULL: none. */
static const char *first_of(const char *const *names, int n)
{
    const char *value = NULL;

    for (int i = 0; i < n && !value; i++)
        value = get(names[i]);
    return value;
}

/* *value stays as it is where the variable is not set. */
static ls_status read_number(const char *name, int least, int most, int *value)
{
    const char *text = get(name);
    char       *end;

    if (!text)
        return LS_OK;
    errno       = 0;
    long number = strtol(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno || number < least || number > most)
        return ls_fail(LS_ECONFIG, "%s=\"%.80s\" is not a whole number from %d to %d", name,
                       text, least, most);
    *value = (int)number;
    return LS_OK;
}

/* ---- one dialect ---- */

static ls_status check_local(const words *w, const saying *s)
{
    if (s->local_world > s->world)
        return ls_fail(LS_ECONFIG,
                       "%s=%d does not fit %s=%d: more ranks on this host than "
                       "there are",
                       w->local_world, s->local_world, w->world, s->world);
    if (s->local_world >= 0 && s->local_rank >= s->local_world)
        return ls_fail(LS_ECONFIG, "%s=%d does not fit %s=%d: ranks of a host count from 0",
                       w->local_rank, s->local_rank, w->local_world, s->local_world);
    if (s->local_rank >= s->world)
        return ls_fail(LS_ECONFIG, "%s=%d does not fit %s=%d", w->local_rank, s->local_rank,
                       w->world, s->world);
    return LS_OK;
}

/* One that is incomplete is passed over where an inner one is there. */
static ls_status listen_to(int dialect, bool needed, saying *s)
{
    const words *w      = &dialects[dialect];
    bool         ranked = get(w->rank), counted = get(w->world);
    ls_status    status;

    *s = (saying){false, 0, 1, -1, -1};
    if (!ranked && (!counted || dialect == SLURM)) /* salloc's shell is no task */
        return LS_OK;
    if (!ranked || !counted)
        return !needed ? LS_OK
                       : ls_fail(LS_ECONFIG, "%s is set, but %s is not: a rank needs both",
                                 ranked ? w->rank : w->world, ranked ? w->world : w->rank);
    if ((status = read_number(w->world, 1, INT_MAX, &s->world)) ||
        (status = read_number(w->rank, 0, INT_MAX, &s->rank)) ||
        (status = read_number(w->local_world, 1, INT_MAX, &s->local_world)) ||
        (status = read_number(w->local_rank, 0, INT_MAX, &s->local_rank)))
        return status;
    if (s->rank >= s->world)
        return ls_fail(LS_ECONFIG, "%s=%d does not fit %s=%d: ranks count from 0", w->rank,
                       s->rank, w->world, s->world);
    s->there = true;
    return check_local(w, s);
}

/* ---- Slurm's lists ---- */

/* The n-th entry of "2(x3),1": 2, 2, 2, 1; -1 where there is none. */
static int nth_count(const char *list, int n)
{
    while (isdigit((unsigned char)*list)) {
        char *end;
        long  value = strtol(list, &end, 10), times = 1;
        if (!strncmp(end, "(x", 2)) {
            times = strtol(end + 2, &end, 10);
            end += *end == ')';
        }
        if (n < times)
            return value > 0 && value <= INT_MAX ? (int)value : -1;
        n -= times > 0 ? (int)times : 0;
        if (*end != ',')
            return -1;
        list = end + 1;
    }
    return -1;
}

static ls_status read_slurm_local(saying *s)
{
    static const char *const lists[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"};
    const char              *list    = first_of(lists, 2);
    int                      node = list && !strpbrk(list, ",(") ? 0 : -1, nodes = -1;

    ls_status status = read_number("SLURM_NODEID", 0, INT_MAX, &node);
    if (!status)
        status = read_number("SLURM_NNODES", 1, INT_MAX, &nodes);
    if (status || !s->there)
        return status;
    if (list && node >= 0)
        s->local_world = nth_count(list, node);
    if (s->local_world < 0 && nodes == 1)
        s->local_world = s->world;
    if (s->local_world > s->world || s->local_rank >= s->local_world) /* the job's, no step's */
        s->local_world = -1;
    return LS_OK;
}

/* "n[01-04,07],m2" -> "n01", "a,b" -> "a" */
static void first_host(const char *list, char *host, size_t size)
{
    size_t stem = strcspn(list, "[,"), used = stem < size ? stem : size - 1;

    memcpy(host, list, used);
    host[used] = '\0';
    if (list[stem] != '[')
        return;
    const char *index = list + stem + 1, *after = strchr(index, ']');
    size_t      suffix = after ? strcspn(after + 1, ",") : 0;
    snprintf(host + used, size - used, "%.*s%.*s", (int)strcspn(index, "-,]"), index,
             (int)suffix, after ? after + 1 : "");
}

/* A port that the tasks of a step agree on: below those that systems give to clients. */
static int slurm_port(const char *job, const char *step)
{
    long number = strtol(job ? job : "0", NULL, 10) + 97 * strtol(step ? step : "0", NULL, 10);

    return 20000 + (int)((unsigned long)number % 10000);
}

static const char *slurm_job(void)
{
    static const char *const names[] = {"SLURM_JOB_ID", "SLURM_JOBID"};

    return first_of(names, 2);
}

static const char *slurm_step(void)
{
    static const char *const names[] = {"SLURM_STEP_ID", "SLURM_STEPID"};

    return first_of(names, 2);
}

static void add_slurm_master(ls_launch_env *env)
{
    static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_NODELIST",
                                        "SLURM_JOB_NODELIST"};
    const char              *list    = first_of(lists, 3);

    if (!env->master[0] && list)
        first_host(list, env->master, sizeof env->master);
    if (!env->port)
        env->port = slurm_port(slurm_job(), slurm_step());
}

/* ---- which one wins ---- */

static ls_status contradict(const words *a, const saying *x, const words *b, const saying *y)
{
    return ls_fail(LS_ECONFIG,
                   "%s=%d and %s=%d contradict %s's %s=%d and %s=%d: unset the first two, or "
                   "give this process the same numbers",
                   a->rank, x->rank, a->world, x->world, b->launcher, b->rank, y->rank,
                   b->world, y->world);
}

/*
 * RANK and WORLD_SIZE by hand, inside a launcher: the same numbers, or several of our ranks in
 * each of its processes.  A smaller world, or another place in an equal one, is a leftover.
 */
static ls_status check_contradictions(const saying *said)
{
    const saying *hand = &said[PLAIN];

    for (int d = PLAIN + 1; d < DIALECTS && hand->there; d++) {
        const saying *s = &said[d];
        if (s->there && s->world > 1 &&
            (s->world > hand->world || (s->world == hand->world && s->rank != hand->rank)))
            return contradict(&dialects[PLAIN], hand, &dialects[d], s);
    }
    return LS_OK;
}

/* What others say of the host, if they speak of the same world. */
static void add_from_outer(saying *chosen, const saying *said)
{
    for (int d = 0; d < DIALECTS; d++) {
        const saying *s = &said[d];
        if (!s->there || s->rank != chosen->rank || s->world != chosen->world)
            continue;
        if (chosen->local_rank < 0)
            chosen->local_rank = s->local_rank;
        if (chosen->local_world < 0)
            chosen->local_world = s->local_world;
    }
}

static const char *launcher_of(int chosen)
{
    if (chosen != PLAIN)
        return dialects[chosen].launcher;
    if (get("TORCHELASTIC_RUN_ID"))
        return "torchrun";
    return get("LOCKSTEP_RUN_ID") ? "lockstep" : dialects[PLAIN].launcher;
}

/* ---- the job ---- */

/* MPICH gives its processes no name of the job: their common parent is one. */
static void name_by_parent(char *id, size_t size)
{
    char path[64], line[512] = "";
    long parent = getppid();

    snprintf(path, sizeof path, "/proc/%ld/stat", parent);
    FILE *file = fopen(path, "re");
    if (file && !fgets(line, sizeof line, file))
        line[0] = '\0';
    if (file)
        fclose(file);
    const char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++) /* the 22nd: when it started */
        if ((at = strchr(at, ' ')))
            at++;
    snprintf(id, size, "parent %ld %.*s", parent, at ? (int)strcspn(at, " ") : 0, at ? at : "");
}

static void name_by_launcher(ls_launch_env *env, int chosen)
{
    static const char *const mpi[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                                      "OMPI_MCA_orte_ess_jobid", "PMI_JOBID"};
    const char              *name  = get("TORCHELASTIC_RUN_ID");
    size_t                   size  = sizeof env->run_id;

    if (chosen != PLAIN && chosen != SLURM)
        name = first_of(mpi, 4);
    if (name && chosen != SLURM)
        snprintf(env->run_id, size, "%s", name);
    else if (chosen == SLURM || (chosen != PLAIN && slurm_job()))
        snprintf(env->run_id, size, "slurm %s.%s", slurm_job() ? slurm_job() : "?",
                 slurm_step() ? slurm_step() : "0");
    else if (chosen != PLAIN)
        name_by_parent(env->run_id, size);
}

static ls_status name_job(ls_launch_env *env, int chosen)
{
    const char *ours = get("LOCKSTEP_RUN_ID"), *theirs = get("TORCHELASTIC_RUN_ID");

    if (ours && strlen(ours) >= sizeof env->run_id)
        return ls_fail(LS_ECONFIG, "LOCKSTEP_RUN_ID has %zu characters: at most %zu",
                       strlen(ours), sizeof env->run_id - 1);
    if (theirs && strlen(theirs) >= sizeof env->run_id)
        return ls_fail(LS_ECONFIG, "TORCHELASTIC_RUN_ID has %zu characters: at most %zu",
                       strlen(theirs), sizeof env->run_id - 1);
    if (ours)
        snprintf(env->run_id, sizeof env->run_id, "%s", ours);
    else
        name_by_launcher(env, chosen);
    ls_status status = read_number("TORCHELASTIC_RESTART_COUNT", 0, INT_MAX, &env->restart);
    return status ? status : read_number("LOCKSTEP_RESTART", 0, INT_MAX, &env->restart);
}

static ls_status read_master(ls_launch_env *env)
{
    const char *master = get("MASTER_ADDR");

    if (master && strlen(master) >= sizeof env->master)
        return ls_fail(LS_ECONFIG, "MASTER_ADDR has %zu characters: at most %zu",
                       strlen(master), sizeof env->master - 1);
    snprintf(env->master, sizeof env->master, "%s", master ? master : "");
    size_t n = strlen(env->master);
    if (n > 2 && env->master[0] == '[' && env->master[n - 1] == ']') { /* "[::1]" */
        memmove(env->master, env->master + 1, n - 2);
        env->master[n - 2] = '\0';
    }
    return read_number("MASTER_PORT", 1, 65535, &env->port);
}

ls_status ls_launch_env_read(ls_launch_env *env)
{
    saying    said[DIALECTS];
    int       chosen = DIALECTS;
    ls_status status;

    *env = (ls_launch_env){.world = 1, .local_rank = -1, .local_world = -1, .launcher = "none"};
    for (int d = 0; d < DIALECTS; d++) {
        if ((status = listen_to(d, chosen == DIALECTS, &said[d])))
            return status;
        if (said[d].there && chosen == DIALECTS)
            chosen = d;
    }
    if ((status = read_slurm_local(&said[SLURM])) || (status = read_master(env)) ||
        chosen == DIALECTS)
        return status;
    env->launcher = launcher_of(chosen);
    if (!strcmp(env->launcher, "environment") && (status = check_contradictions(said)))
        return status;
    saying s = said[chosen];
    add_from_outer(&s, said);
    env->rank        = s.rank;
    env->world       = s.world;
    env->local_rank  = s.local_rank;
    env->local_world = s.local_world;
    env->store       = !strcmp(env->launcher, "torchrun");
    if (said[SLURM].there && said[SLURM].world == s.world && said[SLURM].rank == s.rank)
        add_slurm_master(env);
    return name_job(env, chosen);
}
