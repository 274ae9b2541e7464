// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_MEMORY_TOUCHES_H
#define PENSTOCK_STAGES_LAYOUT_MEMORY_TOUCHES_H
/*
 * The kernels of an action that read the values of a bucket, or write its
 * gradients, for buckets that are not always resident (residency.h). Kernels
 * are counted over the concatenated lists of the action.
 *
 * Created with the layout, for programs that have their lists. Exec thread.
 */
#include "stages/layout/layout.h"

struct pst_touch {
    unsigned bucket;
    bool grads; /* true: writes its gradients; false: reads its values */
    unsigned first, last; /* first and last such kernel */
};
struct pst_touches {
    struct PST_VEC(struct pst_touch) all; /* sorted by `first` */
    unsigned n_kernels;                   /* kernels of the action */
};

struct pst_toucher {
    const struct pst_layout *layout;  /* borrowed */
    const struct pst_rank_role *role; /* borrowed */
    int *value_bucket; /* per parameter of the plan: its bucket; -1: always
                          resident */
    int *bucket_of;    /* per flat: its bucket; -1: on another rank */
    unsigned *uses;    /* per parameter: uses so far in the action */
    struct pst_diag *diag;
};

/* Allocates the tables in the heap. layout, role and diag must be set. */
enum pst_status pst_toucher_init(struct pst_toucher *t,
                                 struct pst_arena *heap) PST_MUST_CHECK;
/* Replaces *ret by the touches of a compute action. */
enum pst_status pst_touches_of(struct pst_toucher *t,
                               const struct pst_action *a,
                               struct pst_touches *ret) PST_MUST_CHECK;
void pst_touches_fini(struct pst_touches *touches);

/* Sets ret to the lists that an action of that kind runs, in order, and returns
 * their number. */
unsigned pst_residency_lists(const struct pst_program *program,
                             enum pst_action_kind kind, enum pst_list ret[2]);

#endif
