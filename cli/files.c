/*
 * files.c - arguments, opening and output of the commands that read checkpoints.
 */
#include "cli/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/checkpoints.h"
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

static void warn_refused(const char *path)
{
    fprintf(stderr, "lockstep: warning: %s is passed over: %s\n", path, ls_error_message());
}

/* The first that is whole. */
static ls_status open_candidate(const ls_candidates *c, ls_view_of what, ls_safetensors **file)
{
    ls_status status = LS_OK;

    for (int i = 0; i < c->n; i++) {
        status = ls_candidate_open(c->path[i], what, file);
        if (!ls_is_damage(status) || c->named)
            return status;
        if (i + 1 < c->n)
            warn_refused(c->path[i]);
    }
    return ls_fail_in(status, "no checkpoint of %d is valid; the oldest", c->n);
}

/* A directory without checkpoints: what runs left before there were any, or none of a run. */
static ls_status open_parameters_of(const char *path, ls_safetensors **file)
{
    char     *inside = ls_sprintf("%s/params.safetensors", path);
    ls_status status = LS_ENOMEM;

    if (inside && access(inside, F_OK))
        status = ls_fail(LS_EIO, "%s is neither a checkpoint nor a run that has one", path);
    else if (inside)
        status = ls_safetensors_open(inside, file);
    free(inside);
    return status;
}

static ls_status open_checkpoint(const char *path, ls_view_of what, ls_safetensors **file)
{
    struct stat   info;
    ls_candidates c;

    *file            = NULL;
    ls_status status = ls_candidates_of(path, &c);
    if (status)
        return status;
    if (c.n)
        status = open_candidate(&c, what, file);
    else if (!stat(path, &info) && S_ISDIR(info.st_mode))
        status = open_parameters_of(path, file);
    else
        status = ls_safetensors_open(path, file);
    ls_candidates_free(&c);
    return status;
}

ls_status ls_checkpoint_open(const char *path, ls_safetensors **file)
{
    return open_checkpoint(path, LS_VIEW_PARAMETERS, file);
}

ls_status ls_checkpoint_open_state(const char *path, ls_safetensors **file)
{
    return open_checkpoint(path, LS_VIEW_STATE, file);
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
