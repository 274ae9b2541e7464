// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/memory/residency.h"

#include <stdlib.h>

#include "stages/base/checked.h"
#include "stages/compile/memplan.h"

/* The use of a bucket by an action (touches.h): from the first to the last
 * kernel that touches it. */
struct use {
    /* pos: index of the first kernel in the action; n: number of kernels */
    unsigned bucket, action, pos, n;
    uint64_t first, last; /* kernels, counted over all actions of a step */
    uint64_t from; /* earliest kernel before which values may be gathered */
};
struct uses PST_VEC(struct use);

struct span {
    uint64_t begin, end; /* first and last kernel (as in `use`) */
    const struct use *last;
};

/* Memory for the values or the gradients of a bucket. */
struct block {
    struct PST_VEC(struct span) spans; /* when it is resident; ascending */
    size_t size, offset;
    int param; /* the parameter whose uses must not share memory; -1: none */
    bool placed;
};

struct maker {
    struct pst_layout *layout;
    const struct pst_rank_role *role;
    struct pst_toucher toucher;
    uint64_t *from; /* per stage: number of the kernel after its last unshard */
    struct uses values, grads;
    struct block *blocks; /* values of bucket i: 2 i, gradients: 2 i + 1 */
    unsigned n_actions;
    uint64_t end;  /* number of kernels of a step */
    bool separate; /* values and gradients have separate memory */
    struct pst_diag *diag;
};

/* --- uses ----------------------------------------------------------------- */

static enum pst_status add_action(struct maker *m, const struct pst_action *a,
                                  struct pst_touches *touches)
{
    enum pst_status status = pst_touches_of(&m->toucher, a, touches);

    for (size_t i = 0; i < touches->all.n && status == PST_OK; i++) {
        const struct pst_touch *t = &touches->all.at[i];
        const struct use use = {.bucket = t->bucket,
                                .action = m->n_actions,
                                .pos = t->first,
                                .n = t->last - t->first + 1,
                                .first = m->end + t->first,
                                .last = m->end + t->last,
                                .from = m->from[a->stage]};

        if (!pst_vec_push(PST_TAG_EXEC, t->grads ? &m->grads : &m->values, use))
            status = pst_diag_nomem(m->diag, sizeof(use));
    }
    /* Events after the last kernel of the action take one more number. */
    m->end += touches->n_kernels + 1;
    m->n_actions++;
    return status;
}

static int compare_first(const void *a, const void *b)
{
    const struct use *x = a, *y = b;

    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

static enum pst_status find_uses(struct maker *m)
{
    const struct pst_schedule *sched = m->role->sched;
    struct pst_touches touches = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < sched->ranks[m->role->rank].n && status == PST_OK;
         i++) {
        const struct pst_action *a = &sched->ranks[m->role->rank].at[i];

        if (a->kind == PST_ACT_UNSHARD)
            m->from[a->stage] = m->end;
        else if (a->kind <= PST_ACT_W)
            status = add_action(m, a, &touches);
    }
    pst_touches_fini(&touches);
    if (m->values.n > 0)
        qsort(m->values.at, m->values.n, sizeof(*m->values.at), compare_first);
    if (m->grads.n > 0)
        qsort(m->grads.at, m->grads.n, sizeof(*m->grads.at), compare_first);
    return status;
}

/* --- events --------------------------------------------------------------- */

static enum pst_status add_event(struct maker *m, unsigned action, unsigned pos,
                                 enum pst_residency_task task, unsigned bucket)
{
    const struct pst_residency_event e = {action, pos, task, bucket};

    return pst_vec_push(PST_TAG_EXEC, &m->layout->residency, e)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(e));
}

static enum pst_status add_span(struct maker *m, struct block *block,
                                uint64_t begin, uint64_t end,
                                const struct use *last)
{
    const struct span s = {begin, end, last};

    return pst_vec_push(PST_TAG_EXEC, &block->spans, s)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(s));
}

/* Returns the use at which the values of use i are gathered: unshard_window
 * uses ahead, but not before the stage is unsharded. */
static const struct use *find_gather_use(const struct maker *m, size_t i)
{
    const unsigned window = m->role->options.unshard_window;
    size_t k = i > window ? i - window : 0;

    while (m->values.at[k].first < m->values.at[i].from)
        k++;
    return &m->values.at[k];
}

static enum pst_status add_releases(struct maker *m)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < m->layout->buckets.n; i++) {
        const struct block *b = &m->blocks[2 * i];

        for (size_t k = 0; k < b->spans.n && status == PST_OK; k++)
            status =
                add_event(m, b->spans.at[k].last->action,
                          b->spans.at[k].last->pos + b->spans.at[k].last->n,
                          PST_RESIDENCY_RELEASE, i);
    }
    return status;
}

