// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_STATE_ENTRIES_H
#define PENSTOCK_STAGES_RUN_STATE_ENTRIES_H
/* The tensors of a checkpoint that a rank holds. Exec thread only. */
#include "stages/run/engine.h"

/* A tensor, or this rank's shard of it. */
struct pst_entry {
    char name[1200];      /* name in the checkpoint: "param.FQN" */
    struct pst_meta meta; /* meta of the whole tensor */
    size_t offset;        /* offset of the part in the rank's arena */
    /* The part: bytes [begin, begin + bytes) of the tensor. */
    size_t begin, bytes;
    bool shared; /* the part is a shard */
    /* no_nan: a NaN makes the checkpoint bad; no_inf: an infinity does. Both
     * are false for tensors that steps do not change. no_inf is false for
     * buffers, which may have infinite bounds. */
    bool no_nan, no_inf;
    bool in_step; /* steps change it before the optimizer runs */
};

typedef enum pst_status (*pst_entry_fn)(void *ctx, struct pst_rank *r,
                                        const struct pst_entry *entry,
                                        struct pst_diag *diag);

/* Calls fn for every tensor of the state that rank r holds; owner: only for
 * those that it owns and for its shards. */
enum pst_status pst_each_entry(const struct pst_engine *engine,
                               struct pst_rank *r, bool owner, pst_entry_fn fn,
                               void *ctx, struct pst_diag *diag) PST_MUST_CHECK;

#endif
