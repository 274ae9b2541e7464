// SPDX-License-Identifier: Apache-2.0
/* Tests our own f32 matmul against sums in double, for every instruction set of
 * this processor. */
#include "tests/test.h"

#include "stages/ops/cpu/simd/simd.h"
#include "stages/ops/matmul/packed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 7 /* elements between two rows that must stay unchanged */

static unsigned seed = 1;

static float random_number(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (1 << 24) - 0.5f;
}

static float *numbers(int64_t n)
{
    /* Exactly as many as needed: a sanitizer detects accesses beyond. */
    float *x = malloc((size_t)n * sizeof(*x));

    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = random_number();
    return x;
}

/* The expected value of an element, and the sum of the sizes of its terms. */
struct reference {
    double want, size;
};

static struct reference *expect(const struct pst_gemm *g, const float *a,
                                const float *b, const float *c)
{
    struct reference *ret = malloc((size_t)(g->m * g->n) * sizeof(*ret));

    assert_non_null(ret);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            const float *const x = g->ta ? a + i : a + i * g->lda;
            const float *const y = g->tb ? b + j * g->ldb : b + j;
            const int64_t dx = g->ta ? g->lda : 1, dy = g->tb ? 1 : g->ldb;
            double want = g->beta * (double)c[i * g->ldc + j], size = 1;

            for (int64_t p = 0; p < g->k; p++) {
                const double z =
                    g->alpha * (double)x[p * dx] * (double)y[p * dy];

                want += z;
                size += fabs(z);
            }
            ret[i * g->n + j] = (struct reference){want, size};
        }
    return ret;
}

static void check(const struct pst_gemm *g, const float *c, const float *old,
                  const struct reference *expected)
{
    for (int64_t i = 0; i < (g->m - 1) * g->ldc + g->n; i++) {
        const int64_t row = i / g->ldc, col = i % g->ldc;
        const struct reference *r = &expected[row * g->n + col];

        if (col >= g->n)
            assert_true(c[i] == old[i]);
        else if (!(fabs(c[i] - r->want) <= 2e-7 * r->size * 4))
            fail_msg("%d%d %lldx%lldx%lld (%lld, %lld): %g, not %g", g->ta,
                     g->tb, (long long)g->m, (long long)g->n, (long long)g->k,
                     (long long)row, (long long)col, (double)c[i], r->want);
    }
}

/* The functions to test: NULL is pst_gemm_packed(), which chooses one. */
static pst_packed_fn functions[4];
static unsigned n_functions;

static void one(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
                double beta)
{
    static float PST_ALIGNED(64) scratch[PST_PACKED_SCRATCH];
    const int64_t rows_a = ta ? k : m, rows_b = tb ? n : k;
    const struct pst_gemm g = {.ta = ta,
                               .tb = tb,
                               .m = m,
                               .n = n,
                               .k = k,
                               .lda = (ta ? m : k) + GUARD,
                               .ldb = (tb ? k : n) + GUARD,
                               .ldc = n + GUARD,
                               .alpha = alpha,
                               .beta = beta};
    const int64_t n_c = (m - 1) * g.ldc + n;
    float *a = numbers((rows_a - 1) * g.lda + (ta ? m : k));
    float *b = numbers((rows_b - 1) * g.ldb + (tb ? k : n));
    float *c = numbers(n_c), *old = numbers(n_c);
    struct reference *expected = expect(&g, a, b, old);

    for (unsigned f = 0; f < n_functions; f++) {
        memcpy(c, old, (size_t)n_c * sizeof(*c));
        if (beta == 0)
            c[0] = NAN;
        if (functions[f] != NULL)
            functions[f](&g, a, b, c, scratch);
        else
            pst_gemm_packed(&g, a, b, c);
        check(&g, c, old, expected);
    }
    free(a);
    free(b);
    free(c);
    free(old);
    free(expected);
}

/* Tests sizes around those of tiles, panels and blocks, by all functions and
 * by those that are chosen for a call: matmuls with vectors use other kernels
 * than matmuls of two matrices. */
