// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_AUTO_SEARCH_H
#define PENSTOCK_STAGES_SCHED_AUTO_SEARCH_H
/*
 * Candidates of schedule "auto": auto.c tries all schedules by name and makes
 * the choice, search.c tries lists of the greedy scheduler. Private to
 * stages/sched/.
 */
#include "stages/sched/costs.h"

/* Schedules within this share of the fastest one's time count as equally fast,
 * since predictions are no better. */
#define PST_AUTO_NEAR 0.005

struct pst_tried {
    struct pst_candidate candidate;
    struct pst_schedule *sched; /* NULL: the schedule cannot run */
};

struct pst_search {
    const struct pst_schedule_options *o;
    const struct pst_costs *costs;
    struct PST_VEC(struct pst_tried) tried;
    struct pst_diag why; /* error of the first schedule that cannot run */
    struct pst_diag *diag;
};

/* Evaluates a schedule and records it as candidate; takes the schedule, also on
 * failure. text: how it was generated. */
enum pst_status pst_search_evaluate(struct pst_search *x,
                                    struct pst_schedule *sched,
                                    const char *name,
                                    const char *text) PST_MUST_CHECK;
/* Tries schedules of the list scheduler with several placements of stages; for
 * each placement, some between the fastest and the one with least memory. */
enum pst_status pst_search_places(struct pst_search *x) PST_MUST_CHECK;

#endif
