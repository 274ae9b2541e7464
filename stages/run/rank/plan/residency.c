// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/plan/residency.h"

#include <stdlib.h>

#include "stages/base/checked.h"
#include "stages/compile/memplan.h"

/* A bucket in one list of a program. */
struct touch {
    unsigned bucket;
    bool grads; /* its gradients are written; else its values are read */
    unsigned first, last;
};
struct touches PST_VEC(struct touch);

/* The same in the rank's step: kernels counted over all actions. */
struct use {
    unsigned bucket, action, pos; /* of the first kernel */
    uint64_t first, last;
};
struct uses PST_VEC(struct use);

struct span {
    uint64_t begin, end; /* both included */
};

/* Memory of the values or of the gradients of a bucket. */
struct block {
    struct PST_VEC(struct span) spans; /* ascending */
    size_t size, offset;
    int param; /* whose uses do not share memory; -1: any */
    bool placed;
};

struct maker {
    struct pst_layout *layout;
    const struct pst_rank_role *role;
    int *value_bucket; /* per parameter of the plan, -1: it is always there */
    int *bucket_of;    /* per flat, -1: of another rank */
    struct uses values, grads;
    struct block *blocks; /* values of bucket i: 2 i, gradients: 2 i + 1 */
    unsigned n_actions;
    uint64_t end; /* kernels of a step */
    struct pst_diag *diag;
};

unsigned pst_residency_lists(const struct pst_program *program,
                             enum pst_action_kind kind, enum pst_list ret[2])
{
    ret[0] = kind == PST_ACT_F   ? PST_LIST_F
             : kind == PST_ACT_W ? PST_LIST_W
                                 : PST_LIST_B;
    ret[1] = PST_LIST_W;
    return kind == PST_ACT_B && program->options.split_iw ? 2 : 1;
}

/* --- what kernels touch --------------------------------------------------- */

static void touch(struct touches *list, unsigned bucket, bool grads,
                  unsigned pos, bool *failed)
{
    const struct touch new = {bucket, grads, pos, pos};

    for (size_t i = list->n; i-- > 0;)
        if (list->at[i].bucket == bucket && list->at[i].grads == grads) {
            list->at[i].last = pos;
            return;
        }
    *failed = !pst_vec_push(PST_TAG_EXEC, list, new) || *failed;
}

struct reading {
    const struct maker *maker;
    struct touches *to;
    unsigned pos;
    bool failed;
};

static void read_value(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct reading *r = ctx;
    const struct pst_value *v = pst_value_storage(*slot);
    int param;

    (void)arg;
    if (v->kind != PST_VALUE_PARAM)
        return;
    param = pst_plan_find_param(r->maker->role->plan, v->fqn);
    if (param >= 0 && r->maker->value_bucket[param] >= 0)
        touch(r->to, (unsigned)r->maker->value_bucket[param], false, r->pos,
              &r->failed);
}

/* Use `use` of the parameter in this stage; one that has no accumulator of its
 * own has that of the last one that has. */
static int grads_bucket(const struct maker *m, unsigned stage, unsigned param,
                        unsigned use)
{
    const struct pst_flats *f = &m->layout->flats;
    int ret = -1;

    if (!pst_role_scatters(m->role, param) || f->first[param] < 0)
        return -1;
    for (size_t i = (size_t)f->first[param];
         i < f->parts.n && f->parts.at[i].param == (int)param; i++)
        if (f->parts.at[i].stage == stage && f->parts.at[i].use <= use)
            ret = m->bucket_of[f->parts.at[i].flat];
    return ret;
}

static enum pst_status look_at_list(struct maker *m, unsigned stage,
                                    const struct pst_program *program,
                                    enum pst_list list, unsigned pos,
                                    unsigned *uses, struct touches *ret)
{
    const struct pst_exec_list *l = &program->lists[list];
    struct reading r = {.maker = m, .to = ret};

    for (unsigned i = 0; i < l->n; i++) {
        const struct pst_exec_node *x = &l->at[i];
        int param, bucket;

        r.pos = pos + i;
        pst_node_uses((struct pst_node *)x->node, read_value, &r);
        if (x->role == PST_GRAD_NONE)
            continue;
        param = pst_plan_find_param(m->role->plan, x->grad->fqn);
        if (param < 0)
            continue;
        bucket = grads_bucket(m, stage, (unsigned)param, uses[param]++);
        if (bucket >= 0)
            touch(ret, (unsigned)bucket, true, r.pos, &r.failed);
    }
    return r.failed ? pst_diag_nomem(m->diag, sizeof(struct touch)) : PST_OK;
}

