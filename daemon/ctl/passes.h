// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_PASSES_H
#define PENSTOCK_DAEMON_CTL_PASSES_H
/* penstock show: what a pass of the front end or of the compiler leaves. One
 * thread. */
#include "daemon/common/config.h"
#include "stages/split/plan.h"

/* PST_ERR_USAGE that lists all names if no pass is called so. */
enum pst_status pstctl_check_pass(const char *name,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* All passes in their order. */
enum pst_status pstctl_show_passes(bool json,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* True of a pass of the front end, which sees a model and no stages. */
bool pstctl_is_front_pass(const char *name);
/* The graph of the .pt2 behind such a pass, config->after. */
enum pst_status pstctl_show_front(const char *path,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Stage config->stage behind pass config->after: its graph, and kernels and
 * places as far as they are known there. */
enum pst_status pstctl_show_after(const struct pst_plan *plan,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
