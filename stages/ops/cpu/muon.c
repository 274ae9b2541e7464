// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/muon.h"

#include "stages/base/checked.h"
#include "stages/ops/cpu/blocks.h"
#include "stages/ops/cpu/tasks.h"
#include "stages/ops/matmul/packed.h"

#include <math.h>
#include <string.h>

/* Coefficients of the iteration, from the blog post that the documentation of
 * torch.optim.Muon cites. */
#define COEFFICIENT_A 3.4445
#define COEFFICIENT_B (-4.7750)
#define COEFFICIENT_C 2.0315

/* Rows of a result that one thread computes with one GEMM. Its bits may depend
 * on this number, which therefore does not depend on the threads. */
#define BAND 128

#define ALIGN 64

/*
 * The scratch: the matrix twice (rows, columns), and two square matrices of its
 * shorter side.
 */
struct muon {
    const struct pst_task *task;
    int64_t rows, cols, side; /* side: the shorter one */
    float *x, *next, *gram, *poly;
};

static size_t round_up_bytes(int64_t floats)
{
    const size_t bytes = pst_size_mul((size_t)floats, sizeof(float));

    return pst_size_add(bytes, ALIGN - 1) / ALIGN * ALIGN;
}

size_t pst_muon_work(const struct pst_meta *param)
{
    const int64_t side = PST_MIN(param->size[0], param->size[1]);

    return pst_size_mul(2, pst_size_add(round_up_bytes(pst_meta_numel(param)),
                                        round_up_bytes(side * side)));
}

static struct muon muon_of(const struct pst_task *task)
{
    unsigned char *work = task->from[task->n_from - 2];
    struct muon m = {
        .task = task, .rows = task->meta->size[0], .cols = task->meta->size[1]};

    m.side = PST_MIN(m.rows, m.cols);
    m.x = (float *)(void *)work;
    m.next = (float *)(void *)(work + round_up_bytes(task->n));
    m.gram = (float *)(void *)(work + 2 * round_up_bytes(task->n));
    m.poly = (float *)(void *)(work + 2 * round_up_bytes(task->n) +
                               round_up_bytes(m.side * m.side));
    return m;
}

/* --- products ------------------------------------------------------------- */

/* c (m, n) = alpha * op(a) op(b) + beta * d, in bands of rows; d may be NULL
 * if beta is 0. All matrices are contiguous. */
struct product {
    struct pst_gemm gemm;
    const float *a, *b, *d;
    float *c;
};

static void product_part(void *ctx, unsigned part, unsigned parts)
{
    const struct product *p = ctx;
    int64_t i, end;

    pst_pool_share(p->gemm.m, BAND, part, parts, &i, &end);
    for (; i < end; i += BAND) {
        struct pst_gemm g = p->gemm;
        float *c = p->c + i * g.n;

        g.m = PST_MIN(BAND, end - i);
        if (p->d != NULL)
            memcpy(c, p->d + i * g.n, (size_t)(g.m * g.n) * sizeof(float));
        pst_gemm_f32_best(&g, p->a + (g.ta ? i : i * g.lda), p->b, c);
    }
}

static void run_product(const struct muon *m, struct product *p)
{
    pst_pool_run(pst_pool_if(m->task->pool, p->gemm.m > BAND), product_part, p);
}

/* Sets gram to x x^T, or to x^T x if the matrix has more rows than columns, and
 * poly to B gram + C gram^2. */
static void make_poly(const struct muon *m)
{
    const bool is_tall = m->rows > m->cols;
    const int64_t s = m->side;
    struct product gram = {.gemm = {.ta = is_tall,
                                    .tb = !is_tall,
                                    .m = s,
                                    .n = s,
                                    .k = is_tall ? m->rows : m->cols,
                                    .lda = m->cols,
                                    .ldb = m->cols,
                                    .ldc = s,
                                    .alpha = 1},
                           .a = m->x,
                           .b = m->x,
                           .c = m->gram};
    struct product poly = {.gemm = {.m = s,
                                    .n = s,
                                    .k = s,
                                    .lda = s,
                                    .ldb = s,
                                    .ldc = s,
                                    .alpha = COEFFICIENT_C,
                                    .beta = COEFFICIENT_B},
                           .a = m->gram,
                           .b = m->gram,
                           .d = m->gram,
                           .c = m->poly};

    run_product(m, &gram);
    run_product(m, &poly);
}

/* Sets x to A x + poly x, or, for more rows than columns, to A x + x poly. */
static void run_iteration(struct muon *m)
{
    const bool is_tall = m->rows > m->cols;
    struct product next = {.gemm = {.m = m->rows,
                                    .n = m->cols,
                                    .k = m->side,
                                    .lda = m->side,
                                    .ldb = m->cols,
                                    .ldc = m->cols,
                                    .alpha = 1,
                                    .beta = COEFFICIENT_A},
                           .a = is_tall ? m->x : m->poly,
                           .b = is_tall ? m->poly : m->x,
                           .d = m->x,
                           .c = m->next};
    float *x = m->x;

    make_poly(m);
    run_product(m, &next);
    m->x = m->next;
    m->next = x;
}

/* --- the step ------------------------------------------------------------- */

static void sum_block(struct pst_blocks *b, int64_t k)
{
    const struct pst_task *t = b->task;
    int64_t i;
    const int64_t n = pst_block_at(b, k, &i);

    b->sums[k][0] = b->simd->muon_sum(n, pst_task_at(t, 0, i),
                                      pst_task_at(t, 1, i), t->update);
}

static void begin_block(struct pst_blocks *b, int64_t k)
{
    const struct pst_task *t = b->task;
    int64_t i;
    const int64_t n = pst_block_at(b, k, &i);

    b->simd->muon_begin(n, pst_task_at(t, 0, i), pst_task_at(t, 1, i),
                        (float *)b->with + i, b->step, t->update);
}

static void end_block(struct pst_blocks *b, int64_t k)
{
    const struct pst_task *t = b->task;
    int64_t i;
    const int64_t n = pst_block_at(b, k, &i);

    b->stayed[k] = b->simd->muon_end(
        n, (float *)t->to + i, (const float *)b->with + i, b->step, t->update);
}

/* Returns the factor by which torch multiplies the learning rate, so that
 * updates of matrices of all shapes have a similar RMS. */
static double rate_factor(const struct muon *m)
{
    const double rows = (double)m->rows, cols = (double)m->cols;

    return m->task->update->match_rms ? 0.2 * sqrt(PST_MAX(rows, cols))
                                      : sqrt(PST_MAX(1.0, rows / cols));
}

void pst_cpu_update_muon(const struct pst_task *task)
{
    const struct pst_update *u = task->update;
    struct muon m = muon_of(task);
    struct pst_blocks b;
    double norm;

    pst_blocks_init(&b, task);
    pst_blocks_run(&b, sum_block);
    norm = sqrt(pst_blocks_sum(&b, 0));
    if (!isfinite(norm)) { /* no element has a finite update */
        pst_cpu_record_stayed(task, task->n);
        return;
    }
    b.step = 1 / PST_MAX(norm, u->eps);
    b.with = m.x;
    pst_blocks_run(&b, begin_block);
    for (unsigned i = 0; i < u->ns_steps; i++)
        run_iteration(&m);
    b.step = u->lr * rate_factor(&m);
    b.with = m.x;
    pst_blocks_run(&b, end_block);
    pst_blocks_record_stayed(&b);
}
