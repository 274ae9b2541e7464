// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_TUNE_CHOOSE_H
#define PENSTOCK_STAGES_TUNE_CHOOSE_H
/*
 * The ways to train a plan with less memory, and what each costs: each is laid
 * out and simulated as it would run. A way consists of what is recomputed, what
 * replicas shard, and whether the stash is kept outside of the arena; schedule
 * "auto" is resolved for each. Exec thread.
 */
#include "stages/base/vec.h"
#include "stages/layout/options.h"

struct pst_choice {
    /* a value of --recompute; the string may be that of the options */
    const char *recompute;
    const char *shard; /* a value of --shard */
    const char *stash; /* a value of --stash, or "none" */
    /* the model has the parts in question, microbatches can be divided
     * accordingly, and there is a schedule */
    bool possible;
    bool fits;     /* within the options' memory limit */
    double step;   /* predicted seconds */
    size_t peak;   /* bytes of the rank that needs most */
    unsigned rank; /* that rank */
};

struct pst_choices {
    struct PST_VEC(struct pst_choice) all;
};

/*
 * Returns the ways that options leave open ("auto"; stash, if a location is
 * given without a number of slots), or (all) also all other values of recompute
 * and shard, whatever the options are. The first way uses the least of what is
 * open; a cheaper way to keep less comes before those that keep still less.
 * Release with pst_choices_fini. Strings belong to the options.
 */
enum pst_status pst_exec_choices(struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 bool all, struct pst_choices *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pst_choices_fini(struct pst_choices *choices);
/* Prints "block + zero2" or "none". */
void pst_choice_print(const struct pst_choice *choice, struct pst_str *out);

/* Resolves what is open to the fastest choice within the memory limit, with as
 * many slots of the stash as fit. Among equally fast choices the first is
 * taken; a choice that differs in sharding or stash must be 2 % faster. If none
 * fits, takes the one that needs least memory, so that the refusal states by
 * how much it exceeds the limit. Without a limit nothing open is recomputed or
 * sharded, and the stash is kept where options say. */
enum pst_status pst_exec_settle(struct pst_plan *plan,
                                struct pst_exec_options *options,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the schedule that an engine with these options runs, lowered and
 * checked, and its memory; allocates no arena. memory: NULL, or one entry for
 * each rank of the first replica, which has the most microbatches. Returns
 * owned. */
enum pst_status pst_exec_schedule(struct pst_plan *plan,
                                  const struct pst_exec_options *options,
                                  struct pst_memory *memory,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Computes the memory alone. */
enum pst_status pst_exec_plan(struct pst_plan *plan,
                              const struct pst_exec_options *options,
                              struct pst_memory *memory,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
