// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/ring.h"

/* Number of steps at the start of a run that do not count. */
#define COLD_STEPS 2

enum pst_status pst_ring_init(struct pst_ring *ring, struct pst_arena *arena,
                              unsigned n_actions, struct pst_diag *diag)
{
    ring->n_actions = n_actions;
    for (unsigned i = 0; i < PST_RING_STEPS; i++) {
        ring->steps[i].marks =
            pst_arena_calloc(arena, n_actions + 1, sizeof(struct pst_mark));
        if (ring->steps[i].marks == NULL)
            return pst_diag_nomem(diag, n_actions * sizeof(struct pst_mark));
    }
    ring->now = &ring->steps[0];
    return PST_OK;
}

void pst_ring_begin(struct pst_ring *ring, uint64_t step, double now)
{
    struct pst_ring_step *s = &ring->steps[ring->n_steps++ % PST_RING_STEPS];

    *s = (struct pst_ring_step){
        .step = step, .all = {now, now}, .marks = s->marks};
    ring->now = s;
}

void pst_ring_end(struct pst_ring *ring, double now)
{
    ring->now->all.end = now;
    ring->now->whole = true;
}

const struct pst_ring_step *pst_ring_find(const struct pst_ring *ring,
                                          uint64_t step)
{
    for (unsigned i = 0; i < PST_RING_STEPS; i++)
        if (ring->steps[i].whole && ring->steps[i].step == step)
            return &ring->steps[i];
    return NULL;
}

bool pst_ring_counts(const struct pst_ring *ring, unsigned i)
{
    const uint64_t n = ring->n_steps;

    if (!ring->steps[i].whole)
        return false;
    /* Slot i has the newest step before step n whose number is i modulo
     * PST_RING_STEPS. */
    return n <= COLD_STEPS || i >= COLD_STEPS || n > i + PST_RING_STEPS;
}

const struct pst_ring_step *pst_ring_median(const struct pst_ring *ring)
{
    const struct pst_ring_step *order[PST_RING_STEPS];
    unsigned n = 0;

    for (unsigned i = 0; i < PST_RING_STEPS; i++) {
        const struct pst_ring_step *s = &ring->steps[i];
        unsigned k = n;

        if (!pst_ring_counts(ring, i))
            continue;
        for (; k > 0 && order[k - 1]->all.end - order[k - 1]->all.start >
                            s->all.end - s->all.start;
             k--)
            order[k] = order[k - 1];
        order[k] = s;
        n++;
    }
    return n == 0 ? NULL : order[(n - 1) / 2];
}
