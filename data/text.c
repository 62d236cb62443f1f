/*
 * text.c - files read into one run of bytes.
 */
#include "data/text.h"

#include <stdlib.h>

#include "core/alloc.h"

static ls_status append_file(ls_text *text, int i)
{
    text->first[i]   = text->owned.size;
    ls_status status = ls_gz_read_file(text->paths.path[i], &text->owned);

    if (!status && text->owned.size == text->first[i])
        status = ls_fail(LS_EFORMAT, "data file %s is empty", text->paths.path[i]);
    return status;
}

ls_status ls_text_load(ls_paths paths, ls_text *text)
{
    ls_status status = LS_OK;

    *text = (ls_text){.paths = paths};
    if (paths.count < 1)
        return ls_fail(LS_ECONFIG, "no data file is named");
    text->first = ls_calloc((size_t)paths.count, sizeof *text->first);
    if (!text->first)
        return LS_ENOMEM;
    for (int i = 0; !status && i < paths.count; i++)
        status = append_file(text, i);
    if (status) {
        ls_text_close(text);
        return status;
    }
    text->data = text->owned.data;
    text->size = text->owned.size;
    return LS_OK;
}

void ls_text_close(ls_text *text)
{
    free(text->first);
    ls_bytes_free(&text->owned);
    *text = (ls_text){0};
}

ls_text ls_text_view(const char *const *name, const void *data, size_t size)
{
    return (ls_text){.data = data, .size = size, .paths = {name, 1}};
}

ls_text_place ls_text_locate(const ls_text *text, size_t position)
{
    int i = text->first ? text->paths.count - 1 : 0;

    while (i > 0 && position < text->first[i])
        i--;
    return (ls_text_place){text->paths.path[i], position - (text->first ? text->first[i] : 0)};
}