static enum pst_status plan_values(struct maker *m)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < m->values.n && status == PST_OK; i++) {
        const struct use *use = &m->values.at[i];
        const struct use *ahead = find_gather_use(m, i);
        struct block *block = &m->blocks[2 * use->bucket];
        struct span *last =
            block->spans.n > 0 ? &block->spans.at[block->spans.n - 1] : NULL;

        /* the values are still resident */
        if (last != NULL && last->end >= ahead->first) {
            if (use->last >= last->end) {
                last->end = use->last;
                last->last = use;
            }
            continue;
        }
        status = add_span(m, block, ahead->first, use->last, use);
        if (status == PST_OK)
            status = add_event(m, ahead->action, ahead->pos,
                               PST_RESIDENCY_GATHER, use->bucket);
        if (status == PST_OK)
            status = add_event(m, use->action, use->pos, PST_RESIDENCY_VALUES,
                               use->bucket);
    }
    return status == PST_OK ? add_releases(m) : status;
}

/* Returns the use of gradients before which the rank waits for the reduction of
 * use i; NULL: it waits at the end of the step. Normally this is the second use
 * after i. It is the next use if that is in another action, and more kernels
 * run in between than use i has, such as those of a forward: then the reduction
 * has time to finish, and the gradients of both uses need not be resident at
 * once. */
static const struct use *find_wait_use(const struct maker *m, size_t i)
{
    const struct use *use = &m->grads.at[i];

    for (size_t k = i + 1; k < m->grads.n; k++) {
        const struct use *later = &m->grads.at[k];

        if (later->first > use->last &&
            (k > i + 1 || (later->action != use->action &&
                           later->first - use->last > use->n)))
            return later;
    }
    return NULL;
}

static enum pst_status plan_grads(struct maker *m)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < m->grads.n && status == PST_OK; i++) {
        const struct use *use = &m->grads.at[i];
        const bool beside = m->role->options.unshard_window > 0;
        const struct use *later = beside ? find_wait_use(m, i) : NULL;

        status = add_span(m, &m->blocks[2 * use->bucket + 1], use->first,
                          later != NULL ? later->first - 1
                          : beside      ? m->end
                                        : use->last,
                          use);
        if (status == PST_OK)
            status = add_event(m, use->action, use->pos, PST_RESIDENCY_SUMMED,
                               use->bucket);
        if (status == PST_OK)
            status = add_event(m, use->action, use->pos + use->n,
                               PST_RESIDENCY_SUM, use->bucket);
        if (status == PST_OK && later != NULL)
            status = add_event(m, later->action, later->pos,
                               PST_RESIDENCY_SUMMED, use->bucket);
        else if (status == PST_OK && !beside)
            status = add_event(m, use->action, use->pos + use->n,
                               PST_RESIDENCY_SUMMED, use->bucket);
    }
    return status;
}

/* Orders events before the same kernel: reductions and releases, which free
 * memory, come before gathers, which take it. */
