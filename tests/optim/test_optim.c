// SPDX-License-Identifier: Apache-2.0
/* Tests SGD and AdamW to the last bits, learning rates and clipping against
 * numbers from PyTorch 2.13; test_updates.c tests all optimizers. */
#include "stages/optim/optim.h"
#include "stages/optim/rows.h"
#include "tests/test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N     5
#define STEPS 5

static const float start[N] = {0.5f, -1.25f, 2.0f, 0.0f, -0.125f};
static const float grads[STEPS][N] = {
    {0.1f, -0.2f, 0.3f, 0.0f, 1e-4f}, {0.2f, -0.1f, 0.25f, 0.0f, 2e-4f},
    {0.3f, 0.0f, 0.2f, -1.0f, 3e-4f}, {0.4f, 0.1f, 0.15f, -1.0f, 4e-4f},
    {0.5f, 0.2f, 0.1f, -1.0f, 5e-4f},
};

/* Parameter after five steps, then the states. */
struct golden {
    struct pst_optim_options options;
    bool set; /* false: the defaults of options.row */
    unsigned n_states;
    float want[3][N];
};

static const struct golden goldens[] = {
    {.options = {.row = &pst_optim_sgd, .lr = 0.1},
     .set = true,
     .want = {{0.349999994f, -1.25f, 1.9000001f, 0.300000012f, -0.12514998f}}},
    {.options = {.row = &pst_optim_sgd, .lr = 0.1, .weight_decay = 0.05},
     .set = true,
     .want = {{0.338620603f, -1.21955717f, 1.8517406f, 0.298502505f,
               -0.122055098f}}},
    {.options = {.row = &pst_optim_sgd,
                 .lr = 0.1,
                 .weight_decay = 0.05,
                 .momentum = 0.9,
                 .dampening = 0.25},
     .set = true,
     .n_states = 1,
     .want = {{0.22662279f, -1.10569549f, 1.63816535f, 0.41940105f,
               -0.118509635f},
              {1.07224882f, -0.159866214f, 0.934464455f, -2.02182293f,
               -0.0188800674f}}},
    {.options =
         {.row = &pst_optim_sgd, .lr = 0.1, .momentum = 0.9, .nesterov = true},
     .set = true,
     .n_states = 1,
     .want = {{0.0646721274f, -1.18043709f, 1.6286248f, 0.804899991f,
               -0.125435337f},
              {1.31440997f, 0.0858800039f, 0.776079953f, -2.71000004f,
               0.00131440989f}}},
    {.options = {.row = &pst_optim_adamw},
     .n_states = 2,
     .want = {{0.495124251f, -1.24713171f, 1.99509907f, 0.00227364572f,
               -0.129844189f},
              {0.131440997f, 0.0085880002f, 0.0776080042f, -0.270999998f,
               0.000131441004f},
              {0.000549500342f, 9.98002724e-05f, 0.000224350777f,
               0.00299700117f, 5.49500334e-10f}}},
    {.options = {.row = &pst_optim_adamw,
                 .lr = 0.05,
                 .beta1 = 0.8,
                 .beta2 = 0.95,
                 .eps = 1e-3,
                 .weight_decay = 0.1},
     .set = true,
     .n_states = 2,
     .want = {{0.243573666f, -1.098194f, 1.71709812f, 0.121639892f,
               -0.165294424f},
              {0.231072009f, 0.029376002f, 0.119776003f, -0.488000005f,
               0.000231072001f},
              {0.0262832548f, 0.0045327004f, 0.00971832499f, 0.142624989f,
               2.62832547e-08f}}},
    {.options = {.row = &pst_optim_none},
     .set = true,
     .want = {{0.5f, -1.25f, 2.0f, 0.0f, -0.125f}}},
};

static struct pst_diag diag;

/* Runs the steps on n elements that repeat the golden values. Gradients are
 * four times too large, with a scale of a quarter, which is exact. */
