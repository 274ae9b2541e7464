// SPDX-License-Identifier: Apache-2.0
/*
 * Tests elementary functions of simd/vecmath.h against long double, in the
 * loops of every instruction set of the processor. Computes the largest error,
 * in units of the last place, over floats spread evenly over all exponents.
 * Checks the results for NaN, infinities, zeros and the ends of the range.
 */
#include "tests/sanitized.h"
#include "tests/test.h"

#include "stages/base/host/cpu.h"
#include "stages/ops/cpu/simd/loops.h"
#include "stages/ops/pointwise/special/special_math.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Step of bit patterns: tests 2 million floats, or a tenth of these. */
#define STEP  (SANITIZED ? 19990u : 1999u)
#define BLOCK 1000 /* no multiple of a vector */

struct function {
    const char *name;
    pst_loop_fn loop[PST_N_ISAS];
    long double (*exact)(long double x);
    double low, high; /* range in which the error is checked */
    double ulp;       /* largest error with FMA; without it twice as much */
};

#if PST_HAVE_AVX2
#define AVX2(name) pst_loop_##name##_avx2
#else
#define AVX2(name) NULL
#endif
#if PST_HAVE_AVX512
#define AVX512(name) pst_loop_##name##_avx512
#else
#define AVX512(name) NULL
#endif
#define LOOPS(name)                                                            \
    {                                                                          \
        pst_loop_##name##_any, AVX2(name), AVX512(name)                        \
    }

static long double sigmoid(long double x)
{
    return 1.0L / (1.0L + expl(-x));
}

/* Computes the ends of the range as the reference does, other numbers by the
 * recurrence up to 40 and then the asymptotic series. */
static long double digamma(long double x)
{
    long double y = 0.0L, w;

    if (!(x > 0.0L && x < 1e30L))
        return (long double)pst_math_digamma((double)x);
    for (; x < 40.0L; x += 1.0L)
        y -= 1.0L / x;
    w = 1.0L / (x * x);
    return y + logl(x) - 0.5L / x -
           w * (1.0L / 12.0L -
                w * (1.0L / 120.0L -
                     w * (1.0L / 252.0L -
                          w * (1.0L / 240.0L -
                               w * (1.0L / 132.0L -
                                    w * (691.0L / 32760.0L - w / 12.0L))))));
}

static long double trigamma(long double x)
{
    long double y = 0.0L, w;

    if (!(x > 0.0L && x < 1e30L))
        return (long double)pst_math_polygamma(1, (double)x);
    for (; x < 40.0L; x += 1.0L)
        y += 1.0L / (x * x);
    w = 1.0L / (x * x);
    return y + 1.0L / x + 0.5L * w +
           w / x *
               (1.0L / 6.0L -
                w * (1.0L / 30.0L -
                     w * (1.0L / 42.0L -
                          w * (1.0L / 30.0L -
                               w * (5.0L / 66.0L - w * 691.0L / 2730.0L)))));
}

/* Improves the result of the reference by one Newton step. */
static long double erfinv(long double x)
{
    const long double size = fabsl(x);
    long double y = (long double)pst_math_erfinv((double)size);

    if (x != 0.0L && size < 1.0L) {
        const long double left =
            size < 0.5L ? erfl(y) - size : (1.0L - size) - erfcl(y);

        y -= left * 0.88622692545275801365L * expl(y * y);
    }
    return x != x ? x : copysignl(y, x);
}

static const struct function functions[] = {
    {"exp", LOOPS(exp), expl, -87.0, 88.7, 1.0},
    {"exp2", LOOPS(exp2), exp2l, -126.0, 127.99, 1.2},
    {"expm1", LOOPS(expm1), expm1l, -87.0, 88.7, 1.6},
    {"log", LOOPS(log), logl, 0.0, INFINITY, 1.0},
    {"log2", LOOPS(log2), log2l, 0.0, INFINITY, 1.6},
    {"log10", LOOPS(log10), log10l, 0.0, INFINITY, 1.6},
    {"log1p", LOOPS(log1p), log1pl, -0.9999999, INFINITY, 1.6},
    {"sin", LOOPS(sin), sinl, -INFINITY, INFINITY, 1.5},
    {"cos", LOOPS(cos), cosl, -INFINITY, INFINITY, 1.5},
    {"tan", LOOPS(tan), tanl, -INFINITY, INFINITY, 3.1},
    {"tanh", LOOPS(tanh), tanhl, -INFINITY, INFINITY, 1.5},
    {"sinh", LOOPS(sinh), sinhl, -89.4, 89.4, 0.51},
    {"cosh", LOOPS(cosh), coshl, -89.4, 89.4, 0.51},
    {"atan", LOOPS(atan), atanl, -INFINITY, INFINITY, 0.51},
    {"atanh", LOOPS(atanh), atanhl, -0.99999999, 0.99999999, 0.51},
    {"lgamma", LOOPS(lgamma), lgammal, 0.0, 4e36, 0.51},
    {"sigmoid", LOOPS(sigmoid), sigmoid, -87.0, INFINITY, 2.2},
    {"erf", LOOPS(erf), erfl, -INFINITY, INFINITY, 1.3},
    {"erfinv", LOOPS(erfinv), erfinv, -1.0, 1.0, 0.51},
    {"digamma", LOOPS(digamma), digamma, 1e-37, INFINITY, 0.51},
    {"trigamma", LOOPS(trigamma), trigamma, 1e-18, 1e30, 0.51},
};

