// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_COUNTERS_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_COUNTERS_H
/*
 * Counts the messages in flight that actions wait for: receives by the action
 * that reads their data, sends by the slot that they are sent from. Actions and
 * messages hold addresses of the counters. Allocated in the rank's heap. The
 * rank's own thread.
 */
#include "stages/layout/layout.h"

struct pst_counters {
    /* Receives in flight: by stage (NULL: on another rank), then forward or
     * backward, then microbatch. */
    unsigned **receives;
    unsigned *sends; /* sends in flight, by number of the rank's slot */
    unsigned n_microbatches;
};

enum pst_status pst_counters_init(struct pst_counters *c,
                                  const struct pst_rank_role *role,
                                  const struct pst_layout *layout,
                                  struct pst_arena *heap,
                                  struct pst_diag *diag) PST_MUST_CHECK;

static inline unsigned *pst_counter_arriving(const struct pst_counters *c,
                                             int stage, bool backward,
                                             int microbatch)
{
    return &c->receives[stage][(backward ? c->n_microbatches : 0) +
                               (unsigned)microbatch];
}

static inline unsigned *pst_counter_leaving(const struct pst_counters *c,
                                            const struct pst_slot_pool *pool,
                                            int slot)
{
    return &c->sends[pool->first + (unsigned)slot];
}

#endif
