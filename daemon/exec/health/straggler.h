// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_HEALTH_STRAGGLER_H
#define PENSTOCK_DAEMON_EXEC_HEALTH_STRAGGLER_H
/*
 * Which rank holds the others up, by what it computes in each step: forward and
 * backward kernels with the data that they read, without any wait.
 *
 * A rank is compared with itself: with the median of its first steps. As far as
 * the other ranks are slower than theirs, too (by their median), it is excused:
 * a machine that is loaded evenly has no straggler. With replicas it is also
 * compared with the ranks that have the same stages, by microbatch. One that
 * takes more than 1.3 times as long in 12 of the newest 16 steps is named; it
 * is no straggler any more when it is slow in 4 of them at most.
 *
 * If all 16 steps take so much longer than at first, and no rank's computing
 * explains it, that is suspicious: then one is to be measured
 * (stages/run/measure.h), and the rank that spends most of the excess with
 * messages is named.
 *
 * No clock and no messages: numbers go in, changes come out. Rank 0's exec
 * thread.
 */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

#define PSTD_STRAGGLER_WINDOW 16 /* newest steps; as many are learnt from */

/* A series of times, compared with its beginning. */
struct pstd_series {
    double base; /* seconds, median of the first steps; 0: not known yet */
    double newest[PSTD_STRAGGLER_WINDOW]; /* seconds, while it is learnt */
    double ratios[PSTD_STRAGGLER_WINDOW]; /* to what is expected */
    uint32_t slow;                        /* bits, newest first */
    bool named;
};

/* Somebody was named, or is no straggler any more. */
struct pstd_straggler {
    unsigned rank;
    bool named;
    bool communication; /* its messages, not what it computes */
    double ratio;       /* of times to those expected, median of the window */
};

/* What a step took on one rank. */
struct pstd_work {
    double seconds; /* of computing */
    unsigned microbatches;
};

struct pstd_stragglers {
    unsigned ranks;                 /* of the job; 0: nothing is looked at */
    unsigned per_replica;           /* ranks of a pipeline */
    struct pstd_series *of;         /* per rank */
    struct pstd_work *work;         /* per rank, for the caller */
    double *sorted, *peers;         /* per rank, scratch */
    struct pstd_straggler *changes; /* by the newest call; ranks + 1 */
    unsigned n_changes;
    struct pstd_series steps; /* whole ones that computing does not explain */
    unsigned link;            /* rank that is named for its messages, or... */
    bool has_link;            /* ...none */
    uint64_t n;               /* steps so far */
    uint64_t n_steps;         /* of these, in the series of whole ones */
    uint64_t measure_at;      /* no sooner is a step measured again */
    uint64_t patience;        /* steps until then, if nothing is found */
    bool suspicious;          /* a step is to be measured */
    double excess;            /* seconds that steps take too long then */
};

enum pst_status pstd_stragglers_init(struct pstd_stragglers *s, unsigned ranks,
                                     unsigned per_replica,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pstd_stragglers_fini(struct pstd_stragglers *s);
/* The model or its kernels have changed, or the run ends: all is learnt anew,
 * and nobody is named any more, which is a change of each that was. */
void pstd_stragglers_reset(struct pstd_stragglers *s);
/* A step has ended. work: per rank; seconds: of all of it. */
void pstd_stragglers_step(struct pstd_stragglers *s,
                          const struct pstd_work *work, double seconds);
/* A step was measured, since it was suspicious: seconds that each rank spent
 * with messages, sending and waiting for such as were made. */
void pstd_stragglers_measured(struct pstd_stragglers *s,
                              const double *messages);
/* Ranks that are named now. */
unsigned pstd_stragglers_count(const struct pstd_stragglers *s);

#endif
