/*
 * config_docs.c - the reference of the config and its JSON Schema, from the table.
 */
#include <string.h>

#include "cli/config_impl.h"

/* ---------------------------------------------------------------------------- markdown */

static const char *type_words(const config_key *key)
{
    switch (key->type) {
    case KEY_INT:
        return "integer";
    case KEY_INT_OR_AUTO:
        return "integer or `\"auto\"`";
    case KEY_NUMBER:
        return "number";
    case KEY_BOOL:
        return "`true` or `false`";
    case KEY_CHOICE:
        return "";
    case KEY_TEXT:
        return key->choices ? "or a path" : "string";
    case KEY_TEXT_NULL:
        return "string or `null`";
    case KEY_PATHS:
        return "path or list of paths";
    case KEY_PATHS_NULL:
        return "path, list of paths or `null`";
    case KEY_INTS:
        return "list of at least two integers";
    case KEY_INT_PAIR:
        return "`[first, last]` or `null`";
    case KEY_NUMBER_PAIR:
        return "list of two numbers";
    }
    return "";
}

static bool is_numeric(const config_key *key)
{
    return key->max > 0;
}

static void write_range(FILE *file, const config_key *key)
{
    char min[LS_JSON_DOUBLE_BYTES], max[LS_JSON_DOUBLE_BYTES];

    ls_json_print_double(min, sizeof min, key->min);
    ls_json_print_double(max, sizeof max, key->max);
    fprintf(file, ", %s %s and %s %s", key->above ? ">" : ">=", min,
            key->below ? "<" : "<=", max);
}

static void write_type(FILE *file, const config_key *key)
{
    for (int i = 0; key->choices && key->choices[i]; i++)
        fprintf(file, "%s`\"%s\"`", i ? ", " : "", key->choices[i]);
    fprintf(file, "%s%s", key->type == KEY_TEXT && key->choices ? " " : "", type_words(key));
    if (is_numeric(key))
        write_range(file, key);
}

static void write_default(FILE *file, const config_key *key)
{
    if (key->standard)
        fprintf(file, "`%s`", key->standard);
    else
        fputs(key->computed ? key->computed : "required", file);
}

static void write_row(FILE *file, const config_key *key)
{
    fprintf(file, "| `%s` | ", key->path);
    write_type(file, key);
    fputs(" | ", file);
    write_default(file, key);
    fprintf(file, " | %s", key->doc);
    if (key->later && key->also[1])
        fprintf(file, " *In this version: `%s`, `\"%s\"` and `\"%s\"`.*", key->standard,
                key->also[0], key->also[1]);
    else if (key->later && key->also[0])
        fprintf(file, " *In this version: `%s` and `\"%s\"`.*", key->standard, key->also[0]);
    else if (key->later)
        fprintf(file, " *In this version: `%s`.*", key->standard);
    fputs(" |\n", file);
}

static const char intro[] = "# The config\n"
                            "\n"
                            "This page is generated from the table in `cli/config_table.c`, "
                            "which also checks configs; so is\n"
                            "[config.schema.json](config.schema.json).\n"
                            "\n"
                            "A config is strict JSON: no comments, no trailing commas, no "
                            "duplicate keys, UTF-8. Unknown keys, wrong\n"
                            "types, values out of range and keys that do not fit each other "
                            "are errors (exit status 2), all of them\n"
                            "in one message, with line and column, before anything is written. "
                            "An integer is written without fraction\n"
                            "and exponent; a number may be written as an integer. Relative "
                            "paths start at the working directory.\n"
                            "\n"
                            "`--set key.path=value` replaces a value from the command line; "
                            "the value is JSON if it parses as JSON, else\n"
                            "a string, and the last of several wins:\n"
                            "\n"
                            "```sh\n"
                            "lockstep train examples/gpt_tiny.json --set run.steps=10 --set "
                            "optim.schedule.warmup=2 --set 'optim.betas=[0.9, 0.99]'\n"
                            "```\n"
                            "\n"
                            "The resolved config, with every default filled in, is written to "
                            "`config.json` in the run's folder; it is\n"
                            "itself a config. A key at its default is never refused, even "
                            "where its feature is not in this version.\n";

static const char rules[] =
    "\n"
    "## Rules between keys\n"
    "\n"
    "- `model.n_head` divides `model.d_model`, and `model.n_kv_head` divides `model.n_head`; "
    "with\n"
    "  `model.position` `\"rope\"` the head size `d_model / n_head` is even.\n"
    "- A config has only the model keys of its `model.type`.\n"
    "- `data.val` and `data.val_fraction` exclude each other.\n"
    "- `eval.every` above 0 needs one of them.\n"
    "- `data.format` `\"csv\"` and `\"idx\"` are read by `mlp` alone, and `mlp` reads nothing "
    "else.\n"
    "- `batch.micro` divides `batch.global`.\n"
    "- `optim.schedule.warmup` is below `optim.schedule.steps`.\n"
    "- `optim.momentum` above 0 is for `sgd` alone.\n";

