// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_AUTO_SEARCH_H
#define PENSTOCK_STAGES_SCHED_AUTO_SEARCH_H
/*
 * What schedule "auto" tries: auto.c all schedules by name and the choice,
 * search.c lists of the greedy scheduler. Private to stages/sched/.
 */
#include "stages/sched/costs.h"

/* A schedule that is at most this much slower than the fastest one is as fast:
 * no prediction is better. */
#define PST_AUTO_NEAR 0.005

struct pst_tried {
    struct pst_candidate is;
    struct pst_schedule *sched; /* NULL: not possible */
};

struct pst_search {
    const struct pst_schedule_options *o;
    const struct pst_costs *costs;
    struct PST_VEC(struct pst_tried) tried;
    struct pst_diag why; /* of the first that was made and cannot run */
    struct pst_diag *diag;
};

/* Appraises a schedule; takes it, also on failure. text: how it was made. */
enum pst_status pst_search_try(struct pst_search *x, struct pst_schedule *sched,
                               const char *name,
                               const char *text) PST_MUST_CHECK;
/* Tries lists with the stages in several places: of each some between the
 * fastest one and the one with least memory. */
enum pst_status pst_search_places(struct pst_search *x) PST_MUST_CHECK;

#endif
