// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/attention/sdpa.h"

#include <math.h>
#include <string.h>

/* --- description (shared with the fast kernels) --------------------------- */

static struct pst_sdpa_operand operand_of(const struct pst_operand *x,
                                          unsigned n_batch)
{
    struct pst_sdpa_operand f = {.x = x};
    const struct pst_meta *m = x->meta;
    const unsigned own = m->rank > 2 ? m->rank - 2 : 0;

    /* Dimensions align at the right; missing ones and those of size 1 have
     * stride 0. (A mask may have fewer dimensions.) */
    for (unsigned d = 0; d < n_batch; d++) {
        const int at = (int)d - (int)(n_batch - own);

        f.batch[d] = at < 0 || m->size[at] == 1 ? 0 : m->stride[at];
    }
    if (m->rank >= 2 && m->size[m->rank - 2] != 1)
        f.row = m->stride[m->rank - 2];
    if (m->rank >= 1 && m->size[m->rank - 1] != 1)
        f.col = m->stride[m->rank - 1];
    return f;
}

/* Arguments of the call: q, k, v, mask, dropout, causal, scale, gqa; backward
 * has grad, out and sums before them. */
void pst_sdpa_describe(const struct pst_call *c, bool backward,
                       struct pst_sdpa *ret)
{
    const unsigned first = backward ? PST_SDPA_BACKWARD : 0;
    const struct pst_operand *x = &c->in[first];
    const struct pst_arg *args = &c->args[first];
    const struct pst_meta *q = x[0].meta, *k = x[1].meta, *v = x[2].meta;
    const unsigned n = q->rank - 2;

    *ret = (struct pst_sdpa){.n_batch = n,
                             .batches = 1,
                             .l = q->size[n],
                             .e = q->size[n + 1],
                             .s = k->size[n],
                             .ev = v->size[n + 1],
                             .group = 1,
                             .dropout = args[4].f,
                             .causal = args[5].b,
                             .rng = c->rng};
    ret->scale =
        args[6].kind == PST_ARG_FLOAT ? args[6].f : 1.0 / sqrt((double)ret->e);
    for (unsigned d = 0; d < n; d++) {
        ret->batch[d] = PST_MAX(q->size[d], k->size[d]);
        if (q->size[d] == 0 || k->size[d] == 0)
            ret->batch[d] = 0;
        ret->batches *= ret->batch[d];
    }
    if (args[7].b && n > 0 && k->size[n - 1] > 0)
        ret->group = q->size[n - 1] / k->size[n - 1];
    ret->q = operand_of(&x[0], n);
    ret->k = operand_of(&x[1], n);
    ret->v = operand_of(&x[2], n);
    if (args[3].kind == PST_ARG_VALUE)
        ret->mask = operand_of(&x[3], n);
    if (!backward)
        return;
    ret->g = operand_of(&c->in[0], n);
    if (c->args[1].kind == PST_ARG_VALUE)
        ret->out = operand_of(&c->in[1], n);
    ret->sums = operand_of(&c->in[2], n);
}

int64_t pst_sdpa_offset(const struct pst_sdpa *p,
                        const struct pst_sdpa_operand *f, int64_t i,
                        bool grouped)
{
    int64_t offset = 0;

    for (unsigned d = p->n_batch; d-- > 0;) {
        int64_t at = i % p->batch[d];

        if (grouped && d + 1 == p->n_batch)
            at /= p->group;
        offset += at * f->batch[d];
        i /= p->batch[d];
    }
    return offset;
}

double pst_sdpa_keep(const struct pst_sdpa *p, int64_t i, int64_t row,
                     int64_t col)
{
    const uint64_t at = (uint64_t)((i * p->l + row) * p->s + col);

    if (p->dropout <= 0.0)
        return 1.0;
    if (p->dropout >= 1.0 || pst_rng_f32(&p->rng, at) < p->dropout)
        return 0.0;
    return 1.0 / (1.0 - p->dropout);
}

/* --- reference ---------------------------------------------------------- */

static double load(const struct pst_sdpa_operand *f, int64_t offset)
{
    if (f->x->meta->dtype == PST_F64) /* the usual case: pst_verify computes in
                                       * f64 */
        return ((const double *)f->x->data)[offset];
    return pst_load_f64(f->x->meta->dtype, f->x->data, offset);
}

