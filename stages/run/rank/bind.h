// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_BIND_H
#define PENSTOCK_STAGES_RUN_RANK_BIND_H
/*
 * Gives the actions of a rank their instructions and messages, with addresses,
 * once the arena is there: a step walks arrays and neither looks up nor
 * decides. Exec thread only.
 */
#include "stages/layout/channels.h"
#include "stages/run/rank/step/counters.h"
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/reduce.h"

/* Borrowed, all of it. */
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

/* The messages of SEND and RECV; *ret_n of them. */
enum pst_status pst_bind_messages(const struct pst_binding *b,
                                  unsigned *ret_n) PST_MUST_CHECK;
/* The instructions of all that compute or copy. */
enum pst_status pst_bind_instrs(const struct pst_binding *with) PST_MUST_CHECK;

#endif
