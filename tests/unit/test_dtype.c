/*
 * test_dtype.c - the traits table and the rounding of bf16.
 */
#include <stdlib.h>

#include "core/dtype.h"
#include "test.h"

static const struct {
    const char *name;
    size_t      bytes;
} traits[LS_DTYPE_COUNT] = {
    [LS_F32] = {"F32", 4}, [LS_BF16] = {"BF16", 2}, [LS_I32] = {"I32", 4},
    [LS_I64] = {"I64", 8}, [LS_U8] = {"U8", 1},     [LS_F64] = {"F64", 8},
};

static void test_traits(void)
{
    for (int d = 0; d < LS_DTYPE_COUNT; d++) {
        ls_dtype parsed = LS_DTYPE_COUNT;
        TEST_ROW(traits[d].name);
        CHECK(!strcmp(ls_dtype_name((ls_dtype)d), traits[d].name));
        CHECK(ls_dtype_bytes((ls_dtype)d) == traits[d].bytes);
        CHECK(ls_dtype_parse(traits[d].name, &parsed) && (int)parsed == d);
    }
    TEST_ROW("names that are none");
    ls_dtype untouched = LS_U8;
    CHECK(!ls_dtype_parse("F16", &untouched) && !ls_dtype_parse("f32", &untouched));
    CHECK(!ls_dtype_parse("", &untouched) && untouched == LS_U8);
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static const struct {
    const char *name;
    uint32_t    f32;
    uint16_t    bf16;
} rounding[] = {
    {"zero", 0x00000000, 0x0000},
    {"-zero", 0x80000000, 0x8000},
    {"one", 0x3f800000, 0x3f80},
    {"below the tie", 0x3f807fff, 0x3f80},
    {"tie to even, down", 0x3f808000, 0x3f80},
    {"above the tie", 0x3f808001, 0x3f81},
    {"tie to even, up", 0x3f818000, 0x3f82},
    {"negative tie, up", 0xbf818000, 0xbf82},
    {"carry into the exponent", 0x3fffffff, 0x4000},
    {"largest finite that stays", 0x7f7f7fff, 0x7f7f},
    {"largest float goes to inf", 0x7f7fffff, 0x7f80},
    {"inf", 0x7f800000, 0x7f80},
    {"-inf", 0xff800000, 0xff80},
    {"quiet NaN", 0x7fc00000, 0x7fc0},
    {"NaN with low bits alone", 0x7f800001, 0x7fc0},
    {"-NaN of all ones", 0xffffffff, 0xffff},
    {"smallest denormal", 0x00000001, 0x0000},
    {"denormal tie", 0x00018000, 0x0002},
};

static void test_bf16(void)
{
    for (size_t i = 0; i < sizeof rounding / sizeof *rounding; i++) {
        TEST_ROW(rounding[i].name);
        CHECK(ls_bf16_from_f32(from_bits(rounding[i].f32)) == rounding[i].bf16);
    }
    TEST_ROW("every bf16 survives");
    for (uint32_t b = 0; b <= 0xffff; b++) {
        float x    = ls_bf16_to_f32((uint16_t)b);
        bool  same = ls_bf16_from_f32(x) == (isnan(x) ? b | 0x40 : b);
        if (!same && !CHECK(same))
            return;
    }
    CHECK(ls_bf16_to_f32(0x4049) == 3.140625f);
}

int main(void)
{
    test_traits();
    test_bf16();
    return test_summary("dtype");
}
