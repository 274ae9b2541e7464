// SPDX-License-Identifier: Apache-2.0
/*
 * Walks a rank's actions once, in order, and gives every action the slot that
 * it uses of each region; the most slots in use at a time is the pool's size.
 * A slot is given back right after the last action that reads it. One that
 * has been sent from is taken again last, so that its send has time to finish:
 * the executor waits for it otherwise.
 */
#include "stages/run/rank/rank.h"

/* Regions that messages leave from get a second slot before one is reused. */
#define SEND_SLOTS 2

struct pool_state {
    unsigned *free; /* ring, oldest first; room for all microbatches */
    unsigned n_free, first;
    unsigned n;
    int *held; /* per microbatch: slot or -1 */
};

struct walker {
    struct pst_rank *r;
    struct pool_state *pools; /* [stage][region] */
    unsigned *last;           /* [stage][end][microbatch]: index + 1 */
    unsigned n_mb;
};

static struct pool_state *pool_of(struct walker *w, int stage, int region)
{
    return &w->pools[(size_t)stage * PST_N_REGIONS + (size_t)region];
}

static int take(struct walker *w, int stage, int region, int mb)
{
    struct pool_state *p = pool_of(w, stage, region);
    bool sends = region == PST_R_OUT_F || region == PST_R_OUT_B;

    if (p->held[mb] >= 0 || pst_stage_size(&w->r->stages[stage], region) == 0)
        return p->held[mb];
    if (p->n_free == 0 || (sends && p->n < SEND_SLOTS)) {
        p->held[mb] = (int)p->n++;
    } else {
        p->held[mb] = (int)p->free[p->first];
        p->first = (p->first + 1) % w->n_mb;
        p->n_free--;
    }
    return p->held[mb];
}

static void drop(struct walker *w, int stage, int region, int mb)
{
    struct pool_state *p = pool_of(w, stage, region);

    if (p->held[mb] < 0)
        return;
    p->free[(p->first + p->n_free++) % w->n_mb] = (unsigned)p->held[mb];
    p->held[mb] = -1;
}

/* Whether an action writes regions of that writer; of its own stage, or for a
 * hand-over of the peer's. */
static bool writes(enum pst_action_kind kind, enum pst_region_writer writer)
{
    switch (kind) {
    case PST_ACT_F:
        return writer == PST_WRITER_ARRIVE_F || writer == PST_WRITER_F;
    case PST_ACT_B:
    case PST_ACT_I:
        return writer == PST_WRITER_ARRIVE_B || writer == PST_WRITER_I;
    case PST_ACT_RECV_F:
    case PST_ACT_COPY_F:
        return writer == PST_WRITER_ARRIVE_F;
    case PST_ACT_RECV_B:
    case PST_ACT_COPY_B:
        return writer == PST_WRITER_ARRIVE_B;
    default:
        return false;
    }
}

static bool copies(const struct pst_action *a)
{
    return a->kind == PST_ACT_COPY_F || a->kind == PST_ACT_COPY_B;
}

/* Takes what the action writes, looks up what it reads. */
static void enter(struct walker *w, struct pst_rank_action *x)
{
    const struct pst_action *a = &x->a;

    for (int k = PST_R_FIRST; k < PST_R_WORK; k++) {
        bool write = writes(a->kind, pst_regions[k].writer);

        x->writes |= write ? 1u << k : 0;
        if (write && !copies(a))
            (void)take(w, a->stage, k, a->microbatch);
        x->slot[k] = pool_of(w, a->stage, k)->held[a->microbatch];
        if (write && copies(a))
            x->peer_slot[k] = take(w, a->peer_stage, k, a->microbatch);
    }
}

