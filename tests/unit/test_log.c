/*
 * test_log.c - lines, levels, a file that is lost (disk full) and reported once.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/log.h"
#include "test.h"

static char folder[] = "/tmp/ls_test_log_XXXXXX";
static char path[64];

static size_t read_all(const char *name, char *text, size_t room)
{
    FILE  *f = fopen(name, "r");
    size_t n = f ? fread(text, 1, room - 1, f) : 0;
    text[n]  = '\0';
    if (f)
        fclose(f);
    return n;
}

static void test_lines(void)
{
    char  *shown = NULL, file[512];
    size_t bytes;

    TEST_ROW("levels");
    FILE   *stream = open_memstream(&shown, &bytes);
    ls_log *log    = ls_log_new(stream, LS_LOG_WARNING);
    ls_log_warning(log, "before the file %d", 1);
    CHECK_OK(ls_log_open(log, path));
    ls_log_info(log, "step %d", 2);
    ls_log_warning(log, "slow: %s", "disk");
    ls_log_error(log, "%.1f", 2.5);
    CHECK_OK(ls_log_check(log));
    CHECK(!strcmp(shown, "warning: before the file 1\nwarning: slow: disk\nerror: 2.5\n"));
    read_all(path, file, sizeof file);
    CHECK(!strcmp(file, "step 2\nwarning: slow: disk\nerror: 2.5\n"));
    ls_log_free(log);

    TEST_ROW("a file is continued");
    log = ls_log_new(NULL, LS_LOG_INFO);
    CHECK_OK(ls_log_open(log, path));
    ls_log_info(log, "later");
    ls_log_free(log);
    read_all(path, file, sizeof file);
    CHECK(strstr(file, "error: 2.5\nlater\n") != NULL);
    fclose(stream);

    TEST_ROW("a stream is taken away, another given");
    free(shown);
    stream = open_memstream(&shown, &bytes);
    log    = ls_log_new(stream, LS_LOG_INFO);
    CHECK_OK(ls_log_open(log, path));
    ls_log_set_stream(log, NULL);
    ls_log_error(log, "for the file");
    ls_log_set_stream(log, stream);
    ls_log_info(log, "for both");
    ls_log_free(log);
    CHECK(!strcmp(shown, "for both\n"));
    read_all(path, file, sizeof file);
    CHECK(strstr(file, "error: for the file\nfor both\n") != NULL);
    fclose(stream);
    free(shown);
    unlink(path);
}

static void test_long_line(void)
{
    static char text[9000], file[9000];

    TEST_ROW("a long line is cut");
    memset(text, 'x', sizeof text - 1);
    ls_log *log = ls_log_new(NULL, LS_LOG_INFO);
    CHECK_OK(ls_log_open(log, path));
    ls_log_error(log, "%s", text);
    ls_log_free(log);
    size_t n = read_all(path, file, sizeof file);
    CHECK(n > 4000 && n < 4200 && file[n - 1] == '\n' && !strncmp(file, "error: xxx", 10));
    unlink(path);
}

static void test_disk_full(void)
{
    char  *shown = NULL;
    size_t bytes;

    TEST_ROW("disk full");
    if (access("/dev/full", W_OK))
        return;
    FILE   *stream = open_memstream(&shown, &bytes);
    ls_log *log    = ls_log_new(stream, LS_LOG_INFO);
    CHECK_OK(ls_log_open(log, "/dev/full"));
    ls_log_info(log, "one");
    CHECK_FAILS(ls_log_check(log), LS_EIO, "/dev/full: cannot be written: ");
    ls_log_info(log, "two");
    CHECK_OK(ls_log_check(log));
    CHECK(!strcmp(shown, "one\ntwo\n"));
    ls_log_free(log);
    fclose(stream);
    free(shown);
}

static void test_refusals(void)
{
    TEST_ROW("refusals");
    ls_log *log = ls_log_new(NULL, LS_LOG_INFO);
    CHECK_FAILS(ls_log_open(log, "/no/such/folder/log.txt"), LS_EIO, "/no/such/folder/log.txt");
    ls_alloc_fail_after(0);
    CHECK(ls_log_open(log, path) == LS_ENOMEM);
    ls_log_info(log, "to nowhere");
    ls_log_free(log);
    ls_log_free(NULL);
    ls_alloc_fail_after(0);
    CHECK(!ls_log_new(NULL, LS_LOG_INFO));
}

enum { WRITERS = 4, LINES = 200 };

static void *write_lines(void *log)
{
    for (int i = 0; i < LINES; i++)
        ls_log_info(log, "0123456789012345678901234567890123456789");
    return NULL;
}

static void test_threads(void)
{
    pthread_t   thread[WRITERS];
    static char file[WRITERS * LINES * 41 + 1];

    TEST_ROW("lines of threads stay whole");
    ls_log *log = ls_log_new(NULL, LS_LOG_INFO);
    CHECK_OK(ls_log_open(log, path));
    for (int i = 0; i < WRITERS; i++)
        CHECK(!pthread_create(&thread[i], NULL, write_lines, log));
    for (int i = 0; i < WRITERS; i++)
        pthread_join(thread[i], NULL);
    ls_log_free(log);
    CHECK(read_all(path, file, sizeof file) == sizeof file - 1);
    for (size_t i = 40; i < sizeof file; i += 41)
        CHECK(file[i] == '\n');
    unlink(path);
}

int main(void)
{
    if (!CHECK(mkdtemp(folder) != NULL))
        return 1;
    snprintf(path, sizeof path, "%s/log.txt", folder);
    test_lines();
    test_long_line();
    test_disk_full();
    test_refusals();
    test_threads();
    rmdir(folder);
    return test_summary("log");
}
