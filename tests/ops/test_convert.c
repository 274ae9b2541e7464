// SPDX-License-Identifier: Apache-2.0
/*
 * Tests conversions between f32 and 16-bit floats, with every instruction set
 * of the processor, against the conversion of single elements. Converts all
 * 16-bit numbers, floats spread evenly over all exponents, and numbers at and
 * beside the midpoint of two neighbours. Also tests all lengths of a loop's
 * end, at unaligned addresses.
 */
#include "tests/test.h"

#include "stages/base/host/cpu.h"
#include "stages/graph/tensor.h"
#include "stages/ops/cpu/simd/convert.h"

#include <stdlib.h>
#include <string.h>

#define STEP  1999u /* step of bit patterns: tests 2 million floats */
#define BLOCK 1001  /* not a multiple of a vector */
#define SHORT 40    /* longer than any vector and its remainder */
#define ALL   65536

static const enum pst_dtype dtypes[] = {PST_BF16, PST_F16};

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Returns the bits of x; a signalling NaN counts as the quiet one that it may
 * have become. */
static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : bits;
}

static void check_from(enum pst_dtype dtype, enum pst_isa isa, int64_t n,
                       const uint16_t *x)
{
    float *y = malloc((size_t)n * sizeof(*y));

    assert_non_null(y);
    pst_simd_from_16_best(dtype, isa)(n, x, y);
    for (int64_t i = 0; i < n; i++)
        if (bits_of(y[i]) != bits_of((float)pst_load_f64(dtype, x, i)))
            fail_msg("%s, %s: %04x becomes %a", pst_dtype_name(dtype),
                     pst_isa_name(isa), x[i], (double)y[i]);
    free(y);
}

static void check_to(enum pst_dtype dtype, enum pst_isa isa, int64_t n,
                     const float *x)
{
    uint16_t *y = malloc((size_t)n * sizeof(*y));

    assert_non_null(y);
    pst_simd_to_16_best(dtype, isa)(n, x, y);
    for (int64_t i = 0; i < n; i++) {
        uint16_t want;

        pst_store_f64(dtype, &want, 0, (double)x[i]);
        if (y[i] != want)
            fail_msg("%s, %s: %a becomes %04x, not %04x", pst_dtype_name(dtype),
                     pst_isa_name(isa), (double)x[i], y[i], want);
    }
    free(y);
}

static void upcasts_all(void **state)
{
    static uint16_t x[ALL];

    (void)state;
    for (unsigned i = 0; i < ALL; i++)
        x[i] = (uint16_t)i;
    for (unsigned d = 0; d < PST_COUNT(dtypes); d++)
        for (unsigned isa = 0; isa <= (unsigned)pst_cpu_isa(); isa++)
            check_from(dtypes[d], isa, ALL, x);
}

static void rounds_floats(void **state)
{
    (void)state;
    for (uint64_t bits = 0, n; bits < UINT32_MAX; bits += n * STEP) {
        float x[BLOCK];

        for (n = 0; n < BLOCK && bits + n * STEP <= UINT32_MAX; n++)
            x[n] = float_of((uint32_t)(bits + n * STEP));
        for (unsigned d = 0; d < PST_COUNT(dtypes); d++)
            for (unsigned isa = 0; isa <= (unsigned)pst_cpu_isa(); isa++)
                check_to(dtypes[d], isa, (int64_t)n, x);
    }
}

/* Tests each finite number, the midpoint to the next, and their neighbours. */
static void rounds_ties(void **state)
{
    static float x[6 * ALL];

    (void)state;
    for (unsigned d = 0; d < PST_COUNT(dtypes); d++) {
        int64_t n = 0;

        for (unsigned i = 0; i + 1 < ALL; i++) {
            const uint16_t pair[2] = {(uint16_t)i, (uint16_t)(i + 1)};
            const double low = pst_load_f64(dtypes[d], pair, 0);
            const double high = pst_load_f64(dtypes[d], pair, 1);
            uint32_t at[2];

            at[0] = bits_of((float)low);
            at[1] = bits_of((float)(low + (high - low) / 2.0));
            for (unsigned k = 0; k < 2; k++) {
                x[n++] = float_of(at[k]);
                x[n++] = float_of(at[k] + 1);
                x[n++] = float_of(at[k] - 1);
            }
        }
        for (unsigned isa = 0; isa <= (unsigned)pst_cpu_isa(); isa++)
            check_to(dtypes[d], isa, n, x);
    }
}

/* Numbers at least half a step above the largest finite one become infinite. */
static void overflows(void **state)
{
    static const float x[] = {65504.0f, 65519.996f, 65520.0f,
                              1e30f,    0x1p-25f,   0x1.000002p-25f};
    static const uint16_t want[] = {0x7bff, 0x7bff, 0x7c00, 0x7c00, 0, 1};

    (void)state;
    for (unsigned isa = 0; isa <= (unsigned)pst_cpu_isa(); isa++) {
        uint16_t y[PST_COUNT(x)];

        pst_simd_to_16_best(PST_F16, isa)(PST_COUNT(x), x, y);
        assert_memory_equal(y, want, sizeof(want));
    }
}

/* Checks every length at every offset; nothing is written beyond the end. */
static void check_ends(enum pst_dtype dtype, enum pst_isa isa)
{
    for (int64_t n = 0; n <= SHORT; n++)
        for (int64_t at = 0; at < 4; at++) {
            uint16_t half[SHORT + 8], back[SHORT + 8];
            float x[SHORT + 8];

            for (unsigned i = 0; i < SHORT + 8; i++) {
                pst_store_f64(dtype, half, i, (double)i - 20.0);
                x[i] = -1.0f;
                back[i] = 0xa5a5;
            }
            pst_simd_from_16_best(dtype, isa)(n, half + at, x + at);
            pst_simd_to_16_best(dtype, isa)(n, x + at, back + at);
            for (int64_t i = 0; i < SHORT + 8; i++) {
                const bool in = i >= at && i < at + n;

                assert_true(x[i] == (in ? (float)i - 20.0f : -1.0f));
                assert_int_equal(back[i], in ? half[i] : 0xa5a5);
            }
        }
}

static void buffer_ends(void **state)
{
    (void)state;
    for (unsigned d = 0; d < PST_COUNT(dtypes); d++)
        for (unsigned isa = 0; isa <= (unsigned)pst_cpu_isa(); isa++)
            check_ends(dtypes[d], isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(upcasts_all), cmocka_unit_test(rounds_floats),
        cmocka_unit_test(rounds_ties), cmocka_unit_test(overflows),
        cmocka_unit_test(buffer_ends)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
