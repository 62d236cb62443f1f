/*
 * fuzz_files.c - files in memory, for readers that take a path.
 *
 * A file is a memfd, opened again by its name below /proc/self/fd; a directory is a temporary
 * one, of links to these.
 */
#define _GNU_SOURCE /* memfd_create */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"

enum { SLOTS = 4, PATH = 128 };

static int         descriptor[SLOTS]; /* 0: not yet */
static char        path[SLOTS][PATH];
static char        directory[PATH];
static const char *link_name[SLOTS];

const char *fuzz_file(int slot, const void *data, size_t size)
{
    if (!descriptor[slot]) {
        descriptor[slot] = memfd_create("fuzz", MFD_CLOEXEC);
        fuzz_expect(descriptor[slot] > 0);
        snprintf(path[slot], PATH, "/proc/self/fd/%d", descriptor[slot]);
    }
    fuzz_expect(ftruncate(descriptor[slot], (off_t)size) == 0);
    fuzz_expect(!size || pwrite(descriptor[slot], data, size, 0) == (ssize_t)size);
    return path[slot];
}

static void remove_directory(void)
{
    char name[2 * PATH];

    for (int i = 0; i < SLOTS && link_name[i]; i++) {
        snprintf(name, sizeof name, "%s/%s", directory, link_name[i]);
        unlink(name);
    }
    rmdir(directory);
}

const char *fuzz_directory(const char *const *names)
{
    const char *parent = getenv("TMPDIR");
    char        name[2 * PATH];

    if (*directory)
        return directory;
    snprintf(directory, PATH, "%.100s/lockstep-fuzz-XXXXXX", parent ? parent : "/tmp");
    fuzz_expect(mkdtemp(directory) && !atexit(remove_directory));
    for (int i = 0; names[i]; i++) {
        link_name[i] = names[i];
        snprintf(name, sizeof name, "%s/%s", directory, names[i]);
        fuzz_expect(symlink(fuzz_file(i, "", 0), name) == 0);
    }
    return directory;
}

fuzz_part fuzz_next_part(fuzz_part *rest)
{
    fuzz_part first = {rest->text, 0};

    while (first.bytes < rest->bytes && first.text[first.bytes])
        first.bytes++;
    size_t taken = first.bytes + (first.bytes < rest->bytes);
    *rest        = (fuzz_part){rest->text + taken, rest->bytes - taken};
    return first;
}

char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    fuzz_expect(text != NULL);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    return text;
}
