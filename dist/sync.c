/*
 * sync.c - see sync.h.
 */
#include "dist/sync.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every parameter belongs to one strategy; what is trained is listed on its own. */
static ls_status claim(ls_sync *s)
{
    for (int i = 0; i < s->n_all; i++) {
        ls_tensor *t = s->all[i].tensor;
        if (t->reducer)
            return ls_fail(LS_ESTATE, "parameter %s is already wrapped", s->all[i].name);
        t->reducer = s;
        if (t->requires_grad)
            s->trained[s->n++] = s->all[i];
    }
    return LS_OK;
}

static void unclaim(ls_sync *s)
{
    for (int i = 0; i < s->n_all; i++)
        if (s->all[i].tensor->reducer == s)
            s->all[i].tensor->reducer = NULL;
}

ls_status ls_sync_init(ls_sync *s)
{
    s->trained       = ls_calloc((size_t)s->n_all + 1, sizeof *s->trained);
    ls_status status = s->trained ? claim(s) : LS_ENOMEM;
    if (status)
        return status;
    size_t n = (size_t)s->n;
    s->sum   = ls_grad_sum_new(s->trained, s->n);
    s->used  = ls_calloc(6 * n + 1, 1);
    if (!s->sum || !s->used)
        return LS_ENOMEM;
    s->any_used   = s->used + 2 * n;
    s->any_unused = s->any_used + n;
    s->ever       = s->any_unused + n;
    s->lacked     = s->ever + n;
    return LS_OK;
}

void ls_sync_close(ls_sync *s)
{
    if (s->trained)
        unclaim(s);
    ls_grad_sum_free(s->sum);
    free(s->used);
    free(s->trained);
}

int64_t ls_sync_micro(const ls_sync *s, int64_t micros, int64_t k)
{
    int64_t size = ls_comm_size(s->comm), rank = ls_comm_rank(s->comm);

    return s->interleaved ? k * size + rank : rank * (micros / size) + k;
}

/* Before anything of a micro-batch goes anywhere: is its no_sync what its forward saw? */
static ls_status on_leaf(void *context, ls_tensor *leaf)
{
    ls_sync *s = context;

    if (s->toggled)
        return ls_fail(LS_ESTATE,
                       "%s: no_sync was turned %s between a forward and its backward; set it "
                       "before the forward",
                       s->who, s->no_sync ? "on" : "off");
    if (s->synced)
        return ls_fail(LS_ESTATE,
                       "%s: a micro-batch after the one that was synchronised; all but the "
                       "step's last need no_sync",
                       s->who);
    return ls_grad_sum_take(s->sum, leaf);
}

bool ls_sync_sinks(const ls_sync *s)
{
    return !s->no_sync || s->interleaved;
}

static void set_sink(ls_sync *s)
{
    ls_grad_sum_last_micro(s->sum, ls_sync_sinks(s) ? &s->sink : NULL);
}

void ls_sync_begin_round(ls_sync *s)
{
    memset(s->used, 0, (size_t)s->n);
    ls_grad_sum_begin(s->sum, s->tape);
    ls_tape_on_leaf(s->tape, on_leaf, s);
    set_sink(s);
}

/* What is trained was settled at construction. */
static ls_status look_for_frozen(const ls_sync *s)
{
    for (int i = 0, trained = 0; i < s->n_all; i++) {
        const ls_tensor *t   = s->all[i].tensor;
        bool             was = trained < s->n && s->trained[trained].tensor == t;
        trained += was;
        if (t->requires_grad != was)
            return ls_fail(LS_ESTATE,
                           "%s: parameter %s was %s after construction; make a new ls_%s",
                           s->who, s->all[i].name, was ? "frozen" : "thawed", s->who);
    }
    return LS_OK;
}

ls_status ls_sync_begin(ls_sync *s, ls_tape *tape)
{
    memset(s->ever, 0, (size_t)s->n);
    memset(s->lacked, 0, (size_t)s->n);
    s->tape   = tape;
    s->before = ls_tape_recorded(tape);
    s->synced = s->no_sync = s->toggled = false;
    ls_sync_begin_round(s);
    return look_for_frozen(s);
}

void ls_sync_no_sync(ls_sync *s, bool on)
{
    if (on != s->no_sync && ls_tape_recorded(s->tape) != s->before)
        s->toggled = true;
    s->no_sync = on;
    set_sink(s);
}

ls_status ls_sync_end_micro(ls_sync *s)
{
    ls_status status = ls_grad_sum_end_micro(s->sum);

    s->synced = s->synced || !s->no_sync;
    s->before = ls_tape_recorded(s->tape);
    return status;
}

ls_status ls_sync_end(ls_sync *s, ls_status own)
{
    ls_grad_sum_finish(s->sum, s->tape);
    for (int i = 0; i < s->n; i++)
        ls_tensor_zero_grad(s->trained[i].tensor);
    if (own || s->synced)
        return own;
    return ls_fail(LS_ESTATE, "%s: no micro-batch of the step was synchronised (no_sync)",
                   s->who);
}

/* Used by all: min; used by any: max.  In one array: used, and its complement. */
ls_status ls_sync_agree_on_used(ls_sync *s)
{
    for (int i = 0; i < s->n; i++)
        s->used[s->n + i] = !s->used[i];
    ls_status status =
        ls_comm_all_reduce(s->comm, s->any_used, s->used, 2 * s->n, LS_U8, LS_MAX);
    for (int i = 0; i < s->n && !status; i++) {
        s->ever[i] |= s->any_used[i];
        s->lacked[i] |= s->any_unused[i];
    }
    return status;
}

static ls_status name_unused(const ls_sync *s)
{
    char   names[300] = "";
    size_t used       = 0;
    int    more       = 0;

    for (int i = 0; i < s->n; i++) {
        const char *name = s->trained[i].name;
        if (!s->lacked[i])
            continue;
        if (used + strlen(name) + 8 > sizeof names)
            more++;
        else
            used +=
                (size_t)snprintf(names + used, sizeof names - used, "%s%s%s", used ? ", " : "",
                                 name, s->ever[i] ? "" : " (on any rank)");
    }
    return ls_fail(LS_EINVAL,
                   "%s: not every rank used %s%s in this step; set find_unused "
                   "(parallel.find_unused) if that is meant",
                   s->who, names, more ? ", ..." : "");
}

ls_status ls_sync_check_used(const ls_sync *s)
{
    for (int i = 0; i < s->n && !s->find_unused; i++)
        if (s->lacked[i])
            return name_unused(s);
    return LS_OK;
}

ls_status ls_sync_give_up(const ls_sync *s, ls_status own)
{
    char text[400];

    snprintf(text, sizeof text, "%s", ls_error_message());
    ls_comm_abort(s->comm, text);
    return ls_fail(own, "%s", text);
}

ls_status ls_sync_give_up_alone(const ls_sync *s, ls_status status)
{
    bool alone =
        status && status != LS_EMISMATCH && status != LS_EPEER && status != LS_ETIMEOUT;

    return alone ? ls_sync_give_up(s, status) : status;
}

int64_t ls_sync_taken(const ls_sync *s, const ls_work_times *t, int64_t wait)
{
    int64_t before = wait > t->began ? wait - t->began : 0;

    if (!s->crowded)
        return 0;
    return t->cpu < before ? t->cpu : before;
}
