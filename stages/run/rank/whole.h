// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_WHOLE_H
#define PENSTOCK_STAGES_RUN_RANK_WHOLE_H
/*
 * The components of a rank. Only the files that drive all of them include this
 * header (scripts/checks/check-layers.py has the list); all other code gets the
 * components that it works on as arguments.
 */
#include "stages/layout/plan.h"
#include "stages/run/rank/step/agree.h"
#include "stages/run/rank/step/counters.h"
#include "stages/run/rank/step/stash.h"
#include "stages/run/rank/step/step.h"
#include "stages/run/rank/step/sums/reduce.h"
#include "stages/run/rank/step/sums/replicas.h"
#include "stages/run/rank/step/transmit.h"

struct pst_rank {
    struct pst_rank_plan plan; /* decided before memory is allocated */

    struct pst_rank_device *device; /* borrowed; NULL until the rank starts */
    struct pst_counters counters;   /* created when the rank starts */

    /* The following members change in a step, each through its own functions.
     */
    struct pst_traffic traffic;
    struct pst_reductions reductions;
    struct pst_replicas replicas;
    struct pst_stash stash;
    struct pst_transmission values;
    struct pst_agreement agreement;
    struct pst_step step;
    struct pst_rank_signs signs; /* read by other threads */
};

/* Advances through the phases after the last action (conclude.c); PST_AGAIN:
 * waits for other ranks. */
enum pst_status pst_rank_advance_end(struct pst_rank *r) PST_MUST_CHECK;

#endif
