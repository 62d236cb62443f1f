/*
 * ddp.c - DDP (dist/ddp.h) as a strategy.
 */
#include "dist/strategy_impl.h"

LS__STRATEGY_VERBS(ddp)

static ls_strategy_stats stats(const void *self)
{
    ls_ddp_stats d = ls_ddp_get_stats(self);

    return (ls_strategy_stats){d.buckets, d.comm_ns, d.exposed_ns};
}

static void end(void *self, bool together)
{
    (void)together;
    ls_ddp_free(self);
}

static const ls_strategy_class ddp_class = {LS__STRATEGY_PLACES, .name = "ddp", .stats = stats,
                                            .close = end};

void ls_strategy_ddp(ls_strategy *s, ls_ddp *ddp)
{
    *s = (ls_strategy){&ddp_class, ddp};
}
