/*
 * test_gz.c - whole files, plain and gzip; every way in which a gzip file can be wrong.
 */
#include "core/gz.h"

#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <zlib.h>

#include "core/alloc.h"
#include "scratch.h"
#include "test.h"

enum { KEEP = 3 }; /* bytes that stand before what is read */

static uint32_t noise_state;

static unsigned char noise(void)
{
    noise_state = noise_state * 1664525u + 1013904223u;
    return (unsigned char)(noise_state >> 24);
}

/* period 1: all alike; else text-like; 0: incompressible. */
static unsigned char *content(size_t size, int period)
{
    unsigned char *data = malloc(size ? size : 1);

    for (size_t i = 0; i < size; i++)
        data[i] = (unsigned char)(period ? 'a' + i % (size_t)period : noise());
    return data;
}

/* Appends a gzip member to *gz. */
static void gzip(const unsigned char *data, size_t size, int level, ls_bytes *gz)
{
    z_stream z = {0};

    deflateInit2(&z, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    uLong bound = deflateBound(&z, (uLong)size);
    CHECK_OK(ls_bytes_reserve(gz, bound));
    z.next_in   = (Bytef *)(uintptr_t)data;
    z.avail_in  = (uInt)size;
    z.next_out  = gz->data + gz->size;
    z.avail_out = (uInt)bound;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    gz->size += z.total_out;
    deflateEnd(&z);
}

static ls_bytes kept(void)
{
    ls_bytes bytes = {0};

    CHECK_OK(ls_bytes_reserve(&bytes, KEEP));
    memcpy(bytes.data, "xyz", KEEP);
    bytes.size = KEEP;
    return bytes;
}

static void check_reads(const char *path, const unsigned char *data, size_t size)
{
    ls_bytes bytes = kept();

    CHECK_OK(ls_gz_read_file(path, &bytes));
    if (CHECK(bytes.size == KEEP + size)) {
        CHECK_BITS(bytes.data, "xyz", KEEP);
        CHECK_BITS(bytes.data + KEEP, data, size);
    }
    ls_bytes_free(&bytes);
}

static void check_refuses(const char *path, ls_status status, const char *text)
{
    ls_bytes bytes = kept();

    CHECK_FAILS(ls_gz_read_file(path, &bytes), status, text);
    CHECK(strstr(ls_error_message(), path) != NULL);
    CHECK(bytes.size == KEEP && !memcmp(bytes.data, "xyz", KEEP));
    ls_bytes_free(&bytes);
}

static const struct {
    const char *name;
    size_t      size;
    int         period;
} contents[] = {
    {"empty", 0, 1},
    {"one byte", 1, 1},
    {"small", 100, 26},
    {"a chunk less one", 65535, 0},
    {"a chunk", 65536, 0},
    {"a chunk and one", 65537, 0},
    {"3 MB from 3 KB", 3000000, 1},
    {"3 MB, noise", 3000001, 0},
    {"1 MB, text", 1000000, 26},
};

static void test_contents(void)
{
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        size_t         size = contents[i].size;
        unsigned char *data = content(size, contents[i].period);

        TEST_ROW(contents[i].name);
        check_reads(scratch_write("plain", data, size), data, size);
        for (int level = 0; level <= 9; level += 3) {
            ls_bytes gz = {0};
            gzip(data, size, level, &gz);
            check_reads(scratch_write("one.gz", gz.data, gz.size), data, size);
            gz.size = 0; /* three members, the middle one empty */
            gzip(data, size / 3, level, &gz);
            gzip(data, 0, level, &gz);
            gzip(data + size / 3, size - size / 3, level, &gz);
            check_reads(scratch_write("members", gz.data, gz.size), data, size);
            ls_bytes_free(&gz);
        }
        free(data);
    }
}

static void test_pipe(void)
{
    unsigned char *data = content(10000, 26);
    int            ends[2];
    char           path[32];

    TEST_ROW("pipe, whose size nobody knows");
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], data, 10000) == 10000);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    check_reads(path, data, 10000);
    close(ends[0]);
    free(data);
}

static void test_slow_pipe(void)
{
    unsigned char *data = content(100, 26);
    ls_bytes       gz   = {0};
    int            ends[2];
    char           path[32];

    TEST_ROW("pipe that gives the first byte alone");
    gzip(data, 100, 6, &gz);
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        bool sent = write(ends[1], gz.data, 1) == 1;
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
        sent = sent && write(ends[1], gz.data + 1, gz.size - 1) > 0;
        _exit(!sent);
    }
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    check_reads(path, data, 100);
    close(ends[0]);
    int ended = -1;
    CHECK(waitpid(child, &ended, 0) == child && ended == 0);
    ls_bytes_free(&gz);
    free(data);
}

static void test_truncated(void)
{
    unsigned char *data = content(300, 0);
    ls_bytes       gz   = {0};

    TEST_ROW("cut at every length");
    gzip(data, 150, 6, &gz);
    size_t whole = gz.size;
    gzip(data + 150, 150, 6, &gz);
    for (size_t n = 0; n < gz.size; n++)
        if (n == whole)
            check_reads(scratch_write("cut.gz", gz.data, n), data, 150);
        else
            check_refuses(scratch_write("cut.gz", gz.data, n), LS_EFORMAT,
                          n < 2 ? "do not start as gzip" : "truncated");
    check_reads(scratch_write("cut.gz", gz.data, gz.size), data, 300);
    ls_bytes_free(&gz);
    free(data);
}

