// SPDX-License-Identifier: Apache-2.0
/*
 * Walks a rank's actions once, in order, and assigns to every action the slot
 * that it uses of each region; the maximum number of slots in use is the pool's
 * size. A slot is released after the last action that reads it. A slot that was
 * sent from is reused last, so that its send has time to complete: otherwise
 * the executor waits for it.
 *
 * A value that one stage produces and another stage of this rank reads is
 * stored once: the reader's region shares the slots of the producer's region,
 * which are released by the last reader. Only two kinds of values are copied: a
 * part of a storage, since the whole would stay live as long as the part, and a
 * value for the next microbatch.
 */
#include "stages/layout/memory/slots.h"

#include "stages/compile/memplan.h"
#include "stages/layout/memory/spill.h"

/* Minimum number of slots of a region that messages are sent from: one is
 * filled while the other is sent. */
#define SEND_SLOTS 2

struct pool_state {
    unsigned stage, region;
    /* Pool of the stage on this rank that produces the value, from which the
     * value is copied or read in place; NULL: the value is received, or
     * produced by this stage. */
    struct pool_state *maker;
    bool must_copy;          /* the value must be copied from `maker` */
    bool sent_only;          /* only messages read the values */
    struct pool_state *root; /* pool that has the slots; may be this one */
    struct pool_state *next; /* list of the root and all that share its slots */
    /* Members of roots only: */
    unsigned *free; /* ring, oldest first; capacity for all microbatches */
    unsigned n_free, first;
    unsigned n;   /* number of slots */
    int *slot_at; /* per microbatch: slot or -1 */
    /* Slot of each compute action, if microbatches are evicted from this pool
     * (spill.h); NULL: the members above apply. */
    const int *spilled;
};

struct walker {
    const struct pst_rank_role *role;
    struct pst_layout *layout;
    struct pst_actions *actions;
    struct pst_channels *channels;
    struct pst_arena *heap;    /* the rank's heap */
    struct pst_arena arena;    /* has the tables below */
    struct pool_state **pools; /* [stage][region] */
    /* [stage][end][microbatch]: index, plus 1, of the last action that reads a
     * region with that end */
    unsigned *last;
    unsigned n_mb;
    unsigned number; /* index of the current action among those that compute */
    struct pst_diag *diag;
};

static struct pst_slot_pool *pool_of(const struct walker *w,
                                     const struct pool_state *p)
{
    return &w->layout->stages[p->stage].pools[p->region];
}

/* --- sharing -------------------------------------------------------------- */

/* True for a tail microbatch, whose values fill only a part of their slots. */
static bool is_smaller(const struct walker *w, const struct pst_action *a)
{
    return w->layout->stages[a->stage].tail != NULL &&
           pst_role_is_tail(w->role, a->microbatch);
}

static bool is_for_next_microbatch(const struct pst_action *a)
{
    return pst_action_own_microbatch(a) != a->microbatch;
}

/* True if the value occupies its whole region. smaller: it is of a tail
 * microbatch, which need not fill the slots. */
static bool fills_region(const struct pst_slot_pool *pool, struct pst_loc at,
                         size_t len, bool smaller)
{
    return at.region >= PST_R_BOUNDARY && at.offset == 0 &&
           (smaller || pool->size == pst_mem_round(len));
}

static void link_copy_pools(struct walker *w, const struct pst_action *a,
                            const struct pst_passage *p)
{
    struct pool_state *from = &w->pools[a->stage][p->at.region];
    struct pool_state *to = &w->pools[a->peer_stage][p->peer_at.region];
    const bool smaller = is_smaller(w, a);

    if (!fills_region(pool_of(w, from), p->at, p->len, smaller) ||
        !fills_region(pool_of(w, to), p->peer_at, p->len, smaller) ||
        (to->maker != NULL && to->maker != from) || is_for_next_microbatch(a))
        to->must_copy = true;
    to->maker = from;
}

/* Marks the region of a sent value if only messages read it: no later action of
 * the stage does. */
static void mark_sent_only(struct walker *w, const struct pst_action *a,
                           const struct pst_passage *p)
{
    struct pool_state *from = &w->pools[a->stage][p->at.region];
    const struct pst_slot_pool *pool = pool_of(w, from);

    if ((pool->writer == PST_WRITER_F && pool->end == PST_END_F) ||
        (pool->writer == PST_WRITER_I && pool->end == PST_END_I))
        from->sent_only = true;
}

