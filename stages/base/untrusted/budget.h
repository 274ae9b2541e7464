// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_UNTRUSTED_BUDGET_H
#define PENSTOCK_STAGES_BASE_UNTRUSTED_BUDGET_H
/*
 * Heap budget for a reader of an untrusted file. Between begin and end,
 * allocations of this thread count, and freed blocks are subtracted; an
 * allocation that would exceed the budget fails as if memory had run out, and
 * sets `exceeded` so that the reader can distinguish the two. Budgets nest: an
 * inner one also counts in the outer one.
 */
#include "stages/base/macros.h"

#include <stdbool.h>
#include <stdint.h>

/* A budget has PST_BUDGET_TIMES heap bytes per byte of the file, plus
 * PST_BUDGET_LEAST for any file. */
#define PST_BUDGET_TIMES 40u
#define PST_BUDGET_LEAST ((uint64_t)64 << 20)

struct pst_budget {
    uint64_t most;
    /* bytes; negative if blocks allocated before begin are freed */
    int64_t used;
    bool exceeded;
    struct pst_budget *outer;
};

/* Returns the budget in heap bytes for a file of this many bytes. */
uint64_t pst_budget_of(uint64_t bytes);
/* Begins the budget for a file, or a part of one, of this many bytes. Borrows
 * *budget until pst_budget_end. */
void pst_budget_begin(struct pst_budget *budget, uint64_t bytes);
void pst_budget_end(struct pst_budget *budget);

#endif
