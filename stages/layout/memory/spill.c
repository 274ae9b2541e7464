// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/memory/spill.h"

#include <stdlib.h>

#include "stages/base/checked.h"
#include "stages/compile/memplan.h"

#define NEVER UINT32_MAX

/* Minimum number of slots: one is used while another is evicted or reloaded. */
#define LEAST 2

/* State while one pool is planned. Arrays are indexed by compute action. Such
 * an index is called a time here; it also identifies the use of the pool by
 * that action. */
struct spiller {
    const struct pst_actions *actions;
    struct pst_layout *layout;
    unsigned stage, region, keep; /* keep: wanted number of slots */
    unsigned n;                   /* number of compute actions */
    int *mb;        /* microbatch for which the pool is used, or -1 */
    uint32_t *next; /* next use by the same microbatch, or NEVER */
    uint32_t *prev; /* previous use by the same microbatch, or NEVER */
    bool *out;      /* evicted between this use and the next */
    unsigned *trip; /* number of that eviction (struct pst_spill_job) */
    int *slot_at;   /* slot of the use; -1: the pool is not used */
    /* Last uses of the microbatches that are in slots and are used again. */
    struct PST_VEC(uint32_t) open;
    struct PST_VEC(struct place) places;
    struct pst_diag *diag;
};

/* A slot of the pool. Microbatches occupy it one after another. */
struct place {
    /* last time at which it is occupied; NEVER: not known yet */
    uint32_t busy;
    uint32_t since; /* last use by the previous microbatch */
    long job; /* index in jobs of the previous microbatch's eviction, or -1 */
};

/* --- uses of the pool ----------------------------------------------------- */

static bool uses_pool(const struct pst_slot_pool *pool,
                      enum pst_action_kind kind)
{
    switch (kind) {
    case PST_ACT_F:
        return pool->writer == PST_WRITER_F;
    case PST_ACT_B:
    case PST_ACT_I:
        return true;
    case PST_ACT_W:
        return pool->end == PST_END_W;
    default:
        return false;
    }
}

static enum pst_status record_uses(struct spiller *s,
                                   const struct pst_rank_role *role,
                                   struct pst_arena *own)
{
    const struct pst_slot_pool *pool =
        &s->layout->stages[s->stage].pools[s->region];
    const unsigned n_mb = role->sched->n_microbatches;
    uint32_t *last = pst_arena_alloc(own, (n_mb + 1) * sizeof(*last));
    unsigned t = 0;

    s->mb = pst_arena_alloc(own, (s->n + 1) * sizeof(*s->mb));
    s->next = pst_arena_alloc(own, (s->n + 1) * sizeof(*s->next));
    s->prev = pst_arena_alloc(own, (s->n + 1) * sizeof(*s->prev));
    s->out = pst_arena_calloc(own, s->n + 1, sizeof(*s->out));
    s->trip = pst_arena_calloc(own, s->n + 1, sizeof(*s->trip));
    if (last == NULL || s->mb == NULL || s->next == NULL || s->prev == NULL ||
        s->out == NULL || s->trip == NULL)
        return pst_diag_nomem(s->diag, (s->n + 1) * sizeof(*s->next));
    for (unsigned i = 0; i < n_mb; i++)
        last[i] = NEVER;
    for (unsigned i = 0; i < s->actions->n; i++) {
        const struct pst_action *a = &s->actions->at[i].a;

        if (!pst_action_computes(a))
            continue;
        s->mb[t] = -1;
        s->next[t] = s->prev[t] = NEVER;
        if (a->stage == (int)s->stage && uses_pool(pool, a->kind)) {
            s->mb[t] = a->microbatch;
            s->prev[t] = last[a->microbatch];
            if (s->prev[t] != NEVER)
                s->next[s->prev[t]] = t;
            last[a->microbatch] = t;
        }
        t++;
    }
    return PST_OK;
}

