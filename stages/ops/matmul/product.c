// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/product.h"

#include "stages/ops/matmul/gemm_bf16.h"
#include "stages/ops/matmul/packed.h"
#include "stages/ops/matmul/tiles.h"

#include <limits.h>
#include <string.h>

/* Matmuls with less work than this run on the calling thread. */
#define SERIAL_FLOPS 1e6

int64_t pst_product_batches(const struct pst_product *p)
{
    int64_t n = 1;

    for (unsigned d = 0; d < p->n_batch; d++)
        n *= p->batch[d];
    return n;
}

static double flops_of(const struct pst_product *p)
{
    return 2.0 * (double)pst_product_batches(p) * (double)p->m * (double)p->n *
           (double)p->k;
}

int64_t pst_product_offset(const struct pst_product *p,
                           const struct pst_product_operand *f, int64_t i)
{
    int64_t offset = 0;

    for (unsigned d = p->n_batch; d-- > 0;) {
        offset += i % p->batch[d] * f->batch[d];
        i /= p->batch[d];
    }
    return offset;
}

/* True if dimensions [from, to) of x can be merged into a single one; sets its
 * size and its stride *step. */
static bool can_merge(const struct pst_meta *x, unsigned from, unsigned to,
                      int64_t *size, int64_t *step)
{
    bool any = false;

    *size = 1;
    *step = 0;
    for (unsigned d = to; d-- > from;) {
        if (x->size[d] == 1)
            continue;
        if (any && x->stride[d] != *step * *size)
            return false;
        if (!any)
            *step = x->stride[d];
        any = true;
        *size *= x->size[d];
    }
    return true;
}

void pst_product_rows(struct pst_product *p, const struct pst_meta *x)
{
    const unsigned rank = x->rank;

    p->n_batch = 0;
    p->k = x->size[rank - 1];
    p->a.col = x->stride[rank - 1];
    p->m = 1;
    p->a.row = 0;
    if (rank == 1 || can_merge(x, 0, rank - 1, &p->m, &p->a.row))
        return;
    p->n_batch = rank - 2;
    for (unsigned d = 0; d + 2 < rank; d++) {
        p->batch[d] = x->size[d];
        p->a.batch[d] = x->stride[d];
    }
    p->m = x->size[rank - 2];
    p->a.row = x->stride[rank - 2];
}

void pst_product_matrix(struct pst_product *p, const struct pst_operand *b,
                        enum pst_form form, int64_t n)
{
    const bool trans = form == PST_FORM_PACKED_T;

    p->n = n;
    p->b = (struct pst_product_operand){.data = b->data};
    p->b_form = form;
    p->b_tiled = pst_tiles_is(b->meta, p->k, n);
    if (p->b_tiled)
        return;
    p->b.row = b->meta->stride[trans];
    p->b.col = b->meta->stride[!trans];
}

/* --- reference ---------------------------------------------------------- */

static double dot(const struct pst_product *p, int64_t a, int64_t b)
{
    double sum = 0.0;

    for (int64_t k = 0; k < p->k; k++)
        sum += pst_load_f64(p->operand_dtype, p->a.data, a + k * p->a.col) *
               pst_load_f64(p->operand_dtype, p->b.data, b + k * p->b.row);
    return sum;
}

static uint64_t exact_factor(int64_t whole, double number)
{
    return (uint64_t)(whole != 0 ? whole : (int64_t)number);
}

/* Computes one element of an integer result. */
static void compute_integer(const struct pst_product *p, int64_t a, int64_t b,
                            int64_t c, int64_t o)
{
    uint64_t sum = 0;

    for (int64_t k = 0; k < p->k; k++)
        sum += (uint64_t)pst_load_i64(p->dtype, p->a.data, a + k * p->a.col) *
               (uint64_t)pst_load_i64(p->dtype, p->b.data, b + k * p->b.row);
    sum *= exact_factor(p->whole_alpha, p->alpha);
    if (p->c.data != NULL && p->beta != 0.0)
        sum += exact_factor(p->whole_beta, p->beta) *
               (uint64_t)pst_load_i64(p->dtype, p->c.data, c);
    if (p->accumulate)
        sum += (uint64_t)pst_load_i64(p->dtype, p->out, o);
    pst_store_i64(p->dtype, p->out, o, (int64_t)sum);
}

