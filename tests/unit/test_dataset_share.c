/*
 * test_dataset_share.c - memory that one process fills and others read, and a dataset in it.
 */
#include "data/dataset_share.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "temp_dir.h"
#include "test.h"

static const char text[] = "zwei Zeilen\nund noch eine, mit \xc3\xa4 und \xe2\x82\xac";

static ls_dataset_opts opts_of(const char *const *path)
{
    return (ls_dataset_opts){
        .train = {path, 1}, .val_fraction = 0.3, .kind = LS_TOKENIZER_CHAR, .context = 4};
}

static bool same_tokens(const ls_tokens *a, const ls_tokens *b)
{
    return a->count == b->count && a->width == b->width &&
           !memcmp(a->data, b->data, (size_t)(a->count * a->width));
}

static void check_same(const ls_dataset *a, const ls_dataset *b)
{
    char *x = ls_tokenizer_to_json(a->tokenizer), *y = ls_tokenizer_to_json(b->tokenizer);

    CHECK(a->vocab_size == b->vocab_size && a->train.count > 20 && a->val.count > 5);
    CHECK(same_tokens(&a->train, &b->train) && same_tokens(&a->val, &b->val));
    CHECK(x && y && !strcmp(x, y));
    free(x);
    free(y);
}

static void whole_way(const ls_dataset_opts *opts)
{
    ls_dataset      made, want, seen;
    ls_shared      *maker, *reader;
    ls_shared_place place;
    char            fingerprint[LS_FINGERPRINT_BYTES], got[LS_FINGERPRINT_BYTES];

    TEST_ROW("made, filled, taken");
    int64_t before = ls_mem_get_stats().current[LS_MEM_OTHER];
    CHECK_OK(ls_dataset_load(opts, &want));
    CHECK_OK(ls_dataset_load(opts, &made));
    CHECK_OK(ls_dataset_fingerprint(&made, fingerprint));
    CHECK_OK(ls_shared_new(&maker, &place));
    CHECK_OK(ls_shared_open(&place, &reader));
    CHECK(!ls_shared_is_filled(reader));
    CHECK_FAILS(ls_dataset_take(reader, &seen, got), LS_ESTATE, "before it was filled");
    CHECK_OK(ls_dataset_publish(&made, fingerprint, maker));
    int64_t charged = ls_mem_get_stats().current[LS_MEM_OTHER];
    CHECK(ls_shared_is_filled(reader) && !made.train.owned);
    ls_shared_hide(maker);
    CHECK_OK(ls_dataset_take(reader, &seen, got));
    CHECK(ls_mem_get_stats().current[LS_MEM_OTHER] == charged);
    CHECK(!strcmp(fingerprint, got) && strstr(got, "data.train") && strstr(got, "sha256"));
    check_same(&made, &want);
    check_same(&seen, &want);
    CHECK(seen.train.data != made.train.data);
    CHECK((uintptr_t)seen.train.data % 64 == 0 && (uintptr_t)seen.val.data % 64 == 0);
    CHECK(!ls_shared_part(reader, -1).bytes && !ls_shared_part(reader, 7).bytes);
    ls_dataset_close(&made);
    ls_shared_free(maker); /* the reader's stays */
    check_same(&seen, &want);
    ls_dataset_close(&seen);
    ls_shared_free(reader);
    ls_dataset_close(&want);
    CHECK(ls_mem_get_stats().current[LS_MEM_OTHER] == before);
}

static void failed(void)
{
    ls_shared      *maker, *reader;
    ls_shared_place place;
    ls_dataset      d;
    char            got[LS_FINGERPRINT_BYTES];

    TEST_ROW("a loader's failure is its readers'");
    CHECK_OK(ls_shared_new(&maker, &place));
    CHECK_OK(ls_shared_open(&place, &reader));
    ls_shared_fail(maker, ls_fail(LS_EFORMAT, "data.train: x.txt: byte 3"));
    ls_shared_free(maker);
    ls_fail(LS_EINVAL, "something else");
    CHECK(ls_shared_is_filled(reader));
    CHECK_FAILS(ls_dataset_take(reader, &d, got), LS_EFORMAT, "data.train: x.txt: byte 3");
    ls_shared_free(reader);
}

static void not_reached(void)
{
    ls_shared      *maker, *reader = NULL;
    ls_shared_place place;

    TEST_ROW("places that are not there");
    CHECK_OK(ls_shared_new(&maker, &place));
    ls_shared_place wrong[] = {place, place, place, place};
    wrong[0].fd             = -1;
    wrong[1].fd             = 0;
    wrong[2].inode++;
    wrong[3].pid = 1 << 22;
    for (int i = 0; i < 4; i++) {
        CHECK_FAILS(ls_shared_open(&wrong[i], &reader), LS_EUNSUPPORTED, "cannot be reached");
        CHECK(!reader);
    }
    ls_shared_hide(maker);
    CHECK_FAILS(ls_shared_open(&place, &reader), LS_EUNSUPPORTED, "cannot be reached");
    ls_shared_free(maker);
    ls_shared_free(NULL);
}

