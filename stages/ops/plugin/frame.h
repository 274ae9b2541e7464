// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_PLUGIN_FRAME_H
#define PENSTOCK_STAGES_OPS_PLUGIN_FRAME_H
/*
 * Calls a plugin's kernel (c->owner) and passes the call's operands as structs
 * of penstock_plugin.h. Any thread.
 */
#include "stages/ops/core/op.h"

/* Bytes of the text that describes a failure. */
#define PST_PLUGIN_FAULT_TEXT 240

/* Returns the bytes of scratch that the kernel asks for. */
size_t pst_plugin_frame_scratch(const struct pst_call *c);
/* Runs the kernel. If it fails, writes why and returns false. */
bool pst_plugin_frame_run(const struct pst_call *c,
                          char why[PST_PLUGIN_FAULT_TEXT]) PST_MUST_CHECK;

#endif
