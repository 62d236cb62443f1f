/*
 * tuner.h - how long the algorithms would take here: latency and bandwidth, measured once.
 */
#ifndef LS_DIST_COMM_TUNER_H
#define LS_DIST_COMM_TUNER_H

#include "dist/comm/call.h"

typedef struct ls_tuner {
    double alpha; /* seconds of an exchange without bytes */
    double beta;  /* seconds per byte sent (while as many arrive) */
    double gamma; /* seconds per byte joined */
} ls_tuner;

void ls_tuner_free(ls_tuner *tuner); /* NULL is allowed */

/* Predicted seconds of an operation over messages; a negative number where the algorithm does
 * not fit. */
double ls_tuner_predict(const ls_tuner *tuner, const ls_call *call, ls_algorithm algorithm,
                        int size);

#endif
