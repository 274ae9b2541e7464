// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/attention/sdpa.h"

#include <math.h>
#include <string.h>

/* f32 attention in blocks of query rows: the scores of a block stay in the
 * cache for the softmax and the matmul with v. Tiles above the diagonal of a
 * causal problem are skipped. The keys of a head (for backward also the values)
 * are transposed into scratch once; other operands are read in place. With few
 * queries (decoding a token) nothing is transposed: each key is read only once.
 *
 * A block skips the keys before the first and after the last key that the mask
 * allows for any of its rows, so packed documents (a block-diagonal mask) cost
 * the same as separate documents. Only false or -inf in a mask hides a key: its
 * weight is then exactly 0, and skipping it does not change the bits of the
 * result. A large negative number hides no key: a row whose keys all have that
 * number attends to all of them. */
#define ROWS 64 /* query rows of a block; a multiple of PST_TILE_M */
#define FEW  4  /* up to this many queries, keys are not transposed */

/* --- supported calls ---------------------------------------------------- */

static bool rows_fit(const struct pst_sdpa_operand *f, int64_t rows,
                     int64_t cols)
{
    return (f->col == 1 || cols == 1) && (rows == 1 || f->row >= cols);
}

static bool fits(const struct pst_sdpa *p)
{
    const struct pst_operand *m = p->mask.x;

    for (unsigned d = 0; d < p->n_batch; d++) {
        const int64_t kv = p->k.x->meta->size[d];

        /* Not supported: gradients of broadcast keys must be summed over
         * batches. */
        if (kv != p->batch[d] && !(d + 1 == p->n_batch && p->group > 1))
            return false;
    }
    return rows_fit(&p->q, p->l, p->e) && rows_fit(&p->k, p->s, p->e) &&
           rows_fit(&p->v, p->s, p->ev) && p->e > 0 && p->ev > 0 &&
           (m == NULL || m->meta->dtype == PST_BOOL ||
            m->meta->dtype == p->q.x->meta->dtype);
}

bool pst_sdpa_fits(const struct pst_call *c)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, false, &p);
    return fits(&p);
}

bool pst_sdpa_backward_fits(const struct pst_call *c)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, true, &p);
    return fits(&p) && rows_fit(&p.g, p.l, p.ev) &&
           c->in[0].meta->dtype == p.q.x->meta->dtype &&
           pst_meta_is_contiguous(p.sums.x->meta);
}

/* Returns the row stride of scores in floats: it holds whole vectors, and is
 * never a power of 2, so that the elements of a column do not share a cache
 * set. */
static int64_t row_length(const struct pst_sdpa *p)
{
    return (p->s / PST_SDPA_PAD * 2 + 3) * PST_SDPA_PAD / 2;
}

/* The scratch of one thread. */
struct sdpa_scratch {
    float *kt, *vt; /* (e, ld), (ev, ld): keys, values transposed */
    /* (s, e), (s, ev): dense copies of operands whose rows have gaps */
    float *k, *v;
    float *q, *g;            /* (ROWS, e), (ROWS, ev): dense rows of a block */
    float *prob, *ds, *kept; /* (ROWS, ld): probabilities, the gradients of the
                                scores, probabilities after dropout */
    int64_t ld;
};

/* Divides a thread's scratch at `base` among the members of *r; if base is
 * NULL, sets only r->ld. Returns the scratch's size in floats, a multiple of a
 * cache line. */
static int64_t divide_scratch(const struct pst_sdpa *p, bool backward,
                              float *base, struct sdpa_scratch *r)
{
    const int64_t block = PST_MIN(p->l, ROWS) * row_length(p);
    int64_t n = 0;

    *r = (struct sdpa_scratch){.ld = row_length(p)};
#define TAKE(member, count)                                                    \
    do {                                                                       \
        if (base != NULL)                                                      \
            r->member = base + n;                                              \
        n += ((count) + 15) / 16 * 16;                                         \
    } while (0)
    TAKE(kt, p->e * r->ld);
    TAKE(prob, block);
    if (backward) {
        TAKE(vt, p->ev * r->ld);
        TAKE(k, p->s * p->e);
        TAKE(q, PST_MIN(p->l, ROWS) * p->e);
        TAKE(g, PST_MIN(p->l, ROWS) * p->ev);
        TAKE(ds, block);
        if (p->dropout > 0.0)
            TAKE(kept, block);
    } else {
        TAKE(v, p->s * p->ev);
    }
#undef TAKE
    return n;
}

