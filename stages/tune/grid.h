// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_TUNE_GRID_H
#define PENSTOCK_STAGES_TUNE_GRID_H
/*
 * The grid of ranks: R replicas of a pipeline of P ranks. Contains the
 * schedules of a pipeline, lowered and proven, the division of microbatches
 * between replicas, and the sharding. It depends on plan and options alone, so
 * it is the same on all ranks. Constant once created. Exec thread only.
 *
 * Ranks are numbered as in the job and in messages: replica * P + rank of the
 * pipeline. Schedules use only the rank of the pipeline.
 */
#include "stages/base/vec.h"
#include "stages/layout/plan.h"

struct pst_grid {
    struct pst_arena texts; /* has the texts that options point to */
    struct pst_plan *plan;  /* borrowed */
    struct pst_exec_options options;
    struct pst_schedule *sched; /* schedule of replica 0 */
    /* Schedule of replicas with one microbatch less than replica 0, or NULL. */
    struct pst_schedule *short_sched;
    struct PST_VEC(struct pst_link) links;
    struct PST_VEC(struct pst_shared) shared;
    struct pst_uses uses;
    /* sharing mode per parameter; NULL: options.shard */
    unsigned char *sharing;
    struct pst_groups groups; /* {0}: steps change no parameter */
    const bool *splits; /* borrowed: struct pst_rank_role.splits, or NULL */
};

/* Creates a grid. The options must be resolved (stages/tune/choose.h); the grid
 * copies them and their texts. Borrows the plan until it is released. Must not
 * be moved afterwards. Release with pst_grid_fini also on failure. */
enum pst_status pst_grid_init(struct pst_grid *grid, struct pst_plan *plan,
                              const struct pst_exec_options *options,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Sets numbers of the optimizer and its groups, such as learning rates, to
 * those of the options. apply false: only checks them. PST_ERR_USAGE: other
 * optimizer states would be needed. After an error nothing has changed. */
enum pst_status pst_grid_retune(struct pst_grid *grid,
                                const struct pst_exec_options *options,
                                bool apply,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Copies the texts that grid->options points to into the grid: the grid may
 * outlive the run that has supplied them. */
enum pst_status pst_grid_keep_texts(struct pst_grid *grid,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Accepts {0}. */
void pst_grid_fini(struct pst_grid *grid);

/* Returns the number of ranks of the job. */
unsigned pst_grid_size(const struct pst_grid *grid);
/* Returns the number of microbatches of a replica. *ret_first: index of its
 * first one in the step. */
unsigned pst_grid_share(const struct pst_grid *grid, unsigned replica,
                        unsigned *ret_first);
const struct pst_schedule *pst_grid_schedule_of(const struct pst_grid *grid,
                                                unsigned replica);
/* Returns the optimizer options of a parameter. Needs an optimizer. */
const struct pst_optim_options *pst_grid_update(const struct pst_grid *grid,
                                                unsigned param);
/* Returns the role of a rank of the job; the caller sets the weights. */
struct pst_rank_role pst_grid_role(const struct pst_grid *grid, unsigned rank);
/* Returns PST_ERR_USAGE if `bytes` of a rank exceed options.memory_limit. */
enum pst_status pst_grid_check_memory(const struct pst_grid *grid,
                                      unsigned rank, size_t bytes,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Sets `memory`, an entry for each rank of the pipeline, to the memory of the
 * ranks of the first replica, which has the most microbatches. Checks it
 * against the limit, and adds copies of the stash to the schedule. */
enum pst_status pst_grid_measure(struct pst_grid *grid,
                                 struct pst_memory *memory,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
