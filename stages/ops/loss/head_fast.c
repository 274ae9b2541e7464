// SPDX-License-Identifier: Apache-2.0
/* The head of a language model in f32, chunk by chunk. */
#include "stages/ops/loss/head.h"
#include "stages/ops/matmul/column_sum.h"
#include "stages/ops/matmul/product.h"

/* A chunk's logits have at most CHUNK_BYTES, and a chunk at most CHUNK_MOST
 * rows. But it has at least CHUNK_LEAST: every chunk reads the weight twice and
 * its gradient once, which few rows would not pay for. */
#define CHUNK_BYTES (64 << 20)
#define CHUNK_LEAST 64
#define CHUNK_MOST  256

int64_t pst_head_chunk(int64_t classes)
{
    const int64_t row = PST_MAX(classes, 1) * (int64_t)sizeof(float);
    const int64_t rows = CHUNK_BYTES / row / 16 * 16;

    return PST_MIN(PST_MAX(rows, CHUNK_LEAST), CHUNK_MOST);
}

/* Loops of one instruction set. */
struct loops {
    const struct pst_loss_loops *loss;
    pst_column_sum_fn column_sum;
};

struct job {
    const struct pst_call *c;
    const struct pst_head *h;
    const struct loops *loops;
    double divisor;
    float *logits; /* logits of the chunk, later replaced by their gradients */
    float *losses; /* one per row, of all chunks */
    float *capped; /* for each thread a row of capped logits; NULL: no cap */
    int64_t at, end; /* rows of the chunk */
};

static int64_t chunk_of(const struct pst_head *h)
{
    return PST_MIN(h->rows, pst_head_chunk(h->classes));
}

static size_t rounded_bytes(int64_t floats)
{
    return ((size_t)floats * sizeof(float) + 63) / 64 * 64;
}

bool pst_head_fits(const struct pst_call *c)
{
    const struct pst_head h = pst_head_describe(c);

    return h.rows > 0 && h.classes > 0 && h.depth > 0 &&
           h.weight->meta->dtype == PST_F32 &&
           (h.arriving == NULL || h.arriving->meta->dtype == PST_F32);
}

size_t pst_head_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_head h = pst_head_describe(c);

    return rounded_bytes(chunk_of(&h) * h.classes) + rounded_bytes(h.rows) +
           (h.cap > 0.0 && h.arriving != NULL
                ? rounded_bytes((int64_t)threads * h.classes)
                : 0);
}

/* --- one row -------------------------------------------------------------- */

static struct pst_soft_target soft_target(const struct pst_head *h, int64_t y)
{
    const double e = h->targets.smoothing;

    return (struct pst_soft_target){
        .b = (float)(e / (double)h->classes), .c = (float)(1.0 - e), .y = y};
}

static float row_loss(const struct job *j, const float *x, int64_t y)
{
    const struct pst_head *h = j->h;
    const struct pst_soft_target t = soft_target(h, y);

    return h->targets.smoothing != 0.0 ? j->loops->loss->soft(h->classes, x, &t)
                                       : j->loops->loss->nll(h->classes, x, y);
}

/* Returns the loss of a row, as row_loss(), and replaces its logits by their
 * gradients. */
static float row_gradient(const struct job *j, float *x, int64_t y, float g)
{
    const struct pst_head *h = j->h;
    const struct pst_soft_target t = soft_target(h, y);
    float loss;

    if (h->targets.smoothing == 0.0)
        return j->loops->loss->nll_grad(h->classes, x, y, g, x);
    loss = row_loss(j, x, y);
    j->loops->loss->soft_grad(h->classes, x, &t, g, x);
    return loss;
}

static void run_row(const struct job *j, int64_t i, float g, float *capped)
{
    const struct pst_head *h = j->h;
    const int64_t n = h->classes;
    const int64_t y = pst_classes_target(j->c, &h->targets, i);
    const float scale = (float)h->scale, cap = (float)h->cap;
    float *x = j->logits + (i - j->at) * n;

    if (y < 0) {
        j->losses[i] = 0.0f;
        for (int64_t k = 0; k < n && h->arriving != NULL; k++)
            x[k] = 0.0f;
        return;
    }
    if (cap != 0.0f || scale != 1.0f)
        j->loops->loss->capped(n, scale, cap, x);
    if (h->arriving == NULL) {
        j->losses[i] = row_loss(j, x, y);
        return;
    }
    for (int64_t k = 0; k < n && cap != 0.0f; k++)
        capped[k] = x[k];
    j->losses[i] = row_gradient(j, x, y, g);
    if (cap != 0.0f || scale != 1.0f)
        j->loops->loss->capped_grad(n, scale, cap, capped, x);
}