static float of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Returns the distance of y from the exact value, in units of the last place of
 * y. */
static double ulps(float y, long double exact)
{
    int e;

    if (fabsl(exact) < (long double)FLT_MIN)
        return (double)(fabsl((long double)y - exact) /
                        (long double)FLT_TRUE_MIN);
    (void)frexpl(exact, &e);
    return (double)(fabsl((long double)y - exact) / ldexpl(1.0L, e - 24));
}

static void run(pst_loop_fn loop, int64_t n, const float *x, float *y)
{
    const void *const in[3] = {x, NULL, NULL};
    const float s[3] = {0.0f, 0.0f, 0.0f};

    loop(n, in, 0, s, y);
}

/* The largest error of an instruction set, and where it is. */
struct worst {
    double ulp;
    float at;
};

/* Computes the errors of n results; exact values are slow, so they are computed
 * once for all instruction sets. */
static void check_block(const struct function *f, int64_t n, const float *x,
                        struct worst *worst)
{
    long double exact[BLOCK];
    float y[BLOCK];

    for (int64_t i = 0; i < n; i++)
        exact[i] = f->exact((long double)x[i]);
    for (int isa = 0; isa <= (int)pst_cpu_isa(); isa++) {
        if (f->loop[isa] == NULL)
            continue;
        run(f->loop[isa], n, x, y);
        for (int64_t i = 0; i < n; i++) {
            const double d = ulps(y[i], exact[i]);

            if (!(d <= worst[isa].ulp))
                worst[isa] = (struct worst){d, x[i]};
        }
    }
}

static void check_accuracy(const struct function *f)
{
    struct worst worst[PST_N_ISAS] = {0};
    float x[BLOCK];
    int64_t n = 0;

    for (uint64_t bits = 1; bits <= UINT32_MAX; bits += STEP) {
        const float v = of_bits((uint32_t)bits);

        if ((double)v >= f->low && (double)v <= f->high && isfinite(v))
            x[n++] = v;
        if (n < BLOCK && bits + STEP <= UINT32_MAX)
            continue;
        check_block(f, n, x, worst);
        n = 0;
    }
    for (int isa = 0; isa <= (int)pst_cpu_isa(); isa++) {
        const double most = f->ulp * (isa == PST_ISA_ANY ? 2.0 : 1.0);

        if (f->loop[isa] == NULL)
            continue;
        print_message("%s %s: %.2f ulp at %a\n", f->name,
                      pst_isa_name((enum pst_isa)isa), worst[isa].ulp,
                      (double)worst[isa].at);
        if (!(worst[isa].ulp <= most))
            fail_msg("%s: %g ulp at %a, %g are allowed", f->name,
                     worst[isa].ulp, (double)worst[isa].at, most);
    }
}

