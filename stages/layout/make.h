// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MAKE_H
#define PENSTOCK_STAGES_LAYOUT_MAKE_H
/* Creates a rank's layout, before memory is allocated. Exec thread only. */
#include "stages/layout/layout.h"

/* pst_layout_fixed lays out persistent tensors and compiles the programs;
 * pst_layout_finish, once slots are assigned (slots.h), lays out the transient
 * ones. */
enum pst_status pst_layout_fixed(struct pst_layout *l,
                                 const struct pst_rank_role *role,
                                 struct pst_arena *heap,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_layout_finish(struct pst_layout *l,
                                  const struct pst_rank_role *role,
                                  const struct pst_actions *actions,
                                  struct pst_arena *heap,
                                  struct pst_diag *diag) PST_MUST_CHECK;
#endif