static void rows_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_operand *arriving = j->h->arriving;
    float g = 0.0f;
    int64_t begin, end;

    if (arriving != NULL)
        g = (float)((double)*(const float *)arriving->data / j->divisor);
    pst_pool_share(j->end - j->at, 1, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        run_row(j, j->at + i, g,
                j->capped != NULL ? j->capped + part * j->h->classes : NULL);
}

/* --- one chunk ------------------------------------------------------------ */

static struct pst_product make_product(int64_t m, int64_t n, int64_t k,
                                       float *out)
{
    return (struct pst_product){.dtype = PST_F32,
                                .operand_dtype = PST_F32,
                                .m = m,
                                .n = n,
                                .k = k,
                                .alpha = 1.0,
                                .beta = 1.0,
                                .out = out};
}

/* OpenBLAS is faster than oneDNN here, which packs all of the weight for few
 * rows. */
static void make_logits(const struct job *j)
{
    const struct pst_head *h = j->h;
    struct pst_product p =
        make_product(j->end - j->at, h->classes, h->depth, j->logits);

    p.a = (struct pst_product_operand){.data = (const float *)h->x->data +
                                               j->at * h->depth,
                                       .row = h->depth,
                                       .col = 1};
    p.b = (struct pst_product_operand){
        .data = h->weight->data, .row = 1, .col = h->depth};
    if (h->bias != NULL)
        p.c = (struct pst_product_operand){.data = h->bias->data, .col = 1};
    pst_product_blas(&p, j->c->pool);
}

static void make_dx(const struct job *j)
{
    const struct pst_head *h = j->h;
    struct pst_product p =
        make_product(j->end - j->at, h->depth, h->classes,
                     (float *)h->dx->data + j->at * h->depth);

    p.a = (struct pst_product_operand){
        .data = j->logits, .row = h->classes, .col = 1};
    p.b = (struct pst_product_operand){
        .data = h->weight->data, .row = h->depth, .col = 1};
    pst_product_best(&p, j->c->pool);
}

static void bias_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    int64_t begin, end;

    pst_pool_share(j->h->classes, 16, part, parts, &begin, &end);
    if (begin < end)
        j->loops->column_sum(j->end - j->at, end - begin, j->h->classes,
                             j->logits + begin,
                             (float *)j->h->dbias->data + begin, j->at > 0);
}

/* Adds the chunk's contribution to the gradients of weight and bias; the first
 * chunk assigns unless the call accumulates. */
static void add_dweight(const struct job *j)
{
    const struct pst_head *h = j->h;
    struct pst_product p = make_product(h->classes, h->depth, j->end - j->at,
                                        (float *)h->dweight->data);

    p.a = (struct pst_product_operand){
        .data = j->logits, .row = 1, .col = h->classes};
    p.b = (struct pst_product_operand){.data = (const float *)h->x->data +
                                               j->at * h->depth,
                                       .row = h->depth,
                                       .col = 1};
    p.accumulate = j->c->accumulate || j->at > 0;
    pst_product_best(&p, j->c->pool);
    if (h->dbias != NULL)
        pst_pool_run(j->c->pool, bias_part, (void *)j);
}

static void run_chunk(struct job *j)
{
    make_logits(j);
    pst_pool_run(j->c->pool, rows_part, j);
    if (j->h->dx != NULL)
        make_dx(j);
    if (j->h->dweight != NULL)
        add_dweight(j);
}

static void run(const struct pst_call *c, const struct loops *loops)
{
    const struct pst_head h = pst_head_describe(c);
    const bool mean = h.targets.reduction == PST_REDUCE_MEAN;
    const int64_t chunk = chunk_of(&h);
    char *scratch = c->scratch;
    struct job j = {.c = c, .h = &h, .loops = loops};
    double sum = 0.0;

    j.divisor = mean ? pst_classes_divisor(c, &h.targets) : 1.0;
    j.logits = (float *)scratch;
    j.losses = (float *)(scratch + rounded_bytes(chunk * h.classes));
    if (h.cap > 0.0 && h.arriving != NULL)
        j.capped = (float *)((char *)j.losses + rounded_bytes(h.rows));
    for (j.at = 0; j.at < h.rows; j.at = j.end) {
        j.end = PST_MIN(j.at + chunk, h.rows);
        run_chunk(&j);
    }
    for (int64_t i = 0; i < h.rows; i++)
        sum += j.losses[i];
    if (h.loss != NULL)
        *(float *)h.loss->data = (float)(sum / j.divisor);
}

#define RUN(suffix, set)                                                       \
    void pst_head_run_##suffix(const struct pst_call *c)                       \
    {                                                                          \
        static const struct loops loops = {&pst_loss_loops_##suffix,           \
                                           pst_simd_column_sum_##suffix};      \
                                                                               \
        run(c, &loops);                                                        \
    }
PST_SIMD_EACH(RUN)
