// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_LAYOUT_H
#define PENSTOCK_STAGES_LAYOUT_LAYOUT_H
/*
 * The layout of a rank's arena: programs of its stages, their slots, parameters
 * with gradients and optimizer states. Created by pst_rank_new, constant
 * afterwards; offsets are bytes from the start of the arena, 0 means "none".
 * Allocated in the rank's heap. Exec thread only.
 */
#include "stages/base/vec.h"
#include "stages/layout/actions.h"
#include "stages/layout/params/bucket.h"
#include "stages/layout/params/flat.h"
#include "stages/layout/role.h"

/* Slots of one region of one stage: slot i begins at offset base + i * size. */
struct pst_slot_pool {
    unsigned n;
    size_t size, base;
    unsigned first; /* number of slot 0 among all slots of the rank */
    enum pst_region_writer writer;
    enum pst_region_end end;
    /* The pool of the producing stage on this rank, whose slots are read in
     * place. NULL: this pool has its own slots. */
    struct pst_slot_pool *shares;
};

/* One stage on this rank. */
struct pst_rank_stage {
    struct pst_program *program; /* NULL: it is on another rank */
    struct pst_program *tail;    /* program of tail microbatches, or NULL */
    struct pst_slot_pool *pools; /* pool per region; FIXED, WORK: unused */
    unsigned n_pools;
    /* microbatch whose backward runs first: it overwrites the accumulators,
     * later ones add to them */
    int first_backward;
    size_t seed_offset; /* offset of the loss's gradient; 0: none */
};

/* A parameter, buffer or constant on this rank. */
struct pst_rank_param {
    int index;   /* index in plan->params */
    size_t data; /* offset of the value */
    /* offsets of the optimizer states, and of the average; 0: none */
    size_t state[PST_OPTIM_ALL_STATES];
    size_t shadow; /* offset of a buffer's copy from before the step, or 0 */
    size_t bytes;
    bool trained, updated;
    /* This rank adds its elements' gradients to the norm. For each element,
     * exactly one rank does this. */
    bool counted;
    /* Elements that this rank updates: all of the parameter, or this rank's
     * shard. Their gradient sums and optimizer states are on this rank. */
    int64_t begin, n;
    size_t own_data, own_grad; /* offsets of their values and gradient sums */
};

/* A gradient accumulator of a stage, or of one use of the parameter in it
 * (uses.h). */
struct pst_rank_grad {
    int param; /* index in plan->params */
    unsigned stage, use;
    size_t offset; /* offset of the whole accumulator while it is written */
    size_t own;    /* offset of the sum of this rank's elements */
};

/* An eviction (in: a reload) of one slot of the stash (spill.h). Times are
 * indices into the rank's compute actions. */
struct pst_spill_job {
    bool in;
    unsigned stage, region, slot;
    int microbatch;
    uint32_t issue; /* may begin after the action with this index */
    /* must end before the action with this index; UINT32_MAX: before the copies
     * that follow */
    uint32_t need;
    unsigned round_trip; /* number that an eviction and its reload share */
    unsigned place;      /* number of the location outside of the arena */
    /* offset of that location in the stash's RAM or file, and its size */
    size_t outside, bytes;
};

struct pst_spills {
    /* copies of a step, in execution order */
    struct PST_VEC(struct pst_spill_job) jobs;
    /* n_trips: evictions, each with its reload; n_outside: locations outside of
     * the arena */
    unsigned n_trips, n_outside;
};

/* Offsets of results at the start of the arena: kernels write them, and the
 * host reads them once per step (step/readback.h). */
struct pst_readback {
    size_t fault;   /* struct pst_fault */
    size_t stayed;  /* two u64 of the optimizer's task (device.h) */
    size_t losses;  /* PST_READBACK_LOSS bytes for each microbatch */
    size_t squares; /* an f64 for each of params */
    size_t bytes;   /* size of all these results */
};
#define PST_READBACK_LOSS 8

struct pst_layout {
    struct pst_readback readback;
    struct pst_rank_stage *stages; /* one per stage of the plan */
    unsigned n_slots;              /* number of slots in all pools */
    struct PST_VEC(struct pst_rank_param) params;
    struct PST_VEC(struct pst_rank_grad) grads;
    struct pst_flats flats;                    /* flats of all stages */
    struct PST_VEC(struct pst_bucket) buckets; /* one per flat of this rank */
    /* gathers, reductions and releases of buckets in a step, in execution order
     */
    struct PST_VEC(struct pst_residency_event) residency;
    struct pst_spills spills;
    int *param_at; /* plan param -> index in params, or -1 */
    /* plan param -> index of its first accumulator in grads, where all of them
     * are adjacent; or -1 */
    int *grad_at;
    struct pst_memory memory;
    size_t work;      /* offset of the workspace shared by all actions */
    size_t scattered; /* offset of the inputs that rank 0 sends */
    size_t *outputs;  /* per plan output: offset of its kept values */
    size_t *parts;    /* per plan->parts: offset of its kept values */
    /* number of nodes in all lists; the fault of a kernel has the number of its
     * node */
    unsigned n_sites;
};

/* Releases the layout, but not the programs. */
void pst_layout_fini(struct pst_layout *l);

/* True if parameters and optimizer states have the same offsets in both
 * layouts. all: also everything else that compiled programs address. */
bool pst_layout_same_fixed(const struct pst_layout *a,
                           const struct pst_layout *b, unsigned n_stages,
                           bool all);

/* Returns the parameter's element of l->params; NULL if the rank does not have
 * it. */
const struct pst_rank_param *pst_layout_param(const struct pst_layout *l,
                                              unsigned param);
/* Returns the index of a parameter's first gradient in l->grads; l->grads.n if
 * it has none. */
size_t pst_layout_grads_of(const struct pst_layout *l, int param);
/* Returns the node that a fault's number `site` identifies, NULL if there is
 * none, and sets *ret_stage to its stage. */
const struct pst_exec_node *pst_layout_site(const struct pst_layout *l,
                                            const struct pst_rank_role *role,
                                            unsigned site, int *ret_stage);
/* Returns the address of a location in a slot of an arena that begins at
 * `base`, NULL if it has none. */
unsigned char *pst_layout_address(const struct pst_layout *l,
                                  unsigned char *base, int stage,
                                  struct pst_loc loc, int slot);

/* Returns the program that runs a microbatch; NULL if the stage is on another
 * rank. */
static inline struct pst_program *pst_layout_program(
    const struct pst_layout *l, const struct pst_rank_role *role, int stage,
    int microbatch)
{
    const struct pst_rank_stage *s = &l->stages[stage];

    return s->tail != NULL && pst_role_is_tail(role, microbatch) ? s->tail
                                                                 : s->program;
}

#endif
