/*
 * gen_docs.c - the program ls_gen_docs: writes config.md and config.schema.json into a folder.
 *
 * `build/tests/ls_gen_docs docs` after a change of cli/config_table.c; the ctest
 * docs_are_current fails until that was done.
 */
#include <stdio.h>

#include "cli/config.h"

static int write_into(const char *folder, const char *name, void write(FILE *file))
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        return 1;
    }
    write(file);
    int failed = ferror(file);
    if (fclose(file) || failed) {
        perror(path);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: ls_gen_docs FOLDER\n");
        return 2;
    }
    return write_into(argv[1], "config.md", ls_config_write_markdown) ||
           write_into(argv[1], "config.schema.json", ls_config_write_schema);
}
