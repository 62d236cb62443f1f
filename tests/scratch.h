/*
 * scratch.h - a temporary directory for tests that need files; nothing of it is left behind.
 *
 *     scratch_open();
 *     const char *path = scratch_write("a.txt", "text", 4);    valid until scratch_close()
 *     scratch_close();
 */
#ifndef LS_TESTS_SCRATCH_H
#define LS_TESTS_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCRATCH_FILES = 64, SCRATCH_PATH = 64 };

static char scratch_dir[SCRATCH_PATH / 2], scratch_file[SCRATCH_FILES][SCRATCH_PATH];
static int  scratch_files;

static inline void scratch_open(void)
{
    strcpy(scratch_dir, "scratch-XXXXXX");
    if (!mkdtemp(scratch_dir)) {
        perror("scratch directory");
        exit(1);
    }
}

/* The path of a name in the directory; its file is removed in the end, if there is one. */
static inline const char *scratch_path(const char *name)
{
    char path[SCRATCH_PATH];

    snprintf(path, sizeof path, "%s/%.24s", scratch_dir, name);
    for (int i = 0; i < scratch_files; i++)
        if (!strcmp(scratch_file[i], path))
            return scratch_file[i];
    if (scratch_files == SCRATCH_FILES)
        exit(1);
    return strcpy(scratch_file[scratch_files++], path);
}

static inline const char *scratch_write(const char *name, const void *data, size_t size)
{
    const char *path = scratch_path(name);
    FILE       *f    = fopen(path, "wb");

    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) {
        perror(path);
        exit(1);
    }
    return path;
}

static inline void scratch_close(void)
{
    for (int i = 0; i < scratch_files; i++)
        remove(scratch_file[i]);
    scratch_files = 0;
    if (rmdir(scratch_dir))
        perror(scratch_dir);
}

#endif