static bool is_same_number(float a, float b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* Checks results that are exact: zeros, infinities, NaN. */
static void check_exact(const struct function *f, enum pst_isa isa)
{
    static const float x[] = {0.0f,  -0.0f, INFINITY, -INFINITY, NAN,
                              -1.0f, -2.0f, FLT_MAX,  -FLT_MAX};
    float y[PST_COUNT(x)];

    run(f->loop[isa], PST_COUNT(x), x, y);
    for (size_t i = 0; i < PST_COUNT(x); i++) {
        const float want = (float)f->exact((long double)x[i]);

        if ((want == 0.0f || !isfinite(want)) && !is_same_number(want, y[i]))
            fail_msg("%s %s of %g: %g, not %g", f->name, pst_isa_name(isa),
                     (double)x[i], (double)y[i], (double)want);
    }
}

static void check_function(void **state)
{
    const struct function *f = *state;

    check_accuracy(f);
    for (int isa = 0; isa <= (int)pst_cpu_isa(); isa++)
        if (f->loop[isa] != NULL)
            check_exact(f, (enum pst_isa)isa);
}

/* Tests powers over a grid of bases and exponents, with the special values of
 * C. */
static void powers(void **state)
{
    static const float ends_of[] = {0.0f,      -0.0f, 1.0f,  -1.0f,
                                    2.0f,      3.0f,  -3.0f, INFINITY,
                                    -INFINITY, NAN,   2.5f,  1e-40f};
    static const pst_loop_fn loops[PST_N_ISAS] = LOOPS(pow);
    const float s[3] = {0.0f, 0.0f, 0.0f};

    (void)state;
    for (int isa = 0; isa <= (int)pst_cpu_isa(); isa++) {
        double worst = 0.0;

        for (int i = -400; i <= 400; i++) {
            float x[801], b = 0.17f * (float)i, y[801];
            const void *const in[3] = {x, &b, NULL};

            for (int j = 0; j <= 800; j++)
                x[j] = exp2f((float)(j - 400) * 0.31f);
            loops[isa](801, in, 2, s, y);
            for (int j = 0; j <= 800; j++) {
                const long double z = powl((long double)x[j], (long double)b);

                if (z > (long double)FLT_MIN && z < (long double)FLT_MAX &&
                    b != 0.5f)
                    worst = fmax(worst, ulps(y[j], z));
            }
        }
        print_message("pow %s: %.2f ulp\n", pst_isa_name((enum pst_isa)isa),
                      worst);
        assert_true(worst <= 1.7);
        for (size_t i = 0; i < PST_COUNT(ends_of); i++) {
            float b = ends_of[i], y[PST_COUNT(ends_of)];
            const void *const in[3] = {ends_of, &b, NULL};

            loops[isa](PST_COUNT(ends_of), in, 2, s, y);
            for (size_t j = 0; j < PST_COUNT(ends_of); j++)
                if (!is_same_number(y[j], powf(ends_of[j], b)) &&
                    ulps(y[j], powl(ends_of[j], b)) > 2.0)
                    fail_msg("%g^%g: %g, not %g", (double)ends_of[j], (double)b,
                             (double)y[j], (double)powf(ends_of[j], b));
        }
    }
}

struct binary {
    const char *name;
    pst_loop_fn loop[PST_N_ISAS];
    long double (*exact)(long double x, long double y);
};

/* Returns log(exp(x) + exp(y)); not accurate where the sum cancels. */
static long double log_add(long double x, long double y)
{
    const long double z = fmaxl(x, y) + log1pl(expl(-fabsl(x - y)));

    return x == y && isinf(x)                      ? x
           : fabsl(z) < 1e-3L * fabsl(fmaxl(x, y)) ? NAN
                                                   : z;
}

static const struct binary binaries[] = {
    {"hypot", LOOPS(hypot), hypotl},
    {"atan2", LOOPS(atan2), atan2l},
    {"logaddexp", LOOPS(logaddexp), log_add},
};

/* Tests functions of two numbers, on pairs of random bits, of numbers of
 * similar size, and of special values. */
static void pairs(void **state)
{
    static const float ends_of[] = {0.0f,      -0.0f, 1.0f,    -1.0f,
                                    INFINITY,  NAN,   FLT_MAX, 1e-40f,
                                    -INFINITY, 3.0f,  -1e30f};
    const struct binary *f = *state;
    const float s[3] = {0.0f, 0.0f, 0.0f};
    const int n_ends = (int)PST_COUNT(ends_of);

    for (int isa = 0; isa <= (int)pst_cpu_isa(); isa++) {
        uint32_t bits = 12345;
        double worst = 0.0;

        if (f->loop[isa] == NULL)
            continue;
        for (int k = 0; k < 300; k++) {
            float x[BLOCK], y[BLOCK], z[BLOCK];
            const void *const in[3] = {x, y, NULL};

            for (int i = 0; i < BLOCK; i++) {
                bits = bits * 1664525u + 1013904223u;
                x[i] = of_bits(bits ^ bits >> 16);
                bits = bits * 1664525u + 1013904223u;
                y[i] = k % 2 == 0 ? of_bits(bits ^ bits >> 16)
                                  : x[i] * ((float)(bits >> 8) * 0x1p-23f);
                if (k == 0 && i < n_ends * n_ends) {
                    x[i] = ends_of[i / n_ends];
                    y[i] = ends_of[i % n_ends];
                }
            }
            f->loop[isa](BLOCK, in, 0, s, z);
            for (int i = 0; i < BLOCK; i++) {
                const long double e = f->exact(x[i], y[i]);

                if (k == 0 && i < n_ends * n_ends &&
                    (e == 0.0L || !isfinite((float)e)) &&
                    !is_same_number((float)e, z[i]))
                    fail_msg("%s of %g and %g: %g, not %g", f->name,
                             (double)x[i], (double)y[i], (double)z[i],
                             (double)e);
                if (isfinite((float)e))
                    worst = fmax(worst, ulps(z[i], e));
            }
        }
        print_message("%s %s: %.2f ulp\n", f->name,
                      pst_isa_name((enum pst_isa)isa), worst);
        assert_true(worst <= 0.51);
    }
}

int main(void)
{
    static struct CMUnitTest
        tests[PST_COUNT(functions) + 1 + PST_COUNT(binaries)];

    for (size_t i = 0; i < PST_COUNT(functions); i++)
        tests[i] = (struct CMUnitTest){.name = functions[i].name,
                                       .test_func = check_function,
                                       .initial_state = (void *)&functions[i]};
    tests[PST_COUNT(functions)] =
        (struct CMUnitTest){.name = "pow", .test_func = powers};
    for (size_t i = 0; i < PST_COUNT(binaries); i++)
        tests[PST_COUNT(functions) + 1 + i] =
            (struct CMUnitTest){.name = binaries[i].name,
                                .test_func = pairs,
                                .initial_state = (void *)&binaries[i]};
    return _cmocka_run_group_tests("vecmath", tests, PST_COUNT(tests), NULL,
                                   NULL);
}