/* Every allocation fails once; at last all goes well. */
static void short_of_memory(const ls_dataset_opts *opts)
{
    ls_status status = LS_ENOMEM;

    TEST_ROW("out of memory");
    int64_t before = ls_mem_get_stats().total;
    for (int64_t n = 0; status && n < 100; n++) {
        ls_shared      *maker = NULL, *reader = NULL;
        ls_dataset      made, seen            = {0};
        ls_shared_place place;
        char            got[LS_FINGERPRINT_BYTES];
        CHECK_OK(ls_dataset_load(opts, &made));
        ls_alloc_fail_after(n);
        status = ls_shared_new(&maker, &place);
        if (!status)
            status = ls_shared_open(&place, &reader);
        if (!status)
            status = ls_dataset_publish(&made, "", maker);
        if (!status)
            status = ls_dataset_take(reader, &seen, got);
        else if (reader)
            CHECK_FAILS(ls_dataset_take(reader, &seen, got), LS_ENOMEM, "");
        ls_alloc_fail_after(-1);
        CHECK(status == LS_OK || status == LS_ENOMEM);
        CHECK(made.train.count > 20 && made.train.data);
        ls_dataset_close(&seen);
        ls_dataset_close(&made);
        ls_shared_free(reader);
        ls_shared_free(maker);
        CHECK(ls_mem_get_stats().total == before);
    }
    CHECK_OK(status);
}

static void beyond_the_limit(const ls_dataset_opts *opts)
{
    ls_dataset      made, seen;
    ls_shared      *maker, *reader;
    ls_shared_place place;
    char            got[LS_FINGERPRINT_BYTES];

    TEST_ROW("run.memory_mb");
    CHECK_OK(ls_dataset_load(opts, &made));
    CHECK_OK(ls_shared_new(&maker, &place));
    CHECK_OK(ls_shared_open(&place, &reader));
    ls_mem_set_limit(ls_mem_get_stats().total + 100);
    CHECK_FAILS(ls_dataset_publish(&made, "", maker), LS_ENOMEM, "");
    ls_mem_set_limit(0);
    CHECK_FAILS(ls_dataset_take(reader, &seen, got), LS_ENOMEM, "");
    CHECK(made.train.owned > 0);
    ls_dataset_close(&made);
    ls_shared_free(reader);
    ls_shared_free(maker);
}

static void stopped(void)
{
    ls_shared      *maker, *reader;
    ls_shared_place got;
    int             ends[2];

    TEST_ROW("a maker that stands still");
    CHECK(!pipe(ends));
    pid_t child = fork();
    if (!child) {
        if (!ls_shared_new(&maker, &got) && write(ends[1], &got, sizeof got) > 0)
            pause();
        _exit(1);
    }
    CHECK(read(ends[0], &got, sizeof got) == (ssize_t)sizeof got);
    CHECK_OK(ls_shared_open(&got, &reader));
    CHECK(!ls_shared_is_stopped(reader));
    kill(child, SIGSTOP);
    for (int i = 0; i < 1000 && !ls_shared_is_stopped(reader); i++)
        ls_sleep_ns(1000000);
    CHECK(ls_shared_is_stopped(reader) && !ls_shared_is_filled(reader));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(!ls_shared_is_stopped(reader));
    ls_shared_free(reader);
    close(ends[0]);
    close(ends[1]);
}

static bool identity_is(const ls_dataset_opts *opts, const char *want)
{
    char hex[LS_SHA256_HEX];

    return CHECK_OK(ls_dataset_identity(opts, hex)) && !strcmp(hex, want);
}

static void identities(const ls_dataset_opts *opts)
{
    char        path[4][512], mine[LS_SHA256_HEX];
    const char *list[2] = {path[0], path[1]};

    TEST_ROW("who would load the same");
    CHECK_OK(ls_dataset_identity(opts, mine));
    CHECK(strlen(mine) == 64 && identity_is(opts, mine));
    snprintf(path[0], sizeof path[0], "%s", temp_path("link.txt"));
    CHECK(!symlink(opts->train.path[0], path[0]));
    ls_dataset_opts other = *opts;
    other.train           = (ls_paths){list, 1};
    CHECK(identity_is(&other, mine));
    other.context = 5;
    CHECK(!identity_is(&other, mine));
    other     = *opts;
    other.val = opts->train;
    CHECK(!identity_is(&other, mine));
    snprintf(path[0], sizeof path[0], "%s", temp_path("copy.txt"));
    temp_put(path[0], text, sizeof text - 1);
    other = opts_of(list);
    CHECK(!identity_is(&other, mine) && !identity_is(&other, ""));
    snprintf(path[1], sizeof path[1], "%s", temp_path("pipe"));
    CHECK(!mkfifo(path[1], 0600));
    other.train.count = 2;
    CHECK(identity_is(&other, ""));
    snprintf(path[1], sizeof path[1], "%s", temp_path("missing"));
    CHECK(identity_is(&other, ""));
    snprintf(path[1], sizeof path[1], "%s", temp_dir);
    CHECK(identity_is(&other, ""));
}

int main(void)
{
    char        path[512];
    const char *list[] = {path};

    temp_dir_make();
    snprintf(path, sizeof path, "%s", temp_path("text.txt"));
    temp_put(path, text, sizeof text - 1);
    ls_dataset_opts opts = opts_of(list);
    whole_way(&opts);
    failed();
    not_reached();
    short_of_memory(&opts);
    beyond_the_limit(&opts);
    stopped();
    identities(&opts);
    temp_dir_remove();
    return test_summary("dataset_share");
}
