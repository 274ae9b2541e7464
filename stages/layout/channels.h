// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_CHANNELS_H
#define PENSTOCK_STAGES_LAYOUT_CHANNELS_H
/*
 * Values and gradients that pass between two stages of which at least one is on
 * this rank. Used when slots, messages and copies are planned, not in steps.
 * Allocated in the rank's heap. Exec thread only.
 */
#include "stages/layout/layout.h"

struct pst_passage {
    struct pst_loc at;      /* in the acting stage's program */
    struct pst_loc peer_at; /* COPY_*: in the peer's */
    size_t len;
    int64_t tag; /* for microbatch 0 */
};

/* Passages in one direction; the same for all microbatches that have the same
 * programs. */
struct pst_channel {
    enum pst_action_kind kind;
    int stage, peer_stage;
    /* the stage's program is that of the tail microbatches */
    bool tail, peer_tail;
    struct pst_passage *at;
    unsigned n;
};

/* Borrows the first three members for its lifetime. */
struct pst_channels {
    const struct pst_rank_role *role;
    const struct pst_layout *layout;
    struct pst_arena *heap;
    struct PST_VEC(struct pst_channel) all;
    int64_t *edge_tag; /* per edge: number of tags of the edges before it */
};

/* Returns what an action of kind SEND_*, RECV_* or COPY_* moves; computed once
 * for all microbatches; *ret is valid until the next call. */
enum pst_status pst_channel_of(struct pst_channels *t,
                               const struct pst_action *a,
                               const struct pst_channel **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_channels_fini(struct pst_channels *t);

#endif
