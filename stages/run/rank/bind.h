// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_BIND_H
#define PENSTOCK_STAGES_RUN_RANK_BIND_H
/*
 * Assigns instructions and messages, with addresses, to the actions of a rank
 * once the arena exists, so that a step only walks arrays. Exec thread only.
 */
#include "stages/layout/channels.h"
#include "stages/run/rank/step/counters.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/sums/reduce.h"

/* All members are borrowed. */
struct pst_binding {
    const struct pst_rank_role *role;
    const struct pst_layout *layout;
    struct pst_actions *actions;
    struct pst_channels *channels;
    const struct pst_rank_device *device;
    const struct pst_counters *counters;
    const struct pst_reductions *reductions;
    struct pst_arena *heap;
    struct pst_diag *diag;
};

/* Binds the messages of SEND and RECV; *ret_n: their number. */
enum pst_status pst_bind_messages(const struct pst_binding *b,
                                  unsigned *ret_n) PST_MUST_CHECK;
/* Binds the instructions of all actions that compute or copy. */
enum pst_status pst_bind_instrs(const struct pst_binding *with) PST_MUST_CHECK;

#endif
