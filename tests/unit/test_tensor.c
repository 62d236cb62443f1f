/*
 * test_tensor.c - shapes, strides, views, counted storages.
 */
#include <string.h>

#include "core/tensor.h"
#include "test.h"

static void test_shapes(void)
{
    static const struct {
        const char *text;
        ls_shape    shape;
        int64_t     numel;
        int64_t     stride[LS_MAX_DIMS];
    } rows[] = {
        {"()", {0, {0}}, 1, {0}},
        {"(7)", {1, {7}}, 7, {1}},
        {"(2,3)", {2, {2, 3}}, 6, {3, 1}},
        {"(4,0,5)", {3, {4, 0, 5}}, 0, {0, 5, 1}},
        {"(2,1,3,4)", {4, {2, 1, 3, 4}}, 24, {12, 12, 4, 1}},
        {"(2,3,4,5,6)", {5, {2, 3, 4, 5, 6}}, 720, {360, 120, 30, 6, 1}},
        {"(3000000000,2)", {2, {3000000000, 2}}, 6000000000, {2, 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t       stride[LS_MAX_DIMS] = {0};
        ls_shape_text text;
        TEST_ROW(rows[i].text);
        CHECK(ls_shape_numel(&rows[i].shape) == rows[i].numel);
        CHECK(!strcmp(ls_shape_print(&rows[i].shape, &text), rows[i].text));
        ls_shape_strides(&rows[i].shape, stride);
        CHECK_BITS(stride, rows[i].stride, sizeof stride);
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++)
            CHECK(ls_shape_equal(&rows[i].shape, &rows[j].shape) == (i == j));
    }
    TEST_ROW("the longest shape fits its buffer");
    ls_shape      huge = {5, {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN}};
    ls_shape_text text;
    CHECK(strlen(ls_shape_print(&huge, &text)) == 5 * 20 + 4 + 2);
}

static void test_impossible_shapes(void)
{
    static const struct {
        const char *name;
        ls_shape    shape;
        ls_dtype    dtype;
        ls_status   status;
        const char *text;
    } rows[] = {
        {"a scalar", {0, {0}}, LS_F32, LS_OK, ""},
        {"five dimensions", {5, {1, 2, 0, 4, 5}}, LS_U8, LS_OK, ""},
        {"the largest", {1, {(int64_t)1 << 54}}, LS_F32, LS_OK, ""},
        {"one element more", {1, {((int64_t)1 << 54) + 1}}, LS_F32, LS_ESHAPE, "of F32 is too"},
        {"elements that wrap to 0",
         {2, {(int64_t)1 << 32, (int64_t)1 << 32}},
         LS_U8,
         LS_ESHAPE,
         "(4294967296,4294967296) of U8"},
        {"bytes that wrap to 0", {1, {(int64_t)1 << 62}}, LS_F32, LS_ESHAPE, "too large"},
        {"no elements, strides that wrap",
         {3, {0, (int64_t)1 << 40, (int64_t)1 << 40}},
         LS_F32,
         LS_ESHAPE,
         "too large"},
        {"negative", {2, {2, -3}}, LS_F32, LS_ESHAPE, "(2,-3) of F32 has a negative"},
        {"negative twice", {2, {-2, -3}}, LS_F32, LS_ESHAPE, "negative"},
        {"six dimensions", {6, {1, 1, 1, 1, 1}}, LS_F32, LS_ESHAPE, "of 6 dimensions"},
        {"minus one dimensions", {-1, {1}}, LS_F32, LS_ESHAPE, "of -1 dimensions"},
        {"no dtype", {0, {0}}, LS_DTYPE_COUNT, LS_EINVAL, "not a dtype"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        if (rows[i].status == LS_OK) {
            CHECK_OK(ls_shape_check(&rows[i].shape, rows[i].dtype));
            continue;
        }
        CHECK_FAILS(ls_shape_check(&rows[i].shape, rows[i].dtype), rows[i].status,
                    rows[i].text);
        if (rows[i].shape.ndim < 0 || rows[i].shape.ndim > LS_MAX_DIMS)
            continue;
        ls_tensor t = ls_tensor_header(rows[i].dtype, rows[i].shape);
        CHECK(ls_tensor_materialize(&t, LS_MEM_OTHER) == rows[i].status && !t.storage);
    }
}

static void test_views(void)
{
    TEST_ROW("views");
    ls_tensor t = ls_tensor_header(LS_REAL, LS_SHAPE2(3, 4));
    CHECK(!t.storage && t.stride[0] == 4 && t.stride[1] == 1);
    CHECK_OK(ls_tensor_materialize(&t, LS_MEM_OTHER));
    CHECK(ls_tensor_numel(&t) == 12 && ls_tensor_bytes(&t) == 12 * sizeof(ls_real));
    CHECK(ls_tensor_is_contiguous(&t) && ls_tensor_data(&t) == t.storage->data);
    for (int i = 0; i < 12; i++)
        ls_reals(&t)[i] = (ls_real)i;

    ls_tensor column = t; /* t[1:3, 2:3] transposed */
    column.shape     = LS_SHAPE2(1, 2);
    column.stride[0] = 1;
    column.stride[1] = 4;
    column.offset    = 6;
    column.storage   = ls_storage_retain(t.storage);
    CHECK(!ls_tensor_is_contiguous(&column));
    CHECK(ls_reals(&column)[0] == 6 && ls_reals(&column)[column.stride[1]] == 10);

    ls_tensor row = column; /* strides of single elements do not count */
    row.shape     = LS_SHAPE3(1, 1, 1);
    memset(row.stride, 0, sizeof row.stride);
    CHECK(ls_tensor_is_contiguous(&row));

    CHECK(t.storage->refs == 2);
    ls_tensor_drop(&t);
    CHECK(!t.storage && column.storage->refs == 1 && ls_reals(&column)[0] == 6);
    ls_tensor_drop(&column);
    ls_tensor_drop(&column); /* nothing left to drop */
}

static void test_storage(void)
{
    ls_mem_stats before = ls_mem_get_stats();

    TEST_ROW("storage");
    ls_storage *s = ls_storage_new(1000, LS_MEM_GRADS);
    CHECK(s->refs == 1 && s->bytes == 1000 && s->category == LS_MEM_GRADS);
    CHECK(ls_mem_get_stats().current[LS_MEM_GRADS] >= before.current[LS_MEM_GRADS] + 1000);
    CHECK(ls_storage_retain(s) == s && s->refs == 2);
    ls_storage_release(s);
    CHECK(s->refs == 1);
    ls_storage_release(s);
    ls_storage_release(NULL);
    CHECK(ls_mem_get_stats().total == before.total);
    for (int n = 0; n < 2; n++) {
        ls_tensor t = ls_tensor_header(LS_F32, LS_SHAPE1(5));
        ls_alloc_fail_after(n);
        CHECK(ls_tensor_materialize(&t, LS_MEM_OTHER) == LS_ENOMEM && !t.storage);
    }
    CHECK(ls_mem_get_stats().total == before.total);
}

static void test_grad(void)
{
    TEST_ROW("gradient");
    ls_tensor t = ls_tensor_header(LS_REAL, LS_SHAPE1(2));
    CHECK(!ls_tensor_grad(&t));
    t.grad = ls_storage_new(2 * sizeof(ls_real), LS_MEM_GRADS);
    CHECK(ls_tensor_grad(&t) == t.grad->data);
    ls_tensor_zero_grad(&t);
    CHECK(!ls_tensor_grad(&t));
    ls_tensor_zero_grad(&t);
}

static void test_item(void)
{
    TEST_ROW("item");
    ls_tensor t = ls_tensor_header(LS_REAL, LS_SHAPE0);
    CHECK_OK(ls_tensor_materialize(&t, LS_MEM_OTHER));
    CHECK(ls_tensor_numel(&t) == 1);
    ls_reals(&t)[0] = (ls_real)0.5;
    CHECK(ls_item(&t) == 0.5);
    t.is_wide = true;
    t.wide    = 0.1;
    CHECK(ls_item(&t) == 0.1);
    ls_tensor_drop(&t);
}

int main(void)
{
    test_shapes();
    test_impossible_shapes();
    test_views();
    test_storage();
    test_grad();
    test_item();
    ls_mem_trim();
    return test_summary("tensor");
}
