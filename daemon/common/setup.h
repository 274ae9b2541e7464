// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_SETUP_H
#define PENSTOCK_DAEMON_COMMON_SETUP_H
/*
 * From options to what the library takes; for the exec thread and for the
 * commands of penstock that run a plan in their own process. No state.
 */
#include "daemon/common/config.h"
#include "stages/files/data.h"
#include "stages/run/data/mean.h"
#include "stages/run/exec.h"
#include "stages/split/bind/bind.h"

/* What a rank of `penstock run` prints once somebody has asked it to end; its
 * number follows. */
#define PSTD_ASKED_TEXT "asked to end: rank "

/* --watchdog, or what it is without: then limits of steps are learnt. */
double pstd_watchdog(const struct pstd_config *config);
/* Texts stay borrowed from config. train false: no optimizer. */
enum pst_status pstd_exec_options(const struct pstd_config *config,
                                  unsigned ranks, bool train,
                                  struct pst_exec_options *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* The smaller microbatches; borrows them. */
void pstd_set_batch(struct pst_exec_options *options,
                    const struct pst_batch *batch);
/* The plans of a step's microbatches, by --microbatch-size or --batch; --chunk
 * is noted in plan. Borrows plan until pst_batch_fini. */
enum pst_status pstd_open_batch(const struct pstd_config *config,
                                struct pst_plan *plan, struct pst_batch *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* --data for the inputs of these plans. compare: refuses integers that the
 * model has no rows or classes for; one rank does. Returns owned. */
enum pst_status pstd_open_data(const struct pstd_config *config,
                               const struct pst_batch *batch, bool compare,
                               struct pst_data **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* The same for an evaluation, whose microbatches all have plan's rows; rows of
 * the file that fill none are no fault. tail of the batch does not matter. */
enum pst_status pstd_open_eval_data(const struct pstd_config *config,
                                    const struct pst_batch *batch, bool compare,
                                    struct pst_data **ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* What the mean of an evaluation counts, by --microbatch-weights. Where the
 * loss can ignore targets it counts targets even without that option: otherwise
 * the mean would depend on how the rows are divided. */
enum pst_mean_by pstd_mean_by(const struct pstd_config *config);

/* Is what `option` has written the file that is read? Then it would be gone.
 * Both may be NULL. */
enum pst_status pstd_check_apart(const char *option, const char *path,
                                 const char *input,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/*
 * model/tokens.c: of one step: elements of the first integer input, of rank 2
 * or more, that an embedding looks up; of a model without one those of the
 * first input of rank 2 with integers of more than a byte; 0 if there is none.
 * Images and masks of bytes are no tokens. Looks through the graphs: not for
 * each step.
 */
uint64_t pstd_tokens(const struct pst_batch *batch);
/* Floating-point operations of one training step. */
double pstd_flops(const struct pst_batch *batch);

/* "0-1;2-3": stages of each rank. */
void pstd_placement(const struct pst_schedule *sched, struct pst_str *out);
/* Stages of a rank of the job out of such a text, which is the same for each
 * replica; "-" if it has none. Borrows. */
void pstd_placement_of(const char *placement, unsigned rank,
                       struct pst_str *out);

/* High-water mark of this process's resident memory, VmHWM. */
uint64_t pstd_peak_rss(void);
uint64_t pstd_rss(void);

/* Of the arenas of all ranks in this process. */
size_t pstd_planned_bytes(const struct pst_engine *engine);

#endif
