// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/adafactor.h"

#include "stages/base/checked.h"
#include "stages/ops/cpu/blocks.h"
#include "stages/ops/cpu/tasks.h"

#include <math.h>
#include <string.h>

/* Maximum number of bands of rows of a matrix. Their number depends on the size
 * of the matrix alone. */
#define MAX_BANDS 16
#define MIN_ROWS  16

/* Operands of the task (device.h). */
enum { GRAD, ROW, COL, FULL };

/* A parameter with two dimensions or more: `batch` matrices. */
struct factors {
    const struct pst_task *task;
    const struct pst_simd_whole_updates *simd;
    int64_t batch, rows, cols;
    int64_t bands, size; /* bands of a matrix, rows of a band */
    double step;
    /* Scratch. By band: of_cols has the sums of squares of its columns, of_u
     * the sum of squares of u, stayed the number of elements that kept their
     * value. row and col are the new states; mean has the mean of `row` for
     * each matrix. */
    double *of_cols, *of_u;
    int64_t *stayed;
    float *row, *col, *mean;
};

static void set_shape(struct factors *f, const struct pst_meta *meta)
{
    const unsigned rank = meta->rank;

    f->batch = 1;
    for (unsigned d = 0; d + 2 < rank; d++)
        f->batch *= meta->size[d];
    f->rows = meta->size[rank - 2];
    f->cols = meta->size[rank - 1];
    f->size = PST_MAX((f->rows + MAX_BANDS - 1) / MAX_BANDS, MIN_ROWS);
    f->bands = (f->rows + f->size - 1) / f->size;
}

size_t pst_adafactor_work(const struct pst_meta *param)
{
    struct factors f;
    size_t n;

    if (param->rank < 2 || pst_meta_numel(param) == 0)
        return 0;
    set_shape(&f, param);
    n = pst_size_mul((size_t)(f.batch * f.bands), (size_t)f.cols + 2);
    n = pst_size_mul(n, sizeof(double));
    return pst_size_add(n,
                        pst_size_mul((size_t)f.batch,
                                     pst_size_mul((size_t)(f.rows + f.cols + 1),
                                                  sizeof(float))));
}

static struct factors factors_of(const struct pst_task *task)
{
    struct factors f = {.task = task,
                        .simd = pst_simd_whole_updates_best(task->isa)};
    int64_t n;

    set_shape(&f, task->meta);
    n = f.batch * f.bands;
    f.of_cols = task->from[task->n_from - 2];
    f.of_u = f.of_cols + n * f.cols;
    f.stayed = (int64_t *)(void *)(f.of_u + n);
    f.row = (float *)(void *)(f.stayed + n);
    f.col = f.row + f.batch * f.rows;
    f.mean = f.col + f.batch * f.cols;
    return f;
}

/* Returns a + w (b - a), computed from a or from b, whichever is nearer, as
 * torch.lerp does. */
static float lerp(float a, float b, double w)
{
    return w < 0.5 ? a + (float)w * (b - a) : b - (b - a) * (float)(1.0 - w);
}

/* Function that pst_pool threads call for each band: band number `at`, with the
 * rows [begin, end) counted over all matrices. */
typedef void (*band_fn)(const struct factors *f, int64_t at, int64_t begin,
                        int64_t end);

struct run {
    const struct factors *f;
    band_fn fn;
};

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct run *r = ctx;
    const struct factors *f = r->f;
    int64_t at, last;

    pst_pool_share(f->batch * f->bands, 1, part, parts, &at, &last);
    for (; at < last; at++) {
        const int64_t first = at % f->bands * f->size;
        const int64_t end = PST_MIN(first + f->size, f->rows);
        const int64_t before = at / f->bands * f->rows;

        r->fn(f, at, before + first, before + end);
    }
}

static void run_bands(const struct factors *f, band_fn fn)
{
    struct run r = {f, fn};

    pst_pool_run(pst_pool_if(f->task->pool, f->task->n > PST_TASK_GRAIN),
                 run_part, &r);
}

static void square_band(const struct factors *f, int64_t at, int64_t begin,
                        int64_t end)
{
    const struct pst_task *t = f->task;
    double *cols = f->of_cols + at * f->cols;

    memset(cols, 0, (size_t)f->cols * sizeof(*cols));
    for (int64_t i = begin; i < end; i++) {
        const double sum = f->simd->adafactor_square(
            f->cols, pst_task_at(t, GRAD, i * f->cols), cols, t->update);

        f->row[i] = lerp(*pst_task_at(t, ROW, i),
                         (float)(sum / (double)f->cols), t->update->share);
    }
}

/* Computes the new states of matrix k from the sums of its bands; returns false
 * if they are not finite. */
static bool compute_states(const struct factors *f, int64_t k)
{
    const struct pst_update *u = f->task->update;
    double sum = 0, finite = 0;

    for (int64_t j = 0; j < f->cols; j++) {
        const float *old = pst_task_at(f->task, COL, k * f->cols + j);
        double squares = 0;

        for (int64_t b = 0; b < f->bands; b++)
            squares += f->of_cols[(k * f->bands + b) * f->cols + j];
        f->col[k * f->cols + j] =
            lerp(*old, (float)(squares / (double)f->rows), u->share);
        finite += 0.0 * (double)f->col[k * f->cols + j];
    }
    for (int64_t i = 0; i < f->rows; i++)
        sum += (double)f->row[k * f->rows + i];
    f->mean[k] = (float)PST_MAX(sum / (double)f->rows, u->eps);
    return finite == 0 && isfinite(f->mean[k]);
}

