// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_SIGNS_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_SIGNS_H
/*
 * Progress counters of a rank: the only state that threads of other ranks read
 * while it runs. Only the rank's own thread writes them.
 */
#include <stdatomic.h>

#include "stages/base/host/alive.h"

struct pst_rank_signs {
    atomic_uint_fast64_t work_done; /* kernels, actions and messages so far */
    atomic_uint at;                 /* index of the running action */
};

/* Counts progress, of the rank and of the process. */
static inline void pst_signs_count_progress(struct pst_rank_signs *s)
{
    atomic_store_explicit(
        &s->work_done,
        atomic_load_explicit(&s->work_done, memory_order_relaxed) + 1,
        memory_order_relaxed);
    pst_alive_record_progress();
}

#endif
