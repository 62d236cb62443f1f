/*
 * json_impl.h - what json.c, json_scan.c and json_print.c share.
 */
#ifndef LS_CORE_JSON_IMPL_H
#define LS_CORE_JSON_IMPL_H

#include "core/json.h"

/*
 * Checks that text, n bytes and a NUL behind them, is JSON and fills the nodes in document
 * order with kind, structure and places; strings, keys and numbers are left to the caller.
 * nodes has room for ls__json_count(text, n).  EFORMAT.
 */
ls_status ls__json_scan(const char *text, size_t n, const char *name, ls_json *nodes,
                        size_t *n_nodes);

/* At least as many as the text has values. */
size_t ls__json_count(const char *text, size_t n);

/* Line and column of a place in the text, from 1. */
void ls__json_place(const char *text, const char *at, int *line, int *column);

/* Bytes of the UTF-8 character at `at` (shortest form, no surrogates), 0 where there is none.
 */
size_t ls__utf8_length(const char *at, const char *end);

#endif
