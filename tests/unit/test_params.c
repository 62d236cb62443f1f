/*
 * test_params.c - parameter files and params_sha256.
 */
#include "checkpoint/params.h"

#include "core/alloc.h"
#include "temp_dir.h"
#include "test.h"

/* A model of three tensors under any names; values count up from `start`. */
enum { N = 3 };

typedef struct {
    ls_tensor       tensor[N];
    ls_named_tensor list[N];
} model;

static const char *const names[N] = {"wte.weight", "h.0.bias", "scale"};

static void fill(const ls_tensor *t, double start)
{
    for (int64_t i = 0; i < ls_tensor_numel(t); i++)
        ls_reals(t)[i] = (ls_real)(start + (double)i / 8);
}

static void model_init(model *m, double start)
{
    const ls_shape shape[N] = {LS_SHAPE2(3, 2), LS_SHAPE1(2), LS_SHAPE0};

    for (int i = 0; i < N; i++) {
        m->tensor[i] = ls_tensor_header((ls_dtype)LS_REAL, shape[i]);
        CHECK_OK(ls_tensor_materialize(&m->tensor[i], LS_MEM_PARAMS));
        fill(&m->tensor[i], start + 10 * i);
        m->list[i] = (ls_named_tensor){names[i], &m->tensor[i]};
    }
}

static void model_close(model *m)
{
    for (int i = 0; i < N; i++)
        ls_tensor_drop(&m->tensor[i]);
}

static bool model_equal(const model *a, const model *b)
{
    for (int i = 0; i < N; i++)
        if (memcmp(ls_tensor_data(&a->tensor[i]), ls_tensor_data(&b->tensor[i]),
                   ls_tensor_bytes(&a->tensor[i])) != 0)
            return false;
    return true;
}

static void test_round_trip(void)
{
    const char          *path   = temp_path("p.safetensors");
    const ls_st_metadata pair[] = {{"step", "12"}};
    char                 of_list[LS_SHA256_HEX], of_file[LS_SHA256_HEX];
    ls_safetensors      *file;
    model                a, b;

    model_init(&a, 1);
    model_init(&b, 2);
    CHECK_OK(ls_params_save(path, a.list, N, pair, 1));
    CHECK(!model_equal(&a, &b));
    CHECK_OK(ls_params_load(path, b.list, N));
    CHECK(model_equal(&a, &b));
    CHECK_OK(ls_params_sha256(b.list, N, of_list));
    if (CHECK_OK(ls_safetensors_open(path, &file))) {
        CHECK_OK(ls_params_file_sha256(file, of_file));
        CHECK(!strcmp(of_list, of_file));
        CHECK(!strcmp(ls_safetensors_metadata(file, LS_PARAMS_SHA256_KEY), of_list));
        CHECK(!strcmp(ls_safetensors_metadata(file, "step"), "12"));
        CHECK(!strcmp(file->header.entry[0].dtype, ls_dtype_name((ls_dtype)LS_REAL)));
        ls_safetensors_close(file);
    }
    model_close(&a);
    model_close(&b);
}

