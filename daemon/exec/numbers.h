// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_NUMBERS_H
#define PENSTOCK_DAEMON_EXEC_NUMBERS_H
/*
 * What becomes of a run whose loss or gradients are not finite (--on-nan), and
 * losses that are far from those before. Decisions are functions of what all
 * ranks know, so that all take the same one. Exec thread.
 */
#include <stdbool.h>
#include <stdint.h>

enum pstd_numbers_action {
    PSTD_NUMBERS_STOP,     /* the run ends before that step */
    PSTD_NUMBERS_SKIP,     /* that step is left out */
    PSTD_NUMBERS_ROLLBACK, /* the run goes on from its newest checkpoint, or
                            * from the step before if there is none */
};

struct pstd_numbers {
    const char *policy; /* of --on-nan; borrowed */
    uint64_t limit;     /* of --nan-limit */
    uint64_t skipped;   /* steps, in all */
    uint64_t in_a_row;  /* of them, without one that was applied */
    uint64_t
        furthest; /* number of the last step that was not finite; 0: none */
    uint64_t rollbacks; /* since a newer checkpoint was made */
    uint64_t rolled_to; /* checkpoint of the newest one */
};

/* Step `step` (counted from 1) was not applied: its numbers are not finite.
 * checkpoint: newest one, 0: there is none. A step that fails again after a
 * rollback is left out. */
enum pstd_numbers_action pstd_numbers_failed(struct pstd_numbers *n,
                                             uint64_t step,
                                             uint64_t checkpoint);
/* A step was applied. */
void pstd_numbers_applied(struct pstd_numbers *n);

/* Mean and spread of the newest losses, old ones fading. */
struct pstd_spikes {
    uint64_t seen, last; /* losses; the one of the newest spike */
    double mean, variance;
};

/* How many standard deviations a loss lies above those before; 0 unless that
 * makes it a spike. A spike does not count for later ones. */
double pstd_spikes_take(struct pstd_spikes *s, double loss);

#endif
