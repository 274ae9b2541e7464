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
    struct pst_loc at;      /* location in the acting stage's program */
    struct pst_loc peer_at; /* COPY_*: location in the peer stage's program */
    size_t len;             /* bytes */
    /* message tag of microbatch 0; that of microbatch k is tag + k */
    int64_t tag;
};

/* The passages in one direction between two stages. Microbatches with the same
 * programs have the same channel. */
struct pst_channel {
    enum pst_action_kind kind;
    int stage, peer_stage;
    /* True if the program of the stage (of the peer) is the one for tail
     * microbatches. */
    bool tail, peer_tail;
    struct pst_passage *at;
    unsigned n;
};

/* Channels found so far. Borrows role, layout and heap for its lifetime. */
struct pst_channels {
    const struct pst_rank_role *role;
    const struct pst_layout *layout;
    struct pst_arena *heap;
    struct PST_VEC(struct pst_channel) all;
    int64_t *edge_tag; /* per edge: number of tags of all edges before it */
};

/* Sets *ret to the channel of an action of kind SEND_*, RECV_* or COPY_*, which
 * is computed once for all microbatches. *ret is valid until the next call. */
enum pst_status pst_channel_of(struct pst_channels *t,
                               const struct pst_action *a,
                               const struct pst_channel **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_channels_fini(struct pst_channels *t);

#endif
