// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_GENERATE_H
#define PENSTOCK_STAGES_SCHED_GENERATE_H
/*
 * What generators share; private to this folder. A generator finds ranks,
 * stages, microbatches and rank_of filled in and the lists of actions empty.
 */
#include "stages/sched/sched.h"

#define PST_SCHED(function, name, summary)                                     \
    enum pst_status pst_sched_generate_##function(struct pst_schedule *sched,  \
                                                  struct pst_diag *diag);
#include "stages/sched/scheds.def"
#undef PST_SCHED

/* Forward only: all microbatches in order. */
enum pst_status pst_sched_generate_inference(struct pst_schedule *sched,
                                             struct pst_diag *diag);

/* Appends F of all stages of the rank, ascending; B, descending. A rank's
 * stages act like one stage. */
enum pst_status pst_sched_add_forward(struct pst_schedule *sched, unsigned rank,
                                      unsigned microbatch,
                                      struct pst_diag *diag);
enum pst_status pst_sched_add_backward(struct pst_schedule *sched,
                                       unsigned rank, unsigned microbatch,
                                       struct pst_diag *diag);

/* rank_of[stage]: contiguous groups, none empty, the costliest one as cheap
 * as possible; costs NULL: all equal. Needs ranks <= stages. */
enum pst_status pst_sched_place(unsigned stages, unsigned ranks,
                                const double *costs, int *rank_of,
                                struct pst_diag *diag) PST_MUST_CHECK;

bool pst_action_is_compute(const struct pst_action *action);
/* Appends "rank 1, action 5 (1B0)" and, with list, the actions around it. */
void pst_sched_add_place(const struct pst_schedule *sched, unsigned rank,
                         size_t index, bool list, struct pst_str *out);

/* Every (stage, microbatch) once, on its rank, F before B or I, I before W;
 * the list may hold messages or not. */
enum pst_status pst_sched_check_compute(const struct pst_schedule *sched,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* Parameters each once, stages ascending and in range. */
enum pst_status pst_sched_check_shared(const struct pst_schedule *sched,
                                       const struct pst_shared *shared,
                                       size_t n,
                                       struct pst_diag *diag) PST_MUST_CHECK;

/* Links in both directions of look-up. Links from < to, each pair once. */
struct pst_link_index {
    struct pst_link *by_from, *by_to; /* sorted by (from, to), (to, from) */
    size_t *first_from, *first_to;    /* offsets of each stage, and the end */
    size_t n;
};
enum pst_status pst_link_index_init(struct pst_link_index *index,
                                    const struct pst_link *links, size_t n,
                                    unsigned n_stages,
                                    struct pst_diag *diag) PST_MUST_CHECK;
void pst_link_index_fini(struct pst_link_index *index);

#endif