/* Against the definition, written out by hand and hashed by sha256sum. */
static void test_sha256(void)
{
    char      hex[LS_SHA256_HEX];
    ls_tensor b                  = ls_tensor_header(LS_I32, LS_SHAPE2(1, 2)),
              a                  = ls_tensor_header(LS_U8, LS_SHAPE0);
    const ls_named_tensor list[] = {{"b", &b}, {"a", &a}};

    CHECK_FAILS(ls_params_sha256(list, 2, hex), LS_ESTATE, "tensor 'b' has no memory");
    CHECK_OK(ls_tensor_materialize(&a, LS_MEM_PARAMS));
    CHECK_OK(ls_tensor_materialize(&b, LS_MEM_PARAMS));
    *(uint8_t *)ls_tensor_data(&a) = 5;
    ls_ints(&b)[0]                 = 1;
    ls_ints(&b)[1]                 = -2;
    CHECK_OK(ls_params_sha256(list, 2, hex));
    CHECK(!strcmp(hex, "6b646047e14cbeb0cae27248f5b4fba612767ce5e89b8bdb8ef054dc652bd357"));
    CHECK_OK(ls_params_sha256(NULL, 0, hex));
    CHECK(!strcmp(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    ls_tensor_drop(&a);
    ls_tensor_drop(&b);
}

/* Saves a under other names; none where a name is NULL.  Loading into b must say `message`. */
typedef struct {
    const char *name;
    const char *saved[N];
    int         reshape; /* this tensor is saved transposed, or as a scalar; -1 for none */
    int         retype;  /* this one with another dtype; -1 for none */
    const char *message;
} mismatch;

static void save_changed(const char *path, const mismatch *row, const model *m)
{
    ls_st_source s[N] = {{0}};
    size_t       n    = 0;

    for (int i = 0; i < N; i++) {
        const ls_tensor *t = &m->tensor[i];
        if (!row->saved[i])
            continue;
        s[n] = (ls_st_source){.name  = row->saved[i],
                              .dtype = row->retype == i ? "I32" : ls_dtype_name(t->dtype),
                              .ndim  = t->shape.ndim,
                              .data  = ls_tensor_data(t)};
        for (int k = 0; k < t->shape.ndim; k++)
            s[n].dim[k] = (uint64_t)t->shape.dim[row->reshape == i ? s[n].ndim - 1 - k : k];
        if (row->reshape == i && s[n].ndim == 1)
            s[n].ndim = 0;
        n++;
    }
    CHECK_OK(ls_safetensors_write(path, s, n, NULL, 0));
}

static void test_mismatches(void)
{
    static const mismatch rows[] = {
        {"missing",
         {"wte.weight", NULL, "scale"},
         -1,
         -1,
         "does not fit: missing 'h.0.bias' (2)"},
        {"other name",
         {"wte.weight", "h.0.b", "scale"},
         -1,
         -1,
         "unexpected 'h.0.b' (2); missing 'h.0.bias' (2)"},
        {"shape",
         {"wte.weight", "h.0.bias", "scale"},
         0,
         -1,
         "'wte.weight' has shape (2,3), expected (3,2)"},
        {"rank",
         {"wte.weight", "h.0.bias", "scale"},
         1,
         -1,
         "'h.0.bias' has shape (), expected (2)"},
        {"dtype", {"wte.weight", "h.0.bias", "scale"}, -1, 1, "'h.0.bias' is I32, expected "},
        {"both at once", {"wte.weight", "h.0.bias", NULL}, 0, 1, "'h.0.bias' is I32, expected"},
        {"prefix",
         {"module.wte.weight", "module.h.0.bias", "module.scale"},
         -1,
         -1,
         "; the file's names begin with 'module.'"},
        {"prefix of compile",
         {"_orig_mod.wte.weight", "_orig_mod.h.0.bias", "_orig_mod.scale"},
         -1,
         -1,
         "; the file's names begin with '_orig_mod.'"},
    };
    const char *path = temp_path("m.safetensors");
    model       a, b, before;

    model_init(&a, 1);
    model_init(&b, 2);
    model_init(&before, 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        save_changed(path, &rows[i], &a);
        CHECK_FAILS(ls_params_load(path, b.list, N), LS_ESHAPE, rows[i].message);
        CHECK(strstr(ls_error_message(), path) == ls_error_message());
        CHECK(model_equal(&b, &before));
    }
    TEST_ROW("fits without our metadata");
    const mismatch none = {"", {"wte.weight", "h.0.bias", "scale"}, -1, -1, NULL};
    save_changed(path, &none, &a);
    CHECK_OK(ls_params_load(path, b.list, N));
    CHECK(model_equal(&a, &b));
    model_close(&a);
    model_close(&b);
    model_close(&before);
}

/* The wanted names have the prefix, the file has them without; and a long list is capped. */
static void test_lists(void)
{
    enum { MANY = 30 };
    static char     text[MANY][24];
    ls_named_tensor list[MANY];
    ls_tensor       t    = ls_tensor_header((ls_dtype)LS_REAL, LS_SHAPE1(1));
    const char     *path = temp_path("l.safetensors");

    CHECK_OK(ls_tensor_materialize(&t, LS_MEM_PARAMS));
    fill(&t, 0);
    for (int i = 0; i < MANY; i++) {
        snprintf(text[i], sizeof text[i], "transformer.h.%d", i);
        list[i] = (ls_named_tensor){text[i] + strlen("transformer."), &t};
    }
    CHECK_OK(ls_params_save(path, list, MANY, NULL, 0));
    for (int i = 0; i < MANY; i++)
        list[i].name = text[i];
    TEST_ROW("lack the prefix");
    CHECK_FAILS(ls_params_load(path, list, MANY), LS_ESHAPE,
                "; the file's names lack the beginning 'transformer.'");
    TEST_ROW("capped");
    CHECK_FAILS(ls_params_load(path, list, MANY), LS_ESHAPE, "; and 50 more");
    ls_tensor_drop(&t);
}

/* One bit of the values: found by the hash, before any tensor is written. */
static void test_damage(void)
{
    const char *path = temp_path("d.safetensors");
    size_t      size;
    model       a, b, before;

    model_init(&a, 1);
    model_init(&b, 2);
    model_init(&before, 2);
    CHECK_OK(ls_params_save(path, a.list, N, NULL, 0));
    char *bytes = temp_get(path, &size);
    bytes[size - 1] ^= 1;
    temp_put(path, bytes, size);
    CHECK_FAILS(ls_params_load(path, b.list, N), LS_EFORMAT, "damaged");
    CHECK(model_equal(&b, &before));
    free(bytes);
    model_close(&a);
    model_close(&b);
    model_close(&before);
}

/* The n-th allocation fails, for every n: nothing is written, neither to file nor to tensor. */
static void test_out_of_memory(void)
{
    const char *path = temp_path("p.safetensors");
    model       a, b, before;
    int         saves = 0, loads = 0;
    ls_status   status = LS_ENOMEM;
    size_t      size, size_after;
    char       *bytes = temp_get(path, &size);

    model_init(&a, 5);
    model_init(&b, 2);
    model_init(&before, 2);
    for (; status && saves < 200; saves += status != LS_OK) {
        ls_alloc_fail_after(saves);
        status = ls_params_save(path, a.list, N, NULL, 0);
        ls_alloc_fail_after(-1);
        char *after = temp_get(path, &size_after);
        CHECK(!status ||
              (status == LS_ENOMEM && size == size_after && !memcmp(bytes, after, size)));
        free(after);
    }
    for (status = LS_ENOMEM; status && loads < 200; loads += status != LS_OK) {
        ls_alloc_fail_after(loads);
        status = ls_params_load(path, b.list, N);
        ls_alloc_fail_after(-1);
        CHECK(!status || (status == LS_ENOMEM && model_equal(&b, &before)));
    }
    CHECK(saves >= 8 && loads >= 6 && model_equal(&a, &b));
    free(bytes);
    model_close(&a);
    model_close(&b);
    model_close(&before);
}

/* Mismatch messages under failing allocations: an error all the same. */
static void test_out_of_memory_in_messages(void)
{
    model m;

    model_init(&m, 1);
    m.list[0].name = "other";
    for (int n = 0; n < 20; n++) {
        ls_alloc_fail_after(n);
        ls_status status = ls_params_load(temp_path("p.safetensors"), m.list, N);
        ls_alloc_fail_after(-1);
        CHECK(status == LS_ENOMEM || status == LS_ESHAPE);
    }
    model_close(&m);
}

int main(void)
{
    temp_dir_make();
    TEST_ROW("round trip");
    test_round_trip();
    TEST_ROW("sha256");
    test_sha256();
    test_mismatches();
    test_lists();
    TEST_ROW("damage");
    test_damage();
    TEST_ROW("out of memory");
    test_out_of_memory();
    test_out_of_memory_in_messages();
    temp_dir_remove();
    return test_summary("params");
}
