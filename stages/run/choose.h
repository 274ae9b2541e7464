// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_CHOOSE_H
#define PENSTOCK_STAGES_RUN_CHOOSE_H
/*
 * What may be given up for memory, and what that costs: the ways to train a
 * plan, each laid out and simulated as it would run. Exec thread.
 */
#include "stages/run/exec.h"

struct pst_choice {
    const char *recompute; /* a word of --recompute; static */
    bool possible;         /* the model has what the word means, and there is
                              a schedule */
    bool fits;             /* into the options' memory limit */
    double step;           /* seconds, predicted */
    size_t peak;           /* bytes of the fullest rank */
    unsigned rank;         /* that is the one */
};

#define PST_N_CHOICES 6

/* All of them, options->recompute left aside; the cheapest way to keep less
 * comes before those that keep still less. */
enum pst_status pst_exec_choices(struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 struct pst_choice ret[PST_N_CHOICES],
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Recomputation "auto" becomes the fastest choice that fits into the memory
 * limit, of equally fast ones the first; where none fits, the one that needs
 * least, so that whoever refuses it says by how much. Without a limit nothing
 * is recomputed. Other words stay. */
enum pst_status pst_exec_settle(struct pst_plan *plan,
                                struct pst_exec_options *options,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
