// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_GENERATE_H
#define PENSTOCK_STAGES_SCHED_GENERATE_H
/*
 * Shared by the files of this folder; private to it. A generator gets a
 * schedule with ranks, stages, microbatches and rank_of set, and with empty
 * lists of actions.
 */
#include "stages/sched/sched.h"

#define PST_SCHED(function, ...)                                               \
    enum pst_status pst_sched_generate_##function(struct pst_schedule *sched,  \
                                                  struct pst_diag *diag);
#include "stages/sched/scheds.def"
#undef PST_SCHED

/* Creates a schedule without name, placement and actions. Returns owned. */
enum pst_status pst_sched_new(const struct pst_schedule_options *options,
                              struct pst_schedule **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* Writes the actions of one rank after another. pst_sched_list_end reports a
 * failure of any call. */
struct pst_sched_list {
    struct pst_schedule *sched;
    unsigned rank;
    unsigned begin, end; /* range that contains all stages of the rank */
    bool failed;
};

/* Switches to a rank; reserves capacity for `each` actions of every microbatch
 * and stage. */
void pst_sched_list_start(struct pst_sched_list *list, unsigned rank,
                          unsigned each);
/* Adds an action; ignores stages and microbatches that do not exist: a subset
 * of a schedule that can run can also run. */
void pst_sched_list_add(struct pst_sched_list *list, enum pst_action_kind kind,
                        unsigned stage, unsigned microbatch);
/* Adds (stage_f F f ; stage_b B b)OVERLAP_F_B. */
void pst_sched_list_overlap(struct pst_sched_list *list, unsigned stage_f,
                            unsigned f, unsigned stage_b, unsigned b);
/* Adds idle slots if the schedule shows them. */
void pst_sched_list_idle(struct pst_sched_list *list, unsigned slots);
/* Add one action per stage of the rank, as if they were one stage: F in
 * ascending order, B in descending order. */
void pst_sched_list_forward(struct pst_sched_list *list, unsigned microbatch);
void pst_sched_list_backward(struct pst_sched_list *list, unsigned microbatch);
enum pst_status pst_sched_list_end(const struct pst_sched_list *list,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Fills the lists for any placement, by simulating a step with equal costs.
 * split: uses I and W instead of B. */
enum pst_status pst_sched_generate_simulated(struct pst_schedule *sched,
                                             bool split, struct pst_diag *diag)
    PST_MUST_CHECK;
/* True if the stages are placed as a generator of that placement requires. */
bool pst_sched_is_placed(const struct pst_schedule *sched,
                         enum pst_place place);

/* Parses "0=0,1=1,2-5=0": each stage once, each rank at least once. */
enum pst_status pst_sched_parse_place(const char *text, unsigned stages,
                                      unsigned ranks, int *rank_of,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Appends the placement of a schedule in the form that pst_sched_parse_place
 * reads. */
void pst_sched_print_place(const struct pst_schedule *sched,
                           struct pst_str *out);

enum pst_status pst_sched_find_row(const char *name,
                                   const struct pst_sched_row **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Checks the numbers of ranks, stages and microbatches against the requirements
 * of the row. The error names the nearest valid numbers. */
enum pst_status pst_sched_check_demands(
    const struct pst_sched_row *row, const struct pst_schedule_options *options,
    struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_sched_read_csv(const char *path,
                                   const struct pst_schedule_options *options,
                                   struct pst_schedule **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Removes the idle slots. */
void pst_sched_pack(struct pst_schedule *sched);

bool pst_action_is_compute(const struct pst_action *action);
bool pst_action_has_peer(enum pst_action_kind kind);
bool pst_action_receives(enum pst_action_kind kind);
/* Returns the peer stage that is implied in PyTorch's grammar; -1 if there is
 * none. */
int pst_action_usual_peer(enum pst_action_kind kind, int stage);
/* Appends the place of an action: "rank 1, action 5 (1B0)"; for schedules from
 * a text "line 2 (rank 1), ..."; with `list` also the actions around it. */
void pst_sched_add_place(const struct pst_schedule *sched, unsigned rank,
                         size_t index, bool list, struct pst_str *out);

/* Appends "; rank 0, action 3 (0B0); rank 1 ..." for the ranks that have not
 * reached their end, with the actions around each. */
void pst_sched_add_stuck(const struct pst_schedule *sched, const size_t *next,
                         struct pst_str *out);

/* Checks that every (stage, microbatch) has its actions exactly once, on its
 * rank, F before B or I, I before W; the lists may contain messages. */
enum pst_status pst_sched_check_compute(const struct pst_schedule *sched,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* Checks that each parameter occurs once, with stages ascending and in
 * range. */
enum pst_status pst_sched_check_shared(const struct pst_schedule *sched,
                                       const struct pst_shared *shared,
                                       size_t n,
                                       struct pst_diag *diag) PST_MUST_CHECK;

/* Links, indexed in both directions; each pair of stages occurs once. */
struct pst_link_index {
    /* sorted by (from, to) and by (to, from) */
    struct pst_link *by_from, *by_to;
    /* per stage: index of its first link; then n */
    size_t *first_from, *first_to;
    size_t n;
    unsigned n_stages;
};
enum pst_status pst_link_index_init(struct pst_link_index *index,
                                    const struct pst_link *links, size_t n,
                                    unsigned n_stages,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the index in by_from; -1 if there is no such link. */
int pst_link_find(const struct pst_link_index *index, int from, int to);
void pst_link_index_fini(struct pst_link_index *index);

#endif
