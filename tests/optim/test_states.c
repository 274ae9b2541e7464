// SPDX-License-Identifier: Apache-2.0
/* States of optimizers in fewer bits than f32: bf16 with stochastic rounding,
 * and 8-bit codes of Dettmers' dynamic map, against formulas. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/rng.h"
#include "stages/ops/cpu/states.h"
#include "stages/optim/optim.h"
#include "tests/test.h"

#define N (3 * 4096 + 77)

static struct pst_diag diag;
static struct pst_pool *pool;
static float x[N], y[N], scales[N / PST_STATES_BLOCK + 1];
static uint16_t half[N], other[N];
static uint8_t codes[N], other_codes[N];

static void run(const char *name, enum pst_dtype dtype, int64_t n, void *to,
                void *from, void *more, bool is_signed,
                struct pst_pool *threads, enum pst_isa isa)
{
    void *const operands[] = {from, more};
    const struct pst_task task = {.dtype = dtype,
                                  .n = n,
                                  .to = to,
                                  .from = operands,
                                  .n_from = 2,
                                  .number = is_signed,
                                  .pool = threads,
                                  .isa = isa};
    pst_task_fn fn;

    assert_ok(pst_device_task(&pst_device_cpu, name, &fn, &diag), &diag);
    fn(&task);
}

static struct pst_states_draw draw_of(uint64_t step, int64_t first)
{
    const struct pst_rng_key key = {.seed = 3, .step = step, .node = 7};
    struct pst_states_draw ret = {.first = first};

    pst_rng_stream(&key, ret.stream);
    return ret;
}

static void fill(void)
{
    const struct pst_rng_key key = {.seed = 1};

    for (int i = 0; i < N; i++)
        x[i] = (float)(pst_rng_normal(&key, (uint64_t)i) * pow(10, i % 11 - 7));
}

static float of_bf16(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float ret;

    memcpy(&ret, &wide, sizeof(ret));
    return ret;
}

/* Every result is one of the two neighbours of the number, the mean over many
 * steps is the number, and what bf16 has stays. */
static void bf16_is_unbiased(void **state)
{
    static double sum[64];
    const int steps = 4000;

    (void)state;
    fill();
    x[5] = 0;
    x[6] = -1.5f;
    for (int s = 0; s < steps; s++) {
        struct pst_states_draw draw = draw_of((uint64_t)s, 0);

        run("pack", PST_BF16, 64, half, x, &draw, true, NULL, pst_cpu_isa());
        for (int i = 0; i < 64; i++) {
            const float got = of_bf16(half[i]);

            assert_true(fabsf(got - x[i]) < fabsf(x[i]) * 0x1p-7f ||
                        got == x[i]);
            sum[i] += (double)got;
        }
        assert_true(of_bf16(half[5]) == 0 && of_bf16(half[6]) == -1.5f);
    }
    /* The standard error of the mean is below half an ulp / sqrt(steps). */
    for (int i = 0; i < 64; i++)
        assert_true(fabs(sum[i] / steps - (double)x[i]) <=
                    5 * fabs((double)x[i]) * 0x1p-8 / sqrt(steps));
}

/* Threads, instruction sets and shards change no bit. */
static void bits_depend_on_elements_alone(void **state)
{
    struct pst_states_draw draw = draw_of(1, 1);

    (void)state;
    fill();
    run("pack", PST_BF16, N, half, x, &draw, true, NULL, PST_ISA_ANY);
    run("pack", PST_BF16, N, other, x, &draw, true, pool, pst_cpu_isa());
    assert_memory_equal(half, other, sizeof(half));
    for (int begin = 0, n = 1; begin < N; begin += n, n = n * 3 % 5000 + 1) {
        draw = draw_of(1, 1 + begin);
        n = PST_MIN(n, N - begin);
        run("pack", PST_BF16, n, other + begin, x + begin, &draw, true, NULL,
            pst_cpu_isa());
    }
    assert_memory_equal(half, other, sizeof(half));
    draw = draw_of(2, 1);
    run("pack", PST_BF16, N, other, x, &draw, true, NULL, pst_cpu_isa());
    assert_memory_not_equal(half, other, sizeof(half));
    run("unpack", PST_BF16, N, y, half, NULL, true, pool, pst_cpu_isa());
    for (int i = 0; i < N; i++)
        assert_true(y[i] == of_bf16(half[i]));
    run("pack", PST_U8, N, codes, x, scales, true, NULL, PST_ISA_ANY);
    run("pack", PST_U8, N, other_codes, x, scales, true, pool, pst_cpu_isa());
    assert_memory_equal(codes, other_codes, sizeof(codes));
}

