// SPDX-License-Identifier: Apache-2.0
/* A recurrent layer has the same bits on one thread and on several. */
#include "tests/test.h"

#include "stages/base/host/pool.h"
#include "stages/base/macros.h"
#include "stages/ops/rnn/rnn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void sigmoid(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = 1.0f / (1.0f + expf(-x[i]));
}

static void tangent(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = tanhf(x[i]);
}

static const struct pst_rnn_math_f32 math = {sigmoid, tangent};

/* Numbers around 0; NULL for none. */
static float *numbers(int64_t n)
{
    static unsigned seed = 1;
    float *x = malloc((size_t)n * sizeof(*x) + 1);

    assert_non_null(x);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ((float)(seed >> 8) / (1 << 24) - 0.5f) * 0.2f;
    }
    return x;
}

enum { Y, H_N, C_N, SAVED, DGATES, DGATES_H, DH0, DC0, N_OUT };

struct layer {
    struct pst_rnn_f32 p;
    int64_t size[N_OUT];
    float *out[N_OUT];
};

static void run(struct layer *l, struct pst_pool *pool)
{
    for (int i = 0; i < N_OUT; i++)
        l->out[i] = numbers(l->size[i]);
    l->p.y = l->out[Y];
    l->p.h_n = l->out[H_N];
    l->p.c_n = l->out[C_N];
    l->p.saved = l->out[SAVED];
    l->p.dgates = l->out[DGATES];
    l->p.dgates_h = l->out[DGATES_H];
    l->p.dh0 = l->out[DH0];
    l->p.dc0 = l->out[DC0];
    pst_rnn_forward_f32(&l->p, pool);
    pst_rnn_backward_f32(&l->p, pool);
}

static void one(enum pst_rnn_mode mode, int64_t b, int64_t h, bool reverse,
                struct pst_pool *pool)
{
    const int64_t t = 3, g = pst_rnn_gates(mode) * h, state = b * h;
    struct layer l = {.p = {.s = {.mode = mode,
                                  .reverse = reverse,
                                  .t = t,
                                  .b = b,
                                  .h = h,
                                  .r = h},
                            .math = &math},
                      .size = {t * state, state,
                               mode == PST_RNN_LSTM ? state : 0,
                               t * b * pst_rnn_saved(mode) * h, t * b * g,
                               mode == PST_RNN_GRU ? t * b * g : 0, state,
                               mode == PST_RNN_LSTM ? state : 0}};
    float *gates = numbers(t * b * g), *h0 = numbers(state);
    float *c0 = numbers(state), *w = numbers(g * h), *bias = numbers(g);
    float *dy = numbers(t * state), *room = numbers(pst_rnn_room(&l.p.s));
    float *want[N_OUT];

    l.p.gates = gates;
    l.p.h0 = h0;
    l.p.c0 = mode == PST_RNN_LSTM ? c0 : NULL;
    l.p.w_hh = w;
    l.p.b_hh = bias;
    l.p.dy = dy;
    l.p.room = room;
    run(&l, NULL);
    memcpy(want, l.out, sizeof(want));
    run(&l, pool);
    for (int i = 0; i < N_OUT; i++) {
        if (memcmp(want[i], l.out[i], (size_t)l.size[i] * sizeof(float)) != 0)
            fail_msg("mode %d, %lld rows of %lld: other bits on %u threads",
                     (int)mode, (long long)b, (long long)h,
                     pst_pool_threads(pool));
        free(want[i]);
        free(l.out[i]);
    }
    free(gates);
    free(h0);
    free(c0);
    free(w);
    free(bias);
    free(dy);
    free(room);
}

/* Rows that are divided, and that are too few. */
static void same_bits(void **state)
{
    static const int64_t rows[] = {3, 9, 17, 32, 37, 70};

    (void)state;
    for (unsigned threads = 2; threads <= 3; threads++) {
        struct pst_pool *pool;
        struct pst_diag diag;

        pst_diag_init(&diag);
        assert_ok(pst_pool_new(threads, &pool, &diag), &diag);
        for (size_t i = 0; i < PST_COUNT(rows); i++)
            for (int mode = PST_RNN_LSTM; mode <= PST_RNN_RELU; mode++) {
                one((enum pst_rnn_mode)mode, rows[i], 256, i % 2, pool);
                one((enum pst_rnn_mode)mode, rows[i], 100, i % 2, pool);
            }
        pst_pool_free(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};

    return cmocka_run_group_tests_name("rnn", tests, NULL, NULL);
}
