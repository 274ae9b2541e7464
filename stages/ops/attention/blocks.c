// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/attention/sdpa.h"

#include "stages/ops/matmul/gemm.h"

#include <math.h>
#include <string.h>

/*
 * f32 attention in blocks of query rows: the scores of a block are a product
 * into scratch, which stays in the cache for the softmax and the product with
 * v. Causal blocks stop at their last row's diagonal. Operands are read where
 * they lie, rows at any stride.
 */
#define ROWS 64

/* --- which calls -------------------------------------------------------- */

static bool rows_fit(const struct pst_sdpa_factor *f, int64_t rows,
                     int64_t cols)
{
    return (f->col == 1 || cols == 1) && (rows == 1 || f->row >= cols);
}

static bool fits(const struct pst_sdpa *p)
{
    const struct pst_operand *m = p->mask.x;

    for (unsigned d = 0; d < p->n_batch; d++) {
        const int64_t kv = p->k.x->meta.size[d];

        /* Broadcast keys would need their gradients summed over batches. */
        if (kv != p->batch[d] && !(d + 1 == p->n_batch && p->group > 1))
            return false;
    }
    return rows_fit(&p->q, p->l, p->e) && rows_fit(&p->k, p->s, p->e) &&
           rows_fit(&p->v, p->s, p->ev) && p->e > 0 && p->ev > 0 &&
           (m == NULL || m->meta.dtype == PST_BOOL || m->meta.dtype == PST_F32);
}

bool pst_sdpa_fits(const struct pst_call *c)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, 0, &p);
    return fits(&p);
}

bool pst_sdpa_backward_fits(const struct pst_call *c)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, 1, &p);
    return fits(&p) && rows_fit(&p.g, p.l, p.ev) &&
           c->in[0].meta.dtype == PST_F32;
}

/* Floats from one row of scores to the next: room for whole lanes, and never a
 * power of 2, so that the rows of a column do not share a cache set. */
static int64_t row_length(const struct pst_sdpa *p)
{
    return (p->s / PST_SDPA_PAD * 2 + 3) * PST_SDPA_PAD / 2;
}

/* Floats of scratch of one thread, a multiple of a cache line: blocks of
 * scores, and for backward of their gradients and of dropped-out ones. */
static int64_t thread_scratch(const struct pst_sdpa *p, bool backward)
{
    const int64_t blocks = backward ? 2 + (p->dropout > 0.0) : 1;

    return blocks * PST_MIN(p->l, ROWS) * row_length(p);
}

size_t pst_sdpa_scratch(const struct pst_call *c, unsigned threads)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, 0, &p);
    return (size_t)(threads * thread_scratch(&p, false)) * sizeof(float);
}

size_t pst_sdpa_backward_scratch(const struct pst_call *c, unsigned threads)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, 1, &p);
    return (size_t)(threads * thread_scratch(&p, true)) * sizeof(float);
}

/* --- pieces ------------------------------------------------------------- */

static void gemm(bool ta, bool tb, const int64_t mnk[3], float alpha,
                 const float *a, int64_t lda, const float *b, int64_t ldb,
                 float beta, float *c, int64_t ldc)
{
    const struct pst_gemm g = {ta,  tb,  mnk[0], mnk[1], mnk[2],
                               lda, ldb, ldc,    alpha,  beta};

    if (pst_gemm_likes_dnnl(ta, tb, mnk[0], mnk[1], mnk[2]))
        pst_gemm_f32_dnnl(&g, a, b, c);
    else
        pst_gemm_f32(&g, a, b, c);
}

/* Query rows [first, first + rows) of batch i; cols: keys that any of them
 * may see. */
struct block {
    int64_t i, first, rows, cols;
};

static int64_t visible(const struct pst_sdpa *p, int64_t row)
{
    return p->causal ? PST_MIN(row + 1, p->s) : p->s;
}

static void add_mask(const struct pst_sdpa *p, const struct block *b,
                     int64_t row, int64_t n, float *score)
{
    const int64_t at = pst_sdpa_offset(p, &p->mask, b->i, false) +
                       (b->first + row) * p->mask.row;
    const int64_t step = p->mask.col;

    if (p->mask.x->meta.dtype == PST_BOOL) {
        const uint8_t *m = (const uint8_t *)p->mask.x->data + at;

        for (int64_t j = 0; j < n; j++)
            score[j] = m[j * step] ? score[j] : -INFINITY;
    } else {
        const float *m = (const float *)p->mask.x->data + at;

        for (int64_t j = 0; j < n; j++)
            score[j] += m[j * step];
    }
}

/* score (rows, cols) := probabilities. */
static void probabilities(const struct pst_sdpa *p,
                          const struct pst_sdpa_loops *loops,
                          const struct block *b, const float *q, const float *k,
                          float *score)
{
    const int64_t ld = row_length(p);

    gemm(false, true, (const int64_t[]){b->rows, b->cols, p->e},
         (float)p->scale, q, p->q.row, k, p->k.row, 0.0f, score, ld);
    for (int64_t r = 0; r < b->rows; r++) {
        const int64_t n = visible(p, b->first + r);

        if (p->mask.x != NULL)
            add_mask(p, b, r, n, score + r * ld);
        loops->softmax(n, b->cols, score + r * ld);
    }
}

static void drop(const struct pst_sdpa *p, const struct block *b,
                 const float *from, float *to)
{
    const int64_t ld = row_length(p);

    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t j = 0; j < b->cols; j++)
            to[r * ld + j] = from[r * ld + j] *
                             (float)pst_sdpa_keep(p, b->i, b->first + r, j);
}

static const float *at(const struct pst_sdpa *p,
                       const struct pst_sdpa_factor *f, int64_t i, bool grouped)
{
    return (const float *)f->x->data + pst_sdpa_offset(p, f, i, grouped);
}

