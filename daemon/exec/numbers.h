// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_NUMBERS_H
#define PENSTOCK_DAEMON_EXEC_NUMBERS_H
/*
 * Policy for non-finite losses and gradients (--on-nan), and detection of loss
 * spikes. Decisions are functions of values that all ranks know, so that all
 * ranks decide alike. Exec thread.
 */
#include <stdbool.h>
#include <stdint.h>

enum pstd_numbers_action {
    PSTD_NUMBERS_STOP,     /* end the run before that step */
    PSTD_NUMBERS_SKIP,     /* leave the step out */
    PSTD_NUMBERS_ROLLBACK, /* continue from the newest checkpoint; if there is
                              none, from the step before */
};

struct pstd_numbers {
    const char *policy; /* value of --on-nan; borrowed */
    uint64_t limit;     /* value of --nan-limit */
    uint64_t skipped;   /* skipped steps in total */
    uint64_t in_a_row;  /* skipped steps since one was applied */
    uint64_t furthest;  /* last non-finite step; 0: none */
    uint64_t rollbacks; /* number of rollbacks to the checkpoint rolled_to */
    uint64_t rolled_to; /* step of the newest rollback's checkpoint */
};

/* Returns how to continue after step `step` (counted from 1), which was not
 * applied because of non-finite numbers. checkpoint: step of the newest one, 0:
 * none. A step that fails again after a rollback is skipped. */
enum pstd_numbers_action pstd_numbers_failed(struct pstd_numbers *n,
                                             uint64_t step,
                                             uint64_t checkpoint);
/* Records that a step was applied. */
void pstd_numbers_applied(struct pstd_numbers *n);

/* Mean and variance of recent losses, exponentially weighted. */
struct pstd_spikes {
    /* Number of losses so far; index of the newest spike among them. */
    uint64_t seen, last;
    double mean, variance;
};

/* Adds a loss; returns its distance above the mean in standard deviations if it
 * is a spike to be reported, else 0. A spike changes the mean by half as much
 * as other losses. */
double pstd_spikes_take(struct pstd_spikes *s, double loss);

#endif
