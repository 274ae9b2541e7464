// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/product.h"

#include "stages/base/host/cpu.h"
#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/matmul/gemm_bf16.h"
#include "stages/ops/pointwise/nd.h"
#include "stages/ops/rates/rates.h"

#define BLOCK 256 /* elements converted at a time */

/* A 16-bit matmul, computed in bf16 or f32. Operands of another dtype are
 * converted into scratch: one dense matrix after the other, each in its storage
 * order. A result that is not f32 is summed in scratch and rounded at the
 * end. */
struct matmul16 {
    const struct pst_product *p;
    struct pst_product q; /* the matmul of the converted operands */
    bool bf16;            /* operands are bf16, otherwise f32 */
    struct pack {
        const struct pst_product_operand *from; /* NULL: used in place */
        int64_t rows, cols; /* storage order: cols elements are contiguous */
        int64_t ld, n;      /* n: number of matrices */
        void *to;
    } pack[2];
    float *sum; /* f32 results in scratch; NULL: written to out */
    size_t size;
};

bool pst_product_is_16bit(const struct pst_call *c, const struct pst_product *p)
{
    return pst_product_is_plain(p) &&
           (p->dtype == PST_BF16 || p->dtype == PST_F16 ||
            (p->dtype == PST_F32 && c->bf16));
}

/* Reserves bytes, rounded up to 64, of the scratch at base (may be NULL). */
static void *reserve_scratch(struct matmul16 *w, char *base, size_t bytes)
{
    char *at = base == NULL ? NULL : base + w->size;

    w->size += (bytes + 63) / 64 * 64;
    return at;
}

static void plan_operand(struct matmul16 *w, unsigned i, char *base)
{
    const struct pst_product *p = w->p;
    const struct pst_product_operand *f = i == 0 ? &p->a : &p->b;
    struct pst_product_operand *to = i == 0 ? &w->q.a : &w->q.b;
    struct pack *pack = &w->pack[i];
    const int64_t rows = i == 0 ? p->m : p->k, cols = i == 0 ? p->k : p->n;
    int64_t step = rows * cols;
    bool trans;

    if (p->dtype == PST_BF16 && w->bf16)
        return;
    pst_product_operand_layout(f, rows, cols, &trans, &pack->ld);
    pack->from = f;
    pack->rows = trans ? cols : rows;
    pack->cols = trans ? rows : cols;
    pack->n = 1;
    for (unsigned d = 0; d < p->n_batch; d++)
        if (f->batch[d] != 0)
            pack->n = pst_product_batches(p);
    pack->to = reserve_scratch(
        w, base, (size_t)(pack->n * rows * cols) * (w->bf16 ? 2 : 4));
    *to = (struct pst_product_operand){
        .data = pack->to, .row = trans ? 1 : cols, .col = trans ? rows : 1};
    for (unsigned d = p->n_batch; pack->n > 1 && d-- > 0; step *= p->batch[d])
        to->batch[d] = step;
}

static void plan_matmul(const struct pst_product *p, char *base,
                        struct matmul16 *w)
{
    *w = (struct matmul16){.p = p, .q = *p, .bf16 = p->dtype != PST_F16};
    w->bf16 = w->bf16 && pst_rates_use_bf16();
    w->q.dtype = PST_F32;
    w->q.operand_dtype = w->bf16 ? PST_BF16 : PST_F32;
    plan_operand(w, 0, base);
    plan_operand(w, 1, base);
    if (p->dtype == PST_F32)
        return;
    w->sum = reserve_scratch(w, base,
                             (size_t)(pst_product_batches(p) * p->m * p->n) *
                                 sizeof(float));
    w->q.out = w->sum;
    w->q.accumulate = false;
    w->q.c.data = NULL;
}

size_t pst_product_16bit_scratch(const struct pst_product *p, unsigned threads)
{
    struct matmul16 w;

    plan_matmul(p, NULL, &w);
    return w.size + (w.bf16 ? pst_product_bf16_scratch(&w.q, threads) : 0);
}

/* --- conversion --------------------------------------------------------- */

static void convert_elements(const struct matmul16 *w, int64_t n, const char *x,
                             char *y)
{
    const enum pst_isa isa = pst_cpu_isa();

    if (w->p->dtype != PST_F32)
        pst_simd_from_16_best(w->p->dtype, isa)(n, (const uint16_t *)x,
                                                (float *)y);
    else if (w->bf16)
        pst_simd_to_16_best(PST_BF16, isa)(n, (const float *)x, (uint16_t *)y);
    else
        pst_simd_round_bf16_best(isa)(n, (const float *)x, (float *)y);
}