static int64_t thread_scratch(const struct pst_sdpa *p, bool backward)
{
    struct sdpa_scratch r;

    return divide_scratch(p, backward, NULL, &r);
}

size_t pst_sdpa_scratch(const struct pst_call *c, unsigned threads)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, false, &p);
    return (size_t)(threads * thread_scratch(&p, false)) * sizeof(float);
}

size_t pst_sdpa_backward_scratch(const struct pst_call *c, unsigned threads)
{
    struct pst_sdpa p;

    pst_sdpa_describe(c, true, &p);
    return (size_t)(threads * thread_scratch(&p, true)) * sizeof(float);
}

/* --- steps -------------------------------------------------------------- */

/* Query rows [first, first + rows) of batch i, and keys [begin, begin + cols),
 * which include every key that one of these rows may see. Both ends are
 * multiples of PST_SDPA_PAD, except that the range may end at the last key.
 * Vectors then hold the same keys as if no key were skipped, and the bits are
 * the same. */
struct block {
    int64_t i, first, rows, begin, cols;
};

static int64_t count_visible(const struct pst_sdpa *p, int64_t row)
{
    return p->causal ? PST_MIN(row + 1, p->s) : p->s;
}

static int64_t mask_row(const struct pst_sdpa *p, const struct block *b,
                        int64_t row)
{
    return pst_sdpa_offset(p, &p->mask, b->i, false) +
           (b->first + row) * p->mask.row;
}

/* Widens the range of keys [*begin, *end) (empty if begin >= end) to include
 * all keys that one more row sees. hidden(j) is true if the row does not see
 * key j; n: number of keys. */
#define WIDEN(hidden)                                                          \
    do {                                                                       \
        int64_t j = 0, k = n;                                                  \
                                                                               \
        while (j < *begin && (hidden(j)))                                      \
            j++;                                                               \
        while (k > *end && (hidden(k - 1)))                                    \
            k--;                                                               \
        *begin = j;                                                            \
        *end = k;                                                              \
    } while (0)

static void widen_to_row(const struct pst_sdpa *p, int64_t at, int64_t n,
                         int64_t *begin, int64_t *end)
{
    const int64_t step = p->mask.col;

    if (p->mask.x->meta->dtype == PST_BOOL) {
        const uint8_t *m = (const uint8_t *)p->mask.x->data + at;

#define HIDDEN(j) m[(j)*step] == 0
        WIDEN(HIDDEN);
#undef HIDDEN
    } else {
        const float *m = (const float *)p->mask.x->data + at;

#define HIDDEN(j) m[(j)*step] == -INFINITY
        WIDEN(HIDDEN);
#undef HIDDEN
    }
}
#undef WIDEN

struct job {
    const struct pst_call *c;
    const struct pst_sdpa *p;
    const struct pst_sdpa_loops *loops;
    float *sums; /* maxima and sums of all query rows; NULL: not kept */
    bool given;  /* the sums are read, not written */
};

/* Sets b->begin and b->cols, the range of keys of a block; at least one key.
 * all: includes keys that the mask hides. */
static void find_keys(const struct pst_sdpa *p, bool all, struct block *b)
{
    const int64_t n = count_visible(p, b->first + b->rows - 1);
    const int64_t rows = p->mask.x != NULL && p->mask.row == 0 ? 1 : b->rows;
    int64_t begin = n, end = 0;

    b->begin = 0;
    b->cols = n;
    if (all || p->mask.x == NULL)
        return;
    for (int64_t i = 0; i < rows && (begin > 0 || end < n); i++)
        widen_to_row(p, mask_row(p, b, i), n, &begin, &end);
    /* The tiles of a causal problem assume that the range begins at key 0. */
    if (!p->causal && begin < end)
        b->begin = begin / PST_SDPA_PAD * PST_SDPA_PAD;
    end = (PST_MAX(end, 1) + PST_SDPA_PAD - 1) / PST_SDPA_PAD * PST_SDPA_PAD;
    b->cols = PST_MIN(end, n) - b->begin;
}

static void add_mask(const struct pst_sdpa *p, const struct block *b,
                     int64_t row, int64_t n, float *score)
{
    const int64_t step = p->mask.col;
    const int64_t at = mask_row(p, b, row) + b->begin * step;

    if (p->mask.x->meta->dtype == PST_BOOL) {
        const uint8_t *m = (const uint8_t *)p->mask.x->data + at;

        for (int64_t j = 0; j < n; j++)
            score[j] = m[j * step] ? score[j] : -INFINITY;
    } else {
        const float *m = (const float *)p->mask.x->data + at;

        for (int64_t j = 0; j < n; j++)
            score[j] += m[j * step];
    }
}

