// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_FAULT_H
#define PENSTOCK_STAGES_OPS_CORE_FAULT_H
/*
 * What a kernel reports that only the data shows: an index out of range, a
 * singular matrix. A fault is plain words, so that it can lie in a device's
 * memory; the host makes the sentence. The step goes on and is not applied.
 *
 * Threads of a kernel may report at the same time: the first one wins.
 */
#include <stddef.h>
#include <stdint.h>

struct pst_node;

enum pst_fault_code {
#define X(code, text) PST_FAULT_##code,
#include "stages/ops/core/fault.def"
#undef X
    PST_N_FAULTS
};

/* What the text of the code names, in its order. */
union pst_fault_number {
    int64_t i;
    double g;
};
#define PST_FAULT_NUMBERS 4

struct pst_fault {
    uint32_t set;        /* 0: no fault, and the rest is undefined */
    uint32_t code;       /* enum pst_fault_code */
    uint32_t site;       /* call->site of the kernel */
    uint32_t microbatch; /* of the step */
    union pst_fault_number numbers[PST_FAULT_NUMBERS];
};
_Static_assert(sizeof(struct pst_fault) == 48, "copied from devices");

/* The sentence, cut off at `size`. node: whose kernel it was, NULL if there is
 * none. */
void pst_fault_describe(const struct pst_fault *fault,
                        const struct pst_node *node, char *text, size_t size);

#endif
