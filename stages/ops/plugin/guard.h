// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_PLUGIN_GUARD_H
#define PENSTOCK_STAGES_OPS_PLUGIN_GUARD_H
/*
 * Checks of plugins while they run (--check-plugins): memory that a kernel may
 * not write, results that it leaves unwritten, and bits that change from one
 * execution to the next. Any thread.
 */
#include "stages/ops/plugin/frame.h"

/* Switches the checks on for the process. Before kernels run. */
void pst_plugin_guard_set(bool on);
bool pst_plugin_guard_is_on(void);

/*
 * Runs the kernel twice, the second time in one thread, with results and
 * scratch in guarded memory of their own that is filled with different bytes.
 * Copies the results of the first run to c->out. Returns false, and writes
 * what is wrong, if a run fails, if a byte around a result or the scratch or of
 * an input has changed, or if the results of the two runs differ.
 */
bool pst_plugin_guard_run(const struct pst_call *c,
                          char why[PST_PLUGIN_FAULT_TEXT]) PST_MUST_CHECK;

#endif
