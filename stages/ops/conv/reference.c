// SPDX-License-Identifier: Apache-2.0
/* Convolutions computed in the formula's order, with sums in double. */
#include "stages/ops/conv/conv.h"

/* An operand with its strides: two leading dimensions and three spatial ones,
 * whatever its rank. */
struct view {
    const struct pst_operand *of;
    int64_t stride[2 + PST_CONV_DIMS];
};

static struct view view_of(const struct pst_operand *of, unsigned dims)
{
    struct view v = {.of = of};

    v.stride[0] = of->meta->stride[0];
    v.stride[1] = of->meta->stride[1];
    for (unsigned d = 0; d < dims; d++)
        v.stride[2 + PST_CONV_DIMS - dims + d] = of->meta->stride[2 + d];
    return v;
}

static int64_t offset_of(const struct view *v, int64_t a, int64_t b,
                         const int64_t at[PST_CONV_DIMS])
{
    return a * v->stride[0] + b * v->stride[1] + at[0] * v->stride[2] +
           at[1] * v->stride[3] + at[2] * v->stride[4];
}

static double load(const struct view *v, int64_t a, int64_t b,
                   const int64_t at[PST_CONV_DIMS])
{
    return pst_load_f64(v->of->meta->dtype, v->of->data,
                        offset_of(v, a, b, at));
}

static void store(const struct pst_conv *c, const struct view *v, int64_t a,
                  int64_t b, const int64_t at[PST_CONV_DIMS], double sum)
{
    if (c->accumulate)
        sum += load(v, a, b, at);
    pst_store_f64(v->of->meta->dtype, v->of->data, offset_of(v, a, b, at), sum);
}

static double bias_of(const struct pst_conv *c, int64_t channel)
{
    if (c->bias == NULL || c->bias->data == NULL)
        return 0.0;
    return pst_load_f64(c->bias->meta->dtype, c->bias->data,
                        channel * c->bias->meta->stride[0]);
}

/* Advances to the next index in row-major order; false after the last one. */
static bool next_index(const int64_t size[PST_CONV_DIMS],
                       int64_t at[PST_CONV_DIMS])
{
    for (unsigned d = PST_CONV_DIMS; d-- > 0;) {
        if (++at[d] < size[d])
            return true;
        at[d] = 0;
    }
    return false;
}

/* Finds the element of x that window element k reads for position p. Returns
 * false if that lies in the padding. */
static bool find_source(const struct pst_conv *c,
                        const int64_t p[PST_CONV_DIMS],
                        const int64_t k[PST_CONV_DIMS],
                        int64_t ret[PST_CONV_DIMS])
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        ret[d] = p[d] * c->stride[d] - c->pad[d] + k[d] * c->dil[d];
        if (ret[d] < 0 || ret[d] >= c->in[d])
            return false;
    }
    return true;
}

/* Finds the position of y whose window element k reads element q of x. Returns
 * false if there is none. */
static bool find_target(const struct pst_conv *c,
                        const int64_t q[PST_CONV_DIMS],
                        const int64_t k[PST_CONV_DIMS],
                        int64_t ret[PST_CONV_DIMS])
{
    for (unsigned d = 0; d < PST_CONV_DIMS; d++) {
        const int64_t at = q[d] + c->pad[d] - k[d] * c->dil[d];

        ret[d] = at / c->stride[d];
        if (at < 0 || at % c->stride[d] != 0 || ret[d] >= c->out[d])
            return false;
    }
    return true;
}

static double sum_y(const struct pst_conv *c, const struct view *x,
                    const struct view *w, int64_t n, int64_t o,
                    const int64_t p[PST_CONV_DIMS])
{
    const int64_t per = c->ci / c->groups;
    const int64_t first = o / (c->co / c->groups) * per;
    double sum = 0.0;

    for (int64_t i = 0; i < per; i++) {
        int64_t k[PST_CONV_DIMS] = {0}, q[PST_CONV_DIMS];

        do {
            if (find_source(c, p, k, q))
                sum += load(x, n, first + i, q) * load(w, o, i, k);
        } while (next_index(c->k, k));
    }
    return sum;
}

void pst_conv_ref_y(const struct pst_conv *c)
{
    const struct view x = view_of(c->x, c->dims), y = view_of(c->y, c->dims),
                      w = view_of(c->w, c->dims);

    for (int64_t n = 0; n < c->n; n++)
        for (int64_t o = 0; o < c->co; o++) {
            int64_t p[PST_CONV_DIMS] = {0};

            do
                store(c, &y, n, o, p,
                      sum_y(c, &x, &w, n, o, p) + bias_of(c, o));
            while (next_index(c->out, p));
        }
}

static double sum_x(const struct pst_conv *c, const struct view *y,
                    const struct view *w, int64_t n, int64_t i,
                    const int64_t q[PST_CONV_DIMS])
{
    const int64_t per = c->co / c->groups, ci = c->ci / c->groups;
    double sum = 0.0;

    for (int64_t o = i / ci * per; o < (i / ci + 1) * per; o++) {
        int64_t k[PST_CONV_DIMS] = {0}, p[PST_CONV_DIMS];

        do {
            if (find_target(c, q, k, p))
                sum += load(y, n, o, p) * load(w, o, i % ci, k);
        } while (next_index(c->k, k));
    }
    return sum;
}

void pst_conv_ref_x(const struct pst_conv *c)
{
    const struct view x = view_of(c->x, c->dims), y = view_of(c->y, c->dims),
                      w = view_of(c->w, c->dims);

    for (int64_t n = 0; n < c->n; n++)
        for (int64_t i = 0; i < c->ci; i++) {
            int64_t q[PST_CONV_DIMS] = {0};

            do
                store(c, &x, n, i, q,
                      sum_x(c, &y, &w, n, i, q) + bias_of(c, i));
            while (next_index(c->in, q));
        }
}

static double sum_w(const struct pst_conv *c, const struct view *x,
                    const struct view *y, int64_t o, int64_t i,
                    const int64_t k[PST_CONV_DIMS])
{
    const int64_t ci = c->ci / c->groups;
    const int64_t from = o / (c->co / c->groups) * ci + i;
    double sum = 0.0;

    for (int64_t n = 0; n < c->n; n++) {
        int64_t p[PST_CONV_DIMS] = {0}, q[PST_CONV_DIMS];

        do {
            if (find_source(c, p, k, q))
                sum += load(x, n, from, q) * load(y, n, o, p);
        } while (next_index(c->out, p));
    }
    return sum;
}

void pst_conv_ref_w(const struct pst_conv *c)
{
    const struct view x = view_of(c->x, c->dims), y = view_of(c->y, c->dims),
                      w = view_of(c->w, c->dims);

    for (int64_t o = 0; o < c->co; o++)
        for (int64_t i = 0; i < c->ci / c->groups; i++) {
            int64_t k[PST_CONV_DIMS] = {0};

            do
                store(c, &w, o, i, k, sum_w(c, &x, &y, o, i, k));
            while (next_index(c->k, k));
        }
}
