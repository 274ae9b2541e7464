// SPDX-License-Identifier: Apache-2.0
/*
 * Walks a rank's actions once, in order, and gives every action the slot that
 * it uses of each region; the most slots in use at a time is the pool's size.
 * A slot that has been sent from is taken again last, so that its send has
 * time to finish: the executor waits for it otherwise.
 */
#include "stages/exec/rank/rank.h"

/* Regions that messages leave from get a second slot before one is reused. */
#define SEND_SLOTS 2

struct pool_state {
    struct PST_VEC(unsigned) free; /* oldest first */
    unsigned n;
    int *held; /* per microbatch: slot or -1 */
};

struct walker {
    struct pst_rank *r;
    struct pool_state *pools; /* [stage][region] */
    unsigned n_mb;
};

static struct pool_state *pool_of(struct walker *w, int stage,
                                  enum pst_region region)
{
    return &w->pools[(size_t)stage * PST_N_REGIONS + region];
}

static bool take(struct walker *w, int stage, enum pst_region region, int mb,
                 int *ret)
{
    struct pool_state *p = pool_of(w, stage, region);
    bool sends = region == PST_R_OUT_F || region == PST_R_OUT_B;

    *ret = p->held[mb];
    if (*ret >= 0)
        return true;
    if (w->r->stages[stage].program->size[region] == 0)
        return true; /* nothing lives there */
    if (p->free.n == 0 || (sends && p->n < SEND_SLOTS)) {
        *ret = (int)p->n++;
    } else {
        *ret = (int)p->free.at[0];
        p->free.n--;
        for (size_t i = 0; i < p->free.n; i++)
            p->free.at[i] = p->free.at[i + 1];
    }
    p->held[mb] = *ret;
    return true;
}

static bool drop(struct walker *w, int stage, enum pst_region region, int mb)
{
    struct pool_state *p = pool_of(w, stage, region);
    int slot = p->held[mb];

    if (slot < 0)
        return true;
    p->held[mb] = -1;
    return pst_vec_push(PST_TAG_EXEC, &p->free, (unsigned)slot);
}

/* Does a later action of the list still read what (stage, mb) made? */
static bool read_later(const struct walker *w, unsigned from, int stage, int mb,
                       enum pst_action_kind send, enum pst_action_kind copy)
{
    for (unsigned i = from; i < w->r->n_actions; i++) {
        const struct pst_action *a = &w->r->actions[i].a;

        if (a->stage == stage && a->microbatch == mb &&
            (a->kind == send || a->kind == copy))
            return true;
    }
    return false;
}

/* Takes all regions that the action writes or reads. */
static bool enter(struct walker *w, struct pst_rank_action *x)
{
    const struct pst_action *a = &x->a;
    int s = a->stage, m = a->microbatch;

    switch (a->kind) {
    case PST_ACT_F:
        return take(w, s, PST_R_IN_F, m, &x->slot[PST_R_IN_F]) &&
               take(w, s, PST_R_STASH, m, &x->slot[PST_R_STASH]) &&
               take(w, s, PST_R_OUT_F, m, &x->slot[PST_R_OUT_F]);
    case PST_ACT_B:
    case PST_ACT_I:
    case PST_ACT_W:
        return take(w, s, PST_R_IN_F, m, &x->slot[PST_R_IN_F]) &&
               take(w, s, PST_R_STASH, m, &x->slot[PST_R_STASH]) &&
               take(w, s, PST_R_IN_B, m, &x->slot[PST_R_IN_B]) &&
               take(w, s, PST_R_KEEP, m, &x->slot[PST_R_KEEP]) &&
               (a->kind == PST_ACT_W ||
                take(w, s, PST_R_OUT_B, m, &x->slot[PST_R_OUT_B]));
    case PST_ACT_RECV_F:
        return take(w, s, PST_R_IN_F, m, &x->slot[PST_R_IN_F]);
    case PST_ACT_RECV_B:
        return take(w, s, PST_R_IN_B, m, &x->slot[PST_R_IN_B]);
    case PST_ACT_COPY_F:
        return take(w, a->peer_stage, PST_R_IN_F, m, &x->peer_slot);
    case PST_ACT_COPY_B:
        return take(w, a->peer_stage, PST_R_IN_B, m, &x->peer_slot);
    default:
        return true;
    }
}

