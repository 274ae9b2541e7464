// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_PLUGIN_GUARD_H
#define PENSTOCK_STAGES_OPS_PLUGIN_GUARD_H
/*
 * Checks of plugins while they run (--check-plugins). They find writes to
 * memory that is not the kernel's, results that stay unwritten, and bits that
 * change from one execution to the next. Any thread.
 */
#include "stages/ops/plugin/frame.h"

/* Switches the checks on or off for the process. Call before kernels run. */
void pst_plugin_guard_set(bool on);
bool pst_plugin_guard_is_on(void);

/*
 * Runs the kernel twice, the second time in one thread. Each run has its own
 * results and scratch, in guarded memory that is filled with different bytes.
 * Copies the results of the first run to c->out. Returns false and describes
 * the fault in `why` if a run fails, if a byte of an input or around a result
 * or the scratch has changed, or if the results of the two runs differ.
 */
bool pst_plugin_guard_run(const struct pst_call *c,
                          char why[PST_PLUGIN_FAULT_TEXT]) PST_MUST_CHECK;

#endif
