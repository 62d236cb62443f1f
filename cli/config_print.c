/*
 * config_print.c - the resolved config as JSON.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/config_impl.h"

static void print_double(FILE *file, double x)
{
    char text[LS_JSON_DOUBLE_BYTES];
    ls_json_print_double(text, sizeof text, x);
    fputs(text, file);
}

static void print_text(FILE *file, const char *text)
{
    if (text)
        ls_json_print_string(file, text);
    else
        fputs("null", file);
}

static void print_ints(FILE *file, const ls_cfg_ints *ints)
{
    if (!ints->count)
        fputs("null", file);
    for (int64_t i = 0; i < ints->count; i++)
        fprintf(file, "%s%lld%s", i ? ", " : "[", (long long)ints->item[i],
                i == ints->count - 1 ? "]" : "");
}

/* One path as a string, more as a list. */
static void print_paths(FILE *file, const ls_cfg_paths *paths)
{
    if (!paths->count)
        fputs("null", file);
    for (int64_t i = 0; i < paths->count; i++) {
        fputs(i ? ", " : paths->count > 1 ? "[" : "", file);
        ls_json_print_string(file, paths->item[i]);
    }
    fputs(paths->count > 1 ? "]" : "", file);
}

static void print_int(FILE *file, const config_key *key, int64_t value)
{
    if (key->type == KEY_INT_OR_AUTO && value == 0)
        fputs("\"auto\"", file);
    else
        fprintf(file, "%lld", (long long)value);
}

static void print_choice(FILE *file, const config_key *key, const void *field)
{
    int choice;
    memcpy(&choice, field, sizeof choice);
    ls_json_print_string(file, key->choices[choice]);
}

void ls__config_print_value(FILE *file, const ls_config *cfg, const config_key *key)
{
    const void *field = ls__config_field(cfg, key);

    switch (key->type) {
    case KEY_INT:
    case KEY_INT_OR_AUTO:
        print_int(file, key, *(const int64_t *)field);
        break;
    case KEY_NUMBER:
        print_double(file, *(const double *)field);
        break;
    case KEY_NUMBER_PAIR:
        fputs("[", file);
        print_double(file, ((const double *)field)[0]);
        fputs(", ", file);
        print_double(file, ((const double *)field)[1]);
        fputs("]", file);
        break;
    case KEY_BOOL:
        fputs(*(const bool *)field ? "true" : "false", file);
        break;
    case KEY_CHOICE:
        print_choice(file, key, field);
        break;
    case KEY_TEXT:
    case KEY_TEXT_NULL:
        print_text(file, *(char *const *)field);
        break;
    case KEY_PATHS:
    case KEY_PATHS_NULL:
        print_paths(file, field);
        break;
    case KEY_INTS:
    case KEY_INT_PAIR:
        print_ints(file, field);
        break;
    }
}

const char *ls__config_inside(const char *path, const char *section)
{
    size_t      n    = strlen(section);
    const char *leaf = strrchr(path, '.');

    leaf = leaf ? leaf + 1 : path;
    if (n == 0)
        return leaf == path ? leaf : NULL;
    return (size_t)(leaf - path) == n + 1 && !strncmp(path, section, n) ? leaf : NULL;
}

static void print_section(FILE *file, const ls_config *cfg, const char *section, int depth)
{
    const char *between = "{\n";

    for (int i = 0; i < ls__config_n_keys; i++) {
        const config_key *key  = &ls__config_keys[i];
        const char       *name = ls__config_inside(key->path, section);
        if (!name || !ls__config_belongs(key, cfg))
            continue;
        fprintf(file, "%s%*s\"%s\": ", between, 2 * depth, "", name);
        ls__config_print_value(file, cfg, key);
        between = ",\n";
    }
    for (int i = 0; i < ls__config_n_sections; i++) {
        const char *name = ls__config_inside(ls__config_sections[i].path, section);
        if (!name)
            continue;
        fprintf(file, "%s%*s\"%s\": ", between, 2 * depth, "", name);
        print_section(file, cfg, ls__config_sections[i].path, depth + 1);
        between = ",\n";
    }
    fprintf(file, "\n%*s}", 2 * (depth - 1), "");
}

static void print_whole(FILE *file, const ls_config *cfg)
{
    print_section(file, cfg, "", 1);
    fputs("\n", file);
}

static void print_shared(FILE *file, const ls_config *cfg)
{
    for (int i = 0; i < ls__config_n_keys; i++) {
        const config_key *key = &ls__config_keys[i];
        if (key->own || !ls__config_belongs(key, cfg))
            continue;
        fprintf(file, "%s ", key->path);
        ls__config_print_value(file, cfg, key);
        fputs("\n", file);
    }
}

static char *print_to_text(const ls_config *cfg, void (*print)(FILE *, const ls_config *))
{
    char  *text = NULL;
    size_t n;
    FILE  *file = open_memstream(&text, &n);
    bool   ok   = file != NULL;

    if (file) {
        print(file, cfg);
        ok = !ferror(file);
        ok = !fclose(file) && ok;
    }
    if (ok)
        return text;
    free(text);
    (void)!ls_fail(LS_ENOMEM, "no memory for the config's text");
    return NULL;
}

char *ls_config_json(const ls_config *cfg)
{
    return print_to_text(cfg, print_whole);
}

char *ls_config_shared(const ls_config *cfg)
{
    return print_to_text(cfg, print_shared);
}
