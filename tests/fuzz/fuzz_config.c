/*
 * fuzz_config.c - configs that nobody vouches for: what loads prints a config that loads.
 *
 * An input is a config's text; its second half is tried as a --set, too.
 */
#include <stdio.h>
#include <string.h>

#include "cli/config.h"
#include "fuzz/fuzz.h"

/* What loads must print as a config that loads and prints the same. */
static void check_again(const ls_config *cfg)
{
    ls_config again;
    char     *first = ls_config_json(cfg), *second = NULL;

    if (!first || ls_config_parse(&again, first, "again", NULL, 0)) {
        fprintf(stderr, "%s\n%s\n", ls_error_message(), first ? first : "");
        abort();
    }
    second = ls_config_json(&again);
    fuzz_expect(second && !strcmp(first, second));
    free(first);
    free(second);
    ls_config_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ls_config   cfg;
    char       *text = fuzz_text(data, size);
    const char *set  = text + strlen(text) / 2;

    if (fuzz_accepted(ls_config_parse(&cfg, text, "fuzz", NULL, 0))) {
        check_again(&cfg);
        ls_config_free(&cfg);
    }
    fuzz_expect(ls_config_parse(&cfg, "{}", "fuzz", &set, 1) != LS_OK);
    free(text);
    return 0;
}
