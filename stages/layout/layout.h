// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_LAYOUT_H
#define PENSTOCK_STAGES_LAYOUT_LAYOUT_H
/*
 * Where everything of a rank lies in its arena: programs of its stages, their
 * slots, parameters with gradients and states. Made by pst_rank_new, constant
 * afterwards; offsets are bytes from the arena's begin, 0 means "none". Memory
 * of the rank's heap. Exec thread only.
 */
#include "stages/base/vec.h"
#include "stages/layout/actions.h"
#include "stages/layout/bucket.h"
#include "stages/layout/flat.h"
#include "stages/layout/role.h"

/* Slots of one region of one stage: slot i begins at base + i * size. */
struct pst_slot_pool {
    unsigned n;
    size_t size, base;
    unsigned first; /* number of slot 0 among all slots of the rank */
    enum pst_region_writer writer;
    enum pst_region_end end;
    /* The pool whose slots these are: of the stage of this rank that makes the
     * value, which is read where it lies. NULL: it has slots of its own. */
    struct pst_slot_pool *shares;
};

/* One stage on this rank. */
struct pst_rank_stage {
    struct pst_program *program; /* NULL: it is on another rank */
    struct pst_program *tail;    /* for microbatches of fewer rows, or NULL */
    struct pst_slot_pool *pools; /* by region; FIXED, WORK: unused */
    unsigned n_pools;
    int first_backward; /* microbatch whose backward assigns gradients */
    size_t seed_offset; /* of the loss's seed, 0 if there is none */
};

/* A parameter, buffer or constant on this rank. */
struct pst_rank_param {
    int index;       /* in plan->params */
    size_t data;     /* offset of the value */
    size_t state[4]; /* of the optimizer's tensors */
    size_t shadow;   /* of a buffer's copy from before the step, or 0 */
    size_t bytes;
    bool trained, updated;
    bool counted; /* in the norm: its elements here, of all ranks by this one */
    /* Elements whose sum of gradients and states of the optimizer are here, and
     * which this rank updates: all, or its share. */
    int64_t begin, n;
    size_t own_data, own_grad; /* offsets of the first of these */
};

/* A gradient accumulator: of a stage, or of one use of the parameter in it
 * (uses.h). */
struct pst_rank_grad {
    int param; /* index in plan->params */
    unsigned stage, use;
    size_t offset; /* of all of it, while it is written */
    size_t own;    /* of the elements whose sum is kept here */
};

/* A copy of one slot of the stash, out of the arena or back (spill.h). Times
 * are ordinals of the rank's actions that compute. */
struct pst_spill_job {
    bool in;
    unsigned stage, region, slot;
    int microbatch;
    uint32_t issue; /* it may begin behind that action */
    uint32_t need;  /* it has ended before that one; UINT32_MAX: before the
                       copies that come behind it */
    unsigned trip;  /* the copy out and the one back have one number */
    unsigned place; /* number of the place outside */
    size_t outside, bytes; /* its first byte there */
};

struct pst_spills {
    struct PST_VEC(struct pst_spill_job) jobs; /* of a step, in their order */
    unsigned n_trips, n_outside;
};

/* The begin of the arena, where kernels leave what the host reads once a step
 * (step/readback.h). */
struct pst_readback {
    size_t fault;   /* struct pst_fault */
    size_t stayed;  /* two u64 of the optimizer's kernel (device.h) */
    size_t losses;  /* PST_READBACK_LOSS bytes for each microbatch */
    size_t squares; /* an f64 for each of params */
    size_t bytes;   /* of all of it */
};
#define PST_READBACK_LOSS 8

struct pst_layout {
    struct pst_readback readback;
    struct pst_rank_stage *stages; /* by plan stage */
    unsigned n_slots;              /* of all pools */
    struct PST_VEC(struct pst_rank_param) params;
    struct PST_VEC(struct pst_rank_grad) grads;
    struct pst_flats flats;                    /* of all stages */
    struct PST_VEC(struct pst_bucket) buckets; /* of those of this rank */
    struct PST_VEC(struct pst_residency_event) residency; /* in their order */
    struct pst_spills spills;
    int *param_at; /* plan param -> index in params, or -1 */
    int *grad_at;  /* plan param -> first of its in grads, which stand together;
                    * or -1 */
    struct pst_memory memory;
    size_t work;      /* of the workspace that all actions share */
    size_t scattered; /* of inputs that rank 0 sends */
    size_t *outputs;  /* per plan output: of kept data */
    unsigned n_sites; /* nodes of all lists, which faults name by number */
};

/* Not the programs. */
void pst_layout_fini(struct pst_layout *l);

/* NULL: the rank has no such parameter. */
const struct pst_rank_param *pst_layout_param(const struct pst_layout *l,
                                              unsigned param);
/* The first gradient of a parameter in l->grads; l->grads.n: it has none. */
size_t pst_layout_grads_of(const struct pst_layout *l, int param);
/* The node of that number, NULL if there is none; *ret_stage: its stage. */
const struct pst_exec_node *pst_layout_site(const struct pst_layout *l,
                                            const struct pst_rank_role *role,
                                            unsigned site, int *ret_stage);
/* Address of a location in that slot of an arena that begins at `base`, NULL
 * if it has none. */
unsigned char *pst_layout_address(const struct pst_layout *l,
                                  unsigned char *base, int stage,
                                  struct pst_loc loc, int slot);

/* The program that runs a microbatch; NULL if the stage is elsewhere. */
static inline struct pst_program *pst_layout_program(
    const struct pst_layout *l, const struct pst_rank_role *role, int stage,
    int microbatch)
{
    const struct pst_rank_stage *s = &l->stages[stage];

    return s->tail != NULL && pst_role_is_tail(role, microbatch) ? s->tail
                                                                 : s->program;
}

#endif
