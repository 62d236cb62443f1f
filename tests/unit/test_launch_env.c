/*
 * test_launch_env.c - environments of launchers, and what is read from them.
 */
#include <stdlib.h>

#include "dist/comm/rendezvous.h"
#include "test.h"

/* Everything that is read; cleared before each row. */
static const char *const known[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "TORCHELASTIC_RESTART_COUNT",
                                    "LOCKSTEP_RUN_ID",
                                    "LOCKSTEP_RESTART",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "OMPI_MCA_ess_base_jobid",
                                    "OMPI_MCA_orte_ess_jobid",
                                    "PMIX_NAMESPACE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "PMI_JOBID",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_JOB_ID",
                                    "SLURM_JOBID",
                                    "SLURM_STEP_ID",
                                    "SLURM_STEPID",
                                    "SLURM_NODEID",
                                    "SLURM_NNODES",
                                    "SLURM_NODELIST",
                                    "SLURM_JOB_NODELIST",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_TASKS_PER_NODE",
                                    "SLURM_STEP_TASKS_PER_NODE"};

/* Sets "A=1 B=2"; a value ends at the next space. */
static void set_all(const char *text)
{
    char copy[1000], *rest = copy;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        unsetenv(known[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals      = '\0';
        bool listed  = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            listed = listed || !strcmp(known[i], word);
        CHECK(listed);
        setenv(word, equals + 1, 1);
    }
}

#define TORCH \
    "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n1 MASTER_PORT=29400"
#define OMPI "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 "
#define SLURM "SLURM_PROCID=5 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_JOB_ID=812 SLURM_STEP_ID=3 "

static const struct {
    const char *set, *launcher;
    int         rank, world, local_rank, local_world;
    const char *master;
    int         port;
    const char *run_id; /* NULL: any */
    int         restart;
    bool        store;
} good[] = {
    {"", "none", 0, 1, -1, -1, "", 0, "", 0, false},
    {"RANK= WORLD_SIZE=", "none", 0, 1, -1, -1, "", 0, "", 0, false},
    {"MASTER_ADDR=h MASTER_PORT=5", "none", 0, 1, -1, -1, "h", 5, "", 0, false},
    {"RANK=0 WORLD_SIZE=1", "environment", 0, 1, -1, -1, "", 0, "", 0, false},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=[::1] MASTER_PORT=65535", "environment", 1, 2, -1, -1,
     "::1", 65535, "", 0, false},
    {TORCH, "environment", 2, 4, 0, 2, "n1", 29400, "", 0, false},
    {TORCH " TORCHELASTIC_RUN_ID=j7 TORCHELASTIC_RESTART_COUNT=2", "torchrun", 2, 4, 0, 2, "n1",
     29400, "j7", 2, true},
    {TORCH " LOCKSTEP_RUN_ID=ab LOCKSTEP_RESTART=3", "lockstep", 2, 4, 0, 2, "n1", 29400, "ab",
     3, false},
    {TORCH " LOCKSTEP_RUN_ID=ab TORCHELASTIC_RUN_ID=none", "torchrun", 2, 4, 0, 2, "n1", 29400,
     "ab", 0, true},
    /* mpirun */
    {OMPI "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=4242",
     "Open MPI", 3, 4, 1, 2, "", 0, "4242", 0, false},
    {OMPI "OMPI_MCA_ess_base_jobid=17 MASTER_ADDR=a MASTER_PORT=1", "Open MPI", 3, 4, -1, -1,
     "a", 1, "17", 0, false},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 PMI_JOBID=x", "MPICH", 1, 2, 1,
     2, "", 0, "x", 0, false},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "MPICH", 1, 2, 1, 2, "", 0,
     NULL, 0, false},
    /* srun */
    {SLURM "SLURM_STEP_NODELIST=n[07-09,11],m2 SLURM_NODEID=2 "
           "SLURM_STEP_TASKS_PER_NODE=2(x3),1",
     "Slurm", 5, 7, 1, 2, "n07", 21103, "slurm 812.3", 0, false},
    {SLURM "SLURM_NODELIST=a,b SLURM_NODEID=3 SLURM_TASKS_PER_NODE=2(x3),1 MASTER_PORT=9",
     "Slurm", 5, 7, 1, -1, "a", 9, "slurm 812.3", 0, false},
    {SLURM "SLURM_NODELIST=solo SLURM_NNODES=1", "Slurm", 5, 7, 1, 7, "solo", 21103,
     "slurm 812.3", 0, false},
    {SLURM "SLURM_NODELIST=r[1-2]-eth MASTER_ADDR=x LOCKSTEP_RUN_ID=me", "Slurm", 5, 7, 1, -1,
     "x", 21103, "me", 0, false},
    {SLURM "SLURM_JOB_NODELIST=r[12]-eth,z", "Slurm", 5, 7, 1, -1, "r12-eth", 21103,
     "slurm 812.3", 0, false},
    {"SLURM_NTASKS=4 SLURM_JOB_ID=5 SLURM_NODELIST=a", "none", 0, 1, -1, -1, "", 0, "", 0,
     false}, /* salloc's shell is no task */
    /* one inside the other */
    {OMPI "SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_ID=4", "Open MPI", 3, 4, -1, -1, "", 0,
     "slurm 4.0", 0, false},
    {OMPI "RANK=3 WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2",
     "environment", 3, 4, 1, 2, "", 0, "", 0, false},
    {OMPI "RANK=13 WORLD_SIZE=16", "environment", 13, 16, -1, -1, "", 0, "", 0, false},
    {OMPI TORCH " TORCHELASTIC_RUN_ID=j", "torchrun", 2, 4, 0, 2, "n1", 29400, "j", 0, true},
    {"PMI_RANK=5 PMI_SIZE=7 " SLURM "SLURM_NODELIST=q[3-4] SLURM_NNODES=1", "MPICH", 5, 7, 1, 7,
     "q3", 21103, "slurm 812.3", 0, false},
    {"RANK=0 WORLD_SIZE=2 PMI_RANK=0", "environment", 0, 2, -1, -1, "", 0, "", 0, false},
};

