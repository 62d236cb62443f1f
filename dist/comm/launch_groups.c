/*
 * launch_groups.c - which process groups have somebody in them who runs.
 *
 * kill(-group, 0) succeeds for zombies as well, and what a rank left behind is reaped by the
 * system's first process: slowly, or never, where that is not an init.  So /proc is asked.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/comm/launch_impl.h"

/* The group of a process that is no zombie; 0: it is one, or gone.  The name in the file may
 * hold anything, so what follows its last ')' is read: " state ppid group". */
static pid_t group_of(const char *process)
{
    char  path[64], text[512], state = 'Z';
    int   group = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%.20s/stat", process);
    file = fopen(path, "re");
    if (!file)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n]         = '\0';
    const char *end = strrchr(text, ')');
    if (!end || sscanf(end + 1, " %c %*d %d", &state, &group) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : (pid_t)group;
}

int ls__groups_living(ls__group *groups, int n)
{
    DIR           *dir = opendir("/proc");
    struct dirent *entry;
    int            living = 0;

    for (int i = 0; i < n; i++)
        groups[i].lives = !dir;
    while (dir && (entry = readdir(dir))) {
        pid_t group =
            entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? group_of(entry->d_name) : 0;
        for (int i = 0; group && i < n; i++)
            groups[i].lives |= groups[i].group == group;
    }
    if (dir)
        closedir(dir);
    for (int i = 0; i < n; i++)
        living += groups[i].lives;
    return living;
}