/* Returns the address of the operand's elements from `offset` on if they are
 * contiguous f64, else NULL. */
static const double *contiguous_f64(const struct pst_sdpa_operand *f,
                                    int64_t offset)
{
    return f->x->meta->dtype == PST_F64 && f->col == 1
               ? (const double *)f->x->data + offset
               : NULL;
}

static double dot_lines(const double *restrict a, const double *restrict b,
                        int64_t n)
{
    double part[4] = {0.0};
    int64_t j = 0;

    for (; j + 4 <= n; j += 4)
        for (int k = 0; k < 4; k++)
            part[k] += a[j + k] * b[j + k];
    for (; j < n; j++)
        part[0] += a[j] * b[j];
    return (part[0] + part[2]) + (part[1] + part[3]);
}

/* to += by * x */
static void add_line(double *restrict to, const double *restrict x, double by,
                     int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        to[j] += by * x[j];
}

/* Returns the dot product of n elements of a and b at these offsets. */
static double dot(const struct pst_sdpa_operand *a, int64_t at_a,
                  const struct pst_sdpa_operand *b, int64_t at_b, int64_t n)
{
    const double *x = contiguous_f64(a, at_a), *y = contiguous_f64(b, at_b);
    double sum = 0.0;

    if (x != NULL && y != NULL)
        return dot_lines(x, y, n);
    for (int64_t j = 0; j < n; j++)
        sum += load(a, at_a + j * a->col) * load(b, at_b + j * b->col);
    return sum;
}

/* Returns a score, rounded to the dtype in which the row's maximum is saved:
 * otherwise a large score could exceed the saved maximum by so much that e^(s -
 * max) is infinite. */
static double compute_score(const struct pst_sdpa *p, int64_t i, int64_t row,
                            int64_t col)
{
    const bool wide = p->q.x->meta->dtype == PST_F64;
    const int64_t q = pst_sdpa_offset(p, &p->q, i, false) + row * p->q.row;
    const int64_t k = pst_sdpa_offset(p, &p->k, i, true) + col * p->k.row;
    double s, m;

    if (p->causal && col > row)
        return -INFINITY;
    s = p->scale * dot(&p->q, q, &p->k, k, p->e);
    if (p->mask.x == NULL)
        return wide ? s : (float)s;
    m = load(&p->mask, pst_sdpa_offset(p, &p->mask, i, false) +
                           row * p->mask.row + col * p->mask.col);
    if (p->mask.x->meta->dtype == PST_BOOL)
        s = m != 0.0 ? s : -INFINITY;
    else
        s += m;
    return wide ? s : (float)s;
}

/* Maximum and sum of e^(s - max) of a row of scores. */
struct row_sums {
    double max, sum;
};

/* Writes the S probabilities of query `row` of batch i, before dropout. */
static struct row_sums row_probabilities(const struct pst_sdpa *p, int64_t i,
                                         int64_t row, double *prob)
{
    struct row_sums ret = {.max = -INFINITY};

    for (int64_t j = 0; j < p->s; j++) {
        prob[j] = compute_score(p, i, row, j);
        ret.max = prob[j] > ret.max || isnan(prob[j]) ? prob[j] : ret.max;
    }
    for (int64_t j = 0; j < p->s; j++) {
        prob[j] = ret.max == -INFINITY ? 0.0 : exp(prob[j] - ret.max);
        ret.sum += prob[j];
    }
    for (int64_t j = 0; j < p->s && ret.max != -INFINITY; j++)
        prob[j] /= ret.sum;
    return ret;
}

static void row_probabilities_again(const struct pst_sdpa *p, int64_t i,
                                    int64_t row, double *prob)
{
    const int64_t at =
        pst_sdpa_offset(p, &p->sums, i, false) + row * p->sums.row;
    const struct row_sums sums = {load(&p->sums, at),
                                  load(&p->sums, at + p->sums.col)};

    for (int64_t j = 0; j < p->s; j++)
        prob[j] = sums.max == -INFINITY
                      ? 0.0
                      : exp(compute_score(p, i, row, j) - sums.max) / sums.sum;
}

/* Returns the bytes of scratch: a row of probabilities and a row of their
 * gradients; for backward also the sums of dk and dv and a row of dq. */
