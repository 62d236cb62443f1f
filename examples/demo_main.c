/*
 * demo_main.c - see demo_main.h.
 */
#include "demo_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool read_options(int argc, char **argv, ls_local_opts *opts, const char **path)
{
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return false;
        if (!strcmp(argv[i], "--world-size"))
            opts->n = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--backend"))
            opts->join.backend = argv[i + 1];
        else if (!strcmp(argv[i], "--out"))
            *path = argv[i + 1];
        else
            return false;
    }
    return true;
}

int demo_main(int argc, char **argv, const char *name, ls_local_body rank)
{
    ls_local_opts opts = {.n = 2};
    const char   *path = NULL;

    if (!read_options(argc, argv, &opts, &path))
        return fprintf(stderr,
                       "usage: %s [--world-size N] [--backend shm|tcp|threads] [--out FILE]\n",
                       name),
               2;
    if (!path) {
        mkdir("outputs", 0777);
        path = "outputs/ddp-demo.json";
    }
    if (ls_local_world(&opts, rank, (void *)(uintptr_t)path))
        return fprintf(stderr, "%s: %s\n", name, ls_error_message()), 1;
    return 0;
}
