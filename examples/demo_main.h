/*
 * demo_main.h - the main() of ddp_demo and fsdp_round_trip: their options, and ranks made by
 * the program itself.
 *
 *     NAME [--world-size N] [--backend shm|tcp|threads] [--out FILE]
 */
#ifndef LS_EXAMPLES_DEMO_MAIN_H
#define LS_EXAMPLES_DEMO_MAIN_H

#include "lockstep.h"

/*
 * Runs `rank` as each of N ranks (2) of this host, with the path of the file to write as its
 * context: FILE, else outputs/ddp-demo.json, whose folder is made.  The exit status: 1 where a
 * rank failed, 2 for wrong options.
 */
int demo_main(int argc, char **argv, const char *name, ls_local_body rank);

#endif
