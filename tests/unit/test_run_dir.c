/*
 * test_run_dir.c - run directories: made with parents, earlier runs moved aside, failures.
 */
#include "cli/run_dir.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "temp_dir.h"
#include "test.h"

static bool has(const char *path, const char *text)
{
    size_t n;
    char  *bytes = temp_get(path, &n);
    bool   same  = bytes && n == strlen(text) && !memcmp(bytes, text, n);

    free(bytes);
    return same;
}

static void put(const char *dir, const char *name, const char *text)
{
    CHECK_OK(ls_run_dir_write(dir, name, text));
}

static void remove_file(const char *dir, const char *name)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK(!remove(path));
}

static void test_made(void)
{
    char *aside = NULL;

    TEST_ROW("with parents");
    CHECK_OK(ls_run_dir_open(temp_path("a/b/c"), &aside));
    CHECK(!aside && !access(temp_path("a/b/c"), W_OK));
    TEST_ROW("there, and empty");
    CHECK_OK(ls_run_dir_open(temp_path("a/b/c/"), &aside));
    CHECK(!aside);
    TEST_ROW("written");
    put(temp_path("a/b/c"), "config.json", "{}");
    CHECK(has(temp_path("a/b/c/config.json"), "{}"));
    remove_file(temp_path("a/b/c"), "config.json");
    rmdir(temp_path("a/b/c"));
    rmdir(temp_path("a/b"));
    rmdir(temp_path("a"));
}

/* Earlier runs in the order in which they ran; files that are not a run's stay. */
static void test_aside(void)
{
    const char *dir = temp_path("r");
    char       *aside;

    TEST_ROW("moved aside");
    CHECK_OK(ls_run_dir_open(dir, &aside));
    put(dir, "notes.txt", "mine");
    put(dir, "config.json", "first");
    put(dir, "params.safetensors", "p");
    CHECK_OK(ls_run_dir_open(dir, &aside));
    CHECK(aside && strstr(aside, "r/previous-1"));
    free(aside);
    put(dir, "log.txt", "second");
    CHECK_OK(ls_run_dir_open(dir, &aside));
    CHECK(aside && strstr(aside, "r/previous-2"));
    free(aside);
    CHECK_OK(ls_run_dir_open(dir, &aside));
    CHECK(!aside);
    CHECK(has(temp_path("r/notes.txt"), "mine"));
    CHECK(has(temp_path("r/previous-1/config.json"), "first"));
    CHECK(has(temp_path("r/previous-1/params.safetensors"), "p"));
    CHECK(has(temp_path("r/previous-2/log.txt"), "second"));
}

/* A directory of checkpoints is moved like a file, a dangling link too. */
static void test_aside_kinds(void)
{
    char *aside;

    TEST_ROW("directory and link");
    CHECK(!mkdir(temp_path("r/checkpoints"), 0777));
    CHECK(!symlink("nowhere", temp_path("r/trace.json")));
    CHECK_OK(ls_run_dir_open(temp_path("r"), &aside));
    free(aside);
    CHECK(!access(temp_path("r/previous-3/checkpoints"), F_OK));
    remove_file(temp_path("r/previous-3"), "trace.json");
    remove_file(temp_path("r/previous-3"), "checkpoints");
    remove_file(temp_path("r"), "previous-3");
    remove_file(temp_path("r/previous-2"), "log.txt");
    remove_file(temp_path("r"), "previous-2");
    remove_file(temp_path("r/previous-1"), "config.json");
    remove_file(temp_path("r/previous-1"), "params.safetensors");
    remove_file(temp_path("r"), "previous-1");
    remove_file(temp_path("r"), "notes.txt");
    CHECK(!rmdir(temp_path("r")));
}

/* What killed processes left half written goes, in the folder and in its store, whether the run
 * goes on or starts over; a report that is just being written stays. */
static void test_leftovers(void)
{
    char *aside;

    for (int again = 0; again < 2; again++) {
        TEST_ROW(again ? "leftovers, starting over" : "leftovers, going on");
        CHECK_OK(ls_run_dir_reopen(temp_path("l/checkpoints/.tmp-step-00000002-1")));
        CHECK_OK(ls_run_dir_reopen(temp_path("l/checkpoints/.trash-step-00000001")));
        put(temp_path("l/checkpoints/.tmp-step-00000002-1"), "manifest.json", "{");
        put(temp_path("l"), ".summary.json.tmp-12-0", "{");
        put(temp_path("l"), ".report.html.tmp-12-0", "<");
        put(temp_path("l"), "notes.tmp-1", "mine");
        if (again) {
            CHECK_OK(ls_run_dir_open(temp_path("l"), &aside));
            CHECK(aside && !rmdir(temp_path("l/previous-1/checkpoints")));
            CHECK(!rmdir(aside));
            free(aside);
        } else {
            CHECK_OK(ls_run_dir_reopen(temp_path("l")));
            CHECK(!rmdir(temp_path("l/checkpoints")));
        }
        CHECK(access(temp_path("l/.summary.json.tmp-12-0"), F_OK));
        remove_file(temp_path("l"), ".report.html.tmp-12-0");
        remove_file(temp_path("l"), "notes.tmp-1");
        CHECK(!rmdir(temp_path("l")));
    }
}

static void test_refused(void)
{
    char *aside;

    temp_put(temp_path("file"), "x", 1);
    TEST_ROW("a file in the way");
    CHECK_FAILS(ls_run_dir_open(temp_path("file"), &aside), LS_EIO, temp_path("file"));
    TEST_ROW("a file among the parents");
    CHECK_FAILS(ls_run_dir_open(temp_path("file/r"), &aside), LS_EIO, "file");
    CHECK(has(temp_path("file"), "x"));
    TEST_ROW("no memory");
    for (int64_t n = 0;; n++) {
        ls_alloc_fail_after(n);
        ls_status status = ls_run_dir_open(temp_path("m"), &aside);
        ls_alloc_fail_after(-1);
        if (!status)
            break;
        CHECK(status == LS_ENOMEM && !aside && n < 100);
    }
    put(temp_path("m"), "config.json", "kept");
    for (int64_t n = 0;; n++) {
        ls_alloc_fail_after(n);
        ls_status status = ls_run_dir_write(temp_path("m"), "config.json", "new");
        ls_alloc_fail_after(-1);
        if (!status)
            break;
        CHECK(status == LS_ENOMEM && n < 100 && has(temp_path("m/config.json"), "kept"));
    }
    CHECK(has(temp_path("m/config.json"), "new"));
    remove_file(temp_path("m"), "config.json");
    CHECK(!rmdir(temp_path("m")));
}

int main(void)
{
    temp_dir_make();
    test_made();
    test_aside();
    test_aside_kinds();
    test_leftovers();
    test_refused();
    temp_dir_remove();
    return test_summary("run_dir");
}
