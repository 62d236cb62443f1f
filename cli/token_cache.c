/*
 * token_cache.c - one file a text: a header of 96 bytes, then the tokens as they are in memory.
 *
 *     "LSTOKENS"  byte order 0x01020304  bytes a token  their number  SHA-256 of them, in hex
 */
#include "cli/token_cache.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/atomic_file.h"
#include "cli/run_dir.h"
#include "core/alloc.h"
#include "core/gz.h"
#include "core/sha256.h"

enum { ORDER = 0x01020304 };

typedef struct {
    char    magic[8];
    int32_t order, width;
    int64_t count;
    char    sha256[72]; /* 64 digits, zeros */
} header;

static const char magic[8] = {'L', 'S', 'T', 'O', 'K', 'E', 'N', 'S'};

/* Beside the run directory; NULL: out of memory. */
static char *path_of(const char *dir, const char *key)
{
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    while (n > 0 && dir[n - 1] != '/')
        n--;
    return ls_sprintf("%.*stokens-%.32s.bin", (int)n, dir, key);
}

static ls_status hash(const void *data, size_t bytes, char hex[LS_SHA256_HEX])
{
    ls_sha256 sha;
    ls_status status = ls_sha256_init(&sha);

    if (!status)
        status = ls_sha256_update(&sha, data, bytes);
    if (!status)
        return ls_sha256_final(&sha, hex);
    ls_sha256_close(&sha);
    return status;
}

static bool is_valid(const ls_bytes *file, header *h)
{
    char hex[LS_SHA256_HEX];

    if (file->size < sizeof *h)
        return false;
    memcpy(h, file->data, sizeof *h);
    return !memcmp(h->magic, magic, sizeof magic) && h->order == ORDER &&
           (h->width == 1 || h->width == 2 || h->width == 4) && h->count > 0 &&
           (uint64_t)h->count == (file->size - sizeof *h) / (size_t)h->width &&
           !((file->size - sizeof *h) % (size_t)h->width) &&
           !hash(file->data + sizeof *h, file->size - sizeof *h, hex) &&
           !memcmp(hex, h->sha256, LS_SHA256_HEX);
}

static void find(const void *context, const char *key, ls_tokens *tokens)
{
    const ls_config *cfg  = context;
    char            *path = path_of(cfg->run.dir, key);
    ls_bytes         file = {0};
    header           h;

    if (path && !ls_gz_read_file(path, &file) && is_valid(&file, &h)) {
        memmove(file.data, file.data + sizeof h, file.size - sizeof h);
        *tokens = (ls_tokens){file.data, h.count, h.width, file.capacity};
        file    = (ls_bytes){0};
    }
    ls_bytes_free(&file);
    free(path);
}

static ls_status write_file(const char *path, const header *h, const ls_tokens *tokens)
{
    ls_atomic_file f;
    ls_status      status = ls_atomic_begin(&f, path);

    if (!status)
        status = ls_atomic_write(&f, h, sizeof *h);
    if (!status)
        status = ls_atomic_write(&f, tokens->data, (size_t)(tokens->count * tokens->width));
    if (!status)
        status = ls_atomic_commit(&f);
    ls_atomic_abandon(&f);
    if (!status)
        ls_atomic_sweep(path); /* whoever else was writing it wrote the same */
    return status;
}

static void keep(const void *context, const char *key, const ls_tokens *tokens)
{
    const ls_config *cfg  = context;
    char            *path = path_of(cfg->run.dir, key);
    header           h    = {.order = ORDER, .width = tokens->width, .count = tokens->count};

    memcpy(h.magic, magic, sizeof magic);
    if (path && !ls_make_parents(path) &&
        !hash(tokens->data, (size_t)(tokens->count * tokens->width), h.sha256))
        (void)!write_file(path, &h, tokens);
    free(path);
}

ls_token_store ls_token_cache(const ls_config *cfg)
{
    return (ls_token_store){cfg, find, keep};
}
