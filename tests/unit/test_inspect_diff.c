/*
 * test_inspect_diff.c - the commands that read parameter files: output, errors, exit status.
 */
#include <fcntl.h>
#include <sys/wait.h>

#include "checkpoint/safetensors.h"
#include "cli/commands.h"
#include "temp_dir.h"
#include "test.h"

static char out[1 << 16], err[4096];

static void redirect(int fd, const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (file < 0 || dup2(file, fd) < 0)
        _exit(99);
    close(file);
}

static void collect(const char *path, char *text, size_t capacity)
{
    size_t n;
    char  *bytes = temp_get(path, &n);

    snprintf(text, capacity, "%.*s", bytes ? (int)n : 0, bytes ? bytes : "");
    free(bytes);
    unlink(path);
}

/* Runs a command in a child; fills out and err; returns the exit status. */
static int run(char **argv)
{
    int argc = 0, status = 0;

    while (argv[argc])
        argc++;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        redirect(1, temp_path("out"));
        redirect(2, temp_path("err"));
        int rc =
            strcmp(argv[0], "diff") != 0 ? ls_cmd_inspect(argc, argv) : ls_cmd_diff(argc, argv);
        fflush(stdout);
        _exit(rc);
    }
    waitpid(child, &status, 0);
    collect(temp_path("out"), out, sizeof out);
    collect(temp_path("err"), err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char  config[] = "{\"run\":{\"x\":[1]},\"parallel\":{\"strategy\":\"single\"}}";
static const float w[6]     = {0, 1, 2, 3, 4, 5};
static float       w2[6]    = {0, 1, 2, 3, 4, 5};

/* a: w and b.  b: w with one element changed.  c: w of another shape, b missing, d more. */
static void write_files(void)
{
    static const char    bytes[4] = {1, 2, 3, 4}, half[4] = {1, 2, 3, 5};
    static char          longs[8] = {1};
    const ls_st_metadata meta[]   = {{"step", "12"}, {"config", config}, {"world_size", "1"}};
    const ls_st_source   a[]      = {{"w", "F32", 2, {2, 3}, w}, {"b", "F16", 1, {2}, bytes}};
    const ls_st_source   b[]      = {{"w", "F32", 2, {2, 3}, w2}, {"b", "F16", 1, {2}, half}};
    const ls_st_source   c[]      = {{"w", "F32", 2, {3, 2}, w}, {"d", "I64", 0, {0}, longs}};
    const ls_st_source   ours[]   = {{"w", "F32", 2, {2, 3}, w}};
    /* sha256 of "w\0F32\0", 2 and 3 as u64, and the six floats */
    const ls_st_metadata right[] = {
        {"params_sha256", "c521e5a0eaf6af4c607840a0aea7885aa0494812ec79b994cd2002beed614bae"}};
    const ls_st_metadata wrong[] = {{"params_sha256", "0000"}};

    w2[4] = nextafterf(nextafterf(4, 5), 5);
    CHECK_OK(ls_safetensors_write(temp_path("a.safetensors"), a, 2, meta, 3));
    CHECK_OK(ls_safetensors_write(temp_path("b.safetensors"), b, 2, NULL, 0));
    CHECK_OK(ls_safetensors_write(temp_path("c.safetensors"), c, 2, NULL, 0));
    CHECK_OK(ls_safetensors_write(temp_path("params.safetensors"), ours, 1, right, 1));
    CHECK_OK(ls_safetensors_write(temp_path("wrong.safetensors"), ours, 1, wrong, 1));
}

/* Arguments ("@x" is file x of the directory), exit status, parts of stdout and stderr. */
static const struct {
    const char *name;
    const char *argv[5];
    int         status;
    const char *out[4], *err;
} rows[] = {
    {"inspect",
     {"inspect", "@a.safetensors"},
     0,
     {"step           12\n", "strategy       single\n", "world          1\n", "8 in 2 tensors"},
     ""},
    {"inspect --json",
     {"inspect", "@a.safetensors", "--json"},
     0,
     {"\"step\":12,\"strategy\":\"single\",\"world_size\":1,\"parameters\":8,\"n_tensors\":2",
      "\"params_sha256\":null,\"verified\":null,\"dtypes\":{\"F16\":1,\"F32\":1}",
      "{\"name\":\"w\",\"dtype\":\"F32\",\"shape\":[2,3],\"bytes\":24,\"data_offsets\":[0,24]}",
      "\\\"parallel\\\""},
     ""},
    {"inspect without metadata",
     {"inspect", "--json", "@b.safetensors"},
     0,
     {"\"step\":null,\"strategy\":null,\"world_size\":null"},
     ""},
    {"inspect a run",
     {"inspect", "@"},
     0,
     {"c521e5a0eaf6af4c607840a0aea7885aa0494812ec79b994cd2002beed614bae (as the file says)"},
     ""},
    {"inspect a run --json",
     {"inspect", "@", "--json"},
     0,
     {"\"c521e5a0eaf6af4c607840a0aea7885aa0494812ec79b994cd2002beed614bae\",\"verified\":true"},
     ""},
    {"inspect a wrong hash",
     {"inspect", "@wrong.safetensors", "--json"},
     1,
     {"\"verified\":false"},
     "params_sha256 c521e5a0eaf6af4c607840a0aea7885aa0494812ec79b994cd2002beed614bae, its "
     "metadata says 0000\n"},
    {"inspect nothing", {"inspect", "@none"}, 1, {""}, "lockstep: error: /tmp/"},
    {"inspect garbage", {"inspect", "@garbage"}, 1, {""}, "garbage: truncated: expected"},
    {"inspect --help", {"inspect", "--help"}, 0, {"usage: lockstep inspect"}, ""},
    {"inspect too few", {"inspect"}, 2, {""}, "lockstep: error: inspect: 0 arguments given"},
    {"inspect too many", {"inspect", "a", "b"}, 2, {""}, "2 arguments given, expected one"},
    {"inspect --jsn", {"inspect", "--jsn", "a"}, 2, {""}, "unknown option '--jsn'"},
    {"diff itself",
     {"diff", "@a.safetensors", "@a.safetensors"},
     0,
     {"identical: 2 tensors\n"},
     ""},
    {"diff itself --json",
     {"diff", "@a.safetensors", "@a.safetensors", "--json"},
     0,
     {"\"identical\":true,\"n_identical\":2,\"n_different\":0,\"n_only_a\":0,\"n_only_b\":0}"
      "\n"},
     ""},
    {"diff",
     {"diff", "@a.safetensors", "@b.safetensors"},
     1,
     {"different: w F32 (2,3): first at [1,1] (4, 4.00000095), 1 of 6 elements, max abs "
      "9.53674e-07, max ulps 2\n",
      "different: b F16 (2): first at [1], 1 of 2 elements\n",
      "0 tensors identical, 2 different"},
     ""},
    {"diff --json",
     {"diff", "@a.safetensors", "@b.safetensors", "--json"},
     1,
     {"\"differing\":1,\"first\":4,\"first_index\":[1,1],\"first_a\":\"4\",\"first_b\":"
      "\"4.00000095\",\"max_abs\":9.5367431640625e-07,\"max_ulps\":2}",
      "\"first_index\":[1],\"max_abs\":null,\"max_ulps\":null}", "\"identical\":false"},
     ""},
    {"diff of shapes and names",
     {"diff", "@a.safetensors", "@c.safetensors"},
     1,
     {"unlike:    w F32 (2,3) in A, F32 (3,2) in B\n", "only in A: b F16 (2)\n",
      "only in B: d I64 ()\n", "0 tensors identical, 1 different, 1 only in A, 1 only in B"},
     ""},
    {"diff of nothing", {"diff", "@a.safetensors", "@none"}, 1, {""}, "No such file"},
    {"diff --help", {"diff", "-h"}, 0, {"usage: lockstep diff"}, ""},
    {"diff too few", {"diff", "a"}, 2, {""}, "1 arguments given, expected two"},
};

static void test_rows(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char  path[4][512];
        char *argv[6] = {NULL};
        TEST_ROW(rows[i].name);
        for (int k = 0; rows[i].argv[k]; k++) {
            const char *arg = rows[i].argv[k];
            snprintf(path[k], sizeof path[k], "%s", *arg == '@' ? temp_path(arg + 1) : arg);
            argv[k] = path[k];
        }
        CHECK(run(argv) == rows[i].status);
        for (int k = 0; k < 4 && rows[i].out[k]; k++)
            if (!CHECK(strstr(out, rows[i].out[k])))
                printf("     got \"%s\", want \"%s\"\n", out, rows[i].out[k]);
        if (!CHECK(*rows[i].err ? strstr(err, rows[i].err) != NULL : !*err))
            printf("     got \"%s\"\n", err);
        if (rows[i].out[0] && !*rows[i].out[0])
            CHECK(!*out);
    }
}

