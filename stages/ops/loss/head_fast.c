// SPDX-License-Identifier: Apache-2.0
/*
 * The head of a language model in f32, chunk by chunk.
 *
 * With `low`, or if the call says so (--dtype bf16), operands of the matmuls
 * are rounded, like those of other linear layers (stages/ops/matmul/narrow.c):
 * the input and the weight once per call, gradients of the logits once per
 * chunk. With `low` each row of logits is rounded, too, while it is in the
 * cache.
 */
#include "stages/ops/loss/head.h"

#include "stages/base/host/cpu.h"
#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/matmul/column_sum.h"
#include "stages/ops/matmul/product.h"
#include "stages/ops/rates/rates.h"

/* A chunk's logits have at most CHUNK_BYTES, and a chunk has at most CHUNK_MOST
 * rows. But it has at least CHUNK_LEAST rows, since every chunk reads the
 * weight twice and its gradient once. */
#define CHUNK_BYTES (64 << 20)
#define CHUNK_LEAST 64
#define CHUNK_MOST  256
#define BLOCK       256 /* numbers that are rounded to f16 at a time */

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
    float *squares; /* for each row of all chunks, its term of z */
    float *logits;  /* logits of the chunk, later replaced by their gradients */
    float *losses;  /* for each row of all chunks, its loss */
    float *capped;  /* for each thread a row of capped logits; NULL: no cap */
    int64_t at, end; /* rows of the chunk */

    /* Operands of matmuls: those of the call and `logits`, or rounded copies in
     * scratch, which are f32 or bf16. */
    enum pst_dtype low; /* dtype of rounded operands; f32: none is */
    bool bf16;          /* rounded copies are bf16 in memory, not f32 */
    const void *x, *weight;
    const float *bias; /* NULL: there is none */
    void *grad;
    void *library;  /* scratch of bf16 matmuls */
    size_t scratch; /* bytes of scratch */
};

static int64_t chunk_of(const struct pst_head *h)
{
    return PST_MIN(h->rows, pst_head_chunk(h->classes));
}

static bool fits_f32(const struct pst_head *h)
{
    return h->rows > 0 && h->classes > 0 && h->depth > 0 &&
           h->x->meta->dtype == PST_F32 &&
           (h->loss_grad == NULL || h->loss_grad->meta->dtype == PST_F32) &&
           (h->z_grad == NULL || h->z_grad->meta->dtype == PST_F32);
}

bool pst_head_fits(const struct pst_call *c)
{
    const struct pst_head h = pst_head_describe(c);

    return fits_f32(&h) && h.low == PST_F32 && h.weight->meta->dtype == PST_F32;
}

bool pst_head_fits_low(const struct pst_call *c)
{
    const struct pst_head h = pst_head_describe(c);

    return fits_f32(&h) && h.low != PST_F32;
}

/* --- rounding ------------------------------------------------------------- */

/* Rounds n numbers to `low`; to may be equal to `from`. */
static void round_to(enum pst_dtype low, int64_t n, const float *from,
                     float *to)
{
    const enum pst_isa isa = pst_cpu_isa();
    PST_UNINIT uint16_t block[BLOCK];

    if (low == PST_BF16) {
        pst_simd_round_bf16_best(isa)(n, from, to);
        return;
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t size = PST_MIN(n - i, BLOCK);

        pst_simd_to_16_best(low, isa)(size, from + i, block);
        pst_simd_from_16_best(low, isa)(size, block, to + i);
    }
}

/* n numbers to round to `low`, and to store as bf16 or f32. */
struct rounding {
    int64_t n;
    const float *from;
    void *to;
    enum pst_dtype low;
    bool bf16;
};

static void round_part(void *ctx, unsigned part, unsigned parts)
{
    const struct rounding *r = ctx;
    int64_t begin, end;

    pst_pool_share(r->n, 64, part, parts, &begin, &end);
    if (begin >= end)
        return;
    if (r->bf16)
        pst_simd_to_16_best(PST_BF16, pst_cpu_isa())(
            end - begin, r->from + begin, (uint16_t *)r->to + begin);
    else
        round_to(r->low, end - begin, r->from + begin, (float *)r->to + begin);
}