static void pack_part(void *ctx, unsigned part, unsigned parts)
{
    const struct matmul16 *w = ctx;
    const int64_t from_size = (int64_t)pst_dtype_size(w->p->dtype);
    const int64_t to_size = w->bf16 ? 2 : 4;

    for (unsigned i = 0; i < PST_COUNT(w->pack); i++) {
        const struct pack *k = &w->pack[i];
        int64_t first, last;

        if (k->from == NULL)
            continue;
        pst_pool_share(k->n * k->rows, 1, part, parts, &first, &last);
        for (int64_t r = first; r < last; r++) {
            const int64_t at = pst_product_offset(w->p, k->from, r / k->rows) +
                               r % k->rows * k->ld;

            convert_elements(w, k->cols,
                             (const char *)k->from->data + at * from_size,
                             (char *)k->to + r * k->cols * to_size);
        }
    }
}

/* Adds by * x to sum, for a row of n numbers of the matmul's dtype. */
static void add_row(const struct pst_product *p, double by, const void *x,
                    int64_t at, int64_t step, float *sum)
{
    const pst_from_16_fn convert =
        pst_simd_from_16_best(p->dtype, pst_cpu_isa());
    float some[BLOCK];

    for (int64_t s = 0; s < p->n && (step != 1 || by != 1.0); s++)
        sum[s] += (float)(by * pst_load_f64(p->dtype, x, at + s * step));
    for (int64_t s = 0; s < p->n && step == 1 && by == 1.0; s += BLOCK) {
        const int64_t n = PST_MIN(BLOCK, p->n - s);

        convert(n, (const uint16_t *)x + at + s, some);
        for (int64_t i = 0; i < n; i++)
            sum[s + i] += some[i];
    }
}

/* Computes out = round(sum + beta c); adds the old out if the matmul
 * accumulates. */
static void store_part(void *ctx, unsigned part, unsigned parts)
{
    const struct matmul16 *w = ctx;
    const struct pst_product *p = w->p;
    const bool has_c = p->c.data != NULL && p->beta != 0.0;
    int64_t first, last;

    pst_pool_share(pst_product_batches(p) * p->m, 1, part, parts, &first,
                   &last);
    for (int64_t r = first; r < last; r++) {
        const int64_t c =
            pst_product_offset(p, &p->c, r / p->m) + r % p->m * p->c.row;
        float *sum = w->sum + r * p->n;
        const int64_t o = r * p->n;

        if (has_c)
            add_row(p, p->beta, p->c.data, c, p->c.col, sum);
        if (p->accumulate)
            add_row(p, 1.0, p->out, o, 1, sum);
        pst_simd_to_16_best(p->dtype, pst_cpu_isa())(p->n, sum,
                                                     (uint16_t *)p->out + o);
    }
}

/* Runs the matmul of operands that are bf16. */
static void run_bf16(const struct pst_call *c, const struct pst_product *p,
                     char *scratch)
{
    if (!pst_product_bf16(p, c->pool, scratch))
        pst_call_fault(c, PST_FAULT_LIBRARY_MEMORY, {0});
}

void pst_product_16bit(const struct pst_call *c, const struct pst_product *p)
{
    struct matmul16 w;
    bool worth;

    if (p->m == 0 || p->n == 0 || p->k == 0 || pst_product_batches(p) == 0) {
        pst_product_ref(p);
        return;
    }
    worth =
        pst_product_batches(p) * (p->m * p->k + p->k * p->n + p->m * p->n) >=
        PST_ND_SERIAL;
    plan_matmul(p, c->scratch, &w);
    pst_pool_run(pst_pool_if(c->pool, worth), pack_part, &w);
    if (w.bf16)
        run_bf16(c, &w.q, (char *)c->scratch + w.size);
    else
        pst_product_best(&w.q, c->pool);
    if (w.sum != NULL)
        pst_pool_run(pst_pool_if(c->pool, worth), store_part, &w);
}

/* --- prepared operands -------------------------------------------------- */

enum pst_form pst_product_form(const struct pst_call *c,
                               const struct pst_product *p, bool is_b)
{
    if (!c->bf16 || p->operand_dtype != PST_F32)
        return PST_FORM_OWN;
    if (!pst_rates_use_bf16())
        return PST_FORM_ROUNDED;
    return is_b && pst_product_prefers_tiles(p) ? p->b_form : PST_FORM_BF16;
}

bool pst_product_is_prepared(const struct pst_product *p)
{
    return p->dtype == PST_F32 && p->operand_dtype == PST_BF16 &&
           pst_rates_use_bf16();
}

size_t pst_product_prepared_scratch(const struct pst_product *p,
                                    unsigned threads)
{
    return pst_product_bf16_scratch(p, threads);
}

void pst_product_prepared(const struct pst_call *c, const struct pst_product *p)
{
    run_bf16(c, p, c->scratch);
}