static void test_damaged(void)
{
    unsigned char *data = content(200, 26);
    ls_bytes       gz   = {0};

    TEST_ROW("every byte wrong");
    gzip(data, 200, 6, &gz);
    for (size_t i = 0; i < gz.size; i++) {
        if (i >= 4 && i < 10) /* time, flags of the compressor, system: not content */
            continue;
        gz.data[i] ^= 0xff;
        check_refuses(scratch_write("bad.gz", gz.data, gz.size), LS_EFORMAT, "gz");
        gz.data[i] ^= 0xff;
    }
    gz.data[gz.size - 5] ^= 1;
    check_refuses(scratch_write("bad.gz", gz.data, gz.size), LS_EFORMAT,
                  "incorrect data check");
    ls_bytes_free(&gz);
    free(data);
}

static const struct {
    const char *name, *tail;
    size_t      size;
    const char *text;
} tails[] = {
    {"newline", "\n", 1, "byte 42: found 0x0a"},
    {"padding", "\0\0", 2, "byte 42: found 0x00"},
    {"half a magic", "\x1f", 1, "truncated"},
    {"magic alone", "\x1f\x8b", 2, "truncated"},
    {"other magic", "\x1f\x9d\x90", 3, "member from byte 42"},
    {"text", "garbage", 7, "byte 42: found 0x67"},
};

static void test_garbage(void)
{
    unsigned char *data = content(19, 0);
    ls_bytes       gz   = {0};

    gzip(data, 19, 0, &gz);
    CHECK(gz.size == 42); /* header 10, block 5 + 19, checksum and length 8 */
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        TEST_ROW(tails[i].name);
        gz.size = 42;
        CHECK_OK(ls_bytes_reserve(&gz, tails[i].size));
        memcpy(gz.data + 42, tails[i].tail, tails[i].size);
        check_refuses(scratch_write("tail", gz.data, 42 + tails[i].size), LS_EFORMAT,
                      tails[i].text);
    }
    ls_bytes_free(&gz);
    free(data);
}

static void test_unreadable(void)
{
    TEST_ROW("missing");
    check_refuses(scratch_path("nothing"), LS_EIO, "No such file or directory");
    TEST_ROW("directory");
    check_refuses(scratch_dir, LS_EIO, "Is a directory");
    TEST_ROW("plain text named .gz");
    check_refuses(scratch_write("text.gz", "text", 4), LS_EFORMAT,
                  "4 bytes do not start as gzip");
    TEST_ROW("no permission");
    const char *path = scratch_write("closed", "text", 4);
    chmod(path, 0);
    if (geteuid()) /* root may read everything */
        check_refuses(path, LS_EIO, "Permission denied");
}

/* Every allocation fails once; nothing is lost. */
static void check_out_of_memory(const char *path, size_t size)
{
    int64_t before = ls_mem_get_stats().total;
    bool    done   = false;

    for (int n = 0; !done && CHECK(n < 100); n++) {
        ls_bytes bytes = {0};
        ls_alloc_fail_after(n);
        ls_status status = ls_gz_read_file(path, &bytes);
        ls_alloc_fail_after(-1);
        done = status == LS_OK;
        CHECK(done ? bytes.size == size && n > 0 : status == LS_ENOMEM && bytes.size == 0);
        ls_bytes_free(&bytes);
        CHECK(ls_mem_get_stats().total == before);
    }
}

static void test_out_of_memory(void)
{
    unsigned char *data = content(500000, 26);
    ls_bytes       gz   = {0};

    TEST_ROW("out of memory");
    gzip(data, 500000, 6, &gz);
    check_out_of_memory(scratch_write("plain", data, 500000), 500000);
    check_out_of_memory(scratch_write("one.gz", gz.data, gz.size), 500000);
    ls_bytes_free(&gz);
    free(data);
}

static void test_crc32(void)
{
    TEST_ROW("crc32"); /* the check value of every catalogue */
    CHECK(ls_crc32(0, "123456789", 9) == 0xcbf43926u);
    CHECK(ls_crc32(ls_crc32(0, "1234", 4), "56789", 5) == 0xcbf43926u);
    CHECK(ls_crc32(0, "", 0) == 0 && ls_crc32(7, NULL, 0) == 7);
}

/* The lowest file descriptor that is free. */
static int free_descriptor(void)
{
    int fd = dup(STDOUT_FILENO);

    close(fd);
    return fd;
}

int main(void)
{
    int fd = free_descriptor();

    scratch_open();
    test_contents();
    test_pipe();
    test_slow_pipe();
    test_truncated();
    test_damaged();
    test_garbage();
    test_unreadable();
    test_out_of_memory();
    test_crc32();
    scratch_close();
    TEST_ROW("files are closed");
    CHECK(free_descriptor() == fd);
    return test_summary("gz");
}