/* Gives back what nobody reads any more after action i. */
static void leave(struct walker *w, unsigned i)
{
    const struct pst_action *a = &w->r->actions[i].a;
    const unsigned *last =
        w->last + (size_t)a->stage * PST_N_ENDS * w->n_mb + a->microbatch;

    for (int k = PST_R_FIRST; k < PST_R_WORK; k++)
        if (last[(size_t)pst_regions[k].end * w->n_mb] == i + 1)
            drop(w, a->stage, k, a->microbatch);
}

static bool has_slots(const struct pst_action *a)
{
    return a->microbatch >= 0;
}

/* The last action of F and its messages, of these and I, of all. */
static void note_ends(struct walker *w)
{
    for (unsigned i = 0; i < w->r->n_actions; i++) {
        const struct pst_action *a = &w->r->actions[i].a;
        enum pst_region_end from = PST_END_W;

        if (!has_slots(a))
            continue;
        if (a->kind == PST_ACT_F || a->kind == PST_ACT_SEND_F ||
            a->kind == PST_ACT_COPY_F)
            from = PST_END_F;
        else if (a->kind != PST_ACT_W)
            from = PST_END_I;
        for (int e = (int)from; e < PST_N_ENDS; e++)
            w->last[((size_t)a->stage * PST_N_ENDS + (size_t)e) * w->n_mb +
                    (size_t)a->microbatch] = i + 1;
    }
}

static void walk(struct walker *w)
{
    note_ends(w);
    for (unsigned i = 0; i < w->r->n_actions; i++) {
        struct pst_rank_action *x = &w->r->actions[i];

        for (int k = 0; k < PST_N_REGIONS; k++)
            x->slot[k] = x->peer_slot[k] = -1;
        if (!has_slots(&x->a))
            continue;
        enter(w, x);
        leave(w, i);
    }
}

static bool init(struct walker *w)
{
    const size_t n_stages = w->r->sched->n_stages;
    const size_t n = n_stages * PST_N_REGIONS;

    w->pools = pst_calloc(PST_TAG_EXEC, n, sizeof(*w->pools));
    w->last =
        pst_calloc(PST_TAG_EXEC, n_stages * PST_N_ENDS * w->n_mb, sizeof(int));
    if (w->pools == NULL || w->last == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        struct pool_state *p = &w->pools[i];

        if (w->r->stages[i / PST_N_REGIONS].program == NULL)
            continue;
        p->held = pst_calloc(PST_TAG_EXEC, w->n_mb, sizeof(int));
        p->free = pst_calloc(PST_TAG_EXEC, w->n_mb, sizeof(unsigned));
        if (p->held == NULL || p->free == NULL)
            return false;
        for (unsigned m = 0; m < w->n_mb; m++)
            p->held[m] = -1;
    }
    return true;
}

static void fini(struct walker *w)
{
    const size_t n = (size_t)w->r->sched->n_stages * PST_N_REGIONS;

    for (size_t i = 0; w->pools != NULL && i < n; i++) {
        pst_free(w->pools[i].held);
        pst_free(w->pools[i].free);
    }
    pst_free(w->pools);
    pst_free(w->last);
}

enum pst_status pst_rank_assign_slots(struct pst_rank *r, struct pst_diag *diag)
{
    struct walker w = {.r = r, .n_mb = r->sched->n_microbatches};
    bool ok = init(&w);

    if (ok)
        walk(&w);
    for (unsigned s = 0; ok && s < r->sched->n_stages; s++) {
        struct pst_rank_stage *stage = &r->stages[s];

        for (int k = 0; stage->program != NULL && k < PST_N_REGIONS; k++) {
            struct pst_slot_pool *pool = &stage->pools[k];

            pool->n = pool_of(&w, (int)s, k)->n;
            pool->size = pst_stage_size(stage, k);
            pool->outstanding =
                pst_arena_calloc(&r->heap, pool->n + 1, sizeof(unsigned));
            ok = ok && pool->outstanding != NULL;
        }
    }
    fini(&w);
    return ok ? PST_OK : pst_diag_nomem(diag, sizeof(struct pool_state));
}