static enum pst_status scan_messages(struct walker *w)
{
    for (unsigned i = 0; i < w->actions->n; i++) {
        const struct pst_action *a = &w->actions->at[i].a;
        const struct pst_channel *channel;
        enum pst_status status;

        if (!pst_action_copies(a) && a->kind != PST_ACT_SEND_F &&
            a->kind != PST_ACT_SEND_B)
            continue;
        status = pst_channel_of(w->channels, a, &channel, w->diag);
        if (status != PST_OK)
            return status;
        for (unsigned k = 0; k < channel->n; k++)
            if (pst_action_copies(a))
                link_copy_pools(w, a, &channel->at[k]);
            else
                mark_sent_only(w, a, &channel->at[k]);
    }
    return PST_OK;
}

/* Lets regions share the slots of the stage that produces their values. In a
 * chain of stages that pass a value on, the first has the slots. */
static void share_slots(struct walker *w)
{
    for (unsigned s = 0; s < w->role->sched->n_stages; s++)
        for (unsigned k = PST_R_FIRST; k < w->layout->stages[s].n_pools; k++) {
            struct pool_state *p = &w->pools[s][k];

            p->root = p;
            while (p->root->maker != NULL && !p->root->must_copy)
                p->root = p->root->maker;
            if (p->root == p)
                continue;
            p->next = p->root->next;
            p->root->next = p;
            pool_of(w, p)->shares = pool_of(w, p->root);
        }
}

/* --- the walk ------------------------------------------------------------- */

static void assign_slot(struct walker *w, struct pst_rank_action *x,
                        unsigned stage, unsigned region)
{
    struct pool_state *p = &w->pools[stage][region];
    const int mb = x->a.microbatch;

    if (p->root != p || p->spilled != NULL || p->slot_at[mb] >= 0 ||
        pool_of(w, p)->size == 0)
        return;
    if (p->n_free == 0 || (p->sent_only && p->n < SEND_SLOTS)) {
        p->slot_at[mb] = (int)p->n++;
    } else {
        p->slot_at[mb] = (int)p->free[p->first];
        p->first = (p->first + 1) % w->n_mb;
        p->n_free--;
    }
    x->takes[x->n_takes++] = region;
}

static void release_slot(struct walker *w, struct pool_state *p, int mb)
{
    if (p->slot_at[mb] < 0)
        return;
    p->free[(p->first + p->n_free++) % w->n_mb] = (unsigned)p->slot_at[mb];
    p->slot_at[mb] = -1;
}

/* True if a compute action of that kind may be the first to write a region that
 * has this writer. */
static bool writes_region(enum pst_action_kind kind,
                          enum pst_region_writer writer)
{
    switch (kind) {
    case PST_ACT_F:
        return writer == PST_WRITER_ARRIVE_F || writer == PST_WRITER_F;
    case PST_ACT_B:
    case PST_ACT_I:
        return writer == PST_WRITER_ARRIVE_B || writer == PST_WRITER_I;
    default:
        return false;
    }
}

static bool is_receive(const struct pst_action *a)
{
    return a->kind == PST_ACT_RECV_F || a->kind == PST_ACT_RECV_B ||
           pst_action_copies(a);
}

static int slot_of(const struct walker *w, const struct pool_state *p,
                   const struct pst_action *a, int mb)
{
    if (p->spilled == NULL)
        return p->root->slot_at[mb];
    return pst_action_computes(a) && a->stage == (int)p->stage
               ? p->spilled[w->number]
               : -1;
}

static int *find_slots(const struct walker *w, const struct pst_action *a,
                       unsigned stage, int mb, struct pst_arena *heap)
{
    const unsigned n = w->layout->stages[stage].n_pools;
    int *ret = pst_arena_alloc(heap, (n + 1) * sizeof(*ret));

    for (unsigned k = 0; ret != NULL && k < n; k++)
        ret[k] = k < PST_R_FIRST ? -1 : slot_of(w, &w->pools[stage][k], a, mb);
    return ret;
}

/* Assigns to the action the slots that it writes, and finds those that it
 * reads. */
static enum pst_status assign_slots(struct walker *w, struct pst_rank_action *x)
{
    const struct pst_action *a = &x->a;
    const unsigned to =
        (unsigned)(pst_action_copies(a) ? a->peer_stage : a->stage);
    const struct pst_rank_stage *stage = &w->layout->stages[to];
    const struct pst_channel *channel;
    enum pst_status status = PST_OK;

