// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_SIMULATION_H
#define PENSTOCK_STAGES_SCHED_SIMULATION_H
/*
 * State of a running simulation; private to this folder. simulation.c prepares
 * it and creates the result, events.c advances ranks through their actions.
 */
#include "stages/sched/generate.h"
#include "stages/sched/simulate.h"

enum pst_sim_direction { PST_SIM_FORWARD, PST_SIM_BACKWARD };

struct pst_sim_message {
    double sent, posted; /* times of send and receive; -1: not yet */
    double arrives;      /* when the message arrives; -1: unknown */
};

struct pst_sim_state {
    size_t next;
    double clock;
    bool running;     /* an action runs until `clock` */
    bool blocked;     /* waits for something whose time is unknown */
    double line_free; /* when the last message has left */
    double sums_end;  /* end of the last reduction over replicas */
    double bytes;
    unsigned held;
    unsigned computed; /* compute actions that have begun */
    size_t issued;     /* copies of the stash that have begun */
    double *copied;    /* when each of these copies ends */
};

/* A reduction, and how many of its owners have reached it. */
struct pst_sim_meeting {
    int stage, param;
    unsigned owners, n_arrived;
};

struct pst_simulation {
    const struct pst_schedule *sched;
    const struct pst_costs *costs;
    struct pst_sim *sim;
    struct pst_diag *diag;
    struct pst_link_index links;
    double *bytes[2]; /* [direction][link in by_from]: bytes of a message */
    /* [direction][link in by_from][microbatch] */
    struct pst_sim_message *messages;
    struct pst_sim_state *ranks;
    struct PST_VEC(struct pst_sim_meeting) meetings;
    unsigned *heap; /* ranks that are not blocked, ordered by (clock, rank) */
    unsigned n_heap;
    bool failed; /* memory ran out */
};

/* Returns the index of the link in by_from; -1 if there is none. */
long pst_sim_find_link(const struct pst_simulation *m, int from, int to);
/* True if the link's messages are not in the lists: they leave when their value
 * is computed. */
bool pst_sim_is_implied(const struct pst_simulation *m, size_t link);
bool pst_sim_is_backward(enum pst_action_kind kind);
struct pst_sim_meeting *pst_sim_meeting_of(struct pst_simulation *m,
                                           const struct pst_action *a);
void pst_sim_add_span(struct pst_simulation *m, unsigned rank,
                      enum pst_span_kind kind, const struct pst_action *a,
                      double start, double end);
/* Runs all ranks until they have ended or none can continue. */
void pst_sim_run(struct pst_simulation *m);

#endif
