// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MAKER_H
#define PENSTOCK_STAGES_LAYOUT_MAKER_H
/* Shared state of the files that create a layout; private to them. */
#include "stages/layout/layout.h"
#include "stages/layout/prepare.h"

struct pst_layout_maker {
    struct pst_layout *l;
    const struct pst_rank_role *role;
    struct pst_arena *heap;
    struct pst_prepared prepared;
    struct pst_diag *diag;
};

/* Reserves the next bytes of the arena, adds their number to *account (a member
 * of pst_memory), and returns their offset. */
size_t pst_layout_reserve(struct pst_layout_maker *m, size_t bytes,
                          size_t *account);
/* Lays out parameters, gradients and optimizer states (params.c). The programs
 * must have their graphs. */
enum pst_status pst_layout_params(struct pst_layout_maker *m) PST_MUST_CHECK;

#endif
