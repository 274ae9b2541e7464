// SPDX-License-Identifier: Apache-2.0
/*
 * The loops of rnn.h for numbers of type REAL, included once for each:
 * RNN(name) appends the suffix, GEMM is the product of that type.
 */
#include "stages/ops/matmul/gemm.h"
#include "stages/ops/rnn/rnn.h"

#include <string.h>

typedef struct RNN(pst_rnn) rnn;

/* C (m, n) = A (m, k) op(B) + beta C, rows of ldc numbers. */
static void product(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t lda,
                    const REAL *b, bool tb, REAL beta, REAL *c, int64_t ldc)
{
    const struct pst_gemm g = {.tb = tb,
                               .m = m,
                               .n = n,
                               .k = k,
                               .lda = lda,
                               .ldb = tb ? k : n,
                               .ldc = ldc,
                               .alpha = 1.0,
                               .beta = (double)beta};

    if (m > 0 && n > 0)
        GEMM(&g, a, b, c);
}

/* Rows of `n` numbers of `to` (ld apart) start from those of `from`, bias
 * added. */
static void start_rows(int64_t rows, int64_t n, const REAL *from,
                       const REAL *bias, REAL *to, int64_t ld)
{
    for (int64_t b = 0; b < rows; b++)
        for (int64_t i = 0; i < n; i++)
            to[b * ld + i] = (from == NULL ? 0 : from[b * n + i]) +
                             (bias == NULL ? 0 : bias[i]);
}

/* Step number i in the order of computation. */
static int64_t step_at(const rnn *p, int64_t i)
{
    return p->s.reverse ? p->s.t - 1 - i : i;
}

/* The hidden state before step i. */
static const REAL *before(const rnn *p, int64_t i)
{
    return i == 0 ? p->h0 : p->y + step_at(p, i - 1) * p->s.b * p->s.r;
}

/* --- forward ------------------------------------------------------------ */

static void lstm_step(const rnn *p, int64_t i)
{
    const int64_t h = p->s.h, r = p->s.r, rows = p->s.b, ld = 5 * h;
    const int64_t t = step_at(p, i);
    REAL *saved = p->saved + t * rows * ld;
    const REAL *last =
        i == 0 ? NULL : p->saved + step_at(p, i - 1) * rows * ld + 4 * h;
    REAL *y = p->y + t * rows * r;
    REAL *raw = p->s.projects ? p->room : y;

    start_rows(rows, 4 * h, p->gates + t * rows * 4 * h, p->b_hh, saved, ld);
    product(rows, 4 * h, r, before(p, i), r, p->w_hh, true, 1, saved, ld);
    for (int64_t b = 0; b < rows; b++) {
        REAL *in = saved + b * ld, *c = in + 4 * h;
        const REAL *old = last == NULL ? p->c0 + b * h : last + b * ld;

        p->math->sigmoid(2 * h, in, in);
        p->math->tanh(h, in + 2 * h, in + 2 * h);
        p->math->sigmoid(h, in + 3 * h, in + 3 * h);
        for (int64_t k = 0; k < h; k++)
            c[k] = in[h + k] * old[k] + in[k] * in[2 * h + k];
        p->math->tanh(h, c, raw + b * h);
        for (int64_t k = 0; k < h; k++)
            raw[b * h + k] *= in[3 * h + k];
    }
    if (p->s.projects)
        product(rows, r, h, raw, h, p->w_hr, true, 0, y, r);
}

static void gru_step(const rnn *p, int64_t i)
{
    const int64_t h = p->s.h, rows = p->s.b, t = step_at(p, i);
    const REAL *old = before(p, i), *x = p->gates + t * rows * 3 * h;
    REAL *u = p->room, *y = p->y + t * rows * h;

    start_rows(rows, 3 * h, NULL, p->b_hh, u, 3 * h);
    product(rows, 3 * h, h, old, h, p->w_hh, true, 1, u, 3 * h);
    for (int64_t b = 0; b < rows; b++) {
        REAL *s = p->saved + (t * rows + b) * 4 * h;
        const REAL *xb = x + b * 3 * h, *ub = u + b * 3 * h;

        for (int64_t k = 0; k < 2 * h; k++)
            s[k] = xb[k] + ub[k];
        p->math->sigmoid(2 * h, s, s);
        for (int64_t k = 0; k < h; k++) {
            s[3 * h + k] = ub[2 * h + k];
            s[2 * h + k] = xb[2 * h + k] + s[k] * s[3 * h + k];
        }
        p->math->tanh(h, s + 2 * h, s + 2 * h);
        for (int64_t k = 0; k < h; k++)
            y[b * h + k] =
                (1 - s[h + k]) * s[2 * h + k] + s[h + k] * old[b * h + k];
    }
}

static void plain_step(const rnn *p, int64_t i)
{
    const int64_t h = p->s.h, rows = p->s.b, t = step_at(p, i);
    REAL *y = p->y + t * rows * h;

    start_rows(rows, h, p->gates + t * rows * h, p->b_hh, y, h);
    product(rows, h, h, before(p, i), h, p->w_hh, true, 1, y, h);
    if (p->s.mode == PST_RNN_TANH)
        p->math->tanh(rows * h, y, y);
    for (int64_t k = 0; p->s.mode == PST_RNN_RELU && k < rows * h; k++)
        y[k] = y[k] > 0 ? y[k] : 0;
}