static void run(const struct golden *g, int64_t n, enum pst_isa isa,
                struct pst_pool *pool, float *tensors[3])
{
    const struct pst_optim *optim = g->options.row;
    struct pst_optim_options options = g->options;
    /* The step at which the parameter was added to the run: 0 or 1000. */
    const uint64_t since = pool == NULL ? 1000 : 0;
    pst_task_fn update = NULL;
    float *grad = malloc((size_t)n * sizeof(float));

    assert_non_null(optim);
    assert_non_null(grad);
    if (!g->set)
        assert_ok(pst_optim_defaults(optim->name, &options, &diag), &diag);
    assert_ok(pst_optim_check(&options, &diag), &diag);
    assert_int_equal(pst_optim_n_states(optim, &options), g->n_states);
    if (optim->task != NULL)
        assert_ok(pst_device_task(&pst_device_cpu, optim->task, &update, &diag),
                  &diag);
    for (int64_t i = 0; i < n; i++) {
        tensors[0][i] = start[i % N];
        tensors[1][i] = tensors[2][i] = 0.0f;
    }
    for (uint64_t step = 0; step < STEPS && update != NULL; step++) {
        const struct pst_update numbers =
            pst_optim_update(optim, &options, since + step, since, 0.25);
        void *const from[] = {grad, tensors[1], tensors[2]};
        const struct pst_task task = {.dtype = PST_F32,
                                      .n = n,
                                      .to = tensors[0],
                                      .from = from,
                                      .n_from = 1 + g->n_states,
                                      .update = &numbers,
                                      .pool = pool,
                                      .isa = isa};

        for (int64_t i = 0; i < n; i++)
            grad[i] = 4.0f * grads[step][i % N];
        update(&task);
    }
    free(grad);
}

static void steps_match_torch(void **state)
{
    (void)state;
    for (size_t c = 0; c < PST_COUNT(goldens); c++)
        for (int isa = PST_ISA_ANY; isa <= (int)pst_cpu_isa(); isa++) {
            const struct golden *g = &goldens[c];
            float memory[3][N], *tensors[] = {memory[0], memory[1], memory[2]};

            run(g, N, (enum pst_isa)isa, NULL, tensors);
            for (unsigned t = 0; t <= g->n_states; t++)
                for (int i = 0; i < N; i++)
                    if (!(fabsf(memory[t][i] - g->want[t][i]) <=
                          4 * FLT_EPSILON * fabsf(g->want[t][i]) + 1e-16f))
                        fail_msg("case %zu, %s, tensor %u[%d]: %.9g, not %.9g",
                                 c, pst_isa_name((enum pst_isa)isa), t, i,
                                 memory[t][i], g->want[t][i]);
        }
}

/* Threads and the ends of vectors do not change a bit. */
static void threads_keep_the_bits(void **state)
{
    enum { LONG = 40003 };
    const enum pst_isa isa = pst_cpu_isa();
    struct pst_pool *pool;

    (void)state;
    assert_ok(pst_pool_new(3, &pool, &diag), &diag);
    for (size_t c = 0; c < PST_COUNT(goldens); c++) {
        float *memory = malloc(6 * LONG * sizeof(float));
        float *a[] = {memory, memory + LONG, memory + 2 * LONG};
        float *b[] = {memory + 3 * LONG, memory + 4 * LONG, memory + 5 * LONG};

        assert_non_null(memory);
        run(&goldens[c], LONG, isa, NULL, a);
        run(&goldens[c], LONG, isa, pool, b);
        assert_memory_equal(a[0], b[0], 3 * LONG * sizeof(float));
        for (int i = N; i < LONG; i++)
            assert_true(a[0][i] == a[0][i % N]);
        free(memory);
    }
    pst_pool_free(pool);
}