/* --- evictions ------------------------------------------------------------ */

/* True if the microbatch of a use could be out of the arena at time t: evicted
 * before t, and not reloaded until t has ended. */
static bool may_be_out(const struct spiller *s, uint32_t use, unsigned t)
{
    return use + 2 <= t && t + 2 <= s->next[use];
}

/* Returns the index in `open` of the microbatch whose next use is the latest,
 * among those that may be out at time t; -1: none. */
static long find_latest_use(const struct spiller *s, unsigned t)
{
    long best = -1;

    for (size_t i = 0; i < s->open.n; i++)
        if (may_be_out(s, s->open.at[i], t) &&
            (best < 0 ||
             s->next[s->open.at[i]] > s->next[s->open.at[(size_t)best]]))
            best = (long)i;
    return best;
}

static void close_use(struct spiller *s, size_t i)
{
    s->open.at[i] = s->open.at[--s->open.n];
}

static enum pst_status choose_evictions(struct spiller *s)
{
    for (unsigned t = 0; t < s->n; t++) {
        const bool is_used = s->mb[t] >= 0;
        size_t count;

        for (size_t i = s->open.n; i-- > 0;)
            if (s->next[s->open.at[i]] == t)
                close_use(s, i);
        count = s->open.n + is_used;
        if (t + 1 < s->n && s->mb[t + 1] >= 0 && s->prev[t + 1] != NEVER &&
            s->out[s->prev[t + 1]])
            count++; /* counts the microbatch that is being reloaded */
        while (count > s->keep) {
            const long i = find_latest_use(s, t);

            if (i < 0)
                break;
            s->out[s->open.at[i]] = true;
            close_use(s, (size_t)i);
            count--;
        }
        if (is_used && s->next[t] != NEVER &&
            !pst_vec_push(PST_TAG_EXEC, &s->open, t))
            return pst_diag_nomem(s->diag, s->open.n * sizeof(uint32_t));
    }
    return PST_OK;
}

/* --- slots ---------------------------------------------------------------- */

/* Occupies the slot that has been free longest at time t, or a new one. */
static enum pst_status occupy_slot(struct spiller *s, unsigned t, size_t *ret)
{
    const struct place fresh = {NEVER, 0, -1};
    size_t best = s->places.n;

    for (size_t i = 0; i < s->places.n; i++)
        if (s->places.at[i].busy != NEVER && s->places.at[i].busy < t &&
            (best == s->places.n ||
             s->places.at[i].busy < s->places.at[best].busy))
            best = i;
    if (best == s->places.n && !pst_vec_push(PST_TAG_EXEC, &s->places, fresh))
        return pst_diag_nomem(s->diag, sizeof(fresh));
    s->places.at[best].busy = NEVER;
    *ret = best;
    return PST_OK;
}

static enum pst_status add_job(struct spiller *s, bool in, unsigned use,
                               size_t slot, uint32_t issue, uint32_t need)
{
    const struct pst_spill_job job = {.in = in,
                                      .round_trip =
                                          s->trip[in ? s->prev[use] : use],
                                      .stage = s->stage,
                                      .region = s->region,
                                      .microbatch = s->mb[use],
                                      .slot = (unsigned)slot,
                                      .issue = issue,
                                      .need = need};

    return pst_vec_push(PST_TAG_EXEC, &s->layout->spills.jobs, job)
               ? PST_OK
               : pst_diag_nomem(s->diag, sizeof(job));
}

/* Assigns a slot to the microbatch that action t produces; an eviction from
 * that slot must end before t. */
static enum pst_status begin_use(struct spiller *s, unsigned t)
{
    size_t slot;
    enum pst_status status = occupy_slot(s, t, &slot);

    if (status != PST_OK)
        return status;
    s->slot_at[t] = (int)slot;
    if (s->places.at[slot].job >= 0)
        s->layout->spills.jobs.at[s->places.at[slot].job].need = t;
    s->places.at[slot].job = -1;
    return PST_OK;
}