void RNN(pst_rnn_forward)(const rnn *p)
{
    const int64_t rows = p->s.b, h = p->s.h;

    for (int64_t i = 0; i < p->s.t; i++)
        if (p->s.mode == PST_RNN_LSTM)
            lstm_step(p, i);
        else if (p->s.mode == PST_RNN_GRU)
            gru_step(p, i);
        else
            plain_step(p, i);
    memcpy(p->h_n, before(p, p->s.t), (size_t)(rows * p->s.r) * sizeof(REAL));
    for (int64_t b = 0; p->s.mode == PST_RNN_LSTM && b < rows; b++)
        memcpy(p->c_n + b * h,
               p->saved + (step_at(p, p->s.t - 1) * rows + b) * 5 * h + 4 * h,
               (size_t)h * sizeof(REAL));
}

/* --- backward ----------------------------------------------------------- */

/* Gradients on their way to the step before: dh (B, R), dc (B, H). */
struct RNN(carried) {
    REAL *dh, *dc, *raw, *tanh_c;
};

static void lstm_back(const rnn *p, int64_t i, struct RNN(carried) * c)
{
    const int64_t h = p->s.h, r = p->s.r, rows = p->s.b, ld = 5 * h;
    const int64_t t = step_at(p, i);
    const REAL *draw = c->dh;
    REAL *out = p->dgates + t * rows * 4 * h;

    if (p->s.projects) {
        memcpy(p->dproj + t * rows * r, c->dh,
               (size_t)(rows * r) * sizeof(REAL));
        product(rows, h, r, c->dh, r, p->w_hr, false, 0, c->raw, h);
        draw = c->raw;
    }
    for (int64_t b = 0; b < rows; b++) {
        const REAL *s = p->saved + (t * rows + b) * ld;
        const REAL *old =
            i == 0 ? p->c0 + b * h
                   : p->saved + (step_at(p, i - 1) * rows + b) * ld + 4 * h;
        const REAL *d = draw + b * h;
        REAL *dc = c->dc + b * h, *g = out + b * 4 * h, *th = c->tanh_c;

        p->math->tanh(h, s + 4 * h, th);
        for (int64_t k = 0; k < h; k++) {
            const REAL in = s[k], f = s[h + k], cell = s[2 * h + k];
            const REAL o = s[3 * h + k];
            const REAL at = dc[k] + d[k] * o * (1 - th[k] * th[k]);

            g[k] = at * cell * in * (1 - in);
            g[h + k] = at * old[k] * f * (1 - f);
            g[2 * h + k] = at * in * (1 - cell * cell);
            g[3 * h + k] = d[k] * th[k] * o * (1 - o);
            dc[k] = at * f;
        }
    }
    product(rows, r, 4 * h, out, 4 * h, p->w_hh, false, 0, c->dh, r);
}

static void gru_back(const rnn *p, int64_t i, struct RNN(carried) * c)
{
    const int64_t h = p->s.h, rows = p->s.b, t = step_at(p, i);
    const REAL *old = before(p, i);
    REAL *of_x = p->dgates + t * rows * 3 * h;
    REAL *of_h = p->dgates_h + t * rows * 3 * h;

    for (int64_t b = 0; b < rows; b++) {
        const REAL *s = p->saved + (t * rows + b) * 4 * h;
        REAL *x = of_x + b * 3 * h, *u = of_h + b * 3 * h;

        for (int64_t k = 0; k < h; k++) {
            const REAL reset = s[k], z = s[h + k], n = s[2 * h + k];
            const REAL d = c->dh[b * h + k];
            const REAL dn = d * (1 - z) * (1 - n * n);

            x[k] = u[k] = dn * s[3 * h + k] * reset * (1 - reset);
            x[h + k] = u[h + k] = d * (old[b * h + k] - n) * z * (1 - z);
            x[2 * h + k] = dn;
            u[2 * h + k] = dn * reset;
            c->dh[b * h + k] = d * z;
        }
    }
    product(rows, h, 3 * h, of_h, 3 * h, p->w_hh, false, 1, c->dh, h);
}

static void plain_back(const rnn *p, int64_t i, struct RNN(carried) * c)
{
    const int64_t h = p->s.h, rows = p->s.b, t = step_at(p, i);
    const REAL *y = p->y + t * rows * h;
    REAL *g = p->dgates + t * rows * h;

    for (int64_t k = 0; k < rows * h; k++)
        if (p->s.mode == PST_RNN_TANH)
            g[k] = c->dh[k] * (1 - y[k] * y[k]);
        else
            g[k] = y[k] > 0 ? c->dh[k] : 0;
    product(rows, h, h, g, h, p->w_hh, false, 0, c->dh, h);
}

static void start_from(int64_t n, const REAL *from, REAL *to)
{
    if (from == NULL)
        memset(to, 0, (size_t)n * sizeof(REAL));
    else
        memcpy(to, from, (size_t)n * sizeof(REAL));
}

void RNN(pst_rnn_backward)(const rnn *p)
{
    const int64_t n = p->s.b * p->s.r, m = p->s.b * p->s.h;
    struct RNN(carried)
        c = {.dh = p->dh0, .dc = p->dc0, .raw = p->room, .tanh_c = p->room + m};

    start_from(n, p->dh_n, c.dh);
    if (p->s.mode == PST_RNN_LSTM)
        start_from(m, p->dc_n, c.dc);
    for (int64_t i = p->s.t; i-- > 0;) {
        const REAL *dy = p->dy == NULL ? NULL : p->dy + step_at(p, i) * n;

        for (int64_t k = 0; dy != NULL && k < n; k++)
            c.dh[k] += dy[k];
        if (p->s.mode == PST_RNN_LSTM)
            lstm_back(p, i, &c);
        else if (p->s.mode == PST_RNN_GRU)
            gru_back(p, i, &c);
        else
            plain_back(p, i, &c);
    }
}