static const float *operand_at(const struct pst_sdpa *p,
                               const struct pst_sdpa_operand *f, int64_t i,
                               bool grouped)
{
    return (const float *)f->x->data + pst_sdpa_offset(p, f, i, grouped);
}

/* The scores (rows, cols) of a block begin at column 0 of their scratch, its
 * keys and values at row b->begin or, if transposed, at column b->begin. */

/* to (rows, cols) = alpha * x (rows, width) * t (width, cols) */
static void compute_scores(const struct pst_sdpa *p,
                           const struct pst_sdpa_loops *loops,
                           const struct block *b, const float *x, int64_t ldx,
                           int64_t width, float alpha, const float *t,
                           float *to)
{
    const int64_t ld = row_length(p), pad = PST_SDPA_PAD;
    const struct pst_tile tile = {
        .m = b->rows,
        .n = (b->cols + pad - 1) / pad * pad,
        .k = width,
        .a = x,
        .b = t + b->begin,
        .c = to,
        .a_row = ldx,
        .a_col = 1,
        .ldb = ld,
        .ldc = ld,
        .alpha = alpha,
        .part = p->causal ? PST_TILE_SCORES : PST_TILE_ALL,
        .shift = b->first,
    };

    loops->product(&tile);
}

/* to (rows, width) = alpha * score (rows, cols) * x (cols, width) */
static void multiply_rows(const struct pst_sdpa *p,
                          const struct pst_sdpa_loops *loops,
                          const struct block *b, const float *score,
                          const float *x, int64_t ldx, int64_t width,
                          float alpha, float *to)
{
    const struct pst_tile tile = {
        .m = b->rows,
        .n = width,
        .k = b->cols,
        .a = score,
        .b = x + b->begin * ldx,
        .c = to,
        .a_row = row_length(p),
        .a_col = 1,
        .ldb = ldx,
        .ldc = width,
        .alpha = alpha,
        .part = p->causal ? PST_TILE_BY_ROW : PST_TILE_ALL,
        .shift = b->first,
    };

    loops->product(&tile);
}

/* to (cols, width) += alpha * score^T (cols, rows) * x (rows, width) */
static void add_transposed(const struct pst_sdpa *p,
                           const struct pst_sdpa_loops *loops,
                           const struct block *b, const float *score,
                           const float *x, int64_t width, float alpha,
                           float *to)
{
    const struct pst_tile tile = {
        .m = b->cols,
        .n = width,
        .k = b->rows,
        .a = score,
        .b = x,
        .c = to + b->begin * width,
        .a_row = 1,
        .a_col = row_length(p),
        .ldb = width,
        .ldc = width,
        .alpha = alpha,
        .add = true,
        .part = p->causal ? PST_TILE_BY_COL : PST_TILE_ALL,
        .shift = b->first,
    };

    loops->product(&tile);
}

/* prob (rows, cols) := softmax(prob + mask). job->sums has the maximum and sum
 * of every row of the call: forward writes them, backward reads them; NULL:
 * they are not kept. For few rows backward computes the scores with other bits
 * than forward, so it also computes the sums again. */
static void softmax(const struct job *job, const struct block *b,
                    const struct sdpa_scratch *r)
{
    const struct pst_sdpa *p = job->p;
    float *sums =
        job->sums == NULL ? NULL : job->sums + (b->i * p->l + b->first) * 2;

    for (int64_t i = 0; i < b->rows; i++) {
        const int64_t n = PST_MIN(count_visible(p, b->first + i), b->cols);
        float *x = r->prob + i * r->ld;

        if (p->mask.x != NULL)
            add_mask(p, b, i, n, x);
        if (job->given)
            job->loops->softmax_of(n, x, sums + 2 * i);
        else
            job->loops->softmax(n, x, sums == NULL ? NULL : sums + 2 * i);
    }
}

static void compute_probabilities(const struct job *job, const struct block *b,
                                  const struct sdpa_scratch *r, const float *q,
                                  int64_t ldq)
{
    const struct pst_sdpa *p = job->p;

    compute_scores(p, job->loops, b, q, ldq, p->e, (float)p->scale, r->kt,
                   r->prob);
    softmax(job, b, r);
}

/* Computes the probabilities of a block of at most FEW query rows, from keys
 * that are not transposed. */
