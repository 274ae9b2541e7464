// SPDX-License-Identifier: Apache-2.0
/* f64 attention, which checks of gradients use: matmuls of blocks of query rows
 * by the BLAS, softmax in between. The scores of a block stay in scratch.
 * Supports the shapes that blocks.c supports. */
#include "stages/ops/attention/sdpa.h"

#include <math.h>
#include <string.h>

#define ROWS 64 /* query rows of a block */

/* The scratch of one thread; each member holds (ROWS, s) scores. */
struct space {
    double *prob;
    double *ds;   /* backward only */
    double *kept; /* probabilities after dropout; backward with dropout only */
};

static int64_t block_size(const struct pst_sdpa *p)
{
    return PST_MIN(p->l, ROWS) * p->s;
}

static size_t scratch_of(const struct pst_call *c, bool backward,
                         unsigned threads)
{
    const size_t matrices = backward ? 3 : 1;
    struct pst_sdpa p;

    pst_sdpa_describe(c, backward, &p);
    return matrices * threads * (size_t)block_size(&p) * sizeof(double);
}

size_t pst_sdpa_f64_scratch(const struct pst_call *c, unsigned threads)
{
    return scratch_of(c, false, threads);
}

size_t pst_sdpa_backward_f64_scratch(const struct pst_call *c, unsigned threads)
{
    return scratch_of(c, true, threads);
}

/* Query rows [first, first + rows) of batch i; cols: keys [0, cols) include
 * every key that one of these rows may see. */
struct block {
    int64_t i, first, rows, cols;
};

static struct block block_at(const struct pst_sdpa *p, int64_t i, int64_t first)
{
    struct block b = {.i = i, .first = first};

    b.rows = PST_MIN(p->l - first, ROWS);
    b.cols = p->causal ? PST_MIN(first + b.rows, p->s) : p->s;
    return b;
}

/* Returns the address of row `first` of batch i of an operand. */
static const double *operand_at(const struct pst_sdpa *p,
                                const struct pst_sdpa_operand *f, int64_t i,
                                bool grouped, int64_t first)
{
    return (const double *)f->x->data + pst_sdpa_offset(p, f, i, grouped) +
           first * f->row;
}

static int64_t mask_at(const struct pst_sdpa *p, const struct block *b,
                       int64_t row)
{
    return pst_sdpa_offset(p, &p->mask, b->i, false) +
           (b->first + row) * p->mask.row;
}

static void add_mask(const struct pst_sdpa *p, const struct block *b,
                     int64_t row, double *score)
{
    const int64_t from = mask_at(p, b, row), step = p->mask.col;

    if (p->mask.x->meta->dtype == PST_BOOL) {
        const uint8_t *m = (const uint8_t *)p->mask.x->data + from;

        for (int64_t j = 0; j < b->cols; j++)
            score[j] = m[j * step] ? score[j] : -INFINITY;
    } else {
        const double *m = (const double *)p->mask.x->data + from;

        for (int64_t j = 0; j < b->cols; j++)
            score[j] += m[j * step];
    }
}

/* Replaces the scores of a row by their softmax. If `given`, reads the row's
 * maximum and its sum of e^(x - maximum) from `sums`; else writes them there,
 * unless `sums` is NULL. */
static void softmax(int64_t n, bool given, double *sums, double *x)
{
    double max = -INFINITY, sum = 0.0;

    for (int64_t j = 0; !given && j < n; j++)
        max = x[j] > max || isnan(x[j]) ? x[j] : max;
    if (given)
        max = sums[0];
    for (int64_t j = 0; j < n; j++) {
        x[j] = max == -INFINITY ? 0.0 : exp(x[j] - max);
        sum += x[j];
    }
    if (given)
        sum = sums[1];
    for (int64_t j = 0; max != -INFINITY && j < n; j++)
        x[j] /= sum;
    if (given || sums == NULL)
        return;
    sums[0] = max;
    sums[1] = sum;
}

struct job {
    const struct pst_call *c;
    const struct pst_sdpa *p;
    double *sums; /* maxima and sums of all query rows; NULL: not kept */
    bool given;   /* the sums are read, not written */
};