/* What sends and hand-overs read is wherever F, B or I left it. */
static void look(struct walker *w, struct pst_rank_action *x)
{
    const enum pst_action_kind k = x->a.kind;

    if (k != PST_ACT_SEND_F && k != PST_ACT_SEND_B && k != PST_ACT_COPY_F &&
        k != PST_ACT_COPY_B)
        return;
    for (int r = 0; r < PST_N_REGIONS; r++)
        x->slot[r] =
            pool_of(w, x->a.stage, (enum pst_region)r)->held[x->a.microbatch];
}

/* Gives back what nobody reads any more after action i. */
static bool leave(struct walker *w, unsigned i)
{
    const struct pst_action *a = &w->r->actions[i].a;
    const struct pst_program *p;
    int s = a->stage, m = a->microbatch;
    bool train = w->r->options.train, f, b, last_b, last_w;

    if (a->kind == PST_ACT_REDUCE)
        return true;
    p = w->r->stages[s].program;
    f = a->kind == PST_ACT_F || a->kind == PST_ACT_SEND_F ||
        a->kind == PST_ACT_COPY_F;
    b = a->kind == PST_ACT_B || a->kind == PST_ACT_I ||
        a->kind == PST_ACT_SEND_B || a->kind == PST_ACT_COPY_B;
    if (f && !read_later(w, i + 1, s, m, PST_ACT_SEND_F, PST_ACT_COPY_F)) {
        if (!drop(w, s, PST_R_OUT_F, m))
            return false;
        if ((!train || !p->inputs_kept) && !drop(w, s, PST_R_IN_F, m))
            return false;
        if (!train && !drop(w, s, PST_R_STASH, m))
            return false;
    }
    last_b = b && !read_later(w, i + 1, s, m, PST_ACT_SEND_B, PST_ACT_COPY_B);
    if (last_b && !drop(w, s, PST_R_OUT_B, m))
        return false;
    last_w = a->kind == PST_ACT_W || (last_b && !p->options.split_iw);
    if ((last_w || (last_b && !p->seeds_kept_w)) && !drop(w, s, PST_R_IN_B, m))
        return false;
    if ((last_w || (last_b && !p->inputs_kept_w)) && !drop(w, s, PST_R_IN_F, m))
        return false;
    if ((last_w || (last_b && !p->stash_kept_w)) && !drop(w, s, PST_R_STASH, m))
        return false;
    return !last_w || drop(w, s, PST_R_KEEP, m);
}

static bool walk(struct walker *w)
{
    for (unsigned i = 0; i < w->r->n_actions; i++) {
        struct pst_rank_action *x = &w->r->actions[i];

        for (int r = 0; r < PST_N_REGIONS; r++)
            x->slot[r] = -1;
        x->peer_slot = -1;
        if (!enter(w, x))
            return false;
        look(w, x);
        if (!leave(w, i))
            return false;
    }
    return true;
}

static bool init(struct walker *w)
{
    size_t n = (size_t)w->r->sched->n_stages * PST_N_REGIONS;

    w->pools = pst_arena_calloc(&w->r->heap, n, sizeof(*w->pools));
    for (size_t i = 0; w->pools != NULL && i < n; i++) {
        w->pools[i].held = pst_arena_calloc(&w->r->heap, w->n_mb, sizeof(int));
        if (w->pools[i].held == NULL)
            return false;
        for (unsigned m = 0; m < w->n_mb; m++)
            w->pools[i].held[m] = -1;
    }
    return w->pools != NULL;
}

enum pst_status pst_rank_assign_slots(struct pst_rank *r, struct pst_diag *diag)
{
    struct walker w = {.r = r, .n_mb = r->sched->n_microbatches};
    bool ok = init(&w) && walk(&w);

    for (unsigned s = 0; ok && s < r->sched->n_stages; s++) {
        struct pst_rank_stage *stage = &r->stages[s];

        for (int k = 0; stage->program != NULL && k < PST_N_REGIONS; k++) {
            struct pst_slot_pool *pool = &stage->pools[k];

            pool->n = pool_of(&w, (int)s, (enum pst_region)k)->n;
            pool->size = stage->program->size[k];
            pool->outstanding =
                pst_arena_calloc(&r->heap, pool->n + 1, sizeof(unsigned));
            ok = ok && pool->outstanding != NULL;
        }
    }
    for (size_t i = 0;
         w.pools != NULL && i < (size_t)r->sched->n_stages * PST_N_REGIONS; i++)
        pst_vec_fini(&w.pools[i].free);
    return ok ? PST_OK : pst_diag_nomem(diag, sizeof(struct pool_state));
}
