// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_LOWER_LOWER_H
#define PENSTOCK_STAGES_SCHED_LOWER_LOWER_H
/* What the files of this folder share; private to it. */
#include "stages/sched/generate.h"

struct pst_lower {
    struct pst_schedule *sched;
    struct pst_link_index links;
    /* Per (stage, microbatch): values and gradients that are there. */
    unsigned *inputs, *grads;
    unsigned *need_grads; /* per stage */
    unsigned *carried;    /* per stage: links that microbatch 0 has not */
    /* Per (link in by_from, microbatch): messages that the lists came with,
     * by bits of given.c; NULL: none. */
    unsigned char *given;
    size_t *next;                            /* per rank: of the old list */
    struct PST_VEC(struct pst_action) * out; /* per rank */
    struct pst_diag *diag;
};

/* Moves the receives of one list up, each by `early` compute actions. */
enum pst_status pst_lower_early(struct pst_action *list, size_t n,
                                unsigned early,
                                struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Lists that came with messages: these stay where they are; local copies and
 * messages of links that the lists do not know are added. Removes local copies,
 * fetches (our parameters stay) and reductions, which lowering adds itself, and
 * messages between stages that exchange nothing. Then each send has its
 * receive.
 */
enum pst_status pst_given_read(struct pst_lower *l) PST_MUST_CHECK;
/* Does the message from `from` to `to` (in its direction) come by itself? */
bool pst_given_has(const struct pst_lower *l, int from, int to, int microbatch,
                   bool backward);
/* A send waits for its receive, as if it blocked. */
bool pst_given_is_ready(const struct pst_lower *l, const struct pst_action *a);
void pst_given_take(struct pst_lower *l, const struct pst_action *a);

#endif