/* prob (rows, s) = softmax(scale q k^T + mask) */
static void compute_probabilities(const struct job *job, const struct block *b,
                                  double *prob)
{
    const struct pst_sdpa *p = job->p;
    double *sums =
        job->sums == NULL ? NULL : job->sums + (b->i * p->l + b->first) * 2;
    const struct pst_gemm g = {.tb = true,
                               .m = b->rows,
                               .n = b->cols,
                               .k = p->e,
                               .lda = p->q.row,
                               .ldb = p->k.row,
                               .ldc = p->s,
                               .alpha = p->scale};

    pst_gemm_f64(&g, operand_at(p, &p->q, b->i, false, b->first),
                 operand_at(p, &p->k, b->i, true, 0), prob);
    for (int64_t row = 0; row < b->rows; row++) {
        double *x = prob + row * p->s;

        for (int64_t j = b->first + row + 1; p->causal && j < b->cols; j++)
            x[j] = -INFINITY;
        if (p->mask.x != NULL)
            add_mask(p, b, row, x);
        softmax(b->cols, job->given, sums == NULL ? NULL : sums + 2 * row, x);
    }
}

static void apply_dropout(const struct pst_sdpa *p, const struct block *b,
                          const double *from, double *to)
{
    for (int64_t row = 0; row < b->rows; row++)
        for (int64_t j = 0; j < b->cols; j++)
            to[row * p->s + j] = from[row * p->s + j] *
                                 pst_sdpa_keep(p, b->i, b->first + row, j);
}

/* to (rows, width) = alpha * score (rows, cols) * x (cols, width) */
static void multiply_rows(const struct pst_sdpa *p, const struct block *b,
                          const double *score, const struct pst_sdpa_operand *x,
                          int64_t width, double alpha, double *to)
{
    const struct pst_gemm g = {.m = b->rows,
                               .n = width,
                               .k = b->cols,
                               .lda = p->s,
                               .ldb = x->row,
                               .ldc = width,
                               .alpha = alpha};

    pst_gemm_f64(&g, score, operand_at(p, x, b->i, true, 0), to);
}

/* to (cols, width) += alpha * score^T (cols, rows) * x (rows, width) */
static void add_transposed(const struct pst_sdpa *p, const struct block *b,
                           const double *score,
                           const struct pst_sdpa_operand *x, int64_t width,
                           double alpha, double *to)
{
    const struct pst_gemm g = {.ta = true,
                               .m = b->cols,
                               .n = width,
                               .k = b->rows,
                               .lda = p->s,
                               .ldb = x->row,
                               .ldc = width,
                               .alpha = alpha,
                               .beta = 1.0};

    pst_gemm_f64(&g, score, operand_at(p, x, b->i, false, b->first), to);
}

static void run_parts(struct job *job, pst_pool_fn fn)
{
    const struct pst_sdpa *p = job->p;
    const double scores = (double)p->batches * (double)p->l * (double)p->s;

    pst_pool_run(pst_pool_if(job->c->pool, scores >= 4096.0), fn, job);
}

/* --- forward -------------------------------------------------------------- */

static void forward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *job = ctx;
    const struct pst_sdpa *p = job->p;
    const int64_t blocks = (p->l + ROWS - 1) / ROWS;
    double *prob = (double *)job->c->scratch + part * block_size(p);
    int64_t begin, end;

    pst_pool_share(p->batches * blocks, 1, part, parts, &begin, &end);
    for (int64_t n = begin; n < end; n++) {
        const struct block b = block_at(p, n / blocks, n % blocks * ROWS);

        compute_probabilities(job, &b, prob);
        if (p->dropout > 0.0)
            apply_dropout(p, &b, prob, prob);
        multiply_rows(p, &b, prob, &p->v, p->ev, 1.0,
                      (double *)job->c->out[0].data +
                          (b.i * p->l + b.first) * p->ev);
    }
}

void pst_sdpa_f64(const struct pst_call *c)
{
    struct pst_sdpa p;
    struct job job = {.c = c, .p = &p};

    pst_sdpa_describe(c, false, &p);
    if (c->n_out == 2)
        job.sums = c->out[1].data;
    if (p.s == 0)
        pst_sdpa_no_keys(c);
    else if (p.l > 0)
        run_parts(&job, forward_part);
}