void pst_product_ref(const struct pst_product *p)
{
    const int64_t batches = pst_product_batches(p);
    const bool floating = pst_dtype_kind(p->dtype) == PST_KIND_FLOAT;
    int64_t o = 0;

    for (int64_t i = 0; i < batches; i++) {
        const int64_t a = pst_product_offset(p, &p->a, i);
        const int64_t b = pst_product_offset(p, &p->b, i);
        const int64_t c = pst_product_offset(p, &p->c, i);

        for (int64_t r = 0; r < p->m; r++) {
            for (int64_t s = 0; s < p->n; s++, o++) {
                if (!floating) {
                    compute_integer(p, a + r * p->a.row, b + s * p->b.col,
                                    c + r * p->c.row + s * p->c.col, o);
                    continue;
                }
                double y =
                    p->alpha * dot(p, a + r * p->a.row, b + s * p->b.col);

                /* If beta is 0, c is not read, so a NaN in it has no effect. */
                if (p->c.data != NULL && p->beta != 0.0)
                    y +=
                        p->beta * pst_load_f64(p->dtype, p->c.data,
                                               c + r * p->c.row + s * p->c.col);
                if (p->accumulate)
                    y += pst_load_f64(p->dtype, p->out, o);
                pst_store_f64(p->dtype, p->out, o, y);
            }
        }
    }
}

/* --- libraries ---------------------------------------------------------- */

bool pst_product_operand_layout(const struct pst_product_operand *f,
                                int64_t rows, int64_t cols, bool *trans,
                                int64_t *ld)
{
    *trans = false;
    *ld = f->row;
    if ((f->col == 1 || cols == 1) && (rows == 1 || f->row >= cols))
        return *ld <= INT_MAX;
    *trans = true;
    *ld = f->col;
    return (f->row == 1 || rows == 1) && (cols == 1 || f->col >= rows) &&
           *ld <= INT_MAX;
}

bool pst_product_is_plain(const struct pst_product *p)
{
    return p->operand_dtype == p->dtype;
}

bool pst_product_fits_blas(const struct pst_product *p)
{
    bool trans;
    int64_t ld;

    return p->m <= INT_MAX && p->n <= INT_MAX && p->k <= INT_MAX &&
           pst_product_operand_layout(&p->a, p->m, p->k, &trans, &ld) &&
           (p->b_tiled ||
            pst_product_operand_layout(&p->b, p->k, p->n, &trans, &ld));
}

/* Returns false for small matmuls, and if the left operand is not
 * row-major. */
bool pst_product_prefers_tiles(const struct pst_product *p)
{
    bool trans;
    int64_t ld;

    return p->b_form != PST_FORM_OWN && pst_tiles_has() &&
           pst_product_batches(p) == 1 && p->alpha == 1.0 && p->m >= 32 &&
           p->n >= 32 && p->k >= PST_TILE_K && p->k % PST_TILE_K == 0 &&
           pst_product_fits_blas(p) &&
           pst_product_operand_layout(&p->a, p->m, p->k, &trans, &ld) && !trans;
}

typedef bool (*preferred_fn)(bool ta, bool tb, int64_t m, int64_t n, int64_t k);

static bool is_preferred(const struct pst_product *p, preferred_fn ask)
{
    bool ta, tb;
    int64_t ld;

    if (!pst_product_is_plain(p))
        return false;
    pst_product_operand_layout(&p->a, p->m, p->k, &ta, &ld);
    pst_product_operand_layout(&p->b, p->k, p->n, &tb, &ld);
    return ask(ta, tb, p->m, p->n, p->k);
}

bool pst_product_prefers_dnnl(const struct pst_product *p)
{
    return is_preferred(p, pst_gemm_prefers_dnnl);
}

bool pst_product_prefers_packed(const struct pst_product *p)
{
    return is_preferred(p, pst_gemm_prefers_packed);
}

/* A block of one matmul of the batch: [0] is the first row or column, [1] the
 * end. */
struct block {
    int64_t batch, row[2], col[2];
};

/* Computes out = beta * c, or out += beta * c if the matmul accumulates. */
static void add_c_f32(const struct pst_product *p, const struct block *k)
{
    const float beta = (float)p->beta;
    const float *c =
        (const float *)p->c.data + pst_product_offset(p, &p->c, k->batch);
    float *out = (float *)p->out + k->batch * p->m * p->n;

    for (int64_t r = k->row[0]; r < k->row[1]; r++) {
        const float *restrict from = c + r * p->c.row;
        float *restrict to = out + r * p->n;

        if (!p->accumulate && beta == 1.0f && p->c.col == 1)
            memcpy(to + k->col[0], from + k->col[0],
                   (size_t)(k->col[1] - k->col[0]) * sizeof(*to));
        else if (!p->accumulate)
            for (int64_t s = k->col[0]; s < k->col[1]; s++)
                to[s] = beta * from[s * p->c.col];
        else
            for (int64_t s = k->col[0]; s < k->col[1]; s++)
                to[s] += beta * from[s * p->c.col];
    }
}

