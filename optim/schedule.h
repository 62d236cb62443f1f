/*
 * schedule.h - the learning rate as a function of the step.
 */
#ifndef LS_OPTIM_SCHEDULE_H
#define LS_OPTIM_SCHEDULE_H

#include <stdint.h>

typedef enum { LS_SCHEDULE_COSINE, LS_SCHEDULE_CONSTANT, LS_SCHEDULE_LINEAR } ls_schedule_type;

typedef struct {
    ls_schedule_type type;
    double           lr, min_lr;
    int64_t          warmup, steps; /* in optimizer steps; warmup < steps */
} ls_schedule;

/*
 * Steps count from 1.  lr * step / warmup up to warmup; then, with p = min(1, (step - warmup) /
 * (steps - warmup)): cosine min_lr + (lr - min_lr) (1 + cos(pi p)) / 2, linear
 * lr + (min_lr - lr) p, constant lr.  In double.
 */
double ls_schedule_lr(const ls_schedule *s, int64_t step);

#endif
