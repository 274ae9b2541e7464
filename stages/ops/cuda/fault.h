// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CUDA_FAULT_H
#define PENSTOCK_STAGES_OPS_CUDA_FAULT_H
/* Parameters with which kernels report faults. */
#include <stddef.h>

#include "stages/ops/core/op.h"
#include "stages/ops/cuda/code/params.h"

_Static_assert(sizeof(struct pst_cuda_fault_words) ==
                       sizeof(struct pst_fault) &&
                   offsetof(struct pst_cuda_fault_words, microbatch) ==
                       offsetof(struct pst_fault, microbatch) &&
                   offsetof(struct pst_cuda_fault_words, numbers) ==
                       offsetof(struct pst_fault, numbers),
               "code/fault.h");

/* Returns the parameters with which a kernel reports this fault. */
static inline struct pst_cuda_fault pst_cuda_fault_of(const struct pst_call *c,
                                                      enum pst_fault_code code)
{
    return (struct pst_cuda_fault){(void *)c->fault, (uint32_t)code, c->site,
                                   c->rng.microbatch};
}

#endif
