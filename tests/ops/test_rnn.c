// SPDX-License-Identifier: Apache-2.0
/* Tests a recurrent layer on several threads: the rows of the batch are
 * divided. */
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

/* Returns n numbers around 0; NULL if n is 0. */
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
enum { GATES, H0, C0, DY, N_IN };

/* Shape (steps, rows, width), or (rows, width) with one step; width 0: absent.
 */
struct tensor {
    int64_t steps, width;
    float *data;
};

struct layer {
    struct pst_rnn_shape s;
    const float *w, *bias; /* (gates, h), (gates) */
    struct tensor in[N_IN], out[N_OUT];
};

static int64_t size_of(const struct layer *l, const struct tensor *x)
{
    return x->steps * l->s.b * x->width;
}

static struct layer layer_of(enum pst_rnn_mode mode, int64_t b, int64_t h,
                             bool reverse)
{
    const int64_t t = 3, g = pst_rnn_gates(mode) * h;
    struct layer l = {
        .s = {.mode = mode, .reverse = reverse, .t = t, .b = b, .h = h, .r = h},
        .in = {[GATES] = {t, g},
               [H0] = {1, h},
               [C0] = {1, mode == PST_RNN_LSTM ? h : 0},
               [DY] = {t, h}},
        .out = {[Y] = {t, h},
                [H_N] = {1, h},
                [C_N] = {1, mode == PST_RNN_LSTM ? h : 0},
                [SAVED] = {t, pst_rnn_saved(mode) * h},
                [DGATES] = {t, g},
                [DGATES_H] = {t, mode == PST_RNN_GRU ? g : 0},
                [DH0] = {1, h},
                [DC0] = {1, mode == PST_RNN_LSTM ? h : 0}}};

    for (int i = 0; i < N_IN; i++)
        l.in[i].data = numbers(size_of(&l, &l.in[i]));
    for (int i = 0; i < N_OUT; i++)
        l.out[i].data = numbers(size_of(&l, &l.out[i]));
    return l;
}

static void layer_free(struct layer *l)
{
    for (int i = 0; i < N_IN; i++)
        free(l->in[i].data);
    for (int i = 0; i < N_OUT; i++)
        free(l->out[i].data);
}

static void run(const struct layer *l, struct pst_pool *pool)
{
    struct pst_rnn_f32 p = {.s = l->s,
                            .math = &math,
                            .w_hh = l->w,
                            .b_hh = l->bias,
                            .gates = l->in[GATES].data,
                            .h0 = l->in[H0].data,
                            .c0 = l->in[C0].width > 0 ? l->in[C0].data : NULL,
                            .dy = l->in[DY].data,
                            .scratch = numbers(pst_rnn_scratch(&l->s)),
                            .y = l->out[Y].data,
                            .h_n = l->out[H_N].data,
                            .c_n = l->out[C_N].data,
                            .saved = l->out[SAVED].data,
                            .dgates = l->out[DGATES].data,
                            .dgates_h = l->out[DGATES_H].data,
                            .dh0 = l->out[DH0].data,
                            .dc0 = l->out[DC0].data};
    float *scratch = p.scratch;

    pst_rnn_forward_f32(&p, pool);
    pst_rnn_backward_f32(&p, pool);
    free(scratch);
}

/* Copies rows beginning with `first` from the whole layer to the part, or back.
 */
static void move(const struct layer *whole, const struct tensor *x,
                 const struct layer *part, const struct tensor *y,
                 int64_t first, bool back)
{
    const size_t n = (size_t)(part->s.b * x->width) * sizeof(float);

    for (int64_t t = 0; t < x->steps; t++) {
        float *at = x->data + (t * whole->s.b + first) * x->width;
        float *own = y->data + t * part->s.b * y->width;

        memcpy(back ? at : own, back ? own : at, n);
    }
}

/* Runs the layer as several layers of some rows each, one after the other. */
static void run_parts(const struct layer *l, unsigned parts)
{
    for (unsigned k = 0; k < parts; k++) {
        struct layer part;
        int64_t first, last;

        pst_pool_share(l->s.b, 1, k, parts, &first, &last);
        part = layer_of(l->s.mode, last - first, l->s.h, l->s.reverse);
        part.w = l->w;
        part.bias = l->bias;
        for (int i = 0; i < N_IN; i++)
            move(l, &l->in[i], &part, &part.in[i], first, false);
        run(&part, NULL);
        for (int i = 0; i < N_OUT; i++)
            move(l, &l->out[i], &part, &part.out[i], first, true);
        layer_free(&part);
    }
}

static bool is_same(const struct layer *l, float *const want[N_OUT])
{
    for (int i = 0; i < N_OUT; i++)
        if (memcmp(want[i], l->out[i].data,
                   (size_t)size_of(l, &l->out[i]) * sizeof(float)) != 0)
            return false;
    return true;
}

/* With a pool, the rows have the bits of the parts that they are divided into.
 * These are also the bits of all rows together, except for libraries that sum
 * other numbers of rows in another order (OpenBLAS with AVX2). */
static void check_layer(enum pst_rnn_mode mode, int64_t b, int64_t h,
                        bool reverse, struct pst_pool *pool)
{
    struct layer l = layer_of(mode, b, h, reverse);
    float *w = numbers(pst_rnn_gates(mode) * h * h);
    float *bias = numbers(pst_rnn_gates(mode) * h), *want[N_OUT];
    unsigned parts = 0;
    bool same = false;

    l.w = w;
    l.bias = bias;
    run(&l, pool);
    for (int i = 0; i < N_OUT; i++) {
        want[i] = l.out[i].data;
        l.out[i].data = numbers(size_of(&l, &l.out[i]));
    }
    while (!same && parts < pst_pool_threads(pool)) {
        run_parts(&l, ++parts);
        same = is_same(&l, want);
    }
    if (!same)
        fail_msg("mode %d, %lld rows of %lld on %u threads: the bits of no "
                 "division",
                 (int)mode, (long long)b, (long long)h, pst_pool_threads(pool));
    for (int i = 0; i < N_OUT; i++)
        free(want[i]);
    layer_free(&l);
    free(w);
    free(bias);
}

/* Tests enough rows to divide, and too few. */
static void divides_rows(void **state)
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
                check_layer((enum pst_rnn_mode)mode, rows[i], 256, i % 2, pool);
                check_layer((enum pst_rnn_mode)mode, rows[i], 100, i % 2, pool);
            }
        pst_pool_free(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(divides_rows)};

    return cmocka_run_group_tests_name("rnn", tests, NULL, NULL);
}
