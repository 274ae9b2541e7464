// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_BORROW_H
#define PENSTOCK_STAGES_RUN_RANK_BORROW_H
/*
 * Lets a rank read a parameter or buffer in memory outside of its arena. Exec
 * thread, between steps.
 */
#include "stages/layout/actions.h"
#include "stages/layout/layout.h"

/* Lets all kernels and copies of a rank that read bytes [offset, offset +
 * bytes) of its arena, which begins at base, read them at `from` instead, now
 * and in later steps. The rank has started; `from` has the layout of the bytes,
 * is borrowed until the rank is freed, and is memory of the host. Returns
 * false, with nothing changed, if the rank writes or sends some of these bytes.
 */
bool pst_rank_borrow(const struct pst_layout *layout, unsigned n_stages,
                     const struct pst_actions *actions, unsigned char *base,
                     size_t offset, size_t bytes, const void *from);

#endif
