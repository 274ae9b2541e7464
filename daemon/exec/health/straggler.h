// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_HEALTH_STRAGGLER_H
#define PENSTOCK_DAEMON_EXEC_HEALTH_STRAGGLER_H
/*
 * Detects a rank that delays the others, from its computing time in each step:
 * forward and backward kernels with reading their data, without waiting.
 *
 * A rank is compared with itself, with the median of its first steps. If the
 * other ranks have become slower, too, the rank may be slower by the same
 * factor (their median): an evenly loaded machine has no straggler. With
 * replicas it is also compared, per microbatch, with the ranks that have the
 * same stages. A rank that takes more than 1.3 times as long in 12 of the
 * newest 16 steps is named; it is no longer a straggler when at most 4 of them
 * are slow.
 *
 * Steps are suspicious if all 16 take that much longer than the first ones, and
 * no rank's computing explains it. One of them is then measured
 * (stages/run/measure.h), and the rank that spends most of the excess on
 * messages is named.
 *
 * The functions read no clock and send no messages: the caller passes times and
 * reports the changes. Rank 0's exec thread.
 */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* Steps in a window: the newest ones, or the first ones. */
#define PSTD_STRAGGLER_WINDOW 16

/* Times of one activity in successive steps, compared with those of the first
 * steps. */
struct pstd_series {
    double base; /* seconds, median of the first steps; 0: not known yet */
    /* Seconds of the first steps, from which `base` is computed. */
    double newest[PSTD_STRAGGLER_WINDOW];
    double ratios[PSTD_STRAGGLER_WINDOW]; /* time over expected time */
    uint32_t slow; /* bit mask of slow steps, the newest one in bit 0 */
    bool named;
};

/* A change: a rank was named as a straggler, or is one no longer. */
struct pstd_straggler {
    unsigned rank;
    bool named;
    bool communication; /* its messages are slow, not its computing */
    double ratio;       /* measured over expected time, median of the window */
};

/* Work of one rank in a step. */
struct pstd_work {
    double seconds; /* time spent computing */
    unsigned microbatches;
};

struct pstd_stragglers {
    unsigned ranks;             /* ranks of the job; 0: disabled */
    unsigned per_replica;       /* ranks of a pipeline */
    struct pstd_series *series; /* series of computing times, one per rank */
    /* array that the caller may fill for each step, one entry per rank */
    struct pstd_work *work;
    double *sorted, *peers;         /* scratch, one entry per rank */
    struct pstd_straggler *changes; /* changes by the last call; has ranks + 1
                                       entries */
    unsigned n_changes;
    struct pstd_series steps; /* durations of the steps in which no rank's
                               * computing time was too long */
    /* rank that was named because of its messages, if has_link */
    unsigned link;
    bool has_link;
    uint64_t n;          /* number of steps so far */
    uint64_t n_steps;    /* number of steps in `steps` */
    uint64_t measure_at; /* no step is measured before this one */
    uint64_t patience;   /* steps to wait after a measurement without result */
    bool suspicious;     /* a step should be measured */
    /* Seconds by which suspicious steps are longer than the first ones. */
    double excess;
};

enum pst_status pstd_stragglers_init(struct pstd_stragglers *s, unsigned ranks,
                                     unsigned per_replica,
                                     struct pst_diag *diag) PST_MUST_CHECK;
void pstd_stragglers_fini(struct pstd_stragglers *s);
/* Begins anew, after a change of model or kernels or at the end of a run. No
 * rank is a straggler then; `changes` lists those that were. */
void pstd_stragglers_reset(struct pstd_stragglers *s);
/* Adds a finished step. work: per rank; seconds: duration of the step. */
void pstd_stragglers_step(struct pstd_stragglers *s,
                          const struct pstd_work *work, double seconds);
/* Adds the measurement of a suspicious step: the seconds that each rank spent
 * on messages, sending and waiting for messages already sent. */
void pstd_stragglers_measured(struct pstd_stragglers *s,
                              const double *messages);
/* Returns the number of ranks that are named now. */
unsigned pstd_stragglers_count(const struct pstd_stragglers *s);

#endif
