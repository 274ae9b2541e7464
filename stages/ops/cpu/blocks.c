// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/blocks.h"

#include "stages/ops/cpu/tasks.h"

void pst_blocks_init(struct pst_blocks *b, const struct pst_task *task)
{
    const int64_t grains = (task->n + PST_TASK_GRAIN - 1) / PST_TASK_GRAIN;

    b->task = task;
    b->simd = pst_simd_whole_updates_best(task->isa);
    b->size = PST_MAX((grains + PST_BLOCKS_MAX - 1) / PST_BLOCKS_MAX, 1) *
              PST_TASK_GRAIN;
    b->n = (task->n + b->size - 1) / b->size;
}

int64_t pst_block_at(const struct pst_blocks *b, int64_t k, int64_t *ret)
{
    *ret = k * b->size;
    return PST_MIN(b->size, b->task->n - *ret);
}

struct run {
    struct pst_blocks *blocks;
    pst_block_fn fn;
};

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct run *r = ctx;
    int64_t k, end;

    pst_pool_share(r->blocks->n, 1, part, parts, &k, &end);
    for (; k < end; k++)
        r->fn(r->blocks, k);
}

void pst_blocks_run(struct pst_blocks *b, pst_block_fn fn)
{
    struct run r = {b, fn};

    pst_pool_run(pst_pool_if(b->task->pool, b->n > 1), run_part, &r);
}

double pst_blocks_sum(const struct pst_blocks *b, unsigned which)
{
    double sum = 0;

    for (int64_t k = 0; k < b->n; k++)
        sum += b->sums[k][which];
    return sum;
}

void pst_blocks_record_stayed(const struct pst_blocks *b)
{
    int64_t stayed = 0;

    for (int64_t k = 0; k < b->n; k++)
        stayed += b->stayed[k];
    pst_cpu_record_stayed(b->task, stayed);
}
