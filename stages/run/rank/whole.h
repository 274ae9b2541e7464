// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_WHOLE_H
#define PENSTOCK_STAGES_RUN_RANK_WHOLE_H
/*
 * A rank is made of parts; here they come together. Only the files that drive
 * all of them include this (scripts/check-layers.py has the list); everything
 * else gets the parts that it works on as arguments.
 */
#include "stages/layout/plan.h"
#include "stages/run/rank/step/agree.h"
#include "stages/run/rank/step/counters.h"
#include "stages/run/rank/step/reduce.h"
#include "stages/run/rank/step/replicas.h"
#include "stages/run/rank/step/stash.h"
#include "stages/run/rank/step/step.h"
#include "stages/run/rank/step/transmit.h"

struct pst_rank {
    struct pst_rank_plan plan; /* decided before there is memory */

    /* Made when the rank starts; constant but for what they count. */
    struct pst_rank_device device;
    struct pst_counters counters;

    /* Move in a step, each by its own functions. */
    struct pst_traffic traffic;
    struct pst_reductions reductions;
    struct pst_replicas replicas;
    struct pst_stash stash;
    struct pst_transmission values;
    struct pst_agreement agreement;
    struct pst_step step;
    struct pst_rank_signs signs; /* read by other threads */
};

/* The phases behind the last action (conclude.c); PST_AGAIN: waits for others.
 */
enum pst_status pst_rank_advance_end(struct pst_rank *r) PST_MUST_CHECK;

#endif
