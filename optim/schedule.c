/*
 * schedule.c - warm-up, then cosine, constant or linear.
 */
#include "optim/schedule.h"

#include <math.h>

double ls_schedule_lr(const ls_schedule *s, int64_t step)
{
    const double pi = 3.14159265358979323846;

    if (step <= s->warmup)
        return s->lr * (double)step / (double)s->warmup;
    double p = fmin(1, (double)(step - s->warmup) / (double)(s->steps - s->warmup));
    switch (s->type) {
    case LS_SCHEDULE_COSINE:
        return s->min_lr + (s->lr - s->min_lr) * (1 + cos(pi * p)) / 2;
    case LS_SCHEDULE_LINEAR:
        return s->lr + (s->min_lr - s->lr) * p;
    case LS_SCHEDULE_CONSTANT:
        break;
    }
    return s->lr;
}