static enum pst_status look_at_action(struct maker *m,
                                      const struct pst_action *a,
                                      struct touches *ret, unsigned *ret_n)
{
    const struct pst_program *program =
        pst_layout_program(m->layout, m->role, a->stage, a->microbatch);
    enum pst_list lists[2];
    const unsigned n =
        pst_residency_lists(program, (enum pst_action_kind)a->kind, lists);
    unsigned *uses =
        pst_calloc(PST_TAG_EXEC, m->role->plan->params.n + 1, sizeof(*uses));
    enum pst_status status =
        uses != NULL ? PST_OK
                     : pst_diag_nomem(m->diag, m->role->plan->params.n);

    *ret_n = 0;
    ret->n = 0;
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        status = look_at_list(m, (unsigned)a->stage, program, lists[i], *ret_n,
                              uses, ret);
        *ret_n += program->lists[lists[i]].n;
    }
    pst_free(uses);
    return status;
}

static enum pst_status add_action(struct maker *m, const struct pst_action *a,
                                  struct touches *touches)
{
    unsigned n;
    enum pst_status status = look_at_action(m, a, touches, &n);

    for (size_t i = 0; i < touches->n && status == PST_OK; i++) {
        const struct touch *t = &touches->at[i];
        const struct use use = {.bucket = t->bucket,
                                .action = m->n_actions,
                                .pos = t->first,
                                .first = m->end + t->first,
                                .last = m->end + t->last};

        if (!pst_vec_push(PST_TAG_EXEC, t->grads ? &m->grads : &m->values, use))
            status = pst_diag_nomem(m->diag, sizeof(use));
    }
    m->end += n + 1; /* and what comes behind the last one */
    m->n_actions++;
    return status;
}

static int by_first(const void *a, const void *b)
{
    const struct use *x = a, *y = b;

    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

static enum pst_status find_uses(struct maker *m)
{
    const struct pst_schedule *sched = m->role->sched;
    struct touches touches = {0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < sched->ranks[m->role->rank].n && status == PST_OK;
         i++)
        if (sched->ranks[m->role->rank].at[i].kind <= PST_ACT_W)
            status =
                add_action(m, &sched->ranks[m->role->rank].at[i], &touches);
    pst_vec_fini(&touches);
    if (m->values.n > 0)
        qsort(m->values.at, m->values.n, sizeof(*m->values.at), by_first);
    if (m->grads.n > 0)
        qsort(m->grads.at, m->grads.n, sizeof(*m->grads.at), by_first);
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
                                uint64_t begin, uint64_t end)
{
    const struct span s = {begin, end};

    return pst_vec_push(PST_TAG_EXEC, &block->spans, s)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(s));
}

static enum pst_status plan_values(struct maker *m)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < m->values.n && status == PST_OK; i++) {
        const struct use *use = &m->values.at[i];
        const struct use *ahead = &m->values.at[i > 0 ? i - 1 : 0];
        struct block *block = &m->blocks[2 * use->bucket];
        struct span *last =
            block->spans.n > 0 ? &block->spans.at[block->spans.n - 1] : NULL;

        if (last != NULL && last->end >= ahead->first) { /* still there */
            last->end = PST_MAX(last->end, use->last);
            continue;
        }
        status = add_span(m, block, ahead->first, use->last);
        if (status == PST_OK)
            status = add_event(m, ahead->action, ahead->pos,
                               PST_RESIDENCY_GATHER, use->bucket);
        if (status == PST_OK)
            status = add_event(m, use->action, use->pos, PST_RESIDENCY_VALUES,
                               use->bucket);
    }
    return status;
}

static enum pst_status plan_grads(struct maker *m)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < m->grads.n && status == PST_OK; i++) {
        const struct use *use = &m->grads.at[i];
        const struct use *later = NULL;