static int compare_events(const void *a, const void *b)
{
    static const int rank[] = {[PST_RESIDENCY_SUM] = 0,
                               [PST_RESIDENCY_SUMMED] = 1,
                               [PST_RESIDENCY_RELEASE] = 2,
                               [PST_RESIDENCY_GATHER] = 3,
                               [PST_RESIDENCY_VALUES] = 4};
    const struct pst_residency_event *x = a, *y = b;

    if (x->action != y->action)
        return x->action < y->action ? -1 : 1;
    if (x->pos != y->pos)
        return x->pos < y->pos ? -1 : 1;
    if (x->task != y->task)
        return rank[x->task] - rank[y->task];
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

const struct pst_residency_event *pst_residency_of(
    const struct pst_layout *layout, unsigned action, unsigned *ret_n)
{
    size_t low = 0, high = layout->residency.n, end;

    while (low < high) {
        const size_t mid = (low + high) / 2;

        if (layout->residency.at[mid].action < action)
            low = mid + 1;
        else
            high = mid;
    }
    for (end = low; end < layout->residency.n &&
                    layout->residency.at[end].action == action;)
        end++;
    *ret_n = (unsigned)(end - low);
    return *ret_n > 0 ? &layout->residency.at[low] : NULL;
}

/* --- memory --------------------------------------------------------------- */

static bool are_live_together(const struct maker *m, const struct block *a,
                              const struct block *b)
{
    if (a->param >= 0 && a->param == b->param)
        return true;
    if (m->separate && (a - m->blocks) % 2 != (b - m->blocks) % 2)
        return true;
    for (size_t i = 0, k = 0; i < a->spans.n && k < b->spans.n;) {
        if (a->spans.at[i].end < b->spans.at[k].begin)
            i++;
        else if (b->spans.at[k].end < a->spans.at[i].begin)
            k++;
        else
            return true;
    }
    return false;
}

/* Places a block at the lowest offset where it overlaps none of the first n
 * blocks that are live at the same time. */
static void place_block(struct maker *m, unsigned n, struct block *block)
{
    bool moved = true;

    block->offset = 0;
    while (moved) {
        moved = false;
        for (unsigned i = 0; i < n; i++) {
            const struct block *other = &m->blocks[i];

            if (!other->placed || other->size == 0 ||
                other->offset >= block->offset + block->size ||
                block->offset >= other->offset + other->size ||
                !are_live_together(m, block, other))
                continue;
            block->offset = other->offset + other->size;
            moved = true;
        }
    }
    block->placed = true;
}

/* Places all blocks, largest first; returns the total size. */
static size_t place_blocks(struct maker *m)
{
    const unsigned n = 2 * (unsigned)m->layout->buckets.n;
    size_t size = 0;

    for (unsigned i = 0; i < n; i++)
        m->blocks[i].placed = false;
    for (;;) {
        struct block *next = NULL;

        for (unsigned i = 0; i < n; i++)
            if (!m->blocks[i].placed && m->blocks[i].spans.n > 0 &&
                (next == NULL || m->blocks[i].size > next->size))
                next = &m->blocks[i];
        if (next == NULL)
            return size;
        place_block(m, n, next);
        size = PST_MAX(size, next->offset + next->size);
    }
}

/* Places values and gradients together, or in separate areas, which avoids
 * holes between blocks of two sizes. Keeps the smaller result and returns its
 * size. */
static size_t place_all(struct maker *m)
{
    size_t apart, together;

    m->separate = true;
    apart = place_blocks(m);
    m->separate = false;
    together = place_blocks(m);
    if (together <= apart)
        return together;
    m->separate = true;
    return place_blocks(m);
}

static void set_sizes(struct maker *m)
{
    for (size_t i = 0; i < m->layout->buckets.n; i++) {
        const struct pst_bucket *b = &m->layout->buckets.at[i];
        const size_t bytes = pst_mem_round(
            pst_size_mul((size_t)b->numel, pst_dtype_size(b->dtype)));

        m->blocks[2 * i].param = m->blocks[2 * i + 1].param = -1;
        m->blocks[2 * i].size = bytes;
        m->blocks[2 * i + 1].size = pst_size_add(
            bytes, pst_bucket_incoming(b, m->role->options.replicas));
    }
    for (size_t i = 0; i < m->layout->flats.parts.n; i++) {
        const struct pst_flat_part *p = &m->layout->flats.parts.at[i];
        const int bucket = m->toucher.bucket_of[p->flat];

        if (bucket >= 0 && m->layout->flats.all.at[p->flat].single_use)
            m->blocks[2 * bucket + 1].param = p->param;
    }
}

static void store_offsets(struct maker *m)
{
    for (size_t i = 0; i < m->layout->buckets.n; i++) {
        struct pst_bucket *b = &m->layout->buckets.at[i];
        const struct block *values = &m->blocks[2 * i];
        const struct block *grads = &m->blocks[2 * i + 1];

        if (values->placed)
            b->data = values->offset;
        if (!grads->placed)
            continue;
        b->offset = grads->offset;
        b->incoming = grads->offset + pst_mem_round((size_t)b->numel *
                                                    pst_dtype_size(b->dtype));
    }
}

/* --- all ------------------------------------------------------------------ */

static enum pst_status make_tables(struct maker *m, struct pst_arena *heap)
{
    const unsigned n = m->role->sched->n_stages;

    m->toucher = (struct pst_toucher){
        .layout = m->layout, .role = m->role, .diag = m->diag};
    m->from = pst_arena_calloc(heap, n + 1, sizeof(*m->from));
    m->blocks = pst_arena_calloc(heap, 2 * m->layout->buckets.n + 1,
                                 sizeof(*m->blocks));
    if (m->blocks == NULL || m->from == NULL)
        return pst_diag_nomem(m->diag,
                              m->layout->buckets.n * sizeof(*m->blocks));
    return pst_toucher_init(&m->toucher, heap);
}

enum pst_status pst_residency_make(struct pst_layout *layout,
                                   const struct pst_rank_role *role,
                                   struct pst_arena *heap, size_t *ret_size,
                                   struct pst_diag *diag)
{
    struct maker m = {.layout = layout, .role = role, .diag = diag};
    enum pst_status status = make_tables(&m, heap);

    if (status == PST_OK)
        status = find_uses(&m);
    if (status == PST_OK)
        status = plan_values(&m);
    if (status == PST_OK)
        status = plan_grads(&m);
    if (status == PST_OK) {
        if (layout->residency.n > 0)
            qsort(layout->residency.at, layout->residency.n,
                  sizeof(*layout->residency.at), compare_events);
        set_sizes(&m);
        *ret_size = place_all(&m);
        store_offsets(&m);
    }
    for (size_t i = 0; m.blocks != NULL && i < 2 * layout->buckets.n; i++)
        pst_vec_fini(&m.blocks[i].spans);
    pst_vec_fini(&m.values);
    pst_vec_fini(&m.grads);
    return status;
}
