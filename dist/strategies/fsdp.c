/*
 * fsdp.c - FSDP (dist/fsdp.h) as a strategy.
 */
#include "dist/strategy_impl.h"

LS__STRATEGY_VERBS(fsdp)

static void changed(void *self)
{
    ls_fsdp_reshard(self);
}

static ls_strategy_stats stats(const void *self)
{
    ls_fsdp_stats d = ls_fsdp_get_stats(self);

    return (ls_strategy_stats){d.units, d.comm_ns, d.exposed_ns};
}

static void end(void *self, bool together)
{
    if (together)
        ls_fsdp_free(self);
    else
        ls_fsdp_abandon(self);
}

static const ls_strategy_class fsdp_class = {LS__STRATEGY_PLACES, .name = "fsdp",
                                             .shards = true,      .changed = changed,
                                             .stats = stats,      .close = end};

void ls_strategy_fsdp(ls_strategy *s, ls_fsdp *fsdp)
{
    *s = (ls_strategy){&fsdp_class, fsdp};
}