void ls_config_write_markdown(FILE *file)
{
    fputs(intro, file);
    for (int s = 0; s < ls__config_n_sections; s++) {
        const config_section *section = &ls__config_sections[s];
        fprintf(file, "\n## %s\n\n%s\n\n", section->path, section->doc);
        fputs("| key | value | default | meaning |\n|---|---|---|---|\n", file);
        for (int i = 0; i < ls__config_n_keys; i++) {
            if (ls__config_inside(ls__config_keys[i].path, section->path))
                write_row(file, &ls__config_keys[i]);
        }
    }
    fputs(rules, file);
}

/* ------------------------------------------------------------------------------ schema */

/* The text as a JSON string, without markdown's backticks. */
static void write_plain(FILE *file, const char *text)
{
    char   plain[512];
    size_t n = 0;

    for (; *text && n + 1 < sizeof plain; text++) {
        if (*text != '`')
            plain[n++] = *text;
    }
    plain[n] = 0;
    ls_json_print_string(file, plain);
}

static void schema_range(FILE *file, const config_key *key)
{
    char min[LS_JSON_DOUBLE_BYTES], max[LS_JSON_DOUBLE_BYTES];

    ls_json_print_double(min, sizeof min, key->min);
    ls_json_print_double(max, sizeof max, key->max);
    fprintf(file, "\"%s\": %s, \"%s\": %s", key->above ? "exclusiveMinimum" : "minimum", min,
            key->below ? "exclusiveMaximum" : "maximum", max);
}

static void schema_list(FILE *file, const config_key *key, const char *type, int min, int max)
{
    fprintf(file, "\"type\": \"array\", \"minItems\": %d, ", min);
    if (max)
        fprintf(file, "\"maxItems\": %d, ", max);
    fprintf(file, "\"items\": {\"type\": \"%s\", ", type);
    schema_range(file, key);
    fputs("}", file);
}

static void schema_choices(FILE *file, const config_key *key)
{
    for (int i = 0; key->choices[i]; i++)
        fprintf(file, "%s\"%s\"", i ? ", " : "\"enum\": [", key->choices[i]);
    fputs("]", file);
}

static const char a_path[]  = "{\"type\": \"string\", \"minLength\": 1}";
static const char a_paths[] = "{\"type\": \"array\", \"minItems\": 1, \"items\": "
                              "{\"type\": \"string\", \"minLength\": 1}}";

static void schema_type(FILE *file, const config_key *key)
{
    switch (key->type) {
    case KEY_INT:
        fputs("\"type\": \"integer\", ", file);
        schema_range(file, key);
        break;
    case KEY_INT_OR_AUTO:
        fputs("\"anyOf\": [{\"const\": \"auto\"}, {\"type\": \"integer\", ", file);
        schema_range(file, key);
        fputs("}]", file);
        break;
    case KEY_NUMBER:
        fputs("\"type\": \"number\", ", file);
        schema_range(file, key);
        break;
    case KEY_BOOL:
        fputs("\"type\": \"boolean\"", file);
        break;
    case KEY_CHOICE:
        schema_choices(file, key);
        break;
    case KEY_TEXT:
        fputs("\"type\": \"string\", \"minLength\": 1", file);
        break;
    case KEY_TEXT_NULL:
        fputs("\"type\": [\"string\", \"null\"], \"minLength\": 1", file);
        break;
    case KEY_PATHS:
        fprintf(file, "\"anyOf\": [%s, %s]", a_path, a_paths);
        break;
    case KEY_PATHS_NULL:
        fprintf(file, "\"anyOf\": [{\"type\": \"null\"}, %s, %s]", a_path, a_paths);
        break;
    case KEY_INTS:
        schema_list(file, key, "integer", 2, 0);
        break;
    case KEY_INT_PAIR:
        fputs("\"anyOf\": [{\"type\": \"null\"}, {", file);
        schema_list(file, key, "integer", 2, 2);
        fputs("}]", file);
        break;
    case KEY_NUMBER_PAIR:
        schema_list(file, key, "number", 2, 2);
        break;
    }
}

static void schema_key(FILE *file, const config_key *key, const char *name, int indent)
{
    fprintf(file, "%*s\"%s\": {\n%*s\"description\": ", indent, "", name, indent + 2, "");
    write_plain(file, key->doc);
    fprintf(file, ",\n%*s", indent + 2, "");
    schema_type(file, key);
    if (key->standard)
        fprintf(file, ",\n%*s\"default\": %s", indent + 2, "", key->standard);
    if (key->computed || key->later)
        fprintf(file, ",\n%*s\"$comment\": ", indent + 2, "");
    if (key->computed) {
        char text[256];
        snprintf(text, sizeof text, "default: %s", key->computed);
        write_plain(file, text);
    } else if (key->later) {
        fprintf(file, "\"%s are not in this version\"",
                key->also[0] ? "most values other than the default"
                             : "values other than the default");
    }
    fprintf(file, "\n%*s}", indent, "");
}