static void add_c_f64(const struct pst_product *p, const struct block *k)
{
    const double *c =
        (const double *)p->c.data + pst_product_offset(p, &p->c, k->batch);
    double *out = (double *)p->out + k->batch * p->m * p->n;

    for (int64_t r = k->row[0]; r < k->row[1]; r++)
        for (int64_t s = k->col[0]; s < k->col[1]; s++) {
            const double y = p->beta * c[r * p->c.row + s * p->c.col];
            double *to = &out[r * p->n + s];

            *to = p->accumulate ? *to + y : y;
        }
}

/* Returns the GEMM of a block; *a, *b, *o are offsets of its first elements. */
static struct pst_gemm gemm_of(const struct pst_product *p,
                               const struct block *k, int64_t *a, int64_t *b,
                               int64_t *o)
{
    const bool has_c = p->c.data != NULL && p->beta != 0.0;
    struct pst_gemm g = {.m = k->row[1] - k->row[0],
                         .n = k->col[1] - k->col[0],
                         .k = p->k,
                         .ldc = p->n,
                         .alpha = p->alpha,
                         .beta = p->accumulate || has_c ? 1.0 : 0.0};

    pst_product_operand_layout(&p->a, p->m, p->k, &g.ta, &g.lda);
    pst_product_operand_layout(&p->b, p->k, p->n, &g.tb, &g.ldb);
    *a = pst_product_offset(p, &p->a, k->batch) + k->row[0] * p->a.row;
    *b = pst_product_offset(p, &p->b, k->batch) + k->col[0] * p->b.col;
    *o = (k->batch * p->m + k->row[0]) * p->n + k->col[0];
    return g;
}

struct job {
    const struct pst_product *p;
    int64_t batches;
    enum pst_product_lib lib;
    char *scratch; /* scratch of the parts, `each` bytes apart */
    size_t each;
    const uint16_t *tiles; /* b, packed as AMX tiles */
    volatile bool failed;
};

static void run_block(struct job *job, unsigned part, const struct block *k)
{
    const struct pst_product *p = job->p;
    int64_t a, b, o;
    const struct pst_gemm g = gemm_of(p, k, &a, &b, &o);

    if (g.m <= 0 || g.n <= 0)
        return;
    if (p->c.data != NULL && p->beta != 0.0 && p->dtype == PST_F64)
        add_c_f64(p, k);
    else if (p->c.data != NULL && p->beta != 0.0)
        add_c_f32(p, k);
    if (job->lib == PST_PRODUCT_TILES) {
        pst_tiles_run(
            &(struct pst_tiles_product){.m = g.m,
                                        .n = g.n,
                                        .k = g.k,
                                        .lda = g.lda,
                                        .ldc = g.ldc,
                                        .a = (const uint16_t *)p->a.data + a,
                                        .b = job->tiles + k->col[0] * p->k,
                                        .c = (float *)p->out + o,
                                        .add = g.beta != 0.0});
    } else if (job->lib == PST_PRODUCT_BF16) {
        if (!pst_gemm_bf16(&g, (const uint16_t *)p->a.data + a,
                           (const uint16_t *)p->b.data + b, (float *)p->out + o,
                           job->scratch + part * job->each))
            job->failed = true;
    } else if (p->dtype == PST_F64) {
        pst_gemm_f64(&g, (const double *)p->a.data + a,
                     (const double *)p->b.data + b, (double *)p->out + o);
    } else if (job->lib == PST_PRODUCT_DNNL) {
        pst_gemm_f32_dnnl(&g, (const float *)p->a.data + a,
                          (const float *)p->b.data + b, (float *)p->out + o);
    } else if (job->lib == PST_PRODUCT_PACKED) {
        pst_gemm_packed(&g, (const float *)p->a.data + a,
                        (const float *)p->b.data + b, (float *)p->out + o);
    } else {
        pst_gemm_f32(&g, (const float *)p->a.data + a,
                     (const float *)p->b.data + b, (float *)p->out + o);
    }
}

/* Sets the share of a part: whole matmuls [*first, *last) of the batch if there
 * are enough of them; else a block *k of the rows or the columns, whichever are
 * more, of each matmul. */
