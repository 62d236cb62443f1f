/*
 * temp_dir.h - a directory of the test's own, and files in it.
 *
 *     temp_dir_make();  temp_path("a.safetensors");  temp_put(path, bytes, n);
 * temp_dir_remove();
 */
#ifndef LS_TESTS_TEMP_DIR_H
#define LS_TESTS_TEMP_DIR_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char temp_dir[] = "/tmp/lockstep-test-XXXXXX";

static inline void temp_dir_make(void)
{
    if (!mkdtemp(temp_dir)) {
        perror("mkdtemp");
        exit(1);
    }
}

/* The path of a file of that name; valid until the fourth next call. */
static inline const char *temp_path(const char *name)
{
    static char     paths[4][512];
    static unsigned next;
    char           *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", temp_dir, name);
    return path;
}

static inline void temp_put(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || (n && fwrite(bytes, 1, n, f) != n) || fclose(f)) {
        perror(path);
        exit(1);
    }
}

/* The bytes of a file, to be freed, and their number. */
static inline char *temp_get(const char *path, size_t *n)
{
    FILE *f     = fopen(path, "rb");
    char *bytes = NULL;

    *n = 0;
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(*n + 1);
    if (bytes && fread(bytes, 1, *n, f) != *n) {
        free(bytes);
        bytes = NULL;
    }
    fclose(f);
    return bytes;
}

/* Files in the directory; removes them where asked to. */
static inline int temp_files(bool remove_them)
{
    DIR           *dir   = opendir(temp_dir);
    int            count = 0;
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        count++;
        if (remove_them)
            unlink(temp_path(entry->d_name));
    }
    if (dir)
        closedir(dir);
    return count;
}

static inline void temp_dir_remove(void)
{
    temp_files(true);
    rmdir(temp_dir);
}

#endif
