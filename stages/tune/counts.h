// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_TUNE_COUNTS_H
#define PENSTOCK_STAGES_TUNE_COUNTS_H
/*
 * The grids of an engine whose steps may have different numbers of microbatches
 * (options.counts): one for each number. Schedules differ; parameters and
 * optimizer states stay where they are, so all grids place stages on the same
 * ranks, and programs have I and W apart if the schedule of any number needs
 * it. Constant once created. Exec thread only.
 */
#include "stages/tune/grid.h"

struct pst_grids {
    struct pst_grid *at; /* in the order of options.counts; at least one */
    unsigned n;
    bool *splits; /* per stage, if n > 1: struct pst_rank_role.splits */
};

/* Creates the grids. The options must be resolved; with schedule "auto" the
 * largest number of microbatches decides where stages are. An error names the
 * number for which there is no schedule. Must not be moved afterwards. Release
 * with pst_grids_fini also on failure. */
enum pst_status pst_grids_init(struct pst_grids *grids, struct pst_plan *plan,
                               const struct pst_exec_options *options,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Accepts {0}. */
void pst_grids_fini(struct pst_grids *grids);
/* Returns the index of the grid with that number of microbatches; grids->n if
 * there is none. */
unsigned pst_grids_find(const struct pst_grids *grids, unsigned microbatches);
/* Puts "with 8 microbatches" before the error of a grid, if there are several
 * and the number may be its cause. */
void pst_grids_prefix_error(const struct pst_grids *grids, unsigned i,
                            struct pst_diag *diag);

#endif
