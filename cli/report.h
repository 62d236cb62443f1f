/*
 * report.h - one self-contained HTML page of a run, or of two side by side.
 */
#ifndef LS_CLI_REPORT_H
#define LS_CLI_REPORT_H

#include "core/strbuf.h"

/*
 * Adds the page of the n run directories to *page: all lines of metrics.jsonl, config.json,
 * summary.json, and of trace.json the last steps.  The page asks for nothing from anywhere.
 * ECONFIG for a directory that holds no metrics, EFORMAT naming file and line for what is no
 * JSON; a last line that was cut is left out.
 */
LS_MUST_CHECK ls_status ls_report_page(const char *const *dirs, int n, ls_strbuf *page);

#endif
