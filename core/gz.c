/*
 * gz.c - reading whole files, plain or gzip.
 *
 *     file --fill--> chunk --append or inflate--> bytes
 *
 * zlib checks each member's CRC and length; what it does not see is checked here: the file
 * must end exactly where a member ends.  Output that finds no room waits inside zlib for the
 * next call, of which there is always one: a member's last bytes are its checksum and length.
 * zlib's own memory comes from ls_calloc.
 */
#include "core/gz.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "core/alloc.h"

enum { CHUNK = 64 * 1024, SMALLEST = 4096, GZIP_ONLY = 16 + MAX_WBITS };

typedef struct {
    const char   *path;
    int           fd;
    size_t        offset; /* of the chunk in the file */
    size_t        size;   /* bytes in the chunk; 0 at the end of the file */
    unsigned char chunk[CHUNK];
} reader;

typedef struct {
    z_stream z;
    bool     open;   /* inside a member */
    size_t   member; /* offset at which the present or last member starts */
} gunzip;

ls_status ls_bytes_reserve(ls_bytes *bytes, size_t extra)
{
    if (extra <= bytes->capacity - bytes->size)
        return LS_OK;
    if (extra > PTRDIFF_MAX - bytes->size)
        return ls_fail(LS_ENOMEM, "%zu more bytes behind %zu asked for", extra, bytes->size);
    size_t capacity = bytes->size + extra;
    if (capacity < 2 * bytes->capacity)
        capacity = 2 * bytes->capacity;
    if (capacity < SMALLEST)
        capacity = SMALLEST;
    unsigned char *data = ls_mem_alloc(capacity, LS_MEM_OTHER);
    if (!data)
        return LS_ENOMEM;
    if (bytes->size)
        memcpy(data, bytes->data, bytes->size);
    ls_mem_free(bytes->data, bytes->capacity, LS_MEM_OTHER);
    bytes->data     = data;
    bytes->capacity = capacity;
    return LS_OK;
}

void ls_bytes_free(ls_bytes *bytes)
{
    ls_mem_free(bytes->data, bytes->capacity, LS_MEM_OTHER);
    *bytes = (ls_bytes){0};
}

uint32_t ls_crc32(uint32_t crc, const void *data, size_t bytes)
{
    return bytes ? (uint32_t)crc32_z(crc, data, bytes) : crc;
}

uint32_t ls_crc32_combine(uint32_t a, uint32_t b, uint64_t bytes_b)
{
    return (uint32_t)crc32_combine(a, b, (z_off_t)bytes_b);
}

/* The next chunk, full unless the file ends in it. */
static ls_status fill(reader *r)
{
    r->offset += r->size;
    r->size = 0;
    while (r->size < CHUNK) {
        ssize_t n = read(r->fd, r->chunk + r->size, CHUNK - r->size);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return ls_fail(LS_EIO, "%s: cannot be read at byte %zu: %s", r->path,
                           r->offset + r->size, strerror(errno));
        if (n > 0)
            r->size += (size_t)n;
    }
    return LS_OK;
}

