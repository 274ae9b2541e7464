// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MAKE_H
#define PENSTOCK_STAGES_LAYOUT_MAKE_H
/* Makes a rank's layout, before there is memory. Exec thread only. */
#include "stages/layout/layout.h"

/* What lasts, and compiles the programs; once slots are known (slots.h), what
 * comes and goes. */
enum pst_status pst_layout_fixed(struct pst_layout *l,
                                 const struct pst_rank_role *role,
                                 struct pst_arena *heap,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_layout_rest(struct pst_layout *l,
                                const struct pst_rank_role *role,
                                const struct pst_actions *actions,
                                struct pst_arena *heap,
                                struct pst_diag *diag) PST_MUST_CHECK;
#endif
