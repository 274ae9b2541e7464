// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_RUN_PROOF_PROOF_H
#define PENSTOCK_TESTS_RUN_PROOF_PROOF_H
/*
 * Proves what stages/layout has planned, by simulating the actions of a rank
 * in another way than the planners do. Violations are PST_ERR_INTERNAL.
 */
#include "stages/layout/memory/residency.h"
#include "stages/layout/memory/spill.h"
#include "stages/run/engine.h"

/*
 * Proves that the events fit the rank's actions: values are resident when a
 * kernel reads them, none are gathered twice, and none are resident when a
 * stage is resharded or the step ends. The error names rank, action, kernel and
 * group.
 */
enum pst_status prove_residency(const struct pst_layout *layout,
                                struct pst_toucher *toucher,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* A copy may run at any time from its earliest begin to its latest end: each
 * action must find its microbatch in its slot, and no copy that may run during
 * the action may use that slot. */
enum pst_status prove_spills(const struct pst_rank_role *role,
                             const struct pst_layout *layout,
                             const struct pst_actions *actions,
                             struct pst_diag *diag) PST_MUST_CHECK;

/* Proves both of all ranks of this process, for all numbers of microbatches. */
enum pst_status prove_layouts(const struct pst_engine *engine,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