/* Adds the reload of the microbatch that action t + 1 uses. It may begin as
 * soon as its slot is free. */
static enum pst_status add_reload(struct spiller *s, unsigned t)
{
    size_t slot;
    enum pst_status status = occupy_slot(s, t, &slot);
    struct place *p;

    if (status != PST_OK)
        return status;
    p = &s->places.at[slot];
    s->slot_at[t + 1] = (int)slot;
    p->job = -1;
    return add_job(s, true, t + 1, slot, PST_MAX(p->since, s->prev[t + 1]),
                   t + 1);
}

static enum pst_status end_use(struct spiller *s, unsigned t)
{
    struct place *p = &s->places.at[s->slot_at[t]];

    if (s->next[t] != NEVER && !s->out[t]) {
        s->slot_at[s->next[t]] = s->slot_at[t];
        return PST_OK;
    }
    p->since = t;
    p->job = -1;
    p->busy = t;
    if (s->next[t] == NEVER)
        return PST_OK;
    p->busy = t + 1;
    p->job = (long)s->layout->spills.jobs.n;
    s->trip[t] = s->layout->spills.n_trips++;
    return add_job(s, false, t, (size_t)s->slot_at[t], t, NEVER);
}

static enum pst_status place_all(struct spiller *s)
{
    enum pst_status status = PST_OK;

    for (unsigned t = 0; t < s->n && status == PST_OK; t++) {
        if (s->mb[t] >= 0 && s->prev[t] == NEVER)
            status = begin_use(s, t);
        if (status == PST_OK && t + 1 < s->n && s->mb[t + 1] >= 0 &&
            s->prev[t + 1] != NEVER && s->out[s->prev[t + 1]])
            status = add_reload(s, t);
        if (status == PST_OK && s->mb[t] >= 0)
            status = end_use(s, t);
    }
    return status;
}

/* --- one pool ------------------------------------------------------------- */

bool pst_spill_is_for(const struct pst_rank_role *role,
                      const struct pst_slot_pool *pool, unsigned region)
{
    return role->options.train && role->options.stash != NULL &&
           region < PST_R_BOUNDARY && pool->size > 0 &&
           ((pool->writer == PST_WRITER_F && pool->end != PST_END_F) ||
            (pool->writer == PST_WRITER_I && pool->end != PST_END_I));
}

static unsigned count_computing(const struct pst_actions *actions)
{
    unsigned n = 0;

    for (unsigned i = 0; i < actions->n; i++)
        n += pst_action_computes(&actions->at[i].a);
    return n;
}

enum pst_status pst_spill_pool(const struct pst_rank_role *role,
                               struct pst_layout *layout,
                               const struct pst_actions *actions,
                               unsigned stage, unsigned region,
                               struct pst_arena *heap, int **ret_slot_at,
                               struct pst_diag *diag)
{
    struct spiller s = {.actions = actions,
                        .layout = layout,
                        .stage = stage,
                        .region = region,
                        .keep = PST_MAX(role->options.stash_keep, LEAST),
                        .n = count_computing(actions),
                        .diag = diag};
    struct pst_arena own;
    enum pst_status status;

    pst_arena_init(&own, PST_TAG_EXEC);
    s.slot_at = pst_arena_alloc(heap, (s.n + 1) * sizeof(*s.slot_at));
    for (unsigned t = 0; s.slot_at != NULL && t < s.n; t++)
        s.slot_at[t] = -1;
    status = s.slot_at != NULL ? record_uses(&s, role, &own)
                               : pst_diag_nomem(diag, s.n * sizeof(int));
    if (status == PST_OK)
        status = choose_evictions(&s);
    if (status == PST_OK)
        status = place_all(&s);
    if (status == PST_OK) {
        layout->stages[stage].pools[region].n = (unsigned)s.places.n;
        *ret_slot_at = s.slot_at;
    }
    pst_vec_fini(&s.open);
    pst_vec_fini(&s.places);
    pst_arena_fini(&own);
    return status;
}