static void check_good(void)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ls_launch_env env;
        TEST_ROW(good[i].set);
        set_all(good[i].set);
        if (!CHECK_OK(ls_launch_env_read(&env)))
            continue;
        CHECK(!strcmp(env.launcher, good[i].launcher));
        CHECK(env.rank == good[i].rank && env.world == good[i].world);
        CHECK(env.local_rank == good[i].local_rank && env.local_world == good[i].local_world);
        CHECK(!strcmp(env.master, good[i].master) && env.port == good[i].port);
        CHECK(!good[i].run_id || !strcmp(env.run_id, good[i].run_id));
        CHECK(env.restart == good[i].restart && env.store == good[i].store);
    }
}

static const struct {
    const char *set, *text;
} bad[] = {
    {"RANK=1", "RANK is set, but WORLD_SIZE is not"},
    {"WORLD_SIZE=2", "WORLD_SIZE is set, but RANK is not"},
    {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not"},
    {"PMI_SIZE=2", "PMI_SIZE is set, but PMI_RANK is not"},
    {"SLURM_PROCID=0", "SLURM_PROCID is set, but SLURM_NTASKS is not"},
    {"RANK=x WORLD_SIZE=2", "RANK=\"x\" is not a whole number"},
    {"RANK=1x WORLD_SIZE=2", "RANK=\"1x\""},
    {"RANK=-1 WORLD_SIZE=2", "RANK=\"-1\""},
    {"RANK=+1 WORLD_SIZE=2", "RANK=\"+1\""},
    {"RANK=0x1 WORLD_SIZE=2", "RANK=\"0x1\""},
    {"RANK=1.0 WORLD_SIZE=2", "RANK=\"1.0\""},
    {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE=\"0\" is not a whole number from 1"},
    {"RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE=\"99999999999999999999\""},
    {"RANK=4294967296 WORLD_SIZE=2", "RANK=\"4294967296\""},
    {"RANK=2 WORLD_SIZE=2", "RANK=2 does not fit WORLD_SIZE=2"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2 does not fit"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2", "LOCAL_RANK=2 does not fit WORLD_SIZE=2"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3", "LOCAL_WORLD_SIZE=3 does not fit"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=z", "LOCAL_RANK=\"z\""},
    {"RANK=0 WORLD_SIZE=2 MASTER_PORT=0", "MASTER_PORT=\"0\""},
    {"RANK=0 WORLD_SIZE=2 MASTER_PORT=65536", "MASTER_PORT=\"65536\""},
    {"RANK=0 WORLD_SIZE=2 MASTER_PORT=http", "MASTER_PORT=\"http\""},
    {"RANK=0 WORLD_SIZE=2 LOCKSTEP_RESTART=no", "LOCKSTEP_RESTART=\"no\""},
    {TORCH " TORCHELASTIC_RUN_ID=a TORCHELASTIC_RESTART_COUNT=-2",
     "TORCHELASTIC_RESTART_COUNT=\"-2\""},
    {SLURM "SLURM_NODEID=one", "SLURM_NODEID=\"one\""},
    {"SLURM_PROCID=a SLURM_NTASKS=2", "SLURM_PROCID=\"a\""},
    /* contradictions: the leftover is named, and what it contradicts */
    {OMPI "RANK=0 WORLD_SIZE=1", "RANK=0 and WORLD_SIZE=1 contradict Open MPI's "
                                 "OMPI_COMM_WORLD_RANK=3 and OMPI_COMM_WORLD_SIZE=4"},
    {OMPI "RANK=0 WORLD_SIZE=4", "RANK=0 and WORLD_SIZE=4 contradict Open MPI's"},
    {SLURM "RANK=0 WORLD_SIZE=1", "contradict Slurm's SLURM_PROCID=5 and SLURM_NTASKS=7"},
};

static void check_bad(void)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_launch_env env;
        TEST_ROW(bad[i].set);
        set_all(bad[i].set);
        CHECK_FAILS(ls_launch_env_read(&env), LS_ECONFIG, bad[i].text);
    }
}

static void check_long(void)
{
    char          text[300];
    ls_launch_env env;

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"MASTER_ADDR", "LOCKSTEP_RUN_ID",
                                            "TORCHELASTIC_RUN_ID"};
        set_all("RANK=0 WORLD_SIZE=2");
        setenv(names[i], text, 1);
        TEST_ROW(names[i]);
        CHECK_FAILS(ls_launch_env_read(&env), LS_ECONFIG, names[i]);
    }
}

int main(void)
{
    check_good();
    check_bad();
    check_long();
    return test_summary("launch_env");
}
