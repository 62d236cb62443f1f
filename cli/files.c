/*
 * files.c - arguments, opening and output of the commands that read checkpoints.
 */
#include "cli/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"

ls_status ls_file_args_parse(int argc, char **argv, int n_files, ls_file_args *args)
{
    bool options = true; /* until "--" */
    int  n       = 0;

    *args = (ls_file_args){0};
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (options && !strcmp(arg, "--"))
            options = false;
        else if (options && !strcmp(arg, "--json"))
            args->json = true;
        else if (options && (!strcmp(arg, "--help") || !strcmp(arg, "-h")))
            args->help = true;
        else if (options && arg[0] == '-' && arg[1])
            return ls_fail(LS_ECONFIG, "%s: unknown option '%s'; it has --json and --help",
                           argv[0], arg);
        else if (n++ < n_files)
            args->path[n - 1] = arg;
    }
    if (n != n_files && !args->help)
        return ls_fail(LS_ECONFIG, "%s: %d arguments given, expected %s", argv[0], n,
                       n_files == 1 ? "one checkpoint" : "two checkpoints");
    return LS_OK;
}

ls_status ls_checkpoint_open(const char *path, ls_safetensors **file)
{
    struct stat info;

    if (stat(path, &info) < 0)
        return ls_fail(LS_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return ls_safetensors_open(path, file);
    char *inside = ls_sprintf("%s/params.safetensors", path);
    if (!inside)
        return LS_ENOMEM;
    ls_status status = ls_safetensors_open(inside, file);
    free(inside);
    return status;
}

ls_status ls_strbuf_put(const ls_strbuf *text)
{
    ls_status status = ls_strbuf_status(text);

    if (status)
        return status;
    if (text->used && fwrite(text->data, 1, text->used, stdout) != text->used)
        return ls_fail(LS_EIO, "writing to stdout: %s", strerror(errno));
    return fflush(stdout) ? ls_fail(LS_EIO, "writing to stdout: %s", strerror(errno)) : LS_OK;
}

void ls_strbuf_dims(ls_strbuf *text, const uint64_t *dim, int ndim)
{
    ls_strbuf_add(text, "[", 1);
    for (int i = 0; i < ndim; i++)
        ls_strbuf_format(text, "%s%llu", i ? "," : "", (unsigned long long)dim[i]);
    ls_strbuf_add(text, "]", 1);
}
