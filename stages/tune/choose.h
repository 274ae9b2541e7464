// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_TUNE_CHOOSE_H
#define PENSTOCK_STAGES_TUNE_CHOOSE_H
/*
 * The choices of options that save memory, with time and memory of each: a plan
 * is laid out and simulated as it would run. A choice has values of
 * --recompute, --shard and --stash; schedule "auto" is resolved for each. Exec
 * thread.
 */
#include "stages/base/vec.h"
#include "stages/layout/options.h"

struct pst_choice {
    /* Value of --recompute; the string may be that of the options. */
    const char *recompute;
    const char *shard; /* value of --shard */
    const char *stash; /* value of --stash, or "none" */
    /* False if the model has no part that `recompute` names, if microbatches
     * cannot be divided as `shard` needs, or if there is no schedule. */
    bool possible;
    bool fits;     /* the peak is within the options' memory limit */
    double step;   /* predicted seconds */
    size_t peak;   /* bytes of the rank that needs most */
    unsigned rank; /* the rank that needs most */
};

struct pst_choices {
    struct PST_VEC(struct pst_choice) all;
};

/*
 * Sets *ret to all choices that the options leave open: those of recompute and
 * shard if they are "auto", those of stash if it has a location but no number
 * of slots. If `all` is true, recompute and shard count as open in any case.
 * The first choice changes least; the others are ordered by the memory that
 * they save, least first. Release with pst_choices_fini. Strings belong to the
 * options.
 */
enum pst_status pst_exec_choices(struct pst_plan *plan,
                                 const struct pst_exec_options *options,
                                 bool all, struct pst_choices *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pst_choices_fini(struct pst_choices *choices);
/* Prints "block + zero2" or "none". */
void pst_choice_print(const struct pst_choice *choice, struct pst_str *out);

/* Sets options that are open to the fastest choice within the memory limit,
 * with as many slots of the stash as fit. Among equally fast choices the first
 * is taken; a choice that differs in sharding or stash must be 2 % faster. If
 * none fits, the choice that needs least memory is taken, so that the error
 * says by how much that exceeds the limit. Without a limit "auto" recomputes
 * and shards nothing, and the stash stays as given. */
enum pst_status pst_exec_choose(struct pst_plan *plan,
                                struct pst_exec_options *options,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Sets *ret (owned) to the schedule that an engine with these options runs,
 * lowered and checked, and `memory` to the memory that it takes; allocates no
 * arena. memory: NULL, or one entry for each rank of the first replica, which
 * has the most microbatches. */
enum pst_status pst_exec_schedule(struct pst_plan *plan,
                                  const struct pst_exec_options *options,
                                  struct pst_memory *memory,
                                  struct pst_schedule **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Makes schedules and computes memory like pst_exec_schedule, for each of
 * options.counts in their order: sets one element of ret for each number of
 * microbatches, and memory[number * ranks + rank], where memory is not NULL. */
enum pst_status pst_exec_schedules(struct pst_plan *plan,
                                   const struct pst_exec_options *options,
                                   struct pst_memory *memory,
                                   struct pst_schedule **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Computes the memory like pst_exec_schedule. */
enum pst_status pst_exec_plan(struct pst_plan *plan,
                              const struct pst_exec_options *options,
                              struct pst_memory *memory,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
