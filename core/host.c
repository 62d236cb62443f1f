/*
 * host.c - see host.h.
 */
#include "core/host.h"

#include <stdio.h>
#include <string.h>

void ls_boot_id(char text[LS_BOOT_BYTES])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    memset(text, 0, LS_BOOT_BYTES);
    if (file && !fgets(text, LS_BOOT_BYTES, file))
        text[0] = '\0';
    if (file)
        fclose(file);
    text[strcspn(text, "\n")] = '\0';
}

/* The name of the program may hold anything, so what follows its last ')' is read. */
char ls_process_state(long pid)
{
    char  path[64], text[512], state = '\0';
    FILE *file;

    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    file = fopen(path, "re");
    if (!file)
        return '\0';
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n]         = '\0';
    const char *end = strrchr(text, ')');
    if (!end || sscanf(end + 1, " %c", &state) != 1)
        return '\0';
    return state;
}