/* --- backward ------------------------------------------------------------- */

/* ds := prob * (ds - sum(prob * ds)), by rows */
static void softmax_backward(const struct pst_sdpa *p, const struct block *b,
                             const struct space *s)
{
    for (int64_t row = 0; row < b->rows; row++) {
        const double *prob = s->prob + row * p->s;
        double *ds = s->ds + row * p->s, sum = 0.0;

        for (int64_t j = 0; j < b->cols; j++)
            sum += prob[j] * ds[j];
        for (int64_t j = 0; j < b->cols; j++)
            ds[j] = prob[j] * (ds[j] - sum);
    }
}

/* Stores ds, the gradient of the mask, with zeros for keys that the block does
 * not see. */
static void store_scores(const struct job *job, const struct block *b,
                         const double *ds)
{
    const int64_t s = job->p->s;
    double *to =
        (double *)job->c->out[3].data + (b->i * job->p->l + b->first) * s;

    for (int64_t row = 0; row < b->rows; row++, to += s) {
        memcpy(to, ds + row * s, (size_t)b->cols * sizeof(*to));
        memset(to + b->cols, 0, (size_t)(s - b->cols) * sizeof(*to));
    }
}

/* dq = scale ds k; dk += scale ds^T q; dv += dropout(p)^T g */
static void backward_block(const struct job *job, const struct block *b,
                           const struct space *s, double *dk, double *dv)
{
    const struct pst_sdpa *p = job->p;
    const struct pst_gemm g = {.tb = true,
                               .m = b->rows,
                               .n = b->cols,
                               .k = p->ev,
                               .lda = p->g.row,
                               .ldb = p->v.row,
                               .ldc = p->s,
                               .alpha = 1.0};
    const double *kept = s->prob;

    compute_probabilities(job, b, s->prob);
    pst_gemm_f64(&g, operand_at(p, &p->g, b->i, false, b->first),
                 operand_at(p, &p->v, b->i, true, 0), s->ds);
    if (p->dropout > 0.0) {
        kept = s->kept;
        apply_dropout(p, b, s->prob, s->kept);
        apply_dropout(p, b, s->ds, s->ds);
    }
    add_transposed(p, b, kept, &p->g, p->ev, 1.0, dv);
    softmax_backward(p, b, s);
    if (job->c->n_out == 4)
        store_scores(job, b, s->ds);
    multiply_rows(p, b, s->ds, &p->k, p->e, p->scale,
                  (double *)job->c->out[0].data +
                      (b->i * p->l + b->first) * p->e);
    add_transposed(p, b, s->ds, &p->q, p->e, p->scale, dk);
}

/* Pool function: computes the gradients of a share of the key heads, each with
 * all query heads of its group. */
static void backward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *job = ctx;
    const struct pst_sdpa *p = job->p;
    const int64_t size = block_size(p);
    struct space s = {.prob = (double *)job->c->scratch + 3 * part * size};
    int64_t begin, end;

    s.ds = s.prob + size;
    s.kept = s.ds + size;
    pst_pool_share(p->batches / p->group, 1, part, parts, &begin, &end);
    for (int64_t n = begin; n < end; n++) {
        double *dk = (double *)job->c->out[1].data + n * p->s * p->e;
        double *dv = (double *)job->c->out[2].data + n * p->s * p->ev;

        memset(dk, 0, (size_t)(p->s * p->e) * sizeof(*dk));
        memset(dv, 0, (size_t)(p->s * p->ev) * sizeof(*dv));
        for (int64_t i = n * p->group; i < (n + 1) * p->group; i++)
            for (int64_t row = 0; row < p->l; row += ROWS) {
                const struct block b = block_at(p, i, row);

                backward_block(job, &b, &s, dk, dv);
            }
    }
}

void pst_sdpa_backward_f64(const struct pst_call *c)
{
    struct pst_sdpa p;
    struct job job = {.c = c, .p = &p, .sums = c->in[2].data, .given = true};

    pst_sdpa_describe(c, true, &p);
    if (p.s == 0)
        memset(c->out[0].data, 0, pst_meta_bytes(c->out[0].meta));
    else
        run_parts(&job, backward_part);
}
