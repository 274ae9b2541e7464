// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_MODEL_CUT_H
#define PENSTOCK_DAEMON_COMMON_MODEL_CUT_H
/* Converts the options of PSTD_OPT_SPLIT to those of pst_split, reading the
 * files that they name. One thread. */
#include "daemon/common/config.h"
#include "stages/base/arena.h"
#include "stages/split/plan.h"

struct pstd_cut {
    struct pst_arena arena;
    struct pst_split_options options; /* borrows the configuration */
};

/* Reads options and files into *cut, for pstd_cut_fini to release; after an
 * error there is nothing to release. */
enum pst_status pstd_cut_init(struct pstd_cut *cut,
                              const struct pstd_config *config,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* True if --costs affects where a model is cut. It affects the choice of a
 * schedule in any case. */
bool pstd_cut_uses_costs(const struct pstd_config *config);
void pstd_cut_fini(struct pstd_cut *cut);

#endif