static void round_all(const struct job *j, int64_t n, const float *from,
                      void *to)
{
    struct rounding r = {n, from, to, j->low, j->bf16};

    pst_pool_run(j->c->pool, round_part, &r);
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

/* Returns the loss of a row, like row_loss(), and replaces its logits by their
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

/* Replaces the logits of a row that is part of z by their gradients. y: class
 * of the row, -1 if ignored; g: gradient of its loss; by: gradient of its log
 * sum exp. */
static void row_gradient_z(const struct job *j, float *x, int64_t y, float g,
                           float by)
{
    const int64_t n = j->h->classes;
    const struct pst_soft_target t = soft_target(j->h, y);

    if (y < 0)
        g = 0.0f;
    j->loops->loss->softmax_scaled(n, x, g + by, x);
    for (int64_t k = 0; k < n && t.b != 0.0f; k++)
        x[k] -= g * t.b;
    if (y >= 0)
        x[y] -= g * t.c;
}

/* Sets the loss of row i and its term of z; if gradients are requested,
 * replaces its logits x by their gradients. y: class of the row, -1 if ignored;
 * g, gz: gradients of a row's loss and of its term of z. */
static void run_logits(const struct job *j, int64_t i, int64_t y, float *x,
                       float g, float gz)
{
    const struct pst_head *h = j->h;
    const float m = (float)pst_head_mask(h, i);
    float log_sum;

    j->squares[i] = 0.0f;
    if (m == 0.0f && h->loss_grad != NULL) {
        j->losses[i] = row_gradient(j, x, y, g);
        return;
    }
    j->losses[i] = y >= 0 ? row_loss(j, x, y) : 0.0f;
    if (m == 0.0f)
        return;
    log_sum = j->loops->loss->log_sum(h->classes, x);
    j->squares[i] = m * log_sum * log_sum;
    if (h->loss_grad != NULL)
        row_gradient_z(j, x, y, g, gz * 2.0f * m * log_sum);
}

static void run_row(const struct job *j, int64_t i, float g, float gz,
                    float *capped)
{
    const struct pst_head *h = j->h;
    const int64_t n = h->classes;
    const int64_t y = pst_classes_target(j->c, &h->targets, i);
    const float scale = (float)h->scale, cap = (float)h->cap;
    float *x = j->logits + (i - j->at) * n;

    if (y < 0 && pst_head_mask(h, i) == 0.0) {
        j->losses[i] = j->squares[i] = 0.0f;
        for (int64_t k = 0; k < n && h->loss_grad != NULL; k++)
            x[k] = 0.0f;
        return;
    }
    if (h->low != PST_F32)
        round_to(h->low, n, x, x);
    if (cap != 0.0f || scale != 1.0f)
        j->loops->loss->capped(n, scale, cap, x);
    for (int64_t k = 0; k < n && cap != 0.0f && h->loss_grad != NULL; k++)
        capped[k] = x[k];
    run_logits(j, i, y, x, g, gz);
    if (h->loss_grad != NULL && (cap != 0.0f || scale != 1.0f))
        j->loops->loss->capped_grad(n, scale, cap, capped, x);
    if (h->loss_grad != NULL && h->low != PST_F32)
        round_to(h->low, n, x, x);
}

static void rows_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_operand *loss_grad = j->h->loss_grad;
    const struct pst_operand *z = j->h->z_grad;
    float g = 0.0f, gz = 0.0f;
    int64_t begin, end;

    if (loss_grad != NULL)
        g = (float)((double)*(const float *)loss_grad->data / j->divisor);
    if (z != NULL)
        gz =
            (float)((double)*(const float *)z->data / pst_head_z_divisor(j->h));
    pst_pool_share(j->end - j->at, 1, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++)
        run_row(j, j->at + i, g, gz,
                j->capped != NULL ? j->capped + part * j->h->classes : NULL);
}

/* --- one chunk ------------------------------------------------------------ */

static struct pst_product make_product(const struct job *j, int64_t m,
                                       int64_t n, int64_t k, float *out)
{
    return (struct pst_product){.dtype = PST_F32,
                                .operand_dtype = j->bf16 ? PST_BF16 : PST_F32,
                                .m = m,
                                .n = n,
                                .k = k,
                                .alpha = 1.0,
                                .beta = 1.0,
                                .out = out};
}

