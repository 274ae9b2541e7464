// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_TUNE_CHOOSE_H
#define PENSTOCK_STAGES_TUNE_CHOOSE_H
/*
 * What may be given up for memory, and what that costs: the ways to train a
 * plan, each laid out and simulated as it would run. A way is what is
 * recomputed, what replicas share, and whether stash waits outside of the
 * arena; schedule "auto" is settled for each. Exec thread.
 */
#include "stages/base/vec.h"
#include "stages/layout/options.h"

struct pst_choice {
    const char *recompute; /* a word of --recompute, or the options' */
    const char *shard;     /* the same of --shard */
    const char *stash;     /* the same of --stash, "none" */
    bool possible;         /* the model has what the words mean, microbatches
                              can be divided so, and there is a schedule */
    bool fits;             /* into the options' memory limit */
    double step;           /* seconds, predicted */
    size_t peak;           /* bytes of the fullest rank */
    unsigned rank;         /* that is the one */
};

struct pst_choices {
    struct PST_VEC(struct pst_choice) all;
};

/*
 * The ways that options leave open ("auto"; stash, if a place is given without
 * a number of slots), or (all) besides these what else is recomputed and
 * shared, whatever options say. The first gives up nothing of what is open; of
 * what is recomputed the cheapest way to keep less comes before those that keep
 * still less. Release with pst_choices_fini. Words belong to the options.
 */
enum pst_status pst_exec_choices(struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 bool all, struct pst_choices *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pst_choices_fini(struct pst_choices *choices);
/* "block + zero2", "none". */
void pst_choice_print(const struct pst_choice *choice, struct pst_str *out);

/* What is open becomes the fastest choice that fits into the memory limit, of
 * equally fast ones the first (of those that share otherwise, or have their
 * stash elsewhere, 2 % are equal), with as many slots of the stash as fit;
 * where none fits, the one that needs least, so that whoever refuses it says by
 * how much. Without a limit nothing is recomputed or shared that options leave
 * open, and stash waits where they say. */
enum pst_status pst_exec_settle(struct pst_plan *plan,
                                struct pst_exec_options *options,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* The schedule that an engine with these options runs, lowered and checked, and
 * what it takes; nothing is allocated. memory: NULL, or one entry for each
 * rank of the first replica, which has the most microbatches. Returns owned. */
enum pst_status pst_exec_schedule(struct pst_plan *plan,
                                  const struct pst_exec_options *options,
                                  struct pst_memory *memory,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* The memory alone. */
enum pst_status pst_exec_plan(struct pst_plan *plan,
                              const struct pst_exec_options *options,
                              struct pst_memory *memory,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
