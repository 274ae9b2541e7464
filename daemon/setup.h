// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_SETUP_H
#define PENSTOCK_DAEMON_SETUP_H
/*
 * From options to what the library takes; for the exec thread and for the
 * commands of penstock that run a plan in their own process. No state.
 */
#include "daemon/config.h"
#include "stages/archive/data.h"
#include "stages/exec/exec.h"

/* Texts stay borrowed from config. train false: no optimizer. */
enum pst_status pstd_exec_options(const struct pstd_config *config,
                                  unsigned ranks, bool train,
                                  struct pst_exec_options *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* --data for the inputs of a plan. Returns owned. */
enum pst_status pstd_open_data(const struct pstd_config *config,
                               const struct pst_plan *plan,
                               struct pst_data **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Of one step: rows of the first input that has any; elements of the first
 * integer input of rank 2 or more, 0 if there is none. */
uint64_t pstd_samples(const struct pst_plan *plan, uint64_t microbatches);
uint64_t pstd_tokens(const struct pst_plan *plan, uint64_t microbatches);
/* Floating-point operations of one training step. */
double pstd_flops(const struct pst_plan *plan, uint64_t microbatches);

/* "0-1;2-3": stages of each rank. */
void pstd_placement(const struct pst_schedule *sched, struct pst_str *out);
/* Stages of one rank out of such a text; "-" if it has none. Borrows. */
void pstd_placement_of(const char *placement, unsigned rank,
                       struct pst_str *out);

/* High-water mark of this process's resident memory, VmHWM. */
uint64_t pstd_peak_rss(void);
uint64_t pstd_rss(void);

#endif
