/*
 * test_atomic_file.c - a file appears whole or not at all, whichever system call fails.
 *
 * The program defines write, fsync, close and rename itself, so that the library's calls come
 * here: each is counted, and the n-th one of a kind fails, writes short, or is interrupted.
 */
#define _DEFAULT_SOURCE /* syscall() */

#include "checkpoint/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "core/alloc.h"
#include "temp_dir.h"
#include "test.h"

typedef enum { WRITE, FSYNC, CLOSE, RENAME, CALLS } call;

static struct {
    bool on;
    int  seen[CALLS];
    call kind;    /* the one that fails */
    int  at;      /* its number, from 0 */
    int  code;    /* its errno */
    bool shorten; /* every write takes at most 3 bytes, every second one is interrupted */
} fault;

static bool strikes(call kind)
{
    if (!fault.on)
        return false;
    bool now = fault.seen[kind]++ == fault.at && fault.kind == kind;
    if (now)
        errno = fault.code;
    return now;
}

ssize_t write(int fd, const void *data, size_t n)
{
    if (strikes(WRITE))
        return fault.code ? -1 : 0;
    if (fault.on && fault.shorten) {
        if (fault.seen[WRITE] % 2) {
            errno = EINTR;
            return -1;
        }
        n = n < 3 ? n : 3;
    }
    return syscall(SYS_write, fd, data, n);
}

