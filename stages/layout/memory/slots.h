// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MEMORY_SLOTS_H
#define PENSTOCK_STAGES_LAYOUT_MEMORY_SLOTS_H
/* Assigns slots to the actions of a rank. Exec thread only. */
#include "stages/layout/channels.h"

/* Decides the slot of every action, the size of every pool, and which pools
 * share their slots. The programs must be compiled. */
enum pst_status pst_slots_assign(const struct pst_rank_role *role,
                                 struct pst_layout *layout,
                                 struct pst_actions *actions,
                                 struct pst_channels *channels,
                                 struct pst_arena *heap,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
