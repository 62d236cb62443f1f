/*
 * strategy_impl.h - what a strategy is: one const table.
 *
 * dist/strategies/<name>.c has the table of each line of LS_STRATEGY_LIST, and its constructor;
 * cli/parallel.c says when which is made.  strategy.h documents the verbs.
 */
#ifndef LS_DIST_STRATEGY_IMPL_H
#define LS_DIST_STRATEGY_IMPL_H

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

/*
 * The verbs of an object that has them under its own name, ls_<object>_micro() and so on, and
 * their places in the table.
 */
#define LS__STRATEGY_VERBS(object)                                    \
    static int64_t micro(const void *self, int64_t micros, int64_t k) \
    {                                                                 \
        return ls_##object##_micro(self, micros, k);                  \
    }                                                                 \
    static ls_status begin(void *self, ls_tape *tape)                 \
    {                                                                 \
        return ls_##object##_begin(self, tape);                       \
    }                                                                 \
    static void no_sync(void *self, bool on)                          \
    {                                                                 \
        ls_##object##_no_sync(self, on);                              \
    }                                                                 \
    static ls_status end_micro(void *self)                            \
    {                                                                 \
        return ls_##object##_end_micro(self);                         \
    }                                                                 \
    static ls_status finish(void *self, ls_tape *tape, ls_status own) \
    {                                                                 \
        return ls_##object##_finish(self, tape, own);                 \
    }                                                                 \
    static ls_status check(void *self)                                \
    {                                                                 \
        return ls_##object##_check(self);                             \
    }                                                                 \
    static void set_trace(void *self, ls_trace *trace)                \
    {                                                                 \
        ls_##object##_set_trace(self, trace);                         \
    }

#define LS__STRATEGY_PLACES                                                     \
    .micro = micro, .begin = begin, .no_sync = no_sync, .end_micro = end_micro, \
    .finish = finish, .check = check, .set_trace = set_trace

#endif
