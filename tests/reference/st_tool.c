/*
 * st_tool.c - safetensors for check_safetensors.py: what the C side reads and writes.
 *
 *     st_tool list FILE       one line a tensor: name in hex, dtype, shape, begin, end, sha256
 * of its bytes; then one line a pair of metadata, in hex st_tool verdicts LIST   for each path
 * in the file LIST one line: "ok", or "no " and why st_tool write FILE      the sample that the
 * script knows too
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"
#include "core/sha256.h"

static int fail(void)
{
    fprintf(stderr, "st_tool: %s\n", ls_error_message());
    return 1;
}

static void put_hex(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        printf("%02x", (unsigned char)text[i]);
}

static ls_status hash_entry(const ls_safetensors *f, const ls_st_entry *e,
                            char hex[LS_SHA256_HEX])
{
    size_t    bytes = (size_t)(e->end - e->begin);
    char     *data  = malloc(bytes ? bytes : 1);
    ls_sha256 sha;

    if (!data)
        return ls_fail(LS_ENOMEM, "%zu bytes", bytes);
    ls_status status = ls_sha256_init(&sha);
    if (!status)
        status = ls_safetensors_read(f, e, 0, data, bytes);
    if (!status)
        status = ls_sha256_update(&sha, data, bytes);
    if (!status)
        status = ls_sha256_final(&sha, hex);
    ls_sha256_close(&sha);
    free(data);
    return status;
}

static ls_status list_entry(const ls_safetensors *f, const ls_st_entry *e)
{
    char             hex[LS_SHA256_HEX] = "";
    ls_st_shape_text shape;
    ls_status        status = hash_entry(f, e, hex);

    printf("tensor ");
    put_hex(e->name, strlen(e->name));
    printf(" %s %s %llu %llu %s\n", e->dtype, ls_st_print_shape(e->dim, e->ndim, &shape),
           (unsigned long long)e->begin, (unsigned long long)e->end, hex);
    return status;
}

static int list(const char *path)
{
    ls_safetensors *f;
    ls_status       status = ls_safetensors_open(path, &f);

    if (status)
        return fail();
    for (size_t i = 0; i < f->header.n_entries && !status; i++)
        status = list_entry(f, &f->header.entry[i]);
    for (size_t i = 0; i < f->header.n_pairs; i++) {
        printf("pair ");
        put_hex(f->header.pair[i].key, f->header.pair[i].key_bytes);
        printf(" ");
        put_hex(f->header.pair[i].value, f->header.pair[i].value_bytes);
        printf("\n");
    }
    ls_safetensors_close(f);
    return status ? fail() : 0;
}

static int verdicts(const char *list_path)
{
    FILE *paths = fopen(list_path, "r");
    char  line[4096];

    while (paths && fgets(line, sizeof line, paths)) {
        ls_safetensors *f;
        line[strcspn(line, "\n")] = '\0';
        if (ls_safetensors_open(line, &f)) {
            printf("no %s\n", ls_error_message());
            continue;
        }
        printf("ok\n");
        ls_safetensors_close(f);
    }
    return paths ? fclose(paths) : 1;
}

/* Every dtype of one byte or more, 24 bytes each; names and values that need escapes. */
static int write_sample(const char *path)
{
    static const char *const dtypes[] = {
        "BOOL",        "U8",  "I8",  "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ",
        "F8_E5M2FNUZ", "I16", "U16", "F16",     "BF16",    "I32",     "U32",
        "F32",         "C64", "F64", "I64",     "U64",
    };
    enum { N = sizeof dtypes / sizeof *dtypes };
    static const char    data[24] = "\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0\1";
    const ls_st_metadata pairs[] = {{"quote\"\\/", "tab\t line\n \x01 \x7f"}, {"\xc3\xa9", ""}};
    ls_st_source         s[N + 3];

    for (int i = 0; i < N; i++)
        s[i] = (ls_st_source){
            dtypes[i], dtypes[i], 1, {192 / (uint64_t)ls_st_dtype_bits(dtypes[i])}, data};
    s[N]     = (ls_st_source){"scalar", "F32", 0, {0}, data};
    s[N + 1] = (ls_st_source){"empty", "F32", 3, {2, 0, 3}, NULL};
    s[N + 2] = (ls_st_source){"\xf0\x9f\x98\x80 \"name\"\n\x1f", "F32", 2, {2, 3}, data};
    return ls_safetensors_write(path, s, N + 3, pairs, 2) ? fail() : 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "list"))
        return list(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "verdicts"))
        return verdicts(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "write"))
        return write_sample(argv[2]);
    fprintf(stderr, "usage: st_tool list|verdicts|write FILE\n");
    return 2;
}
