// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_TRANSMIT_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_TRANSMIT_H
/*
 * Values that one rank sends to others at the end of a step, so that all begin
 * the next step with the same values: a parameter that its owner transmits,
 * after the update, to the ranks of its replica that read it; a buffer that the
 * step changed, from replica 0 to the others; a buffer that several stages
 * write, from the last of these to the ranks that read it first.
 *
 * Created when the rank starts, in its heap. The rank's own thread.
 */
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/traffic.h"

struct pst_layout;
struct pst_rank_role;

struct pst_transmission {
    struct pst_message *messages;
    unsigned n;
    unsigned waiting; /* messages not done */
};

enum pst_status pst_transmission_init(struct pst_transmission *t,
                                      const struct pst_rank_role *role,
                                      const struct pst_layout *layout,
                                      const struct pst_rank_device *device,
                                      struct pst_arena *heap,
                                      struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_transmission_post(
    struct pst_transmission *t, struct pst_traffic *traffic) PST_MUST_CHECK;

#endif
