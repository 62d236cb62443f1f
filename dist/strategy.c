/*
 * strategy.c - whichever it is: each call goes to the table of its strategy.
 */
#include "dist/strategy_impl.h"

void ls_strategy_close(ls_strategy *s, bool together)
{
    if (s->kind)
        s->kind->close(s->self, together);
    *s = (ls_strategy){0};
}

const char *ls_strategy_name(const ls_strategy *s)
{
    return s->kind->name;
}

int64_t ls_strategy_micro(const ls_strategy *s, int64_t micros, int64_t k)
{
    return s->kind->micro(s->self, micros, k);
}

ls_status ls_strategy_begin(ls_strategy *s, ls_tape *tape)
{
    return s->kind->begin(s->self, tape);
}

void ls_strategy_no_sync(ls_strategy *s, bool on)
{
    s->kind->no_sync(s->self, on);
}

ls_status ls_strategy_end_micro(ls_strategy *s)
{
    return s->kind->end_micro(s->self);
}

ls_status ls_strategy_finish(ls_strategy *s, ls_tape *tape, ls_status own)
{
    return s->kind->finish(s->self, tape, own);
}

ls_status ls_strategy_check(ls_strategy *s)
{
    return s->kind->check(s->self);
}

void ls_strategy_changed(ls_strategy *s)
{
    if (s->kind->changed)
        s->kind->changed(s->self);
}

bool ls_strategy_shards(const ls_strategy *s)
{
    return s->kind->shards;
}

void ls_strategy_set_trace(ls_strategy *s, ls_trace *trace)
{
    s->kind->set_trace(s->self, trace);
}

ls_strategy_stats ls_strategy_get_stats(const ls_strategy *s)
{
    return s->kind->stats(s->self);
}
