// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/tasks.h"

#include <string.h>

#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/cpu/simd/simd.h"

#define MAX_BLOCKS     1024
#define UPCAST_AT_ONCE 2048

void pst_cpu_seed(const struct pst_task *task)
{
    pst_store_f64(task->dtype, task->to, 0, task->number);
}

void pst_cpu_copy(const struct pst_task *task)
{
    pst_copy_strided(task->meta, task->from[0], task->to_meta, task->to);
}

/* Adds two operands, the most frequent case, without a loop over operands. */
static void sum_two(int64_t n, float *to, const float *a, const float *b)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = a[i] + b[i];
}

static void sum_f32(const struct pst_task *task)
{
    float *to = task->to;

    for (int64_t i = 0; i < task->n; i++) {
        float acc = ((const float *)task->from[0])[i];

        for (unsigned k = 1; k < task->n_from; k++)
            acc += ((const float *)task->from[k])[i];
        to[i] = acc;
    }
}

static void sum_any(const struct pst_task *task)
{
    for (int64_t i = 0; i < task->n; i++) {
        double acc = pst_load_f64(task->dtype, task->from[0], i);

        for (unsigned k = 1; k < task->n_from; k++)
            acc += pst_load_f64(task->dtype, task->from[k], i);
        pst_store_f64(task->dtype, task->to, i, acc);
    }
}

/* An element of `to` is written after it was read from all operands, so `to`
 * may be one of them. */
void pst_cpu_sum(const struct pst_task *task)
{
    if (task->dtype != PST_F32)
        sum_any(task);
    else if (task->n_from == 2)
        sum_two(task->n, task->to, task->from[0], task->from[1]);
    else
        sum_f32(task);
}

void pst_cpu_downcast(const struct pst_task *task)
{
    pst_simd_to_16_best(PST_BF16, task->isa)(task->n, task->from[0], task->to);
}

/* Converts in place: the bf16 input is the upper half of `to`. Writing f32
 * elements up to i overwrites at most the first 2 i - n of the n inputs, which
 * were read before. */
void pst_cpu_upcast(const struct pst_task *task)
{
    const pst_from_16_fn convert = pst_simd_from_16_best(PST_BF16, task->isa);
    const uint16_t *from = (const uint16_t *)task->to + task->n;
    uint16_t some[UPCAST_AT_ONCE];
    float *to = task->to;

    for (int64_t i = 0; i < task->n; i += UPCAST_AT_ONCE) {
        const int64_t n = PST_MIN(task->n - i, UPCAST_AT_ONCE);

        memcpy(some, from + i, (size_t)n * sizeof(*some));
        convert(n, some, to + i);
    }
}

/* A sum of squares, computed by blocks. Neither the blocks nor the order in
 * which their sums are added depends on the number of threads. */
struct sumsq {
    const struct pst_simd_ops *simd;
    const float *x;
    int64_t n, block, n_blocks;
    double sums[MAX_BLOCKS];
};

static void sumsq_part(void *ctx, unsigned part, unsigned parts)
{
    struct sumsq *s = ctx;
    int64_t begin, end;

    pst_pool_share(s->n_blocks, 1, part, parts, &begin, &end);
    for (int64_t b = begin; b < end; b++) {
        const int64_t at = b * s->block;

        s->sums[b] = s->simd->sumsq(PST_MIN(s->block, s->n - at), s->x + at);
    }
}

void pst_cpu_sumsq(const struct pst_task *task)
{
    const int64_t n = task->n;
    const int64_t grains = (n + PST_TASK_GRAIN - 1) / PST_TASK_GRAIN;
    struct sumsq s;
    double sum = 0.0;

    s.simd = pst_simd_best(task->isa);
    s.x = task->from[0];
    s.n = n;
    s.block = (grains + MAX_BLOCKS - 1) / MAX_BLOCKS * PST_TASK_GRAIN;
    s.n_blocks = n > 0 ? (n + s.block - 1) / s.block : 0;
    pst_pool_run(pst_pool_if(task->pool, s.n_blocks > 1), sumsq_part, &s);
    for (int64_t b = 0; b < s.n_blocks; b++)
        sum += s.sums[b];
    *(double *)task->to = sum;
}

static void lerp_elements(int64_t n, float *restrict to,
                          const float *restrict from, float w, float rest,
                          bool is_small)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = is_small ? to[i] + w * (from[i] - to[i])
                         : from[i] - (from[i] - to[i]) * rest;
}

static void ema_part(void *ctx, unsigned part, unsigned parts)
{
    const struct pst_task *t = ctx;
    int64_t i, end;

    pst_pool_share(t->n, PST_TASK_GRAIN, part, parts, &i, &end);
    if (i >= end)
        return;
    if (t->number == 1)
        memcpy((float *)t->to + i, (const float *)t->from[0] + i,
               (size_t)(end - i) * sizeof(float));
    else /* from the nearer end, as torch.lerp does */
        lerp_elements(end - i, (float *)t->to + i,
                      (const float *)t->from[0] + i, (float)t->number,
                      (float)(1 - t->number), t->number < 0.5);
}

void pst_cpu_ema(const struct pst_task *task)
{
    struct pst_task t = *task;

    pst_pool_run(pst_pool_if(t.pool, t.n > PST_TASK_GRAIN), ema_part, &t);
}