static void odd_numbers_stay(void **state)
{
    float odd[] = {INFINITY, -INFINITY, NAN, FLT_MAX, -FLT_MAX, 1e-45f};
    struct pst_states_draw draw = draw_of(1, 0);

    (void)state;
    for (uint64_t s = 0; s < 50; s++) {
        draw = draw_of(s, 0);
        run("pack", PST_BF16, 6, half, odd, &draw, true, NULL, pst_cpu_isa());
        assert_true(of_bf16(half[0]) == INFINITY);
        assert_true(of_bf16(half[1]) == -INFINITY);
        assert_true(isnan(of_bf16(half[2])));
        for (int i = 3; i < 6; i++)
            assert_true(isfinite(of_bf16(half[i])));
    }
}

/* The map has the values of the paper's formula; each code is the nearest one,
 * found by trying all. */
static void codes_are_nearest(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        float map[256];

        pst_states_map(is_signed != 0, map);
        for (int i = 1; i < 256; i++)
            assert_true(map[i] > map[i - 1]);
        assert_true(map[255] == 1 && map[is_signed ? 127 : 0] == 0);
        /* E = 0 has one value of a sign, 0.55e-6, without one two values */
        assert_true(fabs((double)map[is_signed ? 128 : 1] -
                         (is_signed ? 0.55e-6 : 0.325e-6)) < 1e-13);
        /* bitsandbytes' create_dynamic_map */
        assert_true(fabsf(map[is_signed ? 0 : 254] -
                          (is_signed ? -0.992968738f : 0.996484399f)) < 1e-7f);
        fill();
        for (int i = 0; i < N && !is_signed; i++)
            x[i] = fabsf(x[i]);
        for (int i = 512; i < 768; i++)
            x[i] = 0;
        run("pack", PST_U8, N, codes, x, scales, is_signed != 0, pool,
            pst_cpu_isa());
        run("unpack", PST_U8, N, y, codes, scales, is_signed != 0, pool,
            pst_cpu_isa());
        for (int i = 0; i < N; i++) {
            const int begin = i / 256 * 256;
            float most = 0, off = INFINITY;

            for (int k = begin; k < begin + 256 && k < N; k++)
                most = fmaxf(most, fabsf(x[k]));
            assert_true(scales[i / 256] == most);
            assert_true(y[i] == map[codes[i]] * most);
            for (int k = 0; k < 256; k++)
                off = fminf(off, fabsf(map[k] * most - x[i]));
            if (codes[i] == 1 && !is_signed) /* not 0 */
                assert_true(x[i] > 0);
            else
                assert_true(fabsf(y[i] - x[i]) <= off + 1e-6f * fabsf(x[i]));
            assert_true((codes[i] == 0 && !is_signed) ? x[i] == 0 : true);
        }
    }
}

/* Metas and bytes of states by --state-dtype. */
static void states_have_sizes(void **state)
{
    const int64_t size[] = {10, 100};
    const struct pst_meta param = pst_meta_make(PST_F32, 2, size);
    struct pst_optim_options o;
    char name[PST_OPTIM_NAME];
    struct pst_meta meta;

    (void)state;
    assert_ok(pst_optim_defaults("schedulefree", &o, &diag), &diag);
    assert_ok(pst_optim_set(&o, "state-dtype", "int8", &diag), &diag);
    assert_int_equal(pst_optim_state_bytes(&o, &param),
                     2 * 4000 + 1000 + 4 * sizeof(float));
    assert_true(pst_optim_state(&o, PST_OPTIM_SCALES + 1, &param, &meta));
    assert_false(pst_optim_state(&o, PST_OPTIM_SCALES, &param, &meta));
    assert_string_equal(pst_optim_state_name(&o, PST_OPTIM_SCALES + 1, name),
                        "schedulefree.v-scale");
    assert_string_equal(pst_optim_state_of("schedulefree.v-scale.a.b"), "a.b");
    assert_int_equal(pst_optim_bytes(&o, PST_OPTIM_SCALES + 1, 512), 8);
    assert_int_equal(pst_optim_bytes(&o, 1, 512), 512);
    assert_int_equal(pst_optim_bytes(&o, 0, 512), 2048);
    assert_ok(pst_optim_defaults("adamw", &o, &diag), &diag);
    assert_ok(pst_optim_set(&o, "state-dtype", "bf16", &diag), &diag);
    assert_int_equal(pst_optim_state_bytes(&o, &param), 4000);
    assert_int_equal(pst_optim_set(&o, "state-dtype", "f16", &diag),
                     PST_ERR_USAGE);
    assert_ok(pst_optim_defaults("muon", &o, &diag), &diag);
    assert_int_equal(pst_optim_set(&o, "state-dtype", "bf16", &diag),
                     PST_ERR_USAGE);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_is_unbiased),
        cmocka_unit_test(bits_depend_on_elements_alone),
        cmocka_unit_test(odd_numbers_stay),
        cmocka_unit_test(codes_are_nearest),
        cmocka_unit_test(states_have_sizes),
    };
    int failed;

    pst_diag_init(&diag);
    assert_ok(pst_pool_new(3, &pool, &diag), &diag);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    pst_pool_free(pool);
    return failed;
}