static void run_bf16(const struct job *j, const struct pst_product *p)
{
    if (!pst_product_bf16(p, j->c->pool, j->library))
        pst_call_fault(j->c, PST_FAULT_LIBRARY_MEMORY, {0});
}

/* Returns the matrix of the chunk's rows of the input. */
static struct pst_product_operand input_rows(const struct job *j)
{
    const int64_t size = j->bf16 ? 2 : 4, first = j->at * j->h->depth;

    return (struct pst_product_operand){
        .data = j->x == NULL ? NULL : (const char *)j->x + first * size,
        .row = j->h->depth,
        .col = 1};
}

static struct pst_product logits_product(const struct job *j)
{
    const struct pst_head *h = j->h;
    struct pst_product p =
        make_product(j, j->end - j->at, h->classes, h->depth, j->logits);

    p.a = input_rows(j);
    p.b = (struct pst_product_operand){
        .data = j->weight, .row = 1, .col = h->depth};
    if (h->bias != NULL)
        p.c = (struct pst_product_operand){.data = j->bias, .col = 1};
    return p;
}

static struct pst_product dx_product(const struct job *j)
{
    const struct pst_head *h = j->h;
    struct pst_product p =
        make_product(j, j->end - j->at, h->depth, h->classes, h->dx->data);

    if (p.out != NULL)
        p.out = (float *)p.out + j->at * h->depth;
    p.a = (struct pst_product_operand){
        .data = j->grad, .row = h->classes, .col = 1};
    p.b = (struct pst_product_operand){
        .data = j->weight, .row = h->depth, .col = 1};
    return p;
}

/* Describes the chunk's contribution to the gradient of the weight; the first
 * chunk overwrites the result unless the call accumulates. */
static struct pst_product dweight_product(const struct job *j)
{
    const struct pst_head *h = j->h;
    struct pst_product p =
        make_product(j, h->classes, h->depth, j->end - j->at, h->dweight->data);

    p.a = (struct pst_product_operand){
        .data = j->grad, .row = 1, .col = h->classes};
    p.b = input_rows(j);
    p.accumulate = j->c->accumulate || j->at > 0;
    return p;
}

/* Uses OpenBLAS, which is faster than oneDNN here: oneDNN packs all of the
 * weight for few rows. */
static void make_logits(const struct job *j)
{
    const struct pst_product p = logits_product(j);

    if (j->bf16)
        run_bf16(j, &p);
    else
        pst_product_blas(&p, j->c->pool);
}