static void compute_few_probabilities(const struct job *job,
                                      const struct block *b,
                                      const struct sdpa_scratch *r,
                                      const float *q)
{
    const struct pst_sdpa *p = job->p;
    const struct pst_gemm g = {.tb = true,
                               .m = b->rows,
                               .n = b->cols,
                               .k = p->e,
                               .lda = p->q.row,
                               .ldb = p->k.row,
                               .ldc = r->ld,
                               .alpha = p->scale};

    job->loops->dots(
        &g, q, operand_at(p, &p->k, b->i, true) + b->begin * p->k.row, r->prob);
    softmax(job, b, r);
}

static void apply_dropout(const struct pst_sdpa *p, const struct block *b,
                          const float *from, float *to)
{
    const int64_t ld = row_length(p);

    for (int64_t i = 0; i < b->rows; i++)
        for (int64_t j = 0; j < b->cols; j++)
            to[i * ld + j] =
                from[i * ld + j] *
                (float)pst_sdpa_keep(p, b->i, b->first + i, b->begin + j);
}

static void run_parts(const struct pst_call *c, const struct pst_sdpa *p,
                      pst_pool_fn fn, struct job *job)
{
    pst_pool_run(
        pst_pool_if(c->pool,
                    (double)p->batches * (double)p->l * (double)p->s >= 4096.0),
        fn, job);
}

/* Returns the operand's rows without gaps: in place, or copied to
 * `sdpa_scratch` if they have gaps. */
static const float *get_dense_rows(const struct pst_sdpa_operand *x,
                                   const float *from, int64_t rows,
                                   int64_t width, float *sdpa_scratch)
{
    if (x->row == width)
        return from;
    for (int64_t i = 0; i < rows; i++)
        memcpy(sdpa_scratch + i * width, from + i * x->row,
               (size_t)width * sizeof(*sdpa_scratch));
    return sdpa_scratch;
}

/* --- forward ------------------------------------------------------------ */

static void forward_block(const struct job *job, const struct block *b,
                          const struct sdpa_scratch *r, const float *v)
{
    const struct pst_sdpa *p = job->p;
    const float *q = operand_at(p, &p->q, b->i, false) + b->first * p->q.row;
    float *out =
        (float *)job->c->out[0].data + (b->i * p->l + b->first) * p->ev;

    if (p->l <= FEW)
        compute_few_probabilities(job, b, r, q);
    else
        compute_probabilities(job, b, r, q, p->q.row);
    if (p->dropout > 0.0)
        apply_dropout(p, b, r->prob, r->prob);
    multiply_rows(p, job->loops, b, r->prob, v, p->ev, p->ev, 1.0f, out);
}

static void forward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *job = ctx;
    const struct pst_sdpa *p = job->p;
    const int64_t blocks = (p->l + ROWS - 1) / ROWS;
    const float *v = NULL;
    int64_t begin, end, head = -1;
    struct sdpa_scratch r;

    divide_scratch(p, false,
                   (float *)job->c->scratch + part * thread_scratch(p, false),
                   &r);
    pst_pool_share(p->batches * blocks, 1, part, parts, &begin, &end);
    for (int64_t n = begin; n < end; n++) {
        struct block b = {.i = n / blocks, .first = n % blocks * ROWS};

        b.rows = PST_MIN(p->l - b.first, ROWS);
        find_keys(p, false, &b);
        if (b.i / p->group != head) {
            head = b.i / p->group;
            if (p->l > FEW)
                job->loops->transpose(p->s, p->e,
                                      operand_at(p, &p->k, b.i, true), p->k.row,
                                      r.kt, r.ld);
            v = get_dense_rows(&p->v, operand_at(p, &p->v, b.i, true),
                               blocks == 1 ? b.begin + b.cols : p->s, p->ev,
                               r.v);
        }
        forward_block(job, &b, &r, v);
    }
}

void pst_sdpa_run(const struct pst_call *c, const struct pst_sdpa_loops *loops)
{
    struct pst_sdpa p;
    struct job job = {.c = c, .p = &p, .loops = loops};

    pst_sdpa_describe(c, false, &p);
    if (c->n_out == 2)
        job.sums = c->out[1].data;
    if (p.s == 0)
        pst_sdpa_no_keys(c);
    else if (p.l > 0)
        run_parts(c, &p, forward_part, &job);
}

/* --- backward ----------------------------------------------------------- */

/* Stores ds, the gradient of the mask, with zeros for keys that a row does not
 * see. The block has all keys. */