/* Whether the section has, at any depth, a key that is required whatever the model's type. */
static bool needs(const char *section)
{
    size_t n = strlen(section);

    for (int i = 0; i < ls__config_n_keys; i++) {
        const config_key *key = &ls__config_keys[i];
        if (!strncmp(key->path, section, n) && key->path[n] == '.' && !key->only &&
            ls__config_required(key))
            return true;
    }
    return false;
}

static void schema_required(FILE *file, const char *section, int indent)
{
    const char *between = "";

    fprintf(file, "%*s\"required\": [", indent, "");
    for (int i = 0; i < ls__config_n_keys; i++) {
        const config_key *key  = &ls__config_keys[i];
        const char       *name = ls__config_inside(key->path, section);
        if (name && !key->only && ls__config_required(key)) {
            fprintf(file, "%s\"%s\"", between, name);
            between = ", ";
        }
    }
    for (int i = 0; i < ls__config_n_sections; i++) {
        const char *name = ls__config_inside(ls__config_sections[i].path, section);
        if (name && needs(ls__config_sections[i].path)) {
            fprintf(file, "%s\"%s\"", between, name);
            between = ", ";
        }
    }
    fputs("]", file);
}

/* For one model type: the keys that it requires, and those of the other that it refuses. */
static void schema_model_type(FILE *file, const char *type, int indent)
{
    const char *between = "";

    fprintf(file, "%*s{\n", indent, "");
    fprintf(file, "%*s\"if\": {\"properties\": {\"type\": {\"const\": \"%s\"}}},\n", indent + 2,
            "", type);
    fprintf(file, "%*s\"then\": {\n%*s\"required\": [", indent + 2, "", indent + 4, "");
    for (int i = 0; i < ls__config_n_keys; i++) {
        const config_key *key = &ls__config_keys[i];
        if (!key->only || strcmp(key->only, type) != 0 || !ls__config_required(key))
            continue;
        fprintf(file, "%s\"%s\"", between, ls__config_inside(key->path, "model"));
        between = ", ";
    }
    fprintf(file, "],\n%*s\"properties\": {", indent + 4, "");
    between = "";
    for (int i = 0; i < ls__config_n_keys; i++) {
        const config_key *key = &ls__config_keys[i];
        if (!key->only || !strcmp(key->only, type))
            continue;
        fprintf(file, "%s\"%s\": false", between, ls__config_inside(key->path, "model"));
        between = ", ";
    }
    fprintf(file, "}\n%*s}\n%*s}", indent + 2, "", indent, "");
}

static void schema_section(FILE *file, const char *section, int indent);

static void schema_properties(FILE *file, const char *section, int indent)
{
    const char *between = "";

    fprintf(file, ",\n%*s\"properties\": {\n", indent, "");
    for (int i = 0; i < ls__config_n_keys; i++) {
        const char *name = ls__config_inside(ls__config_keys[i].path, section);
        if (!name)
            continue;
        fputs(between, file);
        schema_key(file, &ls__config_keys[i], name, indent + 2);
        between = ",\n";
    }
    for (int i = 0; i < ls__config_n_sections; i++) {
        const config_section *inner = &ls__config_sections[i];
        const char           *name  = ls__config_inside(inner->path, section);
        if (!name)
            continue;
        fprintf(file, "%s%*s\"%s\": {\n%*s\"description\": ", between, indent + 2, "", name,
                indent + 4, "");
        write_plain(file, inner->doc);
        fputs(",\n", file);
        schema_section(file, inner->path, indent + 4);
        fprintf(file, "\n%*s}", indent + 2, "");
        between = ",\n";
    }
    fprintf(file, "\n%*s}", indent, "");
}

static void schema_section(FILE *file, const char *section, int indent)
{
    fprintf(file, "%*s\"type\": \"object\",\n%*s\"additionalProperties\": false,\n", indent, "",
            indent, "");
    schema_required(file, section, indent);
    schema_properties(file, section, indent);
    if (!strcmp(section, "model")) {
        fprintf(file, ",\n%*s\"allOf\": [\n", indent, "");
        schema_model_type(file, "gpt", indent + 2);
        fputs(",\n", file);
        schema_model_type(file, "mlp", indent + 2);
        fprintf(file, "\n%*s]", indent, "");
    }
}

void ls_config_write_schema(FILE *file)
{
    fputs("{\n"
          "  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
          "  \"title\": \"Config of a Lockstep run\",\n"
          "  \"$comment\": \"Generated from cli/config_table.c. Lockstep checks more than a "
          "schema "
          "can say: duplicate keys, integers written as 1.0, and rules between keys "
          "(config.md).\","
          "\n",
          file);
    schema_section(file, "", 2);
    fputs("\n}\n", file);
}