static void all_shapes(void **state)
{
    static const int64_t sides[] = {1,  2,  3,  4,  5,  8,  11, 12, 13,
                                    16, 17, 24, 31, 33, 36, 37, 64, 70};
    static const int64_t depths[] = {1, 3, 16, 17, 64, 255, 256, 257, 520};
    int turn = 0;

    (void)state;
    functions[n_functions++] = NULL;
    functions[n_functions++] = pst_simd_gemm_any;
    PST_SIMD_IF_AVX2(if (pst_cpu_isa() >= PST_ISA_AVX2)
                         functions[n_functions++] = pst_simd_gemm_avx2;)
    PST_SIMD_IF_AVX512(if (pst_cpu_isa() >= PST_ISA_AVX512)
                           functions[n_functions++] = pst_simd_gemm_avx512;)
    for (size_t i = 0; i < PST_COUNT(sides); i++)
        for (size_t j = 0; j < PST_COUNT(sides); j++)
            for (int form = 0; form < 4; form++, turn++)
                one(form & 1, form & 2, sides[i], sides[j],
                    depths[turn % (int)PST_COUNT(depths)],
                    turn % 3 == 0 ? 1 : -0.5,
                    turn % 5 == 0   ? 1
                    : turn % 5 == 1 ? 0.25
                                    : 0);
    for (int form = 0; form < 4; form++) {
        one(form & 1, form & 2, 200, 50, 300, 1, 0);
        one(form & 1, form & 2, 400, 9, 40, 1, 1);
        one(form & 1, form & 2, 9, 400, 40, 1, 1);
        one(form & 1, form & 2, 130, 130, 20, 1, 0);
        /* B is packed in parts. */
        one(form & 1, form & 2, 230, 600, 270, 1, 1);
        one(form & 1, form & 2, 50, 2100, 64, -1, 0);
        one(form & 1, form & 2, 6, 13, 2100, -1, 0.5);
    }
}

/* --- windows -------------------------------------------------------------- */

typedef void (*windows_fn)(const struct pst_gemm *g, const float *a,
                           const struct pst_windows *b, float *c,
                           float *scratch);

#define MAX_TAPS 700

/* A buffer of `images` images, with unused elements at the end of each line,
 * and taps at any offset; nothing beyond its end may be read. */
struct image {
    int64_t taps[MAX_TAPS], positions, n_taps;
    struct pst_windows w;
    float *copy;
};

static void image_init(struct image *x, int64_t images, int64_t lines,
                       int64_t width, int64_t first, int64_t taps)
{
    const int64_t line = width + 2, slab = lines * line + 3;
    const int64_t each = 2 * slab + 40;

    *x = (struct image){.n_taps = taps,
                        .positions = images * 2 * lines * width - first,
                        .w = {.first = first,
                              .count = {2, lines, width},
                              .step = {each, slab, line}}};
    for (int64_t t = 0; t < taps; t++)
        x->taps[t] = t * 7 % 41;
    x->copy = numbers(images * each);
    x->w.copy = x->copy;
    x->w.end = x->copy + images * each;
    x->w.taps = x->taps;
}

static float at_window(const struct image *x, int64_t tap, int64_t position)
{
    const struct pst_windows *w = &x->w;
    const int64_t j = position + w->first, line = j / w->count[2];
    const int64_t slab = line / w->count[1];

    return w->copy[w->taps[tap] + j % w->count[2] +
                   line % w->count[1] * w->step[2] +
                   slab % w->count[0] * w->step[1] +
                   slab / w->count[0] * w->step[0]];
}

static windows_fn windows_functions[3];
static unsigned n_windows_functions;

