// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SCHED_COSTS_H
#define PENSTOCK_STAGES_SCHED_COSTS_H
/*
 * Costs of a step: seconds of computation, bytes of messages, bytes of memory.
 * Estimated from a plan, or measured by a run and stored in a file.
 *
 * Any thread, one at a time. All pointers belong to the arena.
 */
#include "stages/base/arena.h"
#include "stages/sched/sched.h"

/* Seconds of one microbatch. */
struct pst_seconds {
    double forward;
    double input;  /* I: gradients of the inputs */
    double weight; /* W: gradients of the parameters */
};

struct pst_stage_cost {
    struct pst_seconds seconds;
    double backward; /* B: I and W in one action; 0: the sum of I and W */
    double optim;    /* seconds of the optimizer, per step */
    double reduce;   /* one REDUCE of a parameter shared by stages */
    double sum;      /* REDUCE of the whole stage, over replicas */
    /* Bytes. stash: held for each microbatch from F until the end of B or I.
     * keep: the part of stash that is held until the end of W. fixed: always
     * held. */
    double stash, keep, fixed;
};

/* Seconds of all nodes with this module path. */
struct pst_module_cost {
    const char *module;
    struct pst_seconds seconds;
};

/* Bytes that two stages exchange per microbatch: values, and gradients back. */
struct pst_link_cost {
    struct pst_link link;
    double bytes_f, bytes_b;
};

/* The connection between two ranks. */
struct pst_wire {
    double latency;   /* seconds */
    double bandwidth; /* bytes per second; 0: infinite */
};

struct pst_costs {
    struct pst_arena arena;
    const char *plan; /* digest of the plan; "": not from a plan */
    unsigned n_stages;
    struct pst_stage_cost *stages;
    struct pst_module_cost *modules;
    size_t n_modules;
    /* NULL: a chain of neighbors whose messages cost nothing. */
    struct pst_link_cost *links;
    size_t n_links;
    struct pst_wire wire;
    /* [from rank][to rank]; NULL: all equal to `wire` */
    const struct pst_wire *wires;
    /* communication overlaps with computation on both ranks */
    bool overlap;
    /* bytes per second of copies of the stash; 0: infinite */
    double stash_bandwidth;
    /* true: both parts of an OVERLAP_F_B begin together, when the inputs of
     * both have arrived (in schedules without messages) */
    bool parts_together;
};

/* Initializes n_stages stages that cost nothing, and messages that cost nothing
 * and overlap. Release with pst_costs_fini. */
enum pst_status pst_costs_init(struct pst_costs *costs, unsigned n_stages,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_costs_fini(struct pst_costs *costs);

/*
 * The costs file is JSON, with times in seconds.
 *
 *   {"format": "penstock-costs", "version": 1, "plan": "DIGEST",
 *    "stages": [{"forward": S, "input": S, "weight": S, "backward": S,
 *                "optimizer": S, "reduce": S}, ...],
 *    "modules": [{"module": "h.0", "forward": S, "input": S, "weight": S}],
 *    "latency": S, "bandwidth": BYTES_PER_S, "overlap": true}
 *
 * All but format, version and stages may be missing. The file has no links and
 * bytes: these come from the plan.
 */
enum pst_status pst_costs_read(const char *path, struct pst_costs *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Replaces the file atomically. */
enum pst_status pst_costs_write(const struct pst_costs *costs, const char *path,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
