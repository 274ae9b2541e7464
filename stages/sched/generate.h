// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_GENERATE_H
#define PENSTOCK_STAGES_SCHED_GENERATE_H
/*
 * What the parts of this folder share; private to it. A generator finds ranks,
 * stages, microbatches and rank_of filled in and the lists of actions empty.
 */
#include "stages/sched/sched.h"

#define PST_SCHED(function, ...)                                               \
    enum pst_status pst_sched_generate_##function(struct pst_schedule *sched,  \
                                                  struct pst_diag *diag);
#include "stages/sched/scheds.def"
#undef PST_SCHED

/* Without name, placement and actions. Returns owned. */
enum pst_status pst_sched_new(const struct pst_schedule_options *options,
                              struct pst_schedule **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* Writes the list of one rank. A failure is kept until the end. */
struct pst_list {
    struct pst_schedule *sched;
    unsigned rank;
    unsigned begin, end; /* all stages of the rank lie between */
    bool failed;
};

/* Goes on with this rank; makes room for `each` actions of every microbatch
 * and stage. */
void pst_list_start(struct pst_list *list, unsigned rank, unsigned each);
/* A stage or microbatch that does not exist is left out: what is left of a
 * schedule that can run can run too. */
void pst_list_add(struct pst_list *list, enum pst_action_kind kind,
                  unsigned stage, unsigned microbatch);
/* (stage_f F f ; stage_b B b)OVERLAP_F_B */
void pst_list_overlap(struct pst_list *list, unsigned stage_f, unsigned f,
                      unsigned stage_b, unsigned b);
/* Only in a schedule that is to have idle slots. */
void pst_list_idle(struct pst_list *list, unsigned slots);
/* F of all stages of the rank, ascending; B, descending: a rank's stages act
 * like one stage. */
void pst_list_forward(struct pst_list *list, unsigned microbatch);
void pst_list_backward(struct pst_list *list, unsigned microbatch);
enum pst_status pst_list_end(const struct pst_list *list,
                             struct pst_diag *diag) PST_MUST_CHECK;

/* Any placement: what a step in equal units would do; I and W or B. */
enum pst_status pst_sched_generate_played(struct pst_schedule *sched,
                                          bool split,
                                          struct pst_diag *diag) PST_MUST_CHECK;
/* Are these the row's places, so that its own order can be run? */
bool pst_sched_is_placed(const struct pst_schedule *sched,
                         enum pst_place place);

/* "0=0,1=1,2-5=0": each stage once, each rank at least once. */
enum pst_status pst_sched_parse_place(const char *text, unsigned stages,
                                      unsigned ranks, int *rank_of,
                                      struct pst_diag *diag) PST_MUST_CHECK;

enum pst_status pst_sched_find_row(const char *name,
                                   const struct pst_sched_row **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The nearest numbers that fit are the way out. */
enum pst_status pst_sched_check_demands(
    const struct pst_sched_row *row, const struct pst_schedule_options *options,
    struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_sched_read_csv(const char *path,
                                   const struct pst_schedule_options *options,
                                   struct pst_schedule **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;

/* Removes the gaps. */
void pst_sched_pack(struct pst_schedule *sched);

bool pst_action_is_compute(const struct pst_action *action);
bool pst_action_has_peer(enum pst_action_kind kind);
bool pst_action_receives(enum pst_action_kind kind);
/* The peer stage that PyTorch's grammar takes for granted; -1: none. */
int pst_action_usual_peer(enum pst_action_kind kind, int stage);
/* Appends "rank 1, action 5 (1B0)", of lists from a text "line 2 (rank 1),
 * ..."; with list, the actions around it. */
void pst_sched_add_place(const struct pst_schedule *sched, unsigned rank,
                         size_t index, bool list, struct pst_str *out);

/* Appends "; rank 0, action 3 (0B0); rank 1 ..." of the ranks that have not
 * come to their end, and their lists around it. */
void pst_sched_add_stuck(const struct pst_schedule *sched, const size_t *next,
                         struct pst_str *out);

/* Every (stage, microbatch) once, on its rank, F before B or I, I before W;
 * the list may hold messages or not. */
enum pst_status pst_sched_check_compute(const struct pst_schedule *sched,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* Parameters each once, stages ascending and in range. */
enum pst_status pst_sched_check_shared(const struct pst_schedule *sched,
                                       const struct pst_shared *shared,
                                       size_t n,
                                       struct pst_diag *diag) PST_MUST_CHECK;

/* Links in both directions of look-up, each pair once. */
struct pst_link_index {
    struct pst_link *by_from, *by_to; /* sorted by (from, to), (to, from) */
    size_t *first_from, *first_to;    /* offsets of each stage, and the end */
    size_t n;
    unsigned n_stages;
};
enum pst_status pst_link_index_init(struct pst_link_index *index,
                                    const struct pst_link *links, size_t n,
                                    unsigned n_stages,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Index in by_from; -1: there is no such link. */
int pst_link_find(const struct pst_link_index *index, int from, int to);
void pst_link_index_fini(struct pst_link_index *index);

#endif
