// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MEMORY_TOUCHES_H
#define PENSTOCK_STAGES_LAYOUT_MEMORY_TOUCHES_H
/*
 * Which kernels of an action read the values of a bucket, and which write its
 * gradients: of buckets that are not always there (residency.h). Kernels are
 * counted over the lists that the action runs, one behind the other.
 *
 * Made with the layout, of programs that have their lists. Exec thread.
 */
#include "stages/layout/layout.h"

struct pst_touch {
    unsigned bucket;
    bool grads; /* its gradients are written; else its values are read */
    unsigned first, last;
};
struct pst_touches {
    struct PST_VEC(struct pst_touch) all; /* by first */
    unsigned n_kernels;                   /* of the action */
};

struct pst_toucher {
    const struct pst_layout *layout; /* borrowed, as the next one */
    const struct pst_rank_role *role;
    int *value_bucket; /* per parameter of the plan, -1: it is always there */
    int *bucket_of;    /* per flat, -1: of another rank */
    unsigned *uses;    /* per parameter, so far in the action */
    struct pst_diag *diag;
};

/* The first two members and diag are set; tables in memory of the heap. */
enum pst_status pst_toucher_init(struct pst_toucher *t,
                                 struct pst_arena *heap) PST_MUST_CHECK;
/* Of a compute action; what was in `ret` is replaced. */
enum pst_status pst_touches_of(struct pst_toucher *t,
                               const struct pst_action *a,
                               struct pst_touches *ret) PST_MUST_CHECK;
void pst_touches_fini(struct pst_touches *touches);

/* The lists that an action runs, one behind the other; returns how many. */
unsigned pst_residency_lists(const struct pst_program *program,
                             enum pst_action_kind kind, enum pst_list ret[2]);

#endif
