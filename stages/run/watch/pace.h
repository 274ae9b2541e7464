// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_WATCH_PACE_H
#define PENSTOCK_STAGES_RUN_WATCH_PACE_H
/*
 * How long a rank may stand still in a step, learnt from the steps before: a
 * job of short steps is not to wait long for one that hangs, and one of very
 * long steps may have kernels that take a while. Exec thread.
 */
#define PST_PACE_STEPS 64

/* All zero at first. */
struct pst_pace {
    double seconds[PST_PACE_STEPS]; /* of the newest steps */
    unsigned n;                     /* steps so far */
};

/* A step took so long. Returns the limit in seconds; 0: too few steps so far.
 */
double pst_pace_take(struct pst_pace *pace, double seconds);

#endif
