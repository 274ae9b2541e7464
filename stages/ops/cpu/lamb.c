// SPDX-License-Identifier: Apache-2.0
/* The step of LAMB (stages/optim/lamb.c). */
#include "stages/ops/cpu/blocks.h"
#include "stages/ops/cpu/tasks.h"

#include <math.h>

static void sum_block(struct pst_blocks *b, int64_t k)
{
    const struct pst_task *t = b->task;
    int64_t i;
    const int64_t n = pst_block_at(b, k, &i);

    b->simd->lamb_sums(n, (float *)t->to + i, pst_task_at(t, 0, i),
                       pst_task_at(t, 1, i), pst_task_at(t, 2, i), t->update,
                       b->sums[k]);
}

static void update_block(struct pst_blocks *b, int64_t k)
{
    const struct pst_task *t = b->task;
    int64_t i;
    const int64_t n = pst_block_at(b, k, &i);

    b->stayed[k] = b->simd->lamb(n, (float *)t->to + i, pst_task_at(t, 0, i),
                                 pst_task_at(t, 1, i), pst_task_at(t, 2, i),
                                 b->step, t->update);
}

void pst_cpu_update_lamb(const struct pst_task *task)
{
    struct pst_blocks b;
    double of_p, of_u;

    pst_blocks_init(&b, task);
    pst_blocks_run(&b, sum_block);
    of_p = pst_blocks_sum(&b, 0);
    of_u = pst_blocks_sum(&b, 1);
    b.step = task->update->lr;
    if (of_p > 0 && of_u > 0)
        b.step *= sqrt(of_p) / sqrt(of_u);
    pst_blocks_run(&b, update_block);
    pst_blocks_record_stayed(&b);
}
