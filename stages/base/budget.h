// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_BUDGET_H
#define PENSTOCK_STAGES_BASE_BUDGET_H
/*
 * What a reader of an untrusted file may take from the heap. Between begin and
 * end each allocation of this thread counts, and each that is freed counts
 * back; one that would exceed the budget fails as if memory were out, and the
 * reader says by `exceeded` that it was not. Budgets may lie in each other: the
 * inner one is counted in the outer one, too.
 */
#include "stages/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

/* Heap for each byte of a file, and what any file may have. */
#define PST_BUDGET_TIMES 40u
#define PST_BUDGET_LEAST ((uint64_t)64 << 20)

struct pst_budget {
    uint64_t most;
    int64_t used; /* blocks from before may be freed: negative */
    bool exceeded;
    struct pst_budget *outer;
};

/* What a file of so many bytes may take. */
uint64_t pst_budget_of(uint64_t bytes);
/* For a file, or a part of one, of so many bytes. Borrows *budget until end. */
void pst_budget_begin(struct pst_budget *budget, uint64_t bytes);
void pst_budget_end(struct pst_budget *budget);

#endif