size_t pst_sdpa_ref_scratch(const struct pst_call *c, unsigned threads)
{
    const bool backward = c->n_in > PST_SDPA_BACKWARD + 1;
    struct pst_sdpa p;
    int64_t n;

    (void)threads;
    pst_sdpa_describe(c, backward, &p);
    n = 2 * p.s;
    if (backward)
        n += pst_meta_numel(p.k.x->meta) + pst_meta_numel(p.v.x->meta) + p.e;
    return (size_t)n * sizeof(double);
}

/* Stores a row of the result, probabilities times values, at offset `to`. */
static void store_row(const struct pst_sdpa *p, const double *prob, int64_t v,
                      struct pst_operand *out, int64_t to)
{
    if (out->meta->dtype == PST_F64 && contiguous_f64(&p->v, v) != NULL) {
        double *y = (double *)out->data + to;

        memset(y, 0, (size_t)p->ev * sizeof(double));
        for (int64_t j = 0; j < p->s; j++)
            add_line(y, contiguous_f64(&p->v, v + j * p->v.row), prob[j],
                     p->ev);
        return;
    }
    for (int64_t d = 0; d < p->ev; d++) {
        double sum = 0.0;

        for (int64_t j = 0; j < p->s; j++)
            sum += prob[j] * load(&p->v, v + j * p->v.row + d * p->v.col);
        pst_store_f64(out->meta->dtype, out->data, to + d, sum);
    }
}

static void store_sums(const struct pst_operand *out, int64_t row,
                       struct row_sums sums)
{
    pst_store_f64(out->meta->dtype, out->data, 2 * row, sums.max);
    pst_store_f64(out->meta->dtype, out->data, 2 * row + 1, sums.sum);
}

void pst_sdpa_no_keys(const struct pst_call *c)
{
    const struct row_sums none = {.max = -INFINITY};

    memset(c->out[0].data, 0, pst_meta_bytes(c->out[0].meta));
    for (int64_t row = 0;
         c->n_out == 2 && row < pst_meta_numel(c->out[1].meta) / 2; row++)
        store_sums(&c->out[1], row, none);
}

void pst_sdpa_ref(const struct pst_call *c)
{
    struct pst_operand *out = &c->out[0];
    double *prob = c->scratch;
    struct pst_sdpa p;

    pst_sdpa_describe(c, false, &p);
    for (int64_t i = 0; i < p.batches; i++) {
        const int64_t v = pst_sdpa_offset(&p, &p.v, i, true);

        for (int64_t row = 0; row < p.l; row++) {
            const struct row_sums sums = row_probabilities(&p, i, row, prob);

            if (c->n_out == 2)
                store_sums(&c->out[1], i * p.l + row, sums);
            for (int64_t j = 0; j < p.s; j++)
                prob[j] *= pst_sdpa_keep(&p, i, row, j);
            store_row(&p, prob, v, out, (i * p.l + row) * p.ev);
        }
    }
}

/* Writes the probabilities to prob, and ds = p (dp - sum(p dp)) with dp = keep
 * * (g v^T), where keep is the factor of dropout (pst_sdpa_keep). */
static void row_backward(const struct pst_sdpa *p, int64_t i, int64_t row,
                         double *prob, double *ds)
{
    const int64_t g = pst_sdpa_offset(p, &p->g, i, false) + row * p->g.row;
    const int64_t v = pst_sdpa_offset(p, &p->v, i, true);
    double sum = 0.0;

    row_probabilities_again(p, i, row, prob);
    for (int64_t j = 0; j < p->s; j++) {
        ds[j] = 0.0;
        if (prob[j] != 0.0)
            ds[j] = pst_sdpa_keep(p, i, row, j) *
                    dot(&p->g, g, &p->v, v + j * p->v.row, p->ev);
        sum += prob[j] * ds[j];
    }
    for (int64_t j = 0; j < p->s; j++)
        ds[j] = prob[j] * (ds[j] - sum);
}

