/*
 * commands.h - the sub-commands of `lockstep`, and how a status becomes an exit status.
 *
 * A command gets its own name as argv[0], writes results to stdout and errors to stderr as one
 * line `lockstep: error: ...`, and returns the exit status of the process.
 */
#ifndef LS_CLI_COMMANDS_H
#define LS_CLI_COMMANDS_H

#include "core/error.h"

/* train CONFIG [--set key=value]... [--dry-run] [--nproc N] [--resume WHAT] [--stop-at N] ...
 */
int ls_cmd_train(int argc, char **argv);

/* init CONFIG -o FILE [--set key=value]... */
int ls_cmd_init(int argc, char **argv);

/* eval CHECKPOINT [--data FILE]: one JSON line. */
int ls_cmd_eval(int argc, char **argv);

/* bench train CONFIG [--nproc N] | gemm | collectives -n N [--json] */
int ls_cmd_bench(int argc, char **argv);
int ls_bench_collectives(int argc, char **argv);

/* inspect CHECKPOINT [--json]: what a file holds, and whether its checksums hold. */
int ls_cmd_inspect(int argc, char **argv);

/* diff A B [--json]: two checkpoints tensor by tensor; 0 when they are bit-identical, else 1.
 */
int ls_cmd_diff(int argc, char **argv);

/* repair RUN_DIR: finds the newest valid checkpoint and sets checkpoints/latest. */
int ls_cmd_repair(int argc, char **argv);

/* tokenize TEXT...: trains a BPE, writes tokenizer.json and token files. */
int ls_cmd_tokenize(int argc, char **argv);

/* generate CHECKPOINT [--prompt TEXT] [--tokens N] ...: text on stdout as it comes. */
int ls_cmd_generate(int argc, char **argv);

/* export CHECKPOINT --format hf|safetensors -o PATH, import DIR -o FILE. */
int ls_cmd_export(int argc, char **argv);
int ls_cmd_import(int argc, char **argv);

/* plan CONFIG [--world N,N,...] [--bandwidth GBPS] [--latency US] [--memory GIB] [--json] */
int ls_cmd_plan(int argc, char **argv);

/* report RUN_DIR [OTHER_RUN_DIR] [-o FILE]: one self-contained HTML page. */
int ls_cmd_report(int argc, char **argv);

/* run -n N [OPTION]... -- PROGRAM [ARGUMENT]...: the launcher; see dist/comm/launch.h. */
int ls_cmd_run(int argc, char **argv);

/*
 * 0 for success, 2 for usage, config and what this version lacks, 3 for a number of ranks that
 * does not fit the batch, 130 for interrupted, else 1.
 */
int ls_exit_status(ls_status status);

/* Prints `lockstep: error: <message>` on stderr, on one line; returns ls_exit_status(). */
int ls_report(ls_status status);

/* The same; without a failure the help text (NULL: none) goes to stdout. */
int ls_report_help(ls_status status, const char *help);

#endif