static void part_of(const struct pst_product *p, int64_t batches, unsigned part,
                    unsigned parts, struct block *k, int64_t *first,
                    int64_t *last)
{
    *k = (struct block){.row = {0, p->m}, .col = {0, p->n}};
    *first = 0;
    *last = batches;
    if (batches >= (int64_t)parts)
        pst_pool_share(batches, 1, part, parts, first, last);
    else if (p->m >= p->n)
        pst_pool_share(p->m, 16, part, parts, &k->row[0], &k->row[1]);
    else
        pst_pool_share(p->n, 16, part, parts, &k->col[0], &k->col[1]);
}

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    struct job *job = ctx;
    struct block k;
    int64_t first, last;

    part_of(job->p, job->batches, part, parts, &k, &first, &last);
    for (k.batch = first; k.batch < last; k.batch++)
        run_block(job, part, &k);
}

/* Computes a matmul with k = 0, a case that libraries treat differently. */
static void run_empty(const struct pst_product *p)
{
    if (p->m > 0 && p->n > 0)
        pst_product_ref(p);
}

static unsigned parts_of(const struct pst_product *p, unsigned threads)
{
    return flops_of(p) < SERIAL_FLOPS ? 1 : threads;
}

static void run(struct job *job, struct pst_pool *pool)
{
    const struct pst_product *p = job->p;

    job->batches = pst_product_batches(p);
    if (p->m == 0 || p->n == 0 || p->k == 0)
        run_empty(p);
    else
        pst_pool_run(pst_pool_if(pool, parts_of(p, 2) != 1), run_part, job);
}

void pst_product_blas(const struct pst_product *p, struct pst_pool *pool)
{
    struct job job = {.p = p, .lib = PST_PRODUCT_BLAS};

    run(&job, pool);
}

void pst_product_dnnl(const struct pst_product *p, struct pst_pool *pool)
{
    struct job job = {.p = p, .lib = PST_PRODUCT_DNNL};

    run(&job, pool);
}

void pst_product_packed(const struct pst_product *p, struct pst_pool *pool)
{
    struct job job = {.p = p, .lib = PST_PRODUCT_PACKED};

    run(&job, pool);
}

void pst_product_best(const struct pst_product *p, struct pst_pool *pool)
{
    if (p->dtype == PST_F32 && pst_product_prefers_dnnl(p))
        pst_product_dnnl(p, pool);
    else if (p->dtype == PST_F32 && pst_product_prefers_packed(p))
        pst_product_packed(p, pool);
    else
        pst_product_blas(p, pool);
}

/* Returns the bytes of scratch that the library needs for each part. */
static size_t bf16_each(const struct pst_product *p, unsigned threads)
{
    const unsigned parts = parts_of(p, threads);
    size_t most = 0;

    for (unsigned i = 0; i < parts; i++) {
        struct pst_gemm g;
        struct block k;
        int64_t first, last, a, b, o;
        size_t size;

        part_of(p, pst_product_batches(p), i, parts, &k, &first, &last);
        if (first >= last)
            continue;
        g = gemm_of(p, &k, &a, &b, &o);
        if (g.m <= 0 || g.n <= 0 || g.k <= 0)
            continue;
        /* Accumulation is only known at run time, so both cases are
         * considered. */
        for (g.beta = 0.0; g.beta <= 1.0; g.beta += 1.0) {
            size = pst_gemm_bf16_scratch(&g);
            most = PST_MAX(most, size);
        }
    }
    return (most + 63) / 64 * 64;
}

size_t pst_product_bf16_scratch(const struct pst_product *p, unsigned threads)
{
    if (pst_product_prefers_tiles(p))
        return p->b_tiled
                   ? 0
                   : (size_t)pst_tiles_numel(p->k, p->n) * sizeof(uint16_t);
    return threads * bf16_each(p, threads);
}

static void pack_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *job = ctx;
    const struct pst_product *p = job->p;
    int64_t first, last, ld;
    bool trans;

    pst_product_operand_layout(&p->b, p->k, p->n, &trans, &ld);
    pst_pool_share(pst_tiles_numel(1, p->n) / PST_TILE_N, 1, part, parts,
                   &first, &last);
    pst_tiles_pack(p->k, p->n, p->b.data, trans, ld, first, last,
                   (uint16_t *)job->scratch);
}

bool pst_product_bf16(const struct pst_product *p, struct pst_pool *pool,
                      void *scratch)
{
    struct job job = {.p = p, .lib = PST_PRODUCT_BF16, .scratch = scratch};

    if (pst_product_prefers_tiles(p)) {
        job.lib = PST_PRODUCT_TILES;
        job.tiles = p->b_tiled ? p->b.data : scratch;
        if (!p->b_tiled)
            pst_pool_run(pool, pack_part, &job);
    } else {
        job.each = bf16_each(p, pst_pool_threads(pool));
    }
    run(&job, pool);
    return !job.failed;
}