/* Returns the offset of batch i in the contiguous gradient of k or v. */
static int64_t dense_offset(const struct pst_sdpa *p,
                            const struct pst_meta *like, int64_t i)
{
    struct pst_meta dense = *like;
    const struct pst_operand x = {.meta = &dense};
    struct pst_sdpa_operand f;

    pst_meta_set_contiguous(&dense);
    f = operand_of(&x, p->n_batch);
    return pst_sdpa_offset(p, &f, i, true);
}

struct sums {
    double *prob, *ds, *dk, *dv, *dq;
};

/* Adds one row's contribution to dk and dv, and computes its whole dq. */
static void add_row(const struct pst_sdpa *p, const struct sums *to, int64_t i,
                    int64_t row, int64_t dk, int64_t dv)
{
    const int64_t q = pst_sdpa_offset(p, &p->q, i, false) + row * p->q.row;
    const int64_t k = pst_sdpa_offset(p, &p->k, i, true);
    const int64_t g = pst_sdpa_offset(p, &p->g, i, false) + row * p->g.row;

    const bool lines = contiguous_f64(&p->q, q) != NULL &&
                       contiguous_f64(&p->k, k) != NULL &&
                       contiguous_f64(&p->g, g) != NULL;

    for (int64_t d = 0; d < p->e; d++)
        to->dq[d] = 0.0;
    for (int64_t j = 0; j < p->s; j++) {
        const double ds = p->scale * to->ds[j];
        const double keep = to->prob[j] * pst_sdpa_keep(p, i, row, j);

        if (lines) {
            if (ds != 0.0) {
                add_line(to->dq, contiguous_f64(&p->k, k + j * p->k.row), ds,
                         p->e);
                add_line(to->dk + dk + j * p->e, contiguous_f64(&p->q, q), ds,
                         p->e);
            }
            if (keep != 0.0)
                add_line(to->dv + dv + j * p->ev, contiguous_f64(&p->g, g),
                         keep, p->ev);
            continue;
        }
        for (int64_t d = 0; d < p->e && ds != 0.0; d++) {
            to->dq[d] += ds * load(&p->k, k + j * p->k.row + d * p->k.col);
            to->dk[dk + j * p->e + d] += ds * load(&p->q, q + d * p->q.col);
        }
        for (int64_t d = 0; d < p->ev && keep != 0.0; d++)
            to->dv[dv + j * p->ev + d] += keep * load(&p->g, g + d * p->g.col);
    }
}

enum pst_form pst_sdpa_backward_form(const struct pst_call *c, unsigned i)
{
    (void)c;
    return i == 1 ? PST_FORM_NONE : PST_FORM_OWN;
}

/* Writes dq, dk, dv and, if there is a fourth output, ds. */
void pst_sdpa_backward_ref(const struct pst_call *c)
{
    struct pst_operand *out = c->out;
    const int64_t n_k = pst_meta_numel(out[1].meta);
    const int64_t n_v = pst_meta_numel(out[2].meta);
    struct pst_sdpa p;
    struct sums to;

    pst_sdpa_describe(c, true, &p);
    to.prob = c->scratch;
    to.ds = to.prob + p.s;
    to.dq = to.ds + p.s;
    to.dk = to.dq + p.e;
    to.dv = to.dk + n_k;
    for (int64_t j = 0; j < n_k + n_v; j++)
        to.dk[j] = 0.0;
    for (int64_t i = 0; i < p.batches; i++) {
        const int64_t dk = dense_offset(&p, out[1].meta, i);
        const int64_t dv = dense_offset(&p, out[2].meta, i);

        for (int64_t row = 0; row < p.l; row++) {
            row_backward(&p, i, row, to.prob, to.ds);
            add_row(&p, &to, i, row, dk, dv);
            for (int64_t d = 0; d < p.e; d++)
                pst_store_f64(out[0].meta->dtype, out[0].data,
                              (i * p.l + row) * p.e + d, to.dq[d]);
            for (int64_t j = 0; c->n_out == 4 && j < p.s; j++)
                pst_store_f64(out[3].meta->dtype, out[3].data,
                              (i * p.l + row) * p.s + j, to.ds[j]);
        }
    }
    for (int64_t j = 0; j < n_k; j++)
        pst_store_f64(out[1].meta->dtype, out[1].data, j, to.dk[j]);
    for (int64_t j = 0; j < n_v; j++)
        pst_store_f64(out[2].meta->dtype, out[2].data, j, to.dv[j]);
}