/* --- all ------------------------------------------------------------------ */

/* Sorts by issue. On ties evictions precede reloads, which may need the slots
 * or the data of these evictions. */
static int compare_issue(const void *a, const void *b)
{
    const struct pst_spill_job *x = a, *y = b;

    if (x->issue != y->issue)
        return x->issue < y->issue ? -1 : 1;
    if (x->in != y->in)
        return x->in ? 1 : -1;
    if (x->need != y->need)
        return x->need < y->need ? -1 : 1;
    return x->stage != y->stage ? (int)x->stage - (int)y->stage
                                : (int)x->region - (int)y->region;
}

/* Assigns locations outside of the arena to the copies of one pool: an eviction
 * takes one, its reload releases it. */
static enum pst_status find_outside(struct pst_layout *l, unsigned stage,
                                    unsigned region, unsigned *trips,
                                    struct pst_diag *diag)
{
    const size_t size = l->stages[stage].pools[region].size;
    const size_t begin = l->memory.outside, each = pst_mem_round(size);
    const unsigned first = l->spills.n_outside;
    struct PST_VEC(unsigned) free = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < l->spills.jobs.n && status == PST_OK; i++) {
        struct pst_spill_job *job = &l->spills.jobs.at[i];

        if (job->stage != stage || job->region != region)
            continue;
        job->bytes = size;
        l->memory.moved = pst_size_add(l->memory.moved, size);
        if (job->in) {
            job->place = trips[job->round_trip];
            if (!pst_vec_push(PST_TAG_EXEC, &free, job->place))
                status = pst_diag_nomem(diag, sizeof(job->place));
        } else {
            job->place = free.n > 0 ? free.at[--free.n] : l->spills.n_outside++;
            trips[job->round_trip] = job->place;
        }
        job->outside = begin + (job->place - first) * each;
    }
    l->memory.outside =
        pst_size_add(begin, pst_size_mul(l->spills.n_outside - first, each));
    pst_vec_fini(&free);
    return status;
}

/* Sets for each compute action how many copies must have ended before it, and
 * how many may have begun after it. */
static void mark_actions(const struct pst_spills *s,
                         struct pst_actions *actions)
{
    unsigned t = 0, issued = 0, need = 0;

    for (unsigned i = 0; i < actions->n; i++) {
        if (!pst_action_computes(&actions->at[i].a))
            continue;
        for (unsigned k = need; k < issued; k++)
            if (s->jobs.at[k].need <= t)
                need = k + 1;
        while (issued < s->jobs.n && s->jobs.at[issued].issue <= t)
            issued++;
        actions->at[i].copies_before = need;
        actions->at[i].copies_after = issued;
        t++;
    }
}

enum pst_status pst_spill_order(const struct pst_rank_role *role,
                                struct pst_layout *layout,
                                struct pst_actions *actions,
                                struct pst_diag *diag)
{
    struct pst_spills *s = &layout->spills;
    enum pst_status status = PST_OK;
    unsigned *trips;

    if (s->jobs.n == 0)
        return PST_OK;
    trips = pst_calloc(PST_TAG_EXEC, s->n_trips, sizeof(*trips));
    if (trips == NULL)
        return pst_diag_nomem(diag, s->n_trips * sizeof(*trips));
    qsort(s->jobs.at, s->jobs.n, sizeof(*s->jobs.at), compare_issue);
    for (unsigned i = 0; i < role->sched->n_stages && status == PST_OK; i++)
        for (unsigned k = PST_R_FIRST; k < layout->stages[i].n_pools &&
                                       k < PST_R_BOUNDARY && status == PST_OK;
             k++)
            status = find_outside(layout, i, k, trips, diag);
    mark_actions(s, actions);
    pst_free(trips);
    return status;
}
