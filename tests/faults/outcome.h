/*
 * outcome.h - what the tests of faults share: how an operation went for each rank, compared in
 * the parent.
 *
 *     parent   outcomes = ranks_shared ──> ranks write their own ──> judge_all()
 *
 * A rank notes what it saw and checks nothing itself; so one judge sees all ranks side by side.
 */
#ifndef LS_TESTS_FAULTS_OUTCOME_H
#define LS_TESTS_FAULTS_OUTCOME_H

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/clock.h"
#include "ranks.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { OUTCOME_SLOW = 4 }; /* by how much everything takes longer */
#else
enum { OUTCOME_SLOW = 1 };
#endif

#define MS INT64_C(1000000)

typedef struct {
    bool      noted;
    ls_status status, again; /* of the operation, and of the one after it */
    int64_t   at, took;      /* ls_now_ns(), ns */
    int64_t   number;        /* what a test counts */
    char      text[480], again_text[480];
} outcome;

static inline void outcome_note(outcome *o, ls_status status, int64_t start)
{
    o->at     = ls_now_ns();
    o->took   = o->at - start;
    o->status = status;
    o->noted  = true;
    snprintf(o->text, sizeof o->text, "%s", status ? ls_error_message() : "");
}

/* The operation after the failed one: a dead group says the same for ever. */
static inline void outcome_note_again(outcome *o, ls_status status)
{
    o->again = status;
    snprintf(o->again_text, sizeof o->again_text, "%s", status ? ls_error_message() : "");
}

static inline void outcome_print(const outcome *all, int n)
{
    for (int r = 0; r < n; r++)
        printf("     rank %d: %s, %.3f s: \"%s\"\n", r,
               all[r].noted ? ls_status_text(all[r].status) : "nothing noted",
               (double)all[r].took * 1e-9, all[r].text);
}

typedef struct {
    ls_status   status;
    const char *parts[4]; /* of the text; NULL: no more */
    int64_t     most_ns;  /* to the failure; 0: not looked at */
    int         except;   /* the rank that died, plus 1; 0: none */
} outcome_wanted;

static inline bool outcome_is(const outcome *o, const outcome_wanted *w)
{
    bool ok = CHECK(o->noted) && CHECK(o->status == w->status);

    for (int i = 0; i < 4 && w->parts[i]; i++)
        if (!CHECK(strstr(o->text, w->parts[i]))) {
            printf("     want \"%s\"\n", w->parts[i]);
            ok = false;
        }
    if (w->most_ns)
        ok = CHECK(o->took <= w->most_ns * OUTCOME_SLOW) && ok;
    return ok;
}

/* Every rank failed like that, with one text, and goes on failing with it. */
static inline bool outcome_judge(const outcome *all, int n, const outcome_wanted *w)
{
    const outcome *first = NULL;
    bool           ok    = true;

    for (int r = 0; r < n; r++) {
        const outcome *o = &all[r];
        if (r + 1 == w->except)
            continue;
        first = first ? first : o;
        ok    = outcome_is(o, w) && ok;
        ok    = CHECK(!strcmp(o->text, first->text)) && ok;
        ok    = CHECK(o->again == o->status && !strcmp(o->again_text, o->text)) && ok;
    }
    if (!ok)
        outcome_print(all, n);
    return ok;
}

static inline int outcome_open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int  n   = 0;

    if (!dir)
        return -1;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

#endif