int fsync(int fd)
{
    return strikes(FSYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

int close(int fd)
{
    bool struck = strikes(CLOSE); /* the descriptor is gone either way, as on Linux */
    int  code   = errno;
    int  rc     = (int)syscall(SYS_close, fd);

    errno = struck ? code : errno;
    return struck ? -1 : rc;
}

int rename(const char *from, const char *to)
{
    return strikes(RENAME) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static const char old_text[] = "the old file", new_text[] = "the new one, longer than the old";

static ls_status save(const char *path)
{
    ls_atomic_file f;
    ls_status      status = ls_atomic_begin(&f, path);

    if (status)
        return status;
    status = ls_atomic_write(&f, new_text, 10);
    if (!status)
        status = ls_atomic_write(&f, new_text + 10, sizeof new_text - 10);
    if (!status)
        status = ls_atomic_commit(&f);
    ls_atomic_abandon(&f);
    return status;
}

/* A save over the old file under the fault that is set. */
static ls_status save_with_fault(const char *path)
{
    temp_put(path, old_text, sizeof old_text);
    memset(fault.seen, 0, sizeof fault.seen);
    fault.on         = true;
    ls_status status = save(path);
    fault.on         = false;
    return status;
}

static bool holds(const char *path, const char *text, size_t n)
{
    size_t size;
    char  *bytes = temp_get(path, &size);
    bool   same  = bytes && size == n && !memcmp(bytes, text, n);

    free(bytes);
    return same;
}

/* Rows: the call, its number, its error; whether the new file is in place all the same. */
static void test_faults(void)
{
    static const struct {
        const char *name;
        call        kind;
        int         at, code;
        bool        replaced, fine;
        const char *message;
    } rows[] = {
        {"disk full at the first write", WRITE, 0, ENOSPC, false, false,
         "writing: No space left"},
        {"disk full at the second write", WRITE, 1, ENOSPC, false, false, "No space left"},
        {"write of nothing", WRITE, 0, 0, false, false, "writing: Input/output error"},
        {"disk full at fsync", FSYNC, 0, ENOSPC, false, false, "fsync: No space left"},
        {"quota at close", CLOSE, 0, EDQUOT, false, false, "closing: Disk quota"},
        {"rename", RENAME, 0, EACCES, false, false,
         "renaming the new file over it: Permission"},
        {"fsync of the directory", FSYNC, 1, EIO, true, false, "fsync of its directory"},
        {"no fsync of directories", FSYNC, 1, EINVAL, true, true, NULL},
        {"interrupted write", WRITE, 0, EINTR, true, true, NULL},
        {"interrupted fsync", FSYNC, 0, EINTR, true, true, NULL},
        {"interrupted close", CLOSE, 0, EINTR, true, true, NULL},
        {"none", CALLS, 0, 0, true, true, NULL},
    };
    const char *path = temp_path("file");

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        fault.kind       = rows[i].kind;
        fault.at         = rows[i].at;
        fault.code       = rows[i].code;
        ls_status status = save_with_fault(path);
        if (rows[i].fine)
            CHECK_OK(status);
        else
            CHECK_FAILS(status, LS_EIO, rows[i].message);
        CHECK(rows[i].fine || strstr(ls_error_message(), path));
        CHECK(rows[i].replaced ? holds(path, new_text, sizeof new_text)
                               : holds(path, old_text, sizeof old_text));
        CHECK(temp_files(false) == 1);
    }
}

static void test_short_writes(void)
{
    const char *path = temp_path("file");

    fault.kind    = CALLS;
    fault.shorten = true;
    CHECK_OK(save_with_fault(path));
    fault.shorten = false;
    CHECK(fault.seen[WRITE] > 20 && holds(path, new_text, sizeof new_text));
}

static void test_out_of_memory(void)
{
    const char *path   = temp_path("file");
    ls_status   status = LS_ENOMEM;
    int         n      = 0;

    temp_put(path, old_text, sizeof old_text);
    for (; status && n < 200; n += status != LS_OK) {
        ls_alloc_fail_after(n);
        status = save(path);
        ls_alloc_fail_after(-1);
        CHECK(!status || (status == LS_ENOMEM && holds(path, old_text, sizeof old_text)));
        CHECK(temp_files(false) == 1);
    }
    CHECK(n == 3);
}

/* Temporary files of others are neither used nor removed. */
static void test_leftovers(void)
{
    char name[64];

    snprintf(name, sizeof name, ".file.tmp-%ld-0", (long)getpid());
    temp_put(temp_path(name), old_text, 3);
    CHECK_OK(save(temp_path("file")));
    CHECK(holds(temp_path("file"), new_text, sizeof new_text));
    CHECK(holds(temp_path(name), old_text, 3) && temp_files(false) == 2);
}

/* Of a path's own names only, whoever made them. */
static void test_sweep(void)
{
    ls_atomic_file f;
    char           path[512];

    snprintf(path, sizeof path, "%s", temp_path("swept"));
    TEST_ROW("sweep");
    temp_put(temp_path(".swept.tmp-1-0"), "x", 1);
    temp_put(temp_path(".swept.bin.tmp-1-0"), "x", 1);
    temp_put(path, "kept", 4);
    ls_atomic_sweep(path);
    CHECK(access(temp_path(".swept.tmp-1-0"), F_OK) && !access(path, F_OK));
    CHECK(!remove(temp_path(".swept.bin.tmp-1-0")));
    CHECK_OK(ls_atomic_begin(&f, path));
    ls_atomic_sweep(path);
    CHECK_FAILS(ls_atomic_commit(&f), LS_EIO, "swept");
    ls_atomic_abandon(&f);
    CHECK(!remove(path));
    TEST_ROW("sweep of nothing");
    ls_atomic_sweep(temp_path("nowhere/x"));
    ls_atomic_sweep("");
}

static void test_names(void)
{
    char here[4096], longest[256] = "";

    TEST_ROW("no directory in the path");
    CHECK(getcwd(here, sizeof here) != NULL && chdir(temp_dir) == 0);
    CHECK_OK(save("file"));
    CHECK(chdir(here) == 0);
    TEST_ROW("255 bytes");
    memset(longest, 'n', 255);
    CHECK_OK(save(temp_path(longest)));
    CHECK(holds(temp_path(longest), new_text, sizeof new_text));
    TEST_ROW("no directory there");
    CHECK_FAILS(save(temp_path("none/file")), LS_EIO, "none/file: creating a temporary file");
}

int main(void)
{
    temp_dir_make();
    test_faults();
    TEST_ROW("short writes");
    test_short_writes();
    TEST_ROW("out of memory");
    test_out_of_memory();
    TEST_ROW("leftovers");
    test_leftovers();
    test_sweep();
    test_names();
    temp_dir_remove();
    return test_summary("atomic_file");
}