static struct pst_factored place_of(const struct factors *f, int64_t i)
{
    const int64_t k = i / f->rows;

    return (struct pst_factored){
        .row = f->row[i], .mean = f->mean[k], .col = f->col + k * f->cols};
}

static void sum_band(const struct factors *f, int64_t at, int64_t begin,
                     int64_t end)
{
    f->of_u[at] = 0;
    for (int64_t i = begin; i < end; i++) {
        const struct pst_factored place = place_of(f, i);

        f->of_u[at] += f->simd->adafactor_sum(
            f->cols, pst_task_at(f->task, GRAD, i * f->cols), &place,
            f->task->update);
    }
}

static void step_band(const struct factors *f, int64_t at, int64_t begin,
                      int64_t end)
{
    const struct pst_task *t = f->task;

    f->stayed[at] = 0;
    for (int64_t i = begin; i < end; i++) {
        const struct pst_factored place = place_of(f, i);

        f->stayed[at] += f->simd->adafactor_step(
            f->cols, (float *)t->to + i * f->cols,
            pst_task_at(t, GRAD, i * f->cols), &place, f->step, t->update);
    }
}

/* Returns the step: the number by which u is multiplied before it is subtracted
 * from the parameter. of_p, of_u: sums of squares of the parameter and of u. */
static double step_of(const struct pst_task *t, double of_p, double of_u)
{
    const struct pst_update *u = t->update;
    const double n = (double)t->n;

    return PST_MAX(u->eps2, sqrt(of_p / n)) * PST_MIN(u->lr, u->most) /
           PST_MAX(1.0, sqrt(of_u / n) / u->clip);
}

static void update_factored(const struct pst_task *t, double of_p)
{
    struct factors f = factors_of(t);
    double of_u = 0;
    int64_t stayed = 0;
    bool finite = true;

    run_bands(&f, square_band);
    for (int64_t k = 0; k < f.batch; k++)
        finite = compute_states(&f, k) && finite;
    if (finite)
        run_bands(&f, sum_band);
    for (int64_t i = 0; finite && i < f.batch * f.bands; i++)
        of_u += f.of_u[i];
    if (!finite || !isfinite(of_u)) { /* no element could be updated */
        pst_cpu_record_stayed(t, t->n);
        return;
    }
    f.step = step_of(t, of_p, of_u);
    run_bands(&f, step_band);
    memcpy(t->from[ROW], f.row, (size_t)(f.batch * f.rows) * sizeof(float));
    memcpy(t->from[COL], f.col, (size_t)(f.batch * f.cols) * sizeof(float));
    for (int64_t i = 0; i < f.batch * f.bands; i++)
        stayed += f.stayed[i];
    pst_cpu_record_stayed(t, stayed);
}

/* --- parameters with fewer dimensions ------------------------------------- */

static void sum_block(struct pst_blocks *b, int64_t k)
{
    const struct pst_task *t = b->task;
    int64_t i;
    const int64_t n = pst_block_at(b, k, &i);
    const struct pst_factored at = {.mean = 1, .v = pst_task_at(t, FULL, i)};

    b->sums[k][1] =
        b->simd->adafactor_sum(n, pst_task_at(t, GRAD, i), &at, t->update);
}

static void step_block(struct pst_blocks *b, int64_t k)
{
    const struct pst_task *t = b->task;
    int64_t i;
    const int64_t n = pst_block_at(b, k, &i);
    const struct pst_factored at = {.mean = 1, .v = pst_task_at(t, FULL, i)};

    b->stayed[k] =
        b->simd->adafactor_step(n, (float *)t->to + i, pst_task_at(t, GRAD, i),
                                &at, b->step, t->update);
}

static void update_plain(struct pst_blocks *b, double of_p)
{
    double of_u;

    pst_blocks_run(b, sum_block);
    of_u = pst_blocks_sum(b, 1);
    if (!isfinite(of_u)) {
        pst_cpu_record_stayed(b->task, b->task->n);
        return;
    }
    b->step = step_of(b->task, of_p, of_u);
    pst_blocks_run(b, step_block);
    pst_blocks_record_stayed(b);
}

/* --- the step ------------------------------------------------------------- */

static void square_block(struct pst_blocks *b, int64_t k)
{
    int64_t i;
    const int64_t n = pst_block_at(b, k, &i);

    b->sums[k][0] =
        pst_simd_best(b->task->isa)->sumsq(n, (const float *)b->task->to + i);
}

void pst_cpu_update_adafactor(const struct pst_task *task)
{
    struct pst_blocks b;
    double of_p;

    if (task->n == 0) { /* it has no states (optim.h), and means are NaN */
        pst_cpu_record_stayed(task, 0);
        return;
    }
    pst_blocks_init(&b, task);
    pst_blocks_run(&b, square_block);
    of_p = pst_blocks_sum(&b, 0);
    if (task->meta->rank >= 2)
        update_factored(task, of_p);
    else
        update_plain(&b, of_p);
}