static void store_scores(const struct job *job, const struct block *b,
                         const struct sdpa_scratch *r)
{
    const int64_t s = job->p->s;
    float *to =
        (float *)job->c->out[3].data + (b->i * job->p->l + b->first) * s;

    for (int64_t i = 0; i < b->rows; i++, to += s) {
        const int64_t n = count_visible(job->p, b->first + i);

        memcpy(to, r->ds + i * r->ld, (size_t)n * sizeof(*to));
        memset(to + n, 0, (size_t)(s - n) * sizeof(*to));
    }
}

/* dq = scale ds k; dk += scale ds^T q; dv += dropout(p)^T g */
static void backward_block(const struct job *job, const struct block *b,
                           const struct sdpa_scratch *r, const float *k,
                           float *dk, float *dv)
{
    const struct pst_sdpa *p = job->p;
    const struct pst_sdpa_loops *loops = job->loops;
    const float scale = (float)p->scale, *kept = r->prob, *q, *g;
    float *dq = (float *)job->c->out[0].data + (b->i * p->l + b->first) * p->e;

    q = get_dense_rows(&p->q,
                       operand_at(p, &p->q, b->i, false) + b->first * p->q.row,
                       b->rows, p->e, r->q);
    g = get_dense_rows(&p->g,
                       operand_at(p, &p->g, b->i, false) + b->first * p->g.row,
                       b->rows, p->ev, r->g);
    compute_probabilities(job, b, r, q, p->e);
    compute_scores(p, loops, b, g, p->ev, p->ev, 1.0f, r->vt, r->ds);
    if (p->dropout > 0.0) {
        kept = r->kept;
        apply_dropout(p, b, r->prob, r->kept);
        apply_dropout(p, b, r->ds, r->ds);
    }
    add_transposed(p, loops, b, kept, g, p->ev, 1.0f, dv);
    for (int64_t i = 0; i < b->rows; i++)
        loops->backward(PST_MIN(count_visible(p, b->first + i), b->cols),
                        r->prob + i * r->ld, r->ds + i * r->ld);
    if (job->c->n_out == 4)
        store_scores(job, b, r);
    multiply_rows(p, loops, b, r->ds, k, p->e, p->e, scale, dq);
    add_transposed(p, loops, b, r->ds, q, p->e, scale, dk);
}

/* Pool function: computes the gradients of a share of the key heads, each with
 * all query heads of its group. */
static void backward_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *job = ctx;
    const struct pst_sdpa *p = job->p;
    int64_t begin, end;
    struct sdpa_scratch r;

    divide_scratch(
        p, true, (float *)job->c->scratch + part * thread_scratch(p, true), &r);
    pst_pool_share(p->batches / p->group, 1, part, parts, &begin, &end);
    for (int64_t n = begin; n < end; n++) {
        const int64_t first = n * p->group;
        const float *k = operand_at(p, &p->k, first, true);
        float *dk = (float *)job->c->out[1].data + n * p->s * p->e;
        float *dv = (float *)job->c->out[2].data + n * p->s * p->ev;

        memset(dk, 0, (size_t)(p->s * p->e) * sizeof(*dk));
        memset(dv, 0, (size_t)(p->s * p->ev) * sizeof(*dv));
        job->loops->transpose(p->s, p->e, k, p->k.row, r.kt, r.ld);
        job->loops->transpose(p->s, p->ev, operand_at(p, &p->v, first, true),
                              p->v.row, r.vt, r.ld);
        k = get_dense_rows(&p->k, k, p->s, p->e, r.k);
        for (int64_t i = first; i < first + p->group; i++)
            for (int64_t row = 0; row < p->l; row += ROWS) {
                struct block b = {.i = i, .first = row};

                b.rows = PST_MIN(p->l - row, ROWS);
                find_keys(p, job->c->n_out == 4, &b);
                backward_block(job, &b, &r, k, dk, dv);
            }
    }
}

void pst_sdpa_backward_run(const struct pst_call *c,
                           const struct pst_sdpa_loops *loops)
{
    struct pst_sdpa p;
    struct job job = {.c = c, .p = &p, .loops = loops};

    pst_sdpa_describe(c, true, &p);
    job.given = p.l > FEW;
    job.sums = job.given ? c->in[2].data : NULL;
    if (p.s == 0)
        memset(c->out[0].data, 0, pst_meta_bytes(c->out[0].meta));
    else
        run_parts(c, &p, backward_part, &job);
}
