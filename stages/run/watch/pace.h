// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_WATCH_PACE_H
#define PENSTOCK_STAGES_RUN_WATCH_PACE_H
/*
 * Learns a limit on the time without progress in a step from the durations of
 * previous steps: jobs with short steps get a short limit. Exec thread.
 */
#define PST_PACE_STEPS 64

/* Must be zero-initialized. */
struct pst_pace {
    double seconds[PST_PACE_STEPS]; /* durations of the newest steps */
    unsigned n;                     /* steps so far */
};

/* Records the duration of a step. Returns the limit in seconds; 0: too few
 * steps so far. */
double pst_pace_add(struct pst_pace *pace, double seconds);

#endif
