/*
 * single.c - one process, which computes all micro-batches, as a strategy.
 */
#include "dist/strategy_impl.h"

static int64_t micro(const void *self, int64_t micros, int64_t k)
{
    (void)self;
    (void)micros;
    return k;
}

static ls_status begin(void *self, ls_tape *tape)
{
    ls_grad_sum_begin(self, tape);
    return LS_OK;
}

static void no_sync(void *self, bool on)
{
    (void)self;
    (void)on;
}

static ls_status end_micro(void *self)
{
    return ls_grad_sum_end_micro(self);
}

static ls_status finish(void *self, ls_tape *tape, ls_status own)
{
    ls_grad_sum_finish(self, tape);
    return own;
}

static ls_status check(void *self)
{
    (void)self;
    return LS_OK;
}

static void set_trace(void *self, ls_trace *trace)
{
    (void)self;
    (void)trace;
}

static ls_strategy_stats stats(const void *self)
{
    (void)self;
    return (ls_strategy_stats){0};
}

static void end(void *self, bool together)
{
    (void)together;
    ls_grad_sum_free(self);
}

static const ls_strategy_class single_class = {.name      = "single",
                                               .micro     = micro,
                                               .begin     = begin,
                                               .no_sync   = no_sync,
                                               .end_micro = end_micro,
                                               .finish    = finish,
                                               .check     = check,
                                               .set_trace = set_trace,
                                               .stats     = stats,
                                               .close     = end};

ls_status ls_strategy_single(ls_strategy *s, const ls_named_tensor *parameters, int n)
{
    *s = (ls_strategy){&single_class, ls_grad_sum_new(parameters, n)};
    return s->self ? LS_OK : LS_ENOMEM;
}
