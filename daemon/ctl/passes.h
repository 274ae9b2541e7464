// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_PASSES_H
#define PENSTOCK_DAEMON_CTL_PASSES_H
/* `penstock show --after`: prints the result of a pass of the front end or of
 * the compiler. One thread. */
#include "daemon/common/config.h"
#include "stages/compile/program.h"
#include "stages/layout/options.h"
#include "stages/split/plan.h"

/* Returns PST_ERR_USAGE with a list of all passes if there is no such pass. */
enum pst_status pstctl_check_pass(const char *name,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Prints all passes in their order. */
enum pst_status pstctl_show_passes(bool json,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* True for a pass of the front end, which runs on a model without stages. */
bool pstctl_is_front_pass(const char *name);
/* Prints the graph of the .pt2 after the front-end pass config->after. */
enum pst_status pstctl_show_front(const char *path,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Compiles a stage up to and including the pass `last` (NULL: all), for the
 * device of the options or the CPU. *ret is owned by the caller, also on
 * failure (NULL or not); free it with pst_program_free. */
enum pst_status pstctl_stage_compile(const struct pst_plan *plan,
                                     unsigned stage,
                                     const struct pst_exec_options *options,
                                     const char *last, struct pst_program **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Prints stage config->stage after pass config->after: its graph, and those
 * kernels and offsets that are decided by then. */
enum pst_status pstctl_show_after(const struct pst_plan *plan,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