    x->takes =
        pst_arena_alloc(w->heap, (stage->n_pools + 1) * sizeof(*x->takes));
    if (x->takes == NULL)
        return pst_diag_nomem(w->diag, stage->n_pools * sizeof(*x->takes));
    for (unsigned k = PST_R_FIRST; k < stage->n_pools; k++)
        if (writes_region(a->kind, stage->pools[k].writer))
            assign_slot(w, x, to, k);
    if (is_receive(a))
        status = pst_channel_of(w->channels, a, &channel, w->diag);
    if (status != PST_OK)
        return status;
    for (unsigned i = 0; is_receive(a) && i < channel->n; i++) {
        const struct pst_passage *p = &channel->at[i];
        const unsigned k =
            pst_action_copies(a) ? p->peer_at.region : p->at.region;

        if (k >= PST_R_FIRST)
            assign_slot(w, x, to, k);
    }
    x->slot = find_slots(w, a, (unsigned)a->stage, pst_action_own_microbatch(a),
                         w->heap);
    x->peer_slot = pst_action_copies(a)
                       ? find_slots(w, a, to, a->microbatch, w->heap)
                       : x->slot;
    return x->slot != NULL && x->peer_slot != NULL
               ? PST_OK
               : pst_diag_nomem(w->diag, stage->n_pools * sizeof(int));
}

static bool has_slots(const struct pst_action *a)
{
    return a->microbatch >= 0;
}

/* Returns the index, plus 1, of the last action that reads the microbatch's
 * slot in any of the pools that share it; 0: none. */
static unsigned end_of(const struct walker *w, const struct pool_state *root,
                       int mb)
{
    unsigned ret = 0;

    for (const struct pool_state *p = root; p != NULL; p = p->next) {
        const size_t end = pool_of(w, p)->end;

        ret = PST_MAX(
            ret, w->last[(p->stage * PST_N_ENDS + end) * w->n_mb + (size_t)mb]);
    }
    return ret;
}

/* Releases the slots that have no reader after action i. */
static void release_slots(struct walker *w, unsigned i)
{
    const struct pst_action *a = &w->actions->at[i].a;
    const int mb = pst_action_own_microbatch(a);

    for (unsigned k = PST_R_FIRST; k < w->layout->stages[a->stage].n_pools;
         k++) {
        struct pool_state *root = w->pools[a->stage][k].root;

        if (end_of(w, root, mb) == i + 1)
            release_slot(w, root, mb);
    }
}

/* Records, for each stage and microbatch, the last action of each end: END_F
 * counts F and its messages, END_I all actions but W, END_W all actions. */
static void record_ends(struct walker *w)
{
    for (unsigned i = 0; i < w->actions->n; i++) {
        const struct pst_action *a = &w->actions->at[i].a;
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
                    (size_t)pst_action_own_microbatch(a)] = i + 1;
    }
}

static enum pst_status walk_actions(struct walker *w)
{
    enum pst_status status = PST_OK;

    record_ends(w);
    for (unsigned i = 0; i < w->actions->n && status == PST_OK; i++) {
        if (!has_slots(&w->actions->at[i].a))
            continue;
        status = assign_slots(w, &w->actions->at[i]);
        release_slots(w, i);
        w->number += pst_action_computes(&w->actions->at[i].a);
    }
    return status;
}

/* --- pools ---------------------------------------------------------------- */

static enum pst_status make_pools(struct walker *w,
                                  struct pst_rank_stage *stage)
{
    const struct pst_program *programs[] = {stage->program, stage->tail};

    for (size_t i = 0; i < PST_COUNT(programs); i++)
        if (programs[i] != NULL)
            stage->n_pools = PST_MAX(stage->n_pools, programs[i]->n_regions);
    stage->pools =
        pst_arena_calloc(w->heap, stage->n_pools + 1, sizeof(*stage->pools));
    if (stage->pools == NULL)
        return pst_diag_nomem(w->diag, stage->n_pools * sizeof(*stage->pools));
    for (size_t i = 0; i < PST_COUNT(programs); i++)
        for (unsigned k = PST_R_FIRST;
             programs[i] != NULL && k < programs[i]->n_regions; k++) {
            const struct pst_region_row *row = &programs[i]->regions[k];
            struct pst_slot_pool *pool = &stage->pools[k];

            if (row->size > 0)
                pool->writer = row->writer;
            pool->end = PST_MAX(pool->end, row->end);
            pool->size = PST_MAX(pool->size, row->size);
        }
    return PST_OK;
}

static enum pst_status init(struct walker *w)
{
    const size_t n_stages = w->role->sched->n_stages;
    enum pst_status status = PST_OK;

