// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_LOWER_LOWER_H
#define PENSTOCK_STAGES_SCHED_LOWER_LOWER_H
/* Shared by the files of this folder; private to it. */
#include "stages/sched/generate.h"

struct pst_lower {
    struct pst_schedule *sched;
    struct pst_link_index links;
    /* Per (stage, microbatch): number of values and gradients that have
     * arrived. */
    unsigned *inputs, *grads;
    unsigned *need_grads; /* per stage: gradients that a backward waits for */
    /* per stage: links to it that carry buffers, and have no message for
     * microbatch 0 */
    unsigned *carried;
    /* Per (link in by_from, microbatch): bits of given.c for messages that the
     * lists already have; NULL: the lists have none. */
    unsigned char *given;
    /* per rank: position in the old list */
    size_t *next;
    struct PST_VEC(struct pst_action) * out; /* per rank: the new list */
    struct pst_diag *diag;
};

/* Moves the receives of one list up, each by `early` compute actions. */
enum pst_status pst_lower_early(struct pst_action *list, size_t n,
                                unsigned early,
                                struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Reads lists that already contain messages, which keep their positions;
 * lowering adds local copies and messages of links that the lists lack. Removes
 * local copies, UNSHARD, RESHARD and reductions, which are added again, and
 * messages between stages that exchange nothing. Then each send must have its
 * receive.
 */
enum pst_status pst_given_read(struct pst_lower *l) PST_MUST_CHECK;
/* True if the lists already contain the message from `from` to `to` (in its
 * direction). */
bool pst_given_has(const struct pst_lower *l, int from, int to, int microbatch,
                   bool backward);
/* True if the action can run: it is not a send, or its receive is posted (as if
 * sends blocked). */
bool pst_given_is_ready(const struct pst_lower *l, const struct pst_action *a);
void pst_given_take(struct pst_lower *l, const struct pst_action *a);

#endif