static ls_status append_rest(reader *r, ls_bytes *bytes)
{
    struct stat about;
    ls_status   status = LS_OK;

    if (fstat(r->fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0)
        status = ls_bytes_reserve(bytes, (size_t)about.st_size);
    while (!status && r->size) {
        status = ls_bytes_reserve(bytes, r->size);
        if (status)
            break;
        memcpy(bytes->data + bytes->size, r->chunk, r->size);
        bytes->size += r->size;
        status = fill(r);
    }
    return status;
}

static size_t position(const reader *r, const gunzip *g)
{
    return r->offset + r->size - g->z.avail_in;
}

static ls_status begin_member(const reader *r, gunzip *g)
{
    size_t at = position(r, g);

    if (*g->z.next_in != 0x1f)
        return ls_fail(LS_EFORMAT,
                       "%s: garbage after the gzip data, which end at byte %zu: found 0x%02x",
                       r->path, at, *g->z.next_in);
    inflateReset(&g->z);
    g->member = at;
    g->open   = true;
    return LS_OK;
}

/* One call of inflate into the room behind bytes. */
static ls_status inflate_some(const reader *r, gunzip *g, ls_bytes *bytes)
{
    ls_status status = ls_bytes_reserve(bytes, CHUNK);
    if (status)
        return status;
    size_t room    = bytes->capacity - bytes->size;
    g->z.next_out  = bytes->data + bytes->size;
    g->z.avail_out = room < UINT_MAX ? (uInt)room : UINT_MAX;
    int result     = inflate(&g->z, Z_NO_FLUSH);
    bytes->size    = (size_t)(g->z.next_out - bytes->data);
    g->open        = result != Z_STREAM_END;
    if (result == Z_MEM_ERROR)
        return LS_ENOMEM;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        return ls_fail(LS_EFORMAT,
                       "%s: damaged gzip data at byte %zu (in the member from byte %zu): %s",
                       r->path, position(r, g), g->member, g->z.msg ? g->z.msg : "not gzip");
    return LS_OK;
}

static ls_status inflate_chunk(reader *r, gunzip *g, ls_bytes *bytes)
{
    ls_status status = LS_OK;

    g->z.next_in  = r->chunk;
    g->z.avail_in = (uInt)r->size;
    do {
        if (!g->open)
            status = begin_member(r, g);
        if (!status)
            status = inflate_some(r, g, bytes);
    } while (!status && g->z.avail_in);
    return status;
}

static void *zlib_alloc(void *unused, uInt n, uInt size)
{
    (void)unused;
    return ls_calloc(n, size);
}

static void zlib_free(void *unused, void *block)
{
    (void)unused;
    free(block);
}

static ls_status inflate_rest(reader *r, ls_bytes *bytes)
{
    gunzip    g      = {.z = {.zalloc = zlib_alloc, .zfree = zlib_free}, .open = true};
    ls_status status = LS_OK;

    if (inflateInit2(&g.z, GZIP_ONLY) != Z_OK)
        return LS_ENOMEM;
    while (!status && r->size) {
        status = inflate_chunk(r, &g, bytes);
        if (!status)
            status = fill(r);
    }
    if (!status && g.open)
        status =
            ls_fail(LS_EFORMAT,
                    "%s: truncated: the gzip member from byte %zu is not complete at the end "
                    "of the file, byte %zu",
                    r->path, g.member, r->offset);
    inflateEnd(&g.z);
    return status;
}

static bool named_gz(const char *path)
{
    size_t n = strlen(path);
    return n > 3 && !strcmp(path + n - 3, ".gz");
}

static ls_status read_all(reader *r, ls_bytes *bytes)
{
    ls_status status = fill(r);

    if (status)
        return status;
    if (r->size >= 2 && r->chunk[0] == 0x1f && r->chunk[1] == 0x8b)
        return inflate_rest(r, bytes);
    if (named_gz(r->path))
        return ls_fail(LS_EFORMAT,
                       "%s: named .gz, but its %zu%s bytes do not start as gzip (1f 8b)",
                       r->path, r->size, r->size == CHUNK ? " first" : "");
    return append_rest(r, bytes);
}

ls_status ls_gz_read_file(const char *path, ls_bytes *bytes)
{
    size_t    before = bytes->size;
    ls_status status = LS_ENOMEM;
    reader   *r      = ls_calloc(1, sizeof *r);
    if (!r)
        goto out;
    r->path = path;
    r->fd   = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0) {
        status = ls_fail(LS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
        goto out_reader;
    }
    status = read_all(r, bytes);
    close(r->fd);
out_reader:
    free(r);
out:
    if (status)
        bytes->size = before;
    return status == LS_ENOMEM ? ls_fail_in(status, "%s", path) : status;
}

/* Below UINT_MAX, which bounds what zlib takes in one call. */
enum { MOST_BLOCK = 1 << 30 };

size_t ls_zlib_bound(size_t bytes)
{
    z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free};

    if (deflateInit(&z, Z_BEST_SPEED) != Z_OK)
        return 0;
    size_t bound = deflateBound(&z, (uLong)bytes);
    deflateEnd(&z);
    return bound;
}

ls_status ls_zlib_deflate(const void *data, size_t bytes, ls_bytes *out)
{
    z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free};

    if (bytes > MOST_BLOCK)
        return ls_fail(LS_EINVAL, "deflate: %zu bytes, expected at most 2^30", bytes);
    if (deflateInit(&z, Z_BEST_SPEED) != Z_OK)
        return LS_ENOMEM;
    uLong     bound  = deflateBound(&z, (uLong)bytes);
    ls_status status = ls_bytes_reserve(out, bound);
    if (!status) {
        z.next_in   = (Bytef *)(uintptr_t)data;
        z.avail_in  = (uInt)bytes;
        z.next_out  = out->data + out->size;
        z.avail_out = (uInt)bound;
        if (deflate(&z, Z_FINISH) == Z_STREAM_END)
            out->size += z.total_out;
        else
            status = ls_fail(LS_ENOMEM, "deflate: %s", z.msg ? z.msg : "no room");
    }
    deflateEnd(&z);
    return status;
}

ls_status ls_zlib_inflate(const void *data, size_t bytes, void *out, size_t size)
{
    z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free};

    if (bytes > MOST_BLOCK || size > MOST_BLOCK)
        return ls_fail(LS_EFORMAT, "%zu bytes for %zu, expected at most 2^30", bytes, size);
    if (inflateInit(&z) != Z_OK)
        return LS_ENOMEM;
    z.next_in   = (Bytef *)(uintptr_t)data;
    z.avail_in  = (uInt)bytes;
    z.next_out  = out;
    z.avail_out = (uInt)size;
    int  result = inflate(&z, Z_FINISH);
    bool whole  = result == Z_STREAM_END && !z.avail_in && z.total_out == size;
    inflateEnd(&z);
    if (result == Z_MEM_ERROR)
        return LS_ENOMEM;
    return whole
               ? LS_OK
               : ls_fail(LS_EFORMAT, "damaged zlib stream of %zu bytes, expected %zu out of it",
                         bytes, size);
}
