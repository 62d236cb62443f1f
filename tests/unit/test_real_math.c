/*
 * test_real_math.c - exp, tanh and erf in float against libm's in double, over all magnitudes.
 *
 * The bounds are in ulp of the result, as real_math.h promises them; every 97th float of both
 * signs is looked at, about 44 million in all.
 */
#include "core/kernels/real_math.h"
#include "test.h"

typedef struct {
    const char *name;
    float (*got)(float);
    double (*want)(double);
    double ulps;
} row;

static float exp_of(float x)
{
    return ls_exp(x);
}

static float tanh_of(float x)
{
    return ls_tanh_of(x);
}

static float erf_of(float x)
{
    return ls_erf(x);
}

static const row rows[] = {
    {"exp", exp_of, exp, 1}, {"tanh", tanh_of, tanh, 1.5}, {"erf", erf_of, erf, 1.5}};

/* Distance in units of the last place of a float of that size; subnormals have the smallest. */
static double ulps(float got, double want)
{
    const double past = 0x1.ffffffp127; /* from here on the nearest float is infinite */
    int          e;

    if (fabs(want) >= past)
        return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    frexp(want, &e);
    return fabs((double)got - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

static void worst_is_within_bound(const row *r)
{
    double worst = 0;
    float  at    = 0;

    for (uint64_t u = 0; u <= UINT32_MAX; u += 97) {
        float x = ls__float((uint32_t)u);
        if (isnan(x))
            continue;
        double d = ulps(r->got(x), r->want((double)x));
        if (!(d <= worst)) {
            worst = d;
            at    = x;
        }
    }
    printf("%s: at most %.3f ulp, at %.9g\n", r->name, worst, (double)at);
    CHECK(worst <= r->ulps);
}

static void edges_are_libm_s(const row *r)
{
    static const float edge[] = {0.0f, -0.0f, 1e-40f, -1e-40f, INFINITY, -INFINITY, 88.72283f,
                                 88.72284f, -87.4f, -103.9f, -104.1f};

    for (size_t i = 0; i < sizeof edge / sizeof *edge; i++)
        CHECK(ulps(r->got(edge[i]), r->want((double)edge[i])) <= r->ulps);
    CHECK(isnan(r->got(NAN)));
}

int main(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TEST_ROW(rows[i].name);
        edges_are_libm_s(&rows[i]);
        worst_is_within_bound(&rows[i]);
    }
    return test_summary("real_math");
}