        for (size_t k = i + 2; k < m->grads.n && later == NULL; k++)
            if (m->grads.at[k].first > use->last)
                later = &m->grads.at[k];
        status = add_span(m, &m->blocks[2 * use->bucket + 1], use->first,
                          later != NULL ? later->first : m->end);
        if (status == PST_OK)
            status = add_event(m, use->action, use->pos, PST_RESIDENCY_SUMMED,
                               use->bucket);
        if (status == PST_OK)
            status =
                add_event(m, use->action,
                          use->pos + (unsigned)(use->last - use->first) + 1,
                          PST_RESIDENCY_SUM, use->bucket);
        if (status == PST_OK && later != NULL)
            status = add_event(m, later->action, later->pos,
                               PST_RESIDENCY_SUMMED, use->bucket);
    }
    return status;
}

/* Waits come before what is begun: memory is free then. */
static int by_place(const void *a, const void *b)
{
    static const int rank[] = {[PST_RESIDENCY_SUM] = 0,
                               [PST_RESIDENCY_SUMMED] = 1,
                               [PST_RESIDENCY_GATHER] = 2,
                               [PST_RESIDENCY_VALUES] = 3};
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

static bool meet(const struct block *a, const struct block *b)
{
    if (a->param >= 0 && a->param == b->param)
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

/* The lowest place that none of those has that it meets. */
static void place(struct maker *m, unsigned n, struct block *block)
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
                !meet(block, other))
                continue;
            block->offset = other->offset + other->size;
            moved = true;
        }
    }
    block->placed = true;
}

/* The largest first. */
static size_t place_all(struct maker *m)
{
    const unsigned n = 2 * (unsigned)m->layout->buckets.n;
    size_t size = 0;

    for (;;) {
        struct block *next = NULL;

        for (unsigned i = 0; i < n; i++)
            if (!m->blocks[i].placed && m->blocks[i].spans.n > 0 &&
                (next == NULL || m->blocks[i].size > next->size))
                next = &m->blocks[i];
        if (next == NULL)
            return size;
        place(m, n, next);
        size = PST_MAX(size, next->offset + next->size);
    }
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
        const int bucket = m->bucket_of[p->flat];

        if (bucket >= 0 && m->layout->flats.all.at[p->flat].alone)
            m->blocks[2 * bucket + 1].param = p->param;
    }
}

static void take_places(struct maker *m)
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
    const struct pst_layout *l = m->layout;
    const struct pst_plan *plan = m->role->plan;

    m->value_bucket =
        pst_arena_calloc(heap, plan->params.n + 1, sizeof(*m->value_bucket));
    m->bucket_of =
        pst_arena_calloc(heap, l->flats.all.n + 1, sizeof(*m->bucket_of));
    m->blocks =
        pst_arena_calloc(heap, 2 * l->buckets.n + 1, sizeof(*m->blocks));
    if (m->value_bucket == NULL || m->bucket_of == NULL || m->blocks == NULL)
        return pst_diag_nomem(m->diag, l->buckets.n * sizeof(*m->blocks));
    for (size_t i = 0; i < l->flats.all.n; i++)
        m->bucket_of[i] = -1;
    for (size_t i = 0; i < l->buckets.n; i++)
        m->bucket_of[l->buckets.at[i].flat] = (int)i;
    for (unsigned i = 0; i < plan->params.n; i++)
        m->value_bucket[i] = -1;
    for (size_t i = 0; i < l->flats.parts.n; i++) {
        const struct pst_flat_part *p = &l->flats.parts.at[i];
        const int bucket = m->bucket_of[p->flat];

        if (bucket >= 0 && l->buckets.at[bucket].own_data != 0 &&
            pst_role_gathers(m->role, (unsigned)p->param))
            m->value_bucket[p->param] = bucket;
    }
    return PST_OK;
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
                  sizeof(*layout->residency.at), by_place);
        set_sizes(&m);
        *ret_size = place_all(&m);
        take_places(&m);
    }
    for (size_t i = 0; m.blocks != NULL && i < 2 * layout->buckets.n; i++)
        pst_vec_fini(&m.blocks[i].spans);
    pst_vec_fini(&m.values);
    pst_vec_fini(&m.grads);
    return status;
}
