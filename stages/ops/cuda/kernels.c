// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/kernels.h"

#include "stages/ops/core/order.h"
#include "stages/ops/cpu/kernels.h"
#include "stages/ops/cuda/loops.h"

#define X(id) extern const struct pst_kernels pst_cuda_kernels_##id;
#include "stages/ops/cuda/rows.def"
#undef X

const struct pst_kernels *pst_cuda_kernels[PST_N_KERNEL_OPS] = {
#define X(id) [PST_AT_##id] = &pst_cuda_kernels_##id,
#include "stages/ops/cuda/rows.def"
#undef X
};

#define MOST_LOOPS 8 /* of one operator */

/* Fills the entries of elementwise operators from the table of cpu. Runs before
 * anything can look up a kernel. */
PST_CONSTRUCTOR static void take_loops(void)
{
    static struct pst_kernel loops[PST_N_KERNEL_OPS][MOST_LOOPS];
    static struct pst_kernels tables[PST_N_KERNEL_OPS];

    for (unsigned i = 0; i < PST_N_KERNEL_OPS; i++) {
        if (pst_cuda_kernels[i] != NULL)
            continue;
        tables[i].at = loops[i];
        tables[i].n =
            pst_cuda_loops_take(pst_cpu_kernels[i], loops[i], MOST_LOOPS);
        if (tables[i].n > 0)
            pst_cuda_kernels[i] = &tables[i];
    }
}