    w->pools = pst_arena_calloc(&w->arena, n_stages, sizeof(*w->pools));
    w->last = pst_arena_calloc(&w->arena, n_stages * PST_N_ENDS * w->n_mb,
                               sizeof(int));
    if (w->pools == NULL || w->last == NULL)
        return pst_diag_nomem(w->diag, n_stages * w->n_mb * sizeof(int));
    for (unsigned s = 0; s < n_stages && status == PST_OK; s++) {
        struct pst_rank_stage *stage = &w->layout->stages[s];

        if (stage->program == NULL)
            continue;
        status = make_pools(w, stage);
        if (status != PST_OK)
            break;
        w->pools[s] =
            pst_arena_calloc(&w->arena, stage->n_pools, sizeof(*w->pools[s]));
        for (unsigned k = 0; w->pools[s] != NULL && k < stage->n_pools; k++) {
            w->pools[s][k].stage = s;
            w->pools[s][k].region = k;
        }
        if (w->pools[s] == NULL)
            status = pst_diag_nomem(w->diag, stage->n_pools);
    }
    return status;
}

static enum pst_status init_slots(struct walker *w)
{
    for (unsigned s = 0; s < w->role->sched->n_stages; s++)
        for (unsigned k = PST_R_FIRST; k < w->layout->stages[s].n_pools; k++) {
            struct pool_state *p = &w->pools[s][k];

            if (p->root != p)
                continue;
            p->slot_at = pst_arena_calloc(&w->arena, w->n_mb, sizeof(int));
            p->free = pst_arena_calloc(&w->arena, w->n_mb, sizeof(unsigned));
            if (p->slot_at == NULL || p->free == NULL)
                return pst_diag_nomem(w->diag, w->n_mb * sizeof(int));
            for (unsigned m = 0; m < w->n_mb; m++)
                p->slot_at[m] = -1;
        }
    return PST_OK;
}

/* Plans the pools from which microbatches may be evicted. */
static enum pst_status plan_spills(struct walker *w)
{
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < w->role->sched->n_stages; s++)
        for (unsigned k = PST_R_FIRST;
             k < w->layout->stages[s].n_pools && status == PST_OK; k++) {
            struct pool_state *p = &w->pools[s][k];
            int *slot_at;

            if (!pst_spill_is_for(w->role, pool_of(w, p), k))
                continue;
            status = pst_spill_pool(w->role, w->layout, w->actions, s, k,
                                    w->heap, &slot_at, w->diag);
            if (status == PST_OK)
                p->spilled = slot_at;
        }
    return status == PST_OK
               ? pst_spill_order(w->role, w->layout, w->actions, w->diag)
               : status;
}

/* Stores the result of the walk in the layout. */
static void store_pools(struct walker *w)
{
    struct pst_layout *l = w->layout;

    for (unsigned s = 0; s < w->role->sched->n_stages; s++)
        for (unsigned k = PST_R_FIRST; k < l->stages[s].n_pools; k++) {
            struct pst_slot_pool *pool = &l->stages[s].pools[k];

            if (pool->shares != NULL)
                continue;
            if (w->pools[s][k].spilled == NULL)
                pool->n = w->pools[s][k].n;
            pool->first = l->n_slots;
            l->n_slots += pool->n;
            for (const struct pool_state *p = w->pools[s][k].next; p != NULL;
                 p = p->next) {
                pool_of(w, p)->n = pool->n;
                pool_of(w, p)->size = pool->size;
                pool_of(w, p)->first = pool->first;
            }
        }
}

enum pst_status pst_slots_assign(const struct pst_rank_role *role,
                                 struct pst_layout *layout,
                                 struct pst_actions *actions,
                                 struct pst_channels *channels,
                                 struct pst_arena *heap, struct pst_diag *diag)
{
    struct walker w = {.role = role,
                       .layout = layout,
                       .actions = actions,
                       .channels = channels,
                       .heap = heap,
                       .n_mb = role->sched->n_microbatches,
                       .diag = diag};
    enum pst_status status;

    pst_arena_init(&w.arena, PST_TAG_EXEC);
    status = init(&w);
    if (status == PST_OK)
        status = scan_messages(&w);
    if (status == PST_OK) {
        share_slots(&w);
        status = init_slots(&w);
    }
    if (status == PST_OK)
        status = plan_spills(&w);
    if (status == PST_OK)
        status = walk_actions(&w);
    if (status == PST_OK)
        store_pools(&w);
    pst_arena_fini(&w.arena);
    return status;
}
