// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_CHANNELS_H
#define PENSTOCK_STAGES_LAYOUT_CHANNELS_H
/*
 * What passes between two stages of which at least one is on this rank: values
 * forward, gradients backward. Read when slots, messages and copies are made,
 * not in steps. Memory of the rank's heap. Exec thread only.
 */
#include "stages/layout/layout.h"

struct pst_passage {
    struct pst_loc at;      /* in the acting stage's program */
    struct pst_loc peer_at; /* COPY_*: in the peer's */
    size_t len;
    int64_t tag; /* of microbatch 0 */
};

/* In one direction; the same for all microbatches that have the same
 * programs. */
struct pst_channel {
    enum pst_action_kind kind;
    int stage, peer_stage;
    bool tail, peer_tail; /* which programs are meant */
    struct pst_passage *at;
    unsigned n;
};

/* Borrows the first three until it is no longer asked. */
struct pst_channels {
    const struct pst_rank_role *role;
    const struct pst_layout *layout;
    struct pst_arena *heap;
    struct PST_VEC(struct pst_channel) all;
    int64_t *edge_tag; /* per edge: tags of the edges before it */
};

/* What an action of kind SEND_*, RECV_* or COPY_* moves; made once for all
 * microbatches, *ret lasts until the next call. */
enum pst_status pst_channel_of(struct pst_channels *t,
                               const struct pst_action *a,
                               const struct pst_channel **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_channels_fini(struct pst_channels *t);

#endif
