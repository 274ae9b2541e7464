// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_ENTRIES_H
#define PENSTOCK_STAGES_RUN_STATE_ENTRIES_H
/* The tensors of a checkpoint that a rank has. Exec thread only. */
#include "stages/run/engine.h"

/* Name, shape, place in the rank's arena. */
struct pst_entry {
    char name[1200];
    struct pst_meta meta; /* of the whole tensor */
    size_t offset;
    /* What is here: all of it, or this rank's share, `bytes` from byte `begin`
     * of the tensor on. */
    size_t begin, bytes;
    bool shared;
    /* What may not be in it: nothing of what steps do not change, NaN in
     * buffers, which may begin with an infinite bound. */
    bool no_nan, no_inf;
    bool in_step; /* steps change it before the optimizer does */
};

typedef enum pst_status (*pst_entry_fn)(void *ctx, struct pst_rank *r,
                                        const struct pst_entry *entry,
                                        struct pst_diag *diag);

/* Calls fn for everything of the state that this rank has; `home` only for
 * what it is the home of, and for its share of what replicas share. */
enum pst_status pst_each_entry(const struct pst_engine *engine,
                               struct pst_rank *r, bool home, pst_entry_fn fn,
                               void *ctx, struct pst_diag *diag) PST_MUST_CHECK;

#endif
