// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_CHECK_CHECK_H
#define PENSTOCK_STAGES_SCHED_CHECK_CHECK_H
/*
 * Proof in two rounds; private to this folder. Round one (check.c) walks each
 * list by itself: what a stage does happens on one rank, so order, doubles and
 * gaps show there. Round two (play.c) plays all lists with the most cautious
 * transport: a send ends when its receive is posted, a consumer waits until
 * its sends were made, a reduction waits until all owners have come to it. If
 * all lists end, no order of events can hang.
 */
#include "stages/sched/generate.h"

#define PST_BIT(kind) (1u << (kind))

/* Parameters of a stage are always there, or come and go. */
enum pst_held { PST_HELD_UNUSED, PST_HELD_ALWAYS, PST_HELD_NOW, PST_HELD_GONE };

struct pst_check {
    const struct pst_schedule *sched;
    const struct pst_shared *shared;
    size_t n_shared;
    struct pst_link_index links;
    struct pst_diag *diag;
    /* Per (stage, microbatch) and (link in by_from, microbatch): one bit per
     * kind of action that was done. `run` is round two's for links. */
    unsigned short *done, *moved, *run;
    unsigned char *reduced; /* per (shared, rank) */
    unsigned char *held;    /* per stage: enum pst_held of its parameters */
    size_t *next;           /* round two: per rank */
};

size_t pst_check_cell(const struct pst_check *c, int row, int microbatch);
/* The link that a message or local copy belongs to; -1: none. */
int pst_check_link_of(const struct pst_check *c, const struct pst_action *a);

/* "schedule: rank 1, action 5 (1B0): WHY" and the lists around it. */
enum pst_status pst_check_refuse(const struct pst_check *c, unsigned rank,
                                 size_t index, const char *fmt, ...)
    PST_PRINTF(4, 5);
bool pst_check_backward_done(const struct pst_check *c, int stage,
                             int microbatch);

/* Of action i of a list: F after its values, B and I after their gradients; a
 * message; a reduction. At the end: is anything missing? */
enum pst_status pst_check_arrived(const struct pst_check *c, unsigned rank,
                                  size_t i) PST_MUST_CHECK;
enum pst_status pst_check_message(const struct pst_check *c, unsigned rank,
                                  size_t i) PST_MUST_CHECK;
enum pst_status pst_check_reduce(const struct pst_check *c, unsigned rank,
                                 size_t i) PST_MUST_CHECK;
enum pst_status pst_check_messages_all(const struct pst_check *c)
    PST_MUST_CHECK;

/* Round two; needs lists that passed round one. */
enum pst_status pst_check_play(const struct pst_check *c) PST_MUST_CHECK;

#endif
