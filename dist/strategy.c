/*
 * strategy.c - a table a strategy.
 */
#include "dist/strategy.h"

struct ls_strategy_class {
    const char *name;
    bool        shards;
    int64_t (*micro)(const void *self, int64_t micros, int64_t k);
    ls_status (*begin)(void *self, ls_tape *tape);
    void (*no_sync)(void *self, bool on);
    ls_status (*end_micro)(void *self);
    ls_status (*finish)(void *self, ls_tape *tape, ls_status own);
    ls_status (*check)(void *self);
    void (*changed)(void *self); /* NULL: nothing to do */
    void (*set_trace)(void *self, ls_trace *trace);
    ls_strategy_stats (*stats)(const void *self);
    void (*close)(void *self, bool together);
};

/* ---- one process ---- */

static int64_t single_micro(const void *self, int64_t micros, int64_t k)
{
    (void)self;
    (void)micros;
    return k;
}

static ls_status single_begin(void *self, ls_tape *tape)
{
    ls_grad_sum_begin(self, tape);
    return LS_OK;
}

static void single_no_sync(void *self, bool on)
{
    (void)self;
    (void)on;
}

static ls_status single_end_micro(void *self)
{
    return ls_grad_sum_end_micro(self);
}

static ls_status single_finish(void *self, ls_tape *tape, ls_status own)
{
    ls_grad_sum_finish(self, tape);
    return own;
}

static ls_status single_check(void *self)
{
    (void)self;
    return LS_OK;
}

static void single_set_trace(void *self, ls_trace *trace)
{
    (void)self;
    (void)trace;
}

static ls_strategy_stats single_stats(const void *self)
{
    (void)self;
    return (ls_strategy_stats){0};
}

static void single_close(void *self, bool together)
{
    (void)together;
    ls_grad_sum_free(self);
}

static const ls_strategy_class single_class = {.name      = "single",
                                               .micro     = single_micro,
                                               .begin     = single_begin,
                                               .no_sync   = single_no_sync,
                                               .end_micro = single_end_micro,
                                               .finish    = single_finish,
                                               .check     = single_check,
                                               .set_trace = single_set_trace,
                                               .stats     = single_stats,
                                               .close     = single_close};

/* ---- DDP ---- */

static int64_t ddp_micro(const void *self, int64_t micros, int64_t k)
{
    return ls_ddp_micro(self, micros, k);
}

static ls_status ddp_begin(void *self, ls_tape *tape)
{
    return ls_ddp_begin(self, tape);
}

static void ddp_no_sync(void *self, bool on)
{
    ls_ddp_no_sync(self, on);
}

static ls_status ddp_end_micro(void *self)
{
    return ls_ddp_end_micro(self);
}

static ls_status ddp_finish(void *self, ls_tape *tape, ls_status own)
{
    return ls_ddp_finish(self, tape, own);
}

static ls_status ddp_check(void *self)
{
    return ls_ddp_check(self);
}

static void ddp_set_trace(void *self, ls_trace *trace)
{
    ls_ddp_set_trace(self, trace);
}

static ls_strategy_stats ddp_stats(const void *self)
{
    ls_ddp_stats d = ls_ddp_get_stats(self);

    return (ls_strategy_stats){d.buckets, d.comm_ns, d.exposed_ns};
}

static void ddp_close(void *self, bool together)
{
    (void)together;
    ls_ddp_free(self);
}

static const ls_strategy_class ddp_class = {.name      = "ddp",
                                            .micro     = ddp_micro,
                                            .begin     = ddp_begin,
                                            .no_sync   = ddp_no_sync,
                                            .end_micro = ddp_end_micro,
                                            .finish    = ddp_finish,
                                            .check     = ddp_check,
                                            .set_trace = ddp_set_trace,
                                            .stats     = ddp_stats,
                                            .close     = ddp_close};

/* ---- FSDP ---- */

static int64_t fsdp_micro(const void *self, int64_t micros, int64_t k)
{
    return ls_fsdp_micro(self, micros, k);
}

static ls_status fsdp_begin(void *self, ls_tape *tape)
{
    return ls_fsdp_begin(self, tape);
}

static void fsdp_no_sync(void *self, bool on)
{
    ls_fsdp_no_sync(self, on);
}

static ls_status fsdp_end_micro(void *self)
{
    return ls_fsdp_end_micro(self);
}

static ls_status fsdp_finish(void *self, ls_tape *tape, ls_status own)
{
    return ls_fsdp_finish(self, tape, own);
}

static ls_status fsdp_check(void *self)
{
    return ls_fsdp_check(self);
}

static void fsdp_changed(void *self)
{
    ls_fsdp_reshard(self);
}

static void fsdp_set_trace(void *self, ls_trace *trace)
{
    ls_fsdp_set_trace(self, trace);
}

static ls_strategy_stats fsdp_stats(const void *self)
{
    ls_fsdp_stats d = ls_fsdp_get_stats(self);

    return (ls_strategy_stats){d.units, d.comm_ns, d.exposed_ns};
}

static void fsdp_close(void *self, bool together)
{
    if (together)
        ls_fsdp_free(self);
    else
        ls_fsdp_abandon(self);
}

static const ls_strategy_class fsdp_class = {.name      = "fsdp",
                                             .shards    = true,
                                             .micro     = fsdp_micro,
                                             .begin     = fsdp_begin,
                                             .no_sync   = fsdp_no_sync,
                                             .end_micro = fsdp_end_micro,
                                             .finish    = fsdp_finish,
                                             .check     = fsdp_check,
                                             .changed   = fsdp_changed,
                                             .set_trace = fsdp_set_trace,
                                             .stats     = fsdp_stats,
                                             .close     = fsdp_close};

/* ---- whichever it is ---- */

ls_status ls_strategy_single(ls_strategy *s, const ls_named_tensor *parameters, int n)
{
    *s = (ls_strategy){&single_class, ls_grad_sum_new(parameters, n)};
    return s->self ? LS_OK : LS_ENOMEM;
}

void ls_strategy_ddp(ls_strategy *s, ls_ddp *ddp)
{
    *s = (ls_strategy){&ddp_class, ddp};
}

void ls_strategy_fsdp(ls_strategy *s, ls_fsdp *fsdp)
{
    *s = (ls_strategy){&fsdp_class, fsdp};
}

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