struct job {
    const struct pst_call *c;
    const struct pst_sdpa *p;
    const struct pst_sdpa_loops *loops;
};

static void run(const struct pst_call *c, const struct pst_sdpa *p,
                pst_pool_fn fn, struct job *job)
{
    if ((double)p->batches * (double)p->l * (double)p->s < 4096.0)
        fn(job, 0, 1);
    else
        pst_pool_run(c->pool, fn, job);
}

/* --- forward ------------------------------------------------------------ */

static void forward_block(const struct job *job, const struct block *b,
                          float *score)
{
    const struct pst_sdpa *p = job->p;
    const float *q = at(p, &p->q, b->i, false) + b->first * p->q.row;
    float *out =
        (float *)job->c->out[0].data + (b->i * p->l + b->first) * p->ev;

    probabilities(p, job->loops, b, q, at(p, &p->k, b->i, true), score);
    if (p->dropout > 0.0)
        drop(p, b, score, score);
    gemm(false, false, (const int64_t[]){b->rows, p->ev, b->cols}, 1.0f, score,
         row_length(p), at(p, &p->v, b->i, true), p->v.row, 0.0f, out, p->ev);
}

static void forward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *job = ctx;
    const struct pst_sdpa *p = job->p;
    float *scratch = (float *)job->c->scratch + part * thread_scratch(p, false);
    const int64_t blocks = (p->l + ROWS - 1) / ROWS;
    int64_t begin, end;

    pst_pool_share(p->batches * blocks, 1, part, parts, &begin, &end);
    for (int64_t n = begin; n < end; n++) {
        struct block b = {.i = n / blocks, .first = n % blocks * ROWS};

        b.rows = PST_MIN(p->l - b.first, ROWS);
        b.cols = visible(p, b.first + b.rows - 1);
        forward_block(job, &b, scratch);
    }
}

void pst_sdpa_run(const struct pst_call *c, const struct pst_sdpa_loops *loops)
{
    struct pst_sdpa p;
    struct job job = {c, &p, loops};

    pst_sdpa_describe(c, 0, &p);
    if (p.s == 0)
        memset(c->out[0].data, 0, pst_meta_bytes(&c->out[0].meta));
    else if (p.l > 0)
        run(c, &p, forward_part, &job);
}

/* --- backward ----------------------------------------------------------- */

/* dq := scale ds k; dk += scale ds^T q; dv += dropout(p)^T g. */
static void backward_block(const struct job *job, const struct block *b,
                           float *scratch, float *dk, float *dv)
{
    const struct pst_sdpa *p = job->p;
    const int64_t ld = row_length(p), size = PST_MIN(p->l, ROWS) * ld;
    const float *q = at(p, &p->q, b->i, false) + b->first * p->q.row;
    const float *g = at(p, &p->g, b->i, false) + b->first * p->g.row;
    const float *k = at(p, &p->k, b->i, true), *v = at(p, &p->v, b->i, true);
    float *dq = (float *)job->c->out[0].data + (b->i * p->l + b->first) * p->e;
    float *prob = scratch, *ds = scratch + size, *kept = prob;

    probabilities(p, job->loops, b, q, k, prob);
    gemm(false, true, (const int64_t[]){b->rows, b->cols, p->ev}, 1.0f, g,
         p->g.row, v, p->v.row, 0.0f, ds, ld);
    if (p->dropout > 0.0) {
        kept = ds + size;
        drop(p, b, prob, kept);
        drop(p, b, ds, ds);
    }
    gemm(true, false, (const int64_t[]){b->cols, p->ev, b->rows}, 1.0f, kept,
         ld, g, p->g.row, 1.0f, dv, p->ev);
    for (int64_t r = 0; r < b->rows; r++)
        job->loops->backward(visible(p, b->first + r), b->cols, prob + r * ld,
                             ds + r * ld);
    gemm(false, false, (const int64_t[]){b->rows, p->e, b->cols},
         (float)p->scale, ds, ld, k, p->k.row, 0.0f, dq, p->e);
    gemm(true, false, (const int64_t[]){b->cols, p->e, b->rows},
         (float)p->scale, ds, ld, q, p->q.row, 1.0f, dk, p->e);
}

/* A part takes whole key heads with all query heads of their group. */
static void backward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *job = ctx;
    const struct pst_sdpa *p = job->p;
    float *scratch = (float *)job->c->scratch + part * thread_scratch(p, true);
    int64_t begin, end;

    pst_pool_share(p->batches / p->group, 1, part, parts, &begin, &end);
    for (int64_t n = begin; n < end; n++) {
        float *dk = (float *)job->c->out[1].data + n * p->s * p->e;
        float *dv = (float *)job->c->out[2].data + n * p->s * p->ev;

        memset(dk, 0, (size_t)(p->s * p->e) * sizeof(*dk));
        memset(dv, 0, (size_t)(p->s * p->ev) * sizeof(*dv));
        for (int64_t i = n * p->group; i < (n + 1) * p->group; i++)
            for (int64_t row = 0; row < p->l; row += ROWS) {
                struct block b = {.i = i, .first = row};

                b.rows = PST_MIN(p->l - row, ROWS);
                b.cols = visible(p, row + b.rows - 1);
                backward_block(job, &b, scratch, dk, dv);
            }
    }
}

void pst_sdpa_backward_run(const struct pst_call *c,
                           const struct pst_sdpa_loops *loops)
{
    struct pst_sdpa p;
    struct job job = {c, &p, loops};

    pst_sdpa_describe(c, 1, &p);
    if (p.s == 0)
        memset(c->out[0].data, 0, pst_meta_bytes(&c->out[0].meta));
    else
        run(c, &p, backward_part, &job);
}
