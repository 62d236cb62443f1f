/*
 * config_impl.h - the table of keys, as the files of the config see it.
 */
#ifndef LS_CLI_CONFIG_IMPL_H
#define LS_CLI_CONFIG_IMPL_H

#include <stddef.h>

#include "cli/config.h"
#include "core/json.h"

typedef enum {
    KEY_INT,         /* int64_t */
    KEY_INT_OR_AUTO, /* int64_t, 0 for "auto" */
    KEY_NUMBER,      /* double */
    KEY_BOOL,        /* bool */
    KEY_CHOICE,      /* an enum: the place in choices */
    KEY_TEXT,        /* char *, never NULL; choices are the words that are not paths */
    KEY_TEXT_NULL,   /* char *, NULL for null */
    KEY_PATHS,       /* ls_cfg_paths: a path or a list of them, at least one */
    KEY_PATHS_NULL,  /* the same or null */
    KEY_INTS,        /* ls_cfg_ints: at least two */
    KEY_INT_PAIR,    /* ls_cfg_ints: null or [first, last] */
    KEY_NUMBER_PAIR  /* double[2] */
} key_type;

typedef struct {
    const char *path; /* "optim.schedule.warmup" */
    key_type    type;
    size_t      offset;       /* in ls_config */
    const char *standard;     /* the default as JSON; NULL: computed, or the key is required */
    const char *computed;     /* how the default is computed, for the documents */
    double      min, max;     /* of numbers, both allowed unless ... */
    bool        above, below; /* ... the value must be above min, below max */
    const char *const *choices; /* ends with NULL */
    const char        *only;    /* model.type that it belongs to; NULL: any */
    bool               own;     /* ranks of one job may have different values */
    bool               later;   /* values other than the default are not in this version ... */
    const char        *also[2]; /* ... but for these, which are */
    const char        *doc;
} config_key;

extern const config_key ls__config_keys[];
extern const int        ls__config_n_keys;

typedef struct {
    const char *path, *doc;
} config_section;

extern const config_section ls__config_sections[];
extern const int            ls__config_n_sections;

/* The index of the key of this path, or -1. */
int ls__config_find(const char *path);

/* A key that must be given, for the model type that it belongs to. */
bool ls__config_required(const config_key *key);

/* True when the key belongs to the model type of cfg. */
bool ls__config_belongs(const config_key *key, const ls_config *cfg);

/* The place of name in the key's choices, or -1. */
int ls__config_choice(const config_key *key, const char *name);

/* The field of the key in cfg. */
static inline void *ls__config_field(const ls_config *cfg, const config_key *key)
{
    return (char *)cfg + key->offset;
}

/* The name that path has directly inside section ("" is the top), NULL when it lies elsewhere.
 */
const char *ls__config_inside(const char *path, const char *section);

/* Prints the key's value in cfg as JSON. */
void ls__config_print_value(FILE *file, const ls_config *cfg, const config_key *key);

/* Where a value came from; node is NULL for a default. */
typedef struct {
    const ls_json *node;
    const char    *set;          /* the --set that gave it, else NULL */
    int            line, column; /* in the file, when it came from there */
} config_source;

/* The problems found so far, one a line; those beyond the room are counted. */
typedef struct {
    const char *name; /* of the file */
    char        text[1800];
    size_t      used;
    int         count, hidden;
} config_problems;

/* Notes a problem behind the place of source ("gpt.json:3:5: "; NULL: the file as a whole). */
void ls__config_problem(config_problems *problems, const config_source *source, const char *fmt,
                        ...) LS_PRINTF(3, 4);

/* How much of a value's text a message shows: whole characters, at most about 60 bytes. */
int ls__config_shown(const ls_json *node);

/* Puts a value (source->node), or the key's default, into its field of cfg; ENOMEM. */
ls_status ls__config_fill(ls_config *cfg, const config_key *key, const config_source *source,
                          config_problems *problems);

/* Defaults that depend on other keys; ENOMEM.  name is the config's file. */
ls_status ls__config_compute(ls_config *cfg, const config_source *sources, const char *name);

/* Rules between keys. */
void ls__config_check_rules(const ls_config *cfg, const config_source *sources,
                            config_problems *problems);

/* The key or section that path most likely means, or NULL. */
const char *ls__config_nearest(const char *path, bool section);

#endif
