// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CORE_FAULT_H
#define PENSTOCK_STAGES_OPS_CORE_FAULT_H
/*
 * Faults that a kernel detects in its data: an index out of range, a singular
 * matrix. A fault consists of plain words, so that it can be in device memory;
 * the host formats the text. The step runs to its end, but its update is not
 * applied.
 *
 * Threads of a kernel may report concurrently: the first one wins.
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

/* Numbers for the placeholders of the code's text, in order. */
union pst_fault_number {
    int64_t i;
    double g;
};
#define PST_FAULT_NUMBERS 4

struct pst_fault {
    uint32_t set;        /* 0: no fault, and the rest is undefined */
    uint32_t code;       /* enum pst_fault_code */
    uint32_t site;       /* call->site of the kernel's launch */
    uint32_t microbatch; /* microbatch of the step */
    union pst_fault_number numbers[PST_FAULT_NUMBERS];
};
_Static_assert(sizeof(struct pst_fault) == 48, "copied from devices");

/* Keeps a copy of a text that a fault has instead of numbers (%t), and returns
 * its number. The newest 256 texts of the process are kept, which is more than
 * the ranks in it: of each rank only the first fault of a step is read. */
int64_t pst_fault_keep_text(const char *text);

/* Formats the text, truncated to `size`. node: the node of the kernel, NULL if
 * unknown. */
void pst_fault_describe(const struct pst_fault *fault,
                        const struct pst_node *node, char *text, size_t size);

#endif