static void one_windows(bool tb, int64_t m, struct image *x)
{
    static float PST_ALIGNED(64) scratch[PST_PACKED_SCRATCH];
    const int64_t n = tb ? x->n_taps : x->positions;
    const int64_t k = tb ? x->positions : x->n_taps;
    const struct pst_gemm g = {.tb = tb,
                               .m = m,
                               .n = n,
                               .k = k,
                               .lda = k + GUARD,
                               .ldc = n + GUARD,
                               .alpha = 1.0};
    struct pst_gemm plain = g;
    const int64_t n_c = (m - 1) * g.ldc + n;
    float *a = numbers((m - 1) * g.lda + k), *b = numbers(k * n);
    float *c = numbers(n_c), *old = numbers(n_c);
    struct reference *expected;

    for (int64_t p = 0; p < k; p++)
        for (int64_t j = 0; j < n; j++)
            b[p * n + j] = at_window(x, tb ? j : p, tb ? p : j);
    plain.tb = false;
    plain.ldb = n;
    expected = expect(&plain, a, b, old);
    for (unsigned f = 0; f < n_windows_functions; f++) {
        memcpy(c, old, (size_t)n_c * sizeof(*c));
        windows_functions[f](&g, a, &x->w, c, scratch);
        check(&g, c, old, expected);
    }
    free(a);
    free(b);
    free(c);
    free(old);
    free(expected);
    free(x->copy);
}

/* Tests lines shorter than a vector, longer than a panel, and a single one;
 * rows within one block and across blocks. */
static void all_windows(void **state)
{
    static const int64_t widths[] = {1, 7, 16, 33, 120};
    static const int64_t rows[] = {1, 3, 12, 37, 200};
    static const int64_t taps[] = {1, 9, 40, 300};
    struct image x;
    int turn = 0;

    (void)state;
    windows_functions[n_windows_functions++] = pst_simd_gemm_windows_any;
    PST_SIMD_IF_AVX2(if (pst_cpu_isa() >= PST_ISA_AVX2)
                         windows_functions[n_windows_functions++] =
                             pst_simd_gemm_windows_avx2;)
    PST_SIMD_IF_AVX512(if (pst_cpu_isa() >= PST_ISA_AVX512)
                           windows_functions[n_windows_functions++] =
                               pst_simd_gemm_windows_avx512;)
    for (size_t i = 0; i < PST_COUNT(widths); i++)
        for (size_t j = 0; j < PST_COUNT(rows); j++, turn++)
            for (int tb = 0; tb < 2; tb++) {
                image_init(&x, 1 + turn % 3, 1 + turn % 4, widths[i], turn % 2,
                           taps[turn % (int)PST_COUNT(taps)]);
                one_windows(tb, rows[j], &x);
            }
    for (int tb = 0; tb < 2; tb++) { /* B is larger than the buffer for it */
        image_init(&x, 1, 11, 60, 0, MAX_TAPS);
        one_windows(tb, 200, &x);
    }
}

/* Small matmuls use OpenBLAS, and large ones too if OpenBLAS has its best
 * kernels. */
static void rule(void **state)
{
    const enum pst_isa best = PST_ISA_AVX512;

    (void)state;
    for (int form = 0; form < 3; form++) {
        const bool ta = form == 1, tb = form == 2;

        assert_true(pst_packed_preferred(best, ta, tb, 32, 1024, 1024));
        assert_true(pst_packed_preferred(best, ta, tb, 1024, 1024, 32));
        assert_true(pst_packed_preferred(best, ta, tb, 4, 512, 2048));
        assert_false(pst_packed_preferred(best, ta, tb, 16, 16, 16));
        assert_true(pst_packed_preferred(best, ta, tb, 512, 2304, 768));
        assert_true(pst_packed_preferred(PST_ISA_AVX2, ta, tb, 2, 1024, 1024));
        assert_false(pst_packed_preferred(PST_ISA_AVX2, ta, tb, 64, 3136, 576));
        assert_false(pst_packed_preferred(PST_ISA_ANY, ta, tb, 4, 512, 2048));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_shapes),
        cmocka_unit_test(all_windows),
        cmocka_unit_test(rule),
    };

    return cmocka_run_group_tests_name("packed", tests, NULL, NULL);
}
