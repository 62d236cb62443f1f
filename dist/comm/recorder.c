/*
 * recorder.c - the flight recorder's ring of entries.
 *
 * Writer and reader may be threads of one process, so entries are copied word by word with
 * relaxed atomics (no race, whatever the timing).  `state` closes an entry: NONE while it is
 * filled, released when it is whole.  What a reader finds may come from a process that crashed
 * or ran wild, so no number in it is trusted: indices are taken modulo the ring's length.
 */
#include "dist/comm/recorder.h"

#include <inttypes.h>

#include "core/clock.h"

typedef uint64_t __attribute__((may_alias)) word;

enum { WORDS = offsetof(ls_record, state) / sizeof(word) };

_Static_assert(offsetof(ls_record, state) % sizeof(word) == 0, "whole words before the state");

static void copy_in(void *to, const void *from, size_t words)
{
    word       *t = to;
    const word *f = from;

    for (size_t i = 0; i < words; i++)
        __atomic_store_n(&t[i], f[i], __ATOMIC_RELAXED);
}

static void copy_out(void *to, const void *from, size_t words)
{
    word       *t = to;
    const word *f = from;

    for (size_t i = 0; i < words; i++)
        t[i] = __atomic_load_n(&f[i], __ATOMIC_RELAXED);
}

ls_record *ls_recorder_add(ls_recorder *r, const ls_descriptor *what, uint64_t group, int size,
                           int64_t bytes)
{
    uint64_t   index  = atomic_fetch_add(&r->next, 1);
    ls_record *record = &r->record[index % LS_RECORDER_ENTRIES];
    ls_record  fresh  = {.what = *what, .group = group, .bytes = bytes, .queued = ls_now_ns()};

    atomic_store(&record->state, LS_RECORD_NONE);
    copy_in(record, &fresh, WORDS);
    atomic_store(&record->size, (uint32_t)size);
    atomic_store(&record->state, LS_RECORD_QUEUED);
    return record;
}

void ls_record_start(ls_record *record)
{
    int64_t now = ls_now_ns();

    copy_in(&record->started, &now, 1);
    atomic_store(&record->state, LS_RECORD_RUNNING);
}

void ls_record_end(ls_record *record, ls_status status)
{
    int64_t now = ls_now_ns();

    copy_in(&record->ended, &now, 1);
    atomic_store(&record->state, status == LS_OK ? LS_RECORD_DONE : LS_RECORD_FAILED);
}

/* False where the entry is empty or just being filled. */
static bool read_entry(const ls_recorder *r, uint64_t index, ls_record *entry)
{
    const ls_record *record = &r->record[index % LS_RECORDER_ENTRIES];
    uint32_t         state  = atomic_load(&record->state);

    if (state == LS_RECORD_NONE)
        return false;
    copy_out(entry, record, WORDS);
    atomic_init(&entry->size, atomic_load(&record->size));
    atomic_init(&entry->state, state);
    return true;
}

static uint64_t oldest(uint64_t next, uint64_t most)
{
    if (most > LS_RECORDER_ENTRIES)
        most = LS_RECORDER_ENTRIES;
    return next > most ? next - most : 0;
}

bool ls_recorder_last(const ls_recorder *r, ls_record *entry)
{
    uint64_t  next = atomic_load(&r->next), first = oldest(next, LS_RECORDER_ENTRIES);
    bool      found = false;
    ls_record other;

    for (uint64_t i = next; i-- > first;) {
        if (!read_entry(r, i, &other))
            continue;
        bool running = other.state == LS_RECORD_RUNNING;
        if (running || !found)
            *entry = other;
        if (running)
            return true;
        found = true;
    }
    return found;
}

static const char *state_name(uint32_t state)
{
    static const char *const name[] = {[LS_RECORD_NONE]    = "empty",
                                       [LS_RECORD_QUEUED]  = "queued",
                                       [LS_RECORD_RUNNING] = "running",
                                       [LS_RECORD_DONE]    = "done",
                                       [LS_RECORD_FAILED]  = "failed"};
    return state <= LS_RECORD_FAILED ? name[state] : "unknown state";
}

static void print_time(FILE *file, const char *name, int64_t time, int64_t now)
{
    if (time)
        fprintf(file, ", %s -%.3f ms", name, ((double)now - (double)time) * 1e-6);
}

static void print_entry(FILE *file, const ls_record *entry, int64_t now)
{
    char text[LS_DESCRIPTOR_TEXT];

    fprintf(file, "%s of %" PRIu32 " ranks, group %" PRIx64 ", %" PRId64 " bytes: %s",
            ls_descriptor_text(text, &entry->what), (uint32_t)entry->size, entry->group,
            entry->bytes, state_name(entry->state));
    print_time(file, "queued", entry->queued, now);
    print_time(file, "started", entry->started, now);
    print_time(file, "ended", entry->ended, now);
    fputc('\n', file);
}

void ls_recorder_print(const ls_recorder *r, FILE *file, int most, int64_t now)
{
    uint64_t  next = atomic_load(&r->next);
    ls_record entry;

    for (uint64_t i = oldest(next, most > 0 ? (uint64_t)most : 0); i < next; i++)
        if (read_entry(r, i, &entry))
            print_entry(file, &entry, now);
}