/* Floats where bits, numbers and order disagree. */
static void test_ulps(void)
{
    static const struct {
        const char *name;
        float       a, b;
        const char *message;
    } values[] = {
        {"zeros", 0.0f, -0.0f, "(0, -0), 1 of 1 elements, max abs 0, max ulps 0"},
        {"across zero", 1e-45f, -1e-45f, "max ulps 2"},
        {"infinity", INFINITY, 3.40282347e38f, "max abs inf, max ulps 1"},
        {"NaN", NAN, 1.0f, "(nan, 1), 1 of 1 elements, max abs nan, max ulps 4294967296"},
        {"same NaN", NAN, NAN, "identical"},
    };

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char  a[512], b[512], diff[] = "diff";
        char *argv[] = {diff, a, b, NULL};
        TEST_ROW(values[i].name);
        ls_st_source s = {"x", "F32", 0, {0}, &values[i].a};
        snprintf(a, sizeof a, "%s", temp_path("ua"));
        snprintf(b, sizeof b, "%s", temp_path("ub"));
        CHECK_OK(ls_safetensors_write(a, &s, 1, NULL, 0));
        s.data = &values[i].b;
        CHECK_OK(ls_safetensors_write(b, &s, 1, NULL, 0));
        run(argv);
        if (!CHECK(strstr(out, values[i].message)))
            printf("     got \"%s\"\n", out);
    }
}

static void test_exit_status(void)
{
    CHECK(ls_exit_status(LS_OK) == 0 && ls_exit_status(LS_EIO) == 1);
    CHECK(ls_exit_status(LS_ECONFIG) == 2 && ls_exit_status(LS_EUNSUPPORTED) == 2);
    CHECK(ls_exit_status(LS_EINTERRUPTED) == 130 && ls_report(LS_OK) == 0);
}

int main(void)
{
    temp_dir_make();
    write_files();
    temp_put(temp_path("garbage"), "abc", 3);
    test_rows();
    test_ulps();
    TEST_ROW("exit status");
    test_exit_status();
    temp_dir_remove();
    return test_summary("inspect_diff");
}
