/*
 * test_tfevents.c - checksums and records against known bytes; files that end early or cannot
 * be written.
 */
#include "core/tfevents.h"

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>

#include "core/alloc.h"
#include "core/crc32c.h"
#include "temp_dir.h"
#include "test.h"

static void test_checksum(void)
{
    static const char zeros[32] = {0};
    static const struct {
        const char *name, *data;
        size_t      n;
        uint32_t    crc;
    } rows[] = {
        {"32 zeros (RFC 3720)", zeros, 32, 0x8a9136aa},
        {"123456789", "123456789", 9, 0xe3069283},
        {"nothing", "", 0, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        CHECK(ls_crc32c(rows[i].data, rows[i].n) == rows[i].crc);
    }
}

/* The only file of events in the folder of the test, read and removed; freed by the caller. */
static char *take_file(size_t *n)
{
    DIR  *folder = opendir(temp_dir);
    char *bytes  = NULL;

    for (struct dirent *e; folder && (e = readdir(folder));) {
        if (strncmp(e->d_name, LS_TFEVENTS_PREFIX, strlen(LS_TFEVENTS_PREFIX)))
            continue;
        CHECK(!bytes);
        bytes = temp_get(temp_path(e->d_name), n);
        unlink(temp_path(e->d_name));
    }
    if (folder)
        closedir(folder);
    CHECK(bytes != NULL);
    return bytes;
}

enum { VERSION_BYTES = 8 + 4 + 24 + 4 }; /* of the record that starts a file */

/* As TensorBoard's own writer makes it. */
static void test_record(void)
{
    static const unsigned char want[] = {
        0x20, 0,    0,    0,    0,    0,    0,    0,    0x29, 0xed, 0xa9, 0x50,
        0x09, 0x00, 0x00, 0x08, 0x99, 0xb1, 0xd1, 0xd7, 0x41, 0x10, 0x4d, 0x2a,
        0x13, 0x0a, 0x11, 0x0a, 0x0a, 0x6c, 0x6f, 0x73, 0x73, 0x2f, 0x74, 0x72,
        0x61, 0x69, 0x6e, 0x15, 0xa4, 0x70, 0x7d, 0x3f, 0x42, 0xb9, 0x35, 0xd4};
    ls_tfevents *e;
    size_t       n = 0;

    TEST_ROW("a record of known bytes");
    CHECK_OK(ls_tfevents_open(temp_dir, 0, &e));
    ls_tfevents_add_at(e, 1598473828.125, 77, &(ls_tfscalar){"loss/train", 0.99}, 1);
    CHECK_OK(ls_tfevents_check(e));
    ls_tfevents_close(e);
    char *bytes = take_file(&n);
    CHECK(n == VERSION_BYTES + sizeof want);
    if (n == VERSION_BYTES + sizeof want) {
        CHECK_BITS(bytes + VERSION_BYTES, want, sizeof want);
        CHECK_BITS(bytes + 12 + 9,
                   "\x1a\x0d"
                   "brain.Event:2",
                   15);
    }
    free(bytes);
}

static void test_names(void)
{
    ls_tfevents *one, *two;
    size_t       n, begun = 0;

    TEST_ROW("two files of one second");
    CHECK_OK(ls_tfevents_open(temp_dir, 0, &one));
    CHECK_OK(ls_tfevents_open(temp_dir, 0, &two));
    ls_tfevents_close(two);
    ls_tfevents_close(one);
    DIR *folder = opendir(temp_dir);
    for (struct dirent *e; (e = readdir(folder));)
        if (strstr(e->d_name, "tfevents")) {
            begun++;
            unlink(temp_path(e->d_name));
        }
    closedir(folder);
    CHECK(begun == 2);
    TEST_ROW("going on: version, then a session log at the next step");
    CHECK_OK(ls_tfevents_open(temp_dir, 300, &one));
    ls_tfevents_close(one);
    char *bytes = take_file(&n);
    CHECK(n == VERSION_BYTES + 12 + 9 + 3 + 4 + 4);
    if (n == VERSION_BYTES + 12 + 9 + 3 + 4 + 4)
        CHECK_BITS(bytes + VERSION_BYTES + 12 + 9, "\x10\xad\x02\x3a\x02\x08\x01", 7);
    free(bytes);
    TEST_ROW("no folder");
    CHECK_FAILS(ls_tfevents_open(temp_path("no/such"), 0, &one), LS_EIO, "no/such");
    CHECK(!one);
    TEST_ROW("none");
    ls_tfevents_add(NULL, 1, NULL, 0);
    CHECK_OK(ls_tfevents_check(NULL));
    ls_tfevents_close(NULL);
}

/* A file that may not grow is given up behind its last whole record, and says so once. */
static void test_full(void)
{
    struct rlimit old, small;
    ls_tfevents  *e;
    size_t        n;

    TEST_ROW("no room");
    signal(SIGXFSZ, SIG_IGN);
    CHECK_OK(ls_tfevents_open(temp_dir, 0, &e));
    ls_tfevents_add(e, 1, &(ls_tfscalar){"a", 1}, 1);
    CHECK(!getrlimit(RLIMIT_FSIZE, &old));
    small          = old;
    small.rlim_cur = VERSION_BYTES + 60;
    CHECK(!setrlimit(RLIMIT_FSIZE, &small));
    ls_tfevents_add(e, 2, &(ls_tfscalar){"a", 2}, 1);
    CHECK(!setrlimit(RLIMIT_FSIZE, &old));
    CHECK_FAILS(ls_tfevents_check(e), LS_EIO, "no more events are written");
    CHECK_OK(ls_tfevents_check(e));
    ls_tfevents_add(e, 3, &(ls_tfscalar){"a", 3}, 1);
    CHECK_OK(ls_tfevents_check(e));
    ls_tfevents_close(e);
    free(take_file(&n));
    CHECK(n == VERSION_BYTES + 12 + 9 + 2 + 2 + 2 + 3 + 5 + 4);
}

static ls_status write_some(void)
{
    ls_tfevents *e;
    ls_status    status = ls_tfevents_open(temp_dir, 5, &e);

    if (status)
        return status;
    ls_tfevents_add(e, 6, (ls_tfscalar[]){{"loss/train", 1}, {"loss/validation", 2}}, 2);
    status = ls_tfevents_check(e);
    ls_tfevents_close(e);
    return status;
}

static void test_no_memory(void)
{
    ls_status status = LS_ENOMEM;
    size_t    n;

    TEST_ROW("the n-th allocation fails");
    for (int k = 0; k < 100 && status; k++) {
        ls_alloc_fail_after(k);
        status = write_some();
        ls_alloc_fail_after(-1);
        CHECK(status == LS_OK || status == LS_ENOMEM);
        if (k > 1)
            free(take_file(&n));
    }
    CHECK(status == LS_OK);
}

int main(void)
{
    temp_dir_make();
    test_checksum();
    test_record();
    test_names();
    test_full();
    test_no_memory();
    temp_dir_remove();
    return test_summary("tfevents");
}
