// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_BLOCKS_H
#define PENSTOCK_STAGES_OPS_CPU_BLOCKS_H
/*
 * Divides a whole parameter of an update into blocks that depend on its size
 * alone, and adds the sums of blocks in order: bits do not depend on the number
 * of threads. Any thread.
 */
#include "stages/ops/cpu/simd/optim/optim.h"

#define PST_BLOCKS_MAX 1024

struct pst_blocks {
    const struct pst_task *task;
    const struct pst_simd_whole_updates *simd;
    int64_t size, n; /* elements of a block, number of blocks */
    double step; /* number by which fn multiplies, the same for all blocks */
    void *with;  /* scratch of all blocks */
    double sums[PST_BLOCKS_MAX][2];
    int64_t stayed[PST_BLOCKS_MAX]; /* elements that kept their value */
};

/* Divides the parameter of the task into blocks. Does not set step and with. */
void pst_blocks_init(struct pst_blocks *b, const struct pst_task *task);
/* Returns the number of elements of block k; sets *ret to its first one. */
int64_t pst_block_at(const struct pst_blocks *b, int64_t k, int64_t *ret);
/* Calls fn for each block, divided among the task's pool. */
typedef void (*pst_block_fn)(struct pst_blocks *b, int64_t k);
void pst_blocks_run(struct pst_blocks *b, pst_block_fn fn);
/* Returns the total of sums[.][which]. */
double pst_blocks_sum(const struct pst_blocks *b, unsigned which);
/* Records the elements that stayed (pst_cpu_record_stayed). */
void pst_blocks_record_stayed(const struct pst_blocks *b);

/* Returns operand k of the task from element i on. */
static inline float *pst_task_at(const struct pst_task *task, unsigned k,
                                 int64_t i)
{
    return (float *)task->from[k] + i;
}

#endif
