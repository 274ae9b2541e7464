// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_NUMBERS_H
#define PENSTOCK_DAEMON_EXEC_NUMBERS_H
/*
 * Policies for losses and gradients that are not finite (--on-nan) or far above
 * those before (--on-spike), and detection of spikes. Decisions are functions
 * of values that all ranks know, so that all ranks decide alike. Exec thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pstd_numbers_action {
    PSTD_NUMBERS_STOP,     /* end the run before that step */
    PSTD_NUMBERS_SKIP,     /* leave the step out */
    PSTD_NUMBERS_ROLLBACK, /* continue from the newest checkpoint; if there is
                              none, from the step before */
};

struct pstd_numbers {
    const char *policy; /* value of --on-nan or --on-spike; borrowed */
    uint64_t limit;     /* value of --nan-limit */
    uint64_t in_a_row;  /* skipped steps since one was applied */
    uint64_t furthest;  /* last step that was not applied; 0: none */
    uint64_t rollbacks; /* number of rollbacks to the checkpoint rolled_to */
    uint64_t rolled_to; /* step of the newest rollback's checkpoint */
};

/* Returns how to continue after step `step` (counted from 1), which was not
 * applied because of its numbers. checkpoint: step of the newest one, 0:
 * none. A step that fails again after a rollback is skipped. */
enum pstd_numbers_action pstd_numbers_decide(struct pstd_numbers *n,
                                             uint64_t step,
                                             uint64_t checkpoint);
/* Records that a step was applied. */
void pstd_numbers_count_applied(struct pstd_numbers *n);

/* Mean and variance of recent losses, exponentially weighted. */
struct pstd_spikes {
    /* Number of losses so far; index of the newest spike among them. */
    uint64_t seen, last;
    double mean, variance;
};

/* Adds a loss; returns its distance above the mean in standard deviations if it
 * is a spike to be reported, else 0. A spike changes the mean by half as much
 * as other losses. */
double pstd_spikes_add(struct pstd_spikes *s, double loss);

/*
 * --on-spike. A number x is a spike if it is more than `threshold` standard
 * deviations above the mean of the applied steps before:
 *
 *   x > mean + threshold max(sqrt(variance), |mean| / 1000)
 *
 * Mean and variance are those of all steps so far, until there are `window` of
 * them, and then have exponential weights: with w = 1 / min(n, window) for the
 * n-th step and d = x - mean, mean += w d, then
 * variance = (1 - w) (variance + w d^2). The first 20 steps are no spikes (the
 * first `window` ones, if these are fewer).
 */
struct pstd_gauge {
    struct pstd_spikes loss, norm;
    uint64_t window;
    double threshold;
};

/* Returns the largest number that is no spike; infinite: there are too few. */
double pstd_gauge_compute_limit(const struct pstd_gauge *g,
                                const struct pstd_spikes *of);
/* Adds loss and gradient norm of an applied step; a NaN norm is ignored. */
void pstd_gauge_add(struct pstd_gauge *g, double loss, double norm);
/* Write and read the means and variances, as lines of a checkpoint's settings,
 * without rounding. Reading starts anew if there are no such lines. size: bytes
 * of ret; 160 are enough. */
void pstd_gauge_print(const struct pstd_gauge *g, char *ret, size_t size);
void pstd_gauge_read(struct pstd_gauge *g, const char *lines);
/* Write and read, in the same way, the counters of --on-spike, and the number
 * of steps that the run has skipped. 160 bytes are enough. */
void pstd_numbers_print(const struct pstd_numbers *n, uint64_t skipped,
                        char *ret, size_t size);
void pstd_numbers_read(struct pstd_numbers *n, uint64_t *ret_skipped,
                       const char *lines);

#endif