static void rates_match_transformers(void **state)
{
    static const double cosine[] = {
        0.0,
        0.3333333333333333,
        0.6666666666666666,
        1.0,
        0.9504844339512095,
        0.8117449009293668,
        0.6112604669781572,
        0.38873953302184283,
        0.18825509907063326,
        0.04951556604879048,
        0.0,
        0.0,
    };
    struct pst_optim_options o = {.lr = 2.0,
                                  .lr_schedule = PST_LR_COSINE,
                                  .warmup_steps = 3,
                                  .total_steps = 10};

    (void)state;
    for (uint64_t s = 0; s < PST_COUNT(cosine); s++)
        assert_true(fabs(pst_lr_at(&o, s) - 2.0 * cosine[s]) < 1e-15);
    o.lr_schedule = PST_LR_LINEAR;
    assert_true(fabs(pst_lr_at(&o, 5) - 2.0 * 5 / 7) < 1e-15);
    assert_true(pst_lr_at(&o, 10) == 0.0 && pst_lr_at(&o, 1000) == 0.0);
    o.min_lr_ratio = 0.1;
    assert_true(pst_lr_at(&o, 3) == 2.0);
    assert_true(fabs(pst_lr_at(&o, 5) - 2.0 * (0.1 + 0.9 * 5 / 7)) < 1e-15);
    assert_true(fabs(pst_lr_at(&o, 10) - 0.2) < 1e-15);
    o.lr_schedule = PST_LR_CONSTANT;
    assert_true(pst_lr_at(&o, 0) == 0.0 && pst_lr_at(&o, UINT64_MAX) == 2.0);
}

static double sumsq(float *x, int64_t n, struct pst_pool *pool)
{
    double ret = -1;
    void *const from = x;
    const struct pst_task task = {.dtype = PST_F32,
                                  .n = n,
                                  .to = &ret,
                                  .from = &from,
                                  .n_from = 1,
                                  .pool = pool,
                                  .isa = pst_cpu_isa()};
    pst_task_fn run;

    assert_ok(pst_device_task(&pst_device_cpu, "sumsq", &run, &diag), &diag);
    run(&task);
    return ret;
}

static void clipping_is_torchs(void **state)
{
    enum { LONG = 5000011 };
    float *x = malloc(LONG * sizeof(float));
    struct pst_pool *pool;
    double one, three;

    (void)state;
    assert_non_null(x);
    assert_ok(pst_pool_new(3, &pool, &diag), &diag);
    for (int i = 0; i < LONG; i++)
        x[i] = (float)((i * 2654435761u % 2001) - 1000.0) * 1e-3f;
    one = sumsq(x, LONG, NULL);
    three = sumsq(x, LONG, pool);
    assert_true(one == three);
    assert_true(fabs(one - LONG / 3.0) < 1e-2 * LONG);
    x[0] = 3.0f, x[1] = -4.0f;
    assert_true(sumsq(x, 2, pool) == 25.0);
    assert_true(sumsq(x, 0, pool) == 0.0);
    x[0] = 3e38f; /* the square exceeds f32 */
    assert_true(isfinite(sumsq(x, 2, pool)));
    assert_true(fabs(pst_clip_scale(5.0, 1.0) - 1.0 / 5.000001) < 1e-15);
    assert_true(pst_clip_scale(0.5, 1.0) == 1.0);
    assert_true(pst_clip_scale(0.0, 1.0) == 1.0);
    assert_true(isnan(pst_clip_scale(NAN, 1.0)));
    assert_true(pst_clip_scale(INFINITY, 1.0) == 0.0);
    pst_pool_free(pool);
    free(x);
}

