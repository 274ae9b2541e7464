// SPDX-License-Identifier: Apache-2.0
/* Optimizer steps that need whole parameters (tasks of stages/ops/cpu/tasks.h).
 * A parameter is divided into blocks that depend on its size alone, and the
 * sums of blocks are added in order: bits do not depend on the threads. */
#include "stages/ops/cpu/simd/optim.h"
#include "stages/ops/cpu/tasks.h"

#include <math.h>

#define MAX_BLOCKS 1024

/* A parameter in blocks of elements, with two sums for each of them. */
struct blocks {
    const struct pst_task *task;
    const struct pst_simd_whole_updates *simd;
    int64_t size, n; /* elements of a block, number of blocks */
    double step;
    double sums[MAX_BLOCKS][2];
    int64_t stayed[MAX_BLOCKS];
};

static void blocks_init(struct blocks *b, const struct pst_task *task)
{
    const int64_t grains = (task->n + PST_TASK_GRAIN - 1) / PST_TASK_GRAIN;

    b->task = task;
    b->simd = pst_simd_whole_updates_best(task->isa);
    b->size =
        PST_MAX((grains + MAX_BLOCKS - 1) / MAX_BLOCKS, 1) * PST_TASK_GRAIN;
    b->n = (task->n + b->size - 1) / b->size;
}

/* Returns the elements of block k, which begins at element *ret. */
static int64_t block_at(const struct blocks *b, int64_t k, int64_t *ret)
{
    *ret = k * b->size;
    return PST_MIN(b->size, b->task->n - *ret);
}

static void blocks_run(struct blocks *b, pst_pool_fn fn)
{
    pst_pool_run(pst_pool_if(b->task->pool, b->n > 1), fn, b);
}

static void add_sums(const struct blocks *b, double ret[2])
{
    ret[0] = ret[1] = 0;
    for (int64_t k = 0; k < b->n; k++) {
        ret[0] += b->sums[k][0];
        ret[1] += b->sums[k][1];
    }
}

static float *at(const struct pst_task *task, unsigned k, int64_t i)
{
    return (float *)task->from[k] + i;
}

/* --- lamb ----------------------------------------------------------------- */

static void lamb_sums(void *ctx, unsigned part, unsigned parts)
{
    struct blocks *b = ctx;
    const struct pst_task *t = b->task;
    int64_t k, end, i;

    pst_pool_share(b->n, 1, part, parts, &k, &end);
    for (; k < end; k++) {
        const int64_t n = block_at(b, k, &i);

        b->simd->lamb_sums(n, (float *)t->to + i, at(t, 0, i), at(t, 1, i),
                           at(t, 2, i), t->update, b->sums[k]);
    }
}

static void lamb_step(void *ctx, unsigned part, unsigned parts)
{
    struct blocks *b = ctx;
    const struct pst_task *t = b->task;
    int64_t k, end, i;

    pst_pool_share(b->n, 1, part, parts, &k, &end);
    for (; k < end; k++) {
        const int64_t n = block_at(b, k, &i);

        b->stayed[k] =
            b->simd->lamb(n, (float *)t->to + i, at(t, 0, i), at(t, 1, i),
                          at(t, 2, i), b->step, t->update);
    }
}

void pst_cpu_update_lamb(const struct pst_task *task)
{
    struct blocks b;
    double norms[2];
    int64_t stayed = 0;

    blocks_init(&b, task);
    blocks_run(&b, lamb_sums);
    add_sums(&b, norms);
    b.step = task->update->lr;
    if (norms[0] > 0 && norms[1] > 0)
        b.step *= sqrt(norms[0]) / sqrt(norms[1]);
    blocks_run(&b, lamb_step);
    for (int64_t k = 0; k < b.n; k++)
        stayed += b.stayed[k];
    pst_cpu_note_stayed(task, stayed);
}
