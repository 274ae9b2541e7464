// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_RNN_RNN_H
#define PENSTOCK_STAGES_OPS_RNN_RNN_H
/*
 * One direction of one recurrent layer over T steps. The input's share of the
 * gates, x_t w_ih^T + b_ih, is computed before, for all steps at once; u_t =
 * h_{t-1} w_hh^T + b_hh is computed step by step. Gates are joined in the last
 * dimension:
 *     lstm  i f g o   c = sigm(f) c + sigm(i) tanh(g),  h = sigm(o) tanh(c)
 *     gru   r z n     n = tanh(x_n + r u_n),  h = (1 - z) n + z h
 *     tanh, relu      h = act(x + u)
 * lstm may project: h = (sigm(o) tanh(c)) w_hr^T. `saved` keeps the values that
 * the backward pass needs: lstm i f g o c, gru r z n u_n.
 *
 * Shapes: gates (T, B, G H), h (B, R), c (B, H), w_hh (G H, R), w_hr (R, H), y
 * (T, B, R), saved (T, B, K H); G gates and K saved values. R is H unless the
 * layer projects.
 */
#include "stages/ops/core/infer.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/vjp.h"
#include "stages/ops/cpu/simd/simd.h"

enum pst_rnn_mode { PST_RNN_LSTM, PST_RNN_GRU, PST_RNN_TANH, PST_RNN_RELU };

struct pst_rnn_shape {
    enum pst_rnn_mode mode;
    bool reverse, projects;
    int64_t t, b, h, r;
};

static inline int64_t pst_rnn_gates(enum pst_rnn_mode mode)
{
    return mode == PST_RNN_LSTM ? 4 : mode == PST_RNN_GRU ? 3 : 1;
}
static inline int64_t pst_rnn_saved(enum pst_rnn_mode mode)
{
    return mode == PST_RNN_LSTM ? 5 : mode == PST_RNN_GRU ? 4 : 0;
}

/* A part of a batch has at least PST_RNN_ROWS rows, and at least PST_RNN_PART
 * multiplications in the matmul of a step. */
#define PST_RNN_ROWS 16
#define PST_RNN_PART 500e3

/* Layers in double and in float; loops.inc is compiled for both. Rows of the
 * batch are divided among the pool. */
struct pst_pool;
#define PST_RNN_TYPES(real, suffix)                                            \
    struct pst_rnn_math_##suffix {                                             \
        void (*sigmoid)(int64_t n, const real *x, real *y);                    \
        void (*tanh)(int64_t n, const real *x, real *y);                       \
    };                                                                         \
    struct pst_rnn_##suffix {                                                  \
        struct pst_rnn_shape s;                                                \
        int64_t all; /* rows of the batch; s.b: rows of a part */              \
        const struct pst_rnn_math_##suffix *math;                              \
        const real *gates, *h0, *c0, *w_hh, *b_hh, *w_hr; /* NULL: absent */   \
        real *y, *h_n, *c_n, *saved;                                           \
        /* backward: gradients of the results; NULL if absent */               \
        const real *dy, *dh_n, *dc_n;                                          \
        /* backward: results; NULL if not computed */                          \
        real *dgates, *dgates_h, *dh0, *dc0, *dproj;                           \
        real *scratch; /* pst_rnn_scratch numbers */                           \
    };                                                                         \
    void pst_rnn_forward_##suffix(struct pst_rnn_##suffix *p,                  \
                                  struct pst_pool *pool);                      \
    void pst_rnn_backward_##suffix(struct pst_rnn_##suffix *p,                 \
                                   struct pst_pool *pool)
PST_RNN_TYPES(double, f64);
PST_RNN_TYPES(float, f32);

/* Returns the numbers of scratch for a forward or a backward pass. */
static inline int64_t pst_rnn_scratch(const struct pst_rnn_shape *s)
{
    return s->b * (6 * s->h + 2 * s->r);
}

#endif