static void bad_options_are_named(void **state)
{
    static const struct {
        struct pst_optim_options options;
        const char *word;
    } bad[] = {
        {{.row = &pst_optim_sgd, .lr = -1}, "lr is -1"},
        {{.row = &pst_optim_sgd, .lr = NAN}, "lr is NaN"},
        {{.row = &pst_optim_adamw, .beta2 = 1}, "beta2"},
        {{.row = &pst_optim_rmsprop, .alpha = 1}, "alpha"},
        {{.row = &pst_optim_adadelta, .rho = 1.5}, "rho"},
        {{.row = &pst_optim_adagrad, .lr_decay = -1}, "lr-decay"},
        {{.row = &pst_optim_muon, .ns_steps = 100}, "ns-steps"},
        {{.row = &pst_optim_muon, .ns_steps = 1.5}, "whole number"},
        {{.row = &pst_optim_adafactor, .beta2_decay = 0.5}, "beta2-decay"},
        {{.row = &pst_optim_adafactor, .eps2 = -1}, "eps2"},
        {{.row = &pst_optim_adafactor, .clip_threshold = 0.5},
         "clip-threshold is 0.5"},
        {{.row = &pst_optim_sgd, .ema = 1}, "ema is 1"},
        {{.row = &pst_optim_sgd, .ema = NAN}, "ema is NaN"},
        {{.row = &pst_optim_sgd, .clip_norm = INFINITY}, "clip-norm"},
        {{.row = &pst_optim_sgd, .min_lr_ratio = 1.5}, "min-lr-ratio"},
        {{.row = &pst_optim_sgd, .nesterov = true}, "nesterov"},
        {{.row = &pst_optim_sgd,
          .nesterov = true,
          .momentum = 0.9,
          .dampening = 0.1},
         "nesterov"},
        {{.row = &pst_optim_sgd,
          .lr_schedule = PST_LR_COSINE,
          .warmup_steps = 5,
          .total_steps = 5},
         "warmup"},
    };

    struct pst_optim_options options;

    (void)state;
    assert_int_equal(pst_optim_defaults("adamm", &options, &diag),
                     PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "did you mean \"adam"));
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        assert_int_equal(pst_optim_check(&bad[i].options, &diag),
                         PST_ERR_USAGE);
        if (strstr(diag.text, bad[i].word) == NULL)
            fail_msg("no \"%s\" in \"%s\"", bad[i].word, diag.text);
    }
}

/* `set` and --group find each option of each row by its name. */
/* A parameter without elements has no state with elements: no rank updates it,
 * and shards of it have no owner. */
static void states_of_nothing_are_empty(void **state)
{
    static const int64_t sizes[][3] = {{0, 12}, {3, 0}, {0, 0},    {3, 0, 5},
                                       {0},     {12},   {2, 3, 1}, {1}};
    static const unsigned ranks[] = {2, 2, 2, 3, 1, 1, 3, 0};
    size_t n;
    const struct pst_optim *const *rows = pst_optim_rows(&n);

    (void)state;
    for (size_t i = 1; i < n; i++)
        for (size_t c = 0; c < PST_COUNT(ranks); c++) {
            const struct pst_meta param =
                pst_meta_make(PST_F32, ranks[c], sizes[c]);
            struct pst_optim_options o = rows[i]->defaults;

            o.row = rows[i];
            o.ema = 0.5;
            for (int s = 0; s < PST_N_STORES; s++) {
                const bool has = pst_meta_numel(&param) > 0;

                o.store = (enum pst_optim_store)s;
                assert_true((pst_optim_state_bytes(&o, &param) > 0) == has);
            }
        }
}

static void every_option_can_be_set(void **state)
{
    size_t n;
    const struct pst_optim *const *rows = pst_optim_rows(&n);

    (void)state;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; rows[i]->options[k] != NULL; k++) {
            const char *name = rows[i]->options[k];
            struct pst_optim_options o, was;

            assert_ok(pst_optim_defaults(rows[i]->name, &o, &diag), &diag);
            memcpy(&was, &o, sizeof(o));
            if (pst_optim_set(&o, name, "0.375", &diag) != PST_OK &&
                pst_optim_set(&o, name, "yes", &diag) != PST_OK)
                assert_ok(pst_optim_set(&o, name, "bf16", &diag), &diag);
            if (memcmp(&o, &was, sizeof(o)) == 0) /* it is on by default */
                assert_ok(pst_optim_set(&o, name, "no", &diag), &diag);
            assert_memory_not_equal(&o, &was, sizeof(o));
            assert_int_equal(pst_optim_set(&o, name, "x", &diag),
                             PST_ERR_USAGE);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_match_torch),
        cmocka_unit_test(threads_keep_the_bits),
        cmocka_unit_test(rates_match_transformers),
        cmocka_unit_test(clipping_is_torchs),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(states_of_nothing_are_empty),
        cmocka_unit_test(every_option_can_be_set),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
