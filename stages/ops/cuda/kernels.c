// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cuda/kernels.h"

#include <math.h>

#include "stages/ops/core/order.h"
#include "stages/ops/cpu/kernels.h"
#include "stages/ops/cuda/elements/copies.h"
#include "stages/ops/cuda/elements/loops.h"

#define X(id) extern const struct pst_kernels pst_cuda_kernels_##id;
#include "stages/ops/cuda/rows.def"
#undef X

const struct pst_kernels *pst_cuda_kernels[PST_N_KERNEL_OPS] = {
#define X(id) [PST_AT_##id] = &pst_cuda_kernels_##id,
#include "stages/ops/cuda/rows.def"
#undef X
};

#define MOST_COPIED 8 /* maximum number of kernels of an operator */

/* Copies to `to`, at most `most`, the kernels among `from` that need no
 * instruction set and run loops or copies; returns how many. */
static unsigned copy_kernels(const struct pst_kernels *from,
                             struct pst_kernel *to, unsigned most)
{
    unsigned n = 0;

    for (unsigned i = 0; i < from->n && n < most; i++)
        if (from->at[i].isa == PST_ISA_ANY &&
            (pst_cuda_is_loop(&from->at[i]) ||
             pst_cuda_is_copies(&from->at[i]))) {
            to[n] = from->at[i];
            to[n].flags |= PST_K_QUEUED;
            if (pst_cuda_is_copies(&to[n])) {
                n++;
                continue;
            }
            /* CUDA's functions differ from the CPU's in the last bits; kernels
             * that are exact on the CPU are exact on the GPU. */
            if (to[n].tolerance > 0.0)
                to[n].tolerance = fmax(to[n].tolerance, 1e-6);
            n++;
        }
    return n;
}

/* Gives operators without kernels of their own those that copy_kernels takes
 * from cpu's table. Runs before anything can look up a kernel. */
PST_CONSTRUCTOR static void fill_table(void)
{
    static struct pst_kernel taken[PST_N_KERNEL_OPS][MOST_COPIED];
    static struct pst_kernels tables[PST_N_KERNEL_OPS];

    for (unsigned i = 0; i < PST_N_KERNEL_OPS; i++) {
        if (pst_cuda_kernels[i] != NULL)
            continue;
        tables[i].at = taken[i];
        tables[i].n = copy_kernels(pst_cpu_kernels[i], taken[i], MOST_COPIED);
        if (tables[i].n > 0)
            pst_cuda_kernels[i] = &tables[i];
    }
}