static void run_product(const struct job *j, const struct pst_product *p)
{
    if (j->bf16)
        run_bf16(j, p);
    else
        pst_product_best(p, j->c->pool);
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

static void run_chunk(struct job *j)
{
    const struct pst_head *h = j->h;
    struct pst_product p;

    make_logits(j);
    pst_pool_run(j->c->pool, rows_part, j);
    if (h->dbias != NULL)
        pst_pool_run(j->c->pool, bias_part, j);
    if (j->grad != j->logits && h->loss_grad != NULL)
        round_all(j, (j->end - j->at) * h->classes, j->logits, j->grad);
    if (h->dx != NULL) {
        p = dx_product(j);
        run_product(j, &p);
    }
    if (h->dweight != NULL) {
        p = dweight_product(j);
        run_product(j, &p);
    }
}

/* --- scratch -------------------------------------------------------------- */

/* Reserves bytes, rounded up to 64, of the call's scratch at base; if base is
 * NULL, only counts them. */
static void *reserve(struct job *j, char *base, size_t bytes)
{
    char *at = base == NULL ? NULL : base + j->scratch;

    j->scratch += (bytes + 63) / 64 * 64;
    return at;
}

/* Returns the bytes that the library needs for any matmul of a chunk of `rows`
 * rows. */
static size_t library_bytes(struct job j, int64_t rows, unsigned threads)
{
    struct pst_product p;
    size_t most;

    j.at = 0;
    j.end = rows;
    p = logits_product(&j);
    most = pst_product_bf16_scratch(&p, threads);
    if (j.h->dx != NULL) {
        p = dx_product(&j);
        most = PST_MAX(most, pst_product_bf16_scratch(&p, threads));
    }
    if (j.h->dweight != NULL) {
        p = dweight_product(&j);
        most = PST_MAX(most, pst_product_bf16_scratch(&p, threads));
    }
    return most;
}

static void plan_rounded(struct job *j, char *base, unsigned threads)
{
    const struct pst_head *h = j->h;
    const size_t size = j->bf16 ? 2 : 4;
    const int64_t chunk = chunk_of(h), tail = h->rows % chunk;
    size_t bytes;

    j->x = reserve(j, base, (size_t)(h->rows * h->depth) * size);
    if (!j->bf16 || h->weight->meta->dtype != PST_BF16)
        j->weight = reserve(j, base, (size_t)(h->classes * h->depth) * size);
    if (h->bias != NULL && h->low != PST_F32)
        j->bias = reserve(j, base, (size_t)h->classes * sizeof(float));
    /* With `low`, gradients replace the logits in rounded form: no copy
     * needed. */
    if (h->loss_grad != NULL && (j->bf16 || h->low == PST_F32))
        j->grad = reserve(j, base, (size_t)(chunk * h->classes) * size);
    if (!j->bf16)
        return;
    bytes = library_bytes(*j, chunk, threads);
    if (tail > 0)
        bytes = PST_MAX(bytes, library_bytes(*j, tail, threads));
    j->library = reserve(j, base, bytes);
}

/* Assigns the call's scratch; base NULL: computes its size. */
static void plan_scratch(struct job *j, char *base, unsigned threads)
{
    const struct pst_head *h = j->h;
    const size_t row = (size_t)h->classes * sizeof(float);

    j->low = j->c->bf16 && h->low == PST_F32 ? PST_BF16 : h->low;
    j->bf16 = j->low == PST_BF16 && pst_rates_use_bf16();
    j->logits = reserve(j, base, (size_t)chunk_of(h) * row);
    j->losses = reserve(j, base, (size_t)h->rows * sizeof(float));
    j->squares = reserve(j, base, (size_t)h->rows * sizeof(float));
    if (h->cap > 0.0 && h->loss_grad != NULL)
        j->capped = reserve(j, base, threads * row);
    j->x = h->x->data;
    j->weight = h->weight->data;
    j->bias = h->bias != NULL ? h->bias->data : NULL;
    j->grad = j->logits;
    if (j->low != PST_F32)
        plan_rounded(j, base, threads);
}

size_t pst_head_scratch(const struct pst_call *c, unsigned threads)
{
    const struct pst_head h = pst_head_describe(c);
    struct job j = {.c = c, .h = &h};

    plan_scratch(&j, NULL, threads);
    return j.scratch;
}

/* Converts a weight that is f32 or 16-bit to the operand of the matmuls. */
static void prepare_weight(const struct job *j)
{
    const struct pst_operand *w = j->h->weight;
    const int64_t n = j->h->classes * j->h->depth;

    if (w->meta->dtype == PST_F32)
        round_all(j, n, w->data, (void *)j->weight);
    else if (j->weight != w->data)
        pst_simd_from_16_best(w->meta->dtype,
                              pst_cpu_isa())(n, w->data, (float *)j->weight);
}

/* --- all chunks ----------------------------------------------------------- */

static void run(const struct pst_call *c, const struct loops *loops)
{
    const struct pst_head h = pst_head_describe(c);
    const bool mean = h.targets.reduction == PST_REDUCE_MEAN;
    const int64_t chunk = chunk_of(&h);
    struct job j = {.c = c, .h = &h, .loops = loops};
    double sum = 0.0, z = 0.0;

    j.divisor = mean ? pst_classes_divisor(c, &h.targets) : 1.0;
    plan_scratch(&j, c->scratch, pst_pool_threads(c->pool));
    if (j.low != PST_F32) {
        round_all(&j, h.rows * h.depth, h.x->data, (void *)j.x);
        prepare_weight(&j);
    }
    if (h.bias != NULL && j.bias != h.bias->data)
        round_to(h.low, h.classes, h.bias->data, (float *)j.bias);
    for (j.at = 0; j.at < h.rows; j.at = j.end) {
        j.end = PST_MIN(j.at + chunk, h.rows);
        run_chunk(&j);
    }
    for (int64_t i = 0; i < h.rows; i++) {
        sum += j.losses[i];
        z += j.squares[i];
    }
    if (h.loss != NULL)
        *(float *)h.loss->data = (float)(sum / j.divisor);
    if (h.z != NULL)
        *(float *)h.z->data = (float)(z / pst_head_z_divisor(&h));
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
