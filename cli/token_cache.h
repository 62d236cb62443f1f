/*
 * token_cache.h - tokens of a text, kept beside the runs: runs/tokens-<fingerprint>.bin.
 *
 * A text is tokenized once, whatever runs read it afterwards.  The file's name is the
 * fingerprint of text, tokenizer and vocabulary, so it is never out of date; its content has a
 * hash of its own, and one that is damaged or of another machine's byte order is made anew.  It
 * appears whole or not at all, and may be removed at any time.
 */
#ifndef LS_CLI_TOKEN_CACHE_H
#define LS_CLI_TOKEN_CACHE_H

#include "cli/config.h"
#include "data/dataset.h"

/* The cache beside cfg's run directory; cfg is borrowed. */
ls_token_store ls_token_cache(const ls_config *cfg);

#endif
