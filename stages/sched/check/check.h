// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_CHECK_CHECK_H
#define PENSTOCK_STAGES_SCHED_CHECK_CHECK_H
/*
 * The check in two passes; private to this folder. Pass one (each_list.c)
 * checks each list by itself: all actions of a stage are on one rank, so order,
 * duplicates and omissions are visible there. Pass two (play.c) simulates all
 * lists with the most restrictive transport: a send ends when its receive is
 * posted, a consumer waits until its sends have been executed, a reduction
 * waits until all owners have reached it. If all lists end, no order of events
 * can deadlock.
 */
#include "stages/sched/generate.h"

#define PST_BIT(kind) (1u << (kind))

/* State of a stage's parameters: not used yet, always resident, unsharded,
 * resharded. */
enum pst_held { PST_HELD_UNUSED, PST_HELD_ALWAYS, PST_HELD_NOW, PST_HELD_GONE };

struct pst_check {
    const struct pst_schedule *sched;
    const struct pst_shared *shared;
    size_t n_shared;
    struct pst_link_index links;
    struct pst_diag *diag;
    /* One bit per kind of executed action: done is per (stage, microbatch),
     * moved and run are per (link in by_from, microbatch). run is for pass
     * two. */
    unsigned short *done, *moved, *run;
    unsigned char *reduced; /* per (index in shared, rank) */
    unsigned char *held;    /* per stage: enum pst_held */
    size_t *next;           /* pass two: per rank, the next action */
};

size_t pst_check_cell(const struct pst_check *c, int row, int microbatch);
/* Returns the index in links.by_from of a message or local copy; -1 if there is
 * no such link. */
int pst_check_link_of(const struct pst_check *c, const struct pst_action *a);

/* Reports "schedule: rank 1, action 5 (1B0): WHY" and the actions around it. */
enum pst_status pst_check_refuse(const struct pst_check *c, unsigned rank,
                                 size_t index, const char *fmt, ...)
    PST_PRINTF(4, 5);
bool pst_check_backward_done(const struct pst_check *c, int stage,
                             int microbatch);

/* Check action i of a list: arrived checks that the inputs of F, or the
 * gradients of B and I, have arrived; message and reduce check an action of
 * that kind. messages_all checks, after all actions, that no message or
 * reduction is missing. */
enum pst_status pst_check_arrived(const struct pst_check *c, unsigned rank,
                                  size_t i) PST_MUST_CHECK;
enum pst_status pst_check_message(const struct pst_check *c, unsigned rank,
                                  size_t i) PST_MUST_CHECK;
enum pst_status pst_check_reduce(const struct pst_check *c, unsigned rank,
                                 size_t i) PST_MUST_CHECK;
enum pst_status pst_check_messages_all(const struct pst_check *c)
    PST_MUST_CHECK;

/* Second pass of the check: simulates all lists together. Every list must have
 * passed the first pass. */
enum pst_status pst_check_simulate(const struct pst_check *c) PST_MUST_CHECK;

#endif
