// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/plan/layout.h"

#include <string.h>

#include "stages/base/checked.h"
#include "stages/compile/memplan.h"
#include "stages/run/rank/plan/owners.h"
#include "stages/run/rank/plan/prepare.h"
#include "stages/run/rank/plan/residency.h"

/* What is at hand while a layout is made. */
struct maker {
    struct pst_layout *l;
    const struct pst_rank_role *role;
    struct pst_arena *heap;
    struct pst_prepared prepared;
    struct pst_diag *diag;
};

static size_t reserve(struct maker *m, size_t bytes, size_t *account)
{
    struct pst_layout *l = m->l;
    size_t at = l->memory.arena;

    l->memory.arena = pst_size_add(at, pst_mem_round(bytes));
    *account = pst_size_add(*account, pst_mem_round(bytes));
    return at;
}

static bool reads(const struct pst_plan_param *param, unsigned stage)
{
    for (unsigned i = 0; i < param->n_stages; i++)
        if (param->stages[i] == stage)
            return true;
    return false;
}

static bool is_updated(const struct maker *m, unsigned stage, unsigned param)
{
    const struct pst_graph *graph = m->l->stages[stage].program->graph;

    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE &&
            pst_plan_find_param(m->role->plan,
                                graph->outputs.at[i].target->fqn) == (int)param)
            return true;
    return false;
}

static enum pst_status add_bucket(struct maker *m, struct pst_bucket b)
{
    b.id = (unsigned)m->l->buckets.n;
    pst_flat_share(b.numel, m->role->options.replicas, m->role->replica,
                   &b.begin, &b.n);
    return pst_vec_push(PST_TAG_EXEC, &m->l->buckets, b)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(b));
}

static struct pst_bucket *find_bucket(const struct pst_layout *l, unsigned flat)
{
    for (size_t i = 0; i < l->buckets.n; i++)
        if (l->buckets.at[i].flat == flat)
            return &l->buckets.at[i];
    return NULL;
}

/* The vectors of this rank's stages. */
static enum pst_status layout_buckets(struct maker *m)
{
    struct pst_layout *l = m->l;
    struct pst_bucket *b = NULL;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < l->flats.all.n && status == PST_OK; i++) {
        const struct pst_flat *f = &l->flats.all.at[i];

        if (l->stages[f->stage].program != NULL)
            status = add_bucket(m, (struct pst_bucket){.stage = f->stage,
                                                       .flat = (unsigned)i,
                                                       .dtype = f->dtype,
                                                       .numel = f->numel});
    }
    for (size_t i = 0; i < l->flats.parts.n && status == PST_OK; i++) {
        const struct pst_flat_part *part = &l->flats.parts.at[i];

        if (b == NULL || b->flat != part->flat)
            b = find_bucket(l, part->flat);
        if (b == NULL)
            continue;
        b->shared = pst_role_shares(m->role, (unsigned)part->param);
        b->scatters = pst_role_scatters(m->role, (unsigned)part->param);
    }
    return status;
}

static size_t bucket_bytes(const struct pst_bucket *b)
{
    return pst_size_mul((size_t)b->numel, pst_dtype_size(b->dtype));
}

static size_t share_bytes(const struct pst_bucket *b)
{
    return pst_size_mul((size_t)b->n, pst_dtype_size(b->dtype));
}

/* Where this rank's share of a parameter is in its share of the bucket. */
static size_t own_offset(const struct maker *m, const struct pst_bucket *b,
                         const struct pst_flat_part *part, size_t base)
{
    int64_t begin, n;

    pst_flats_range(&m->l->flats, (unsigned)part->param,
                    m->role->options.replicas, m->role->replica, &begin, &n);
    return n == 0 ? base
                  : base + (size_t)(part->begin + begin - b->begin) *
                               pst_dtype_size(b->dtype);
}

/* The accumulators of a vector lie together, so that few messages do for all of
 * them (replicas.c). */
static void layout_sums(struct maker *m)
{
    struct pst_layout *l = m->l;

    for (size_t i = 0; i < l->buckets.n; i++) {
        struct pst_bucket *b = &l->buckets.at[i];

        if (b->scatters)
            b->own_grads = reserve(m, share_bytes(b), &l->memory.grads);
        else if (!b->gathers)
            b->offset = reserve(m, bucket_bytes(b), &l->memory.grads);
    }
}

/* Once all buckets have their places. */
static enum pst_status layout_grads(struct maker *m)
{
    struct pst_layout *l = m->l;
    struct pst_bucket *b = NULL;

    for (size_t i = 0; i < l->flats.parts.n; i++) {
        const struct pst_flat_part *part = &l->flats.parts.at[i];
        struct pst_rank_grad g = {
            .param = part->param, .stage = part->stage, .use = part->use};

        if (l->stages[part->stage].program == NULL)
            continue;
        if (b == NULL || b->flat != part->flat)
            b = find_bucket(l, part->flat);
        g.offset = b->offset + (size_t)part->begin * pst_dtype_size(b->dtype);
        g.own = b->scatters ? own_offset(m, b, part, b->own_grads) : g.offset;
        if (b->shared && !b->scatters)
            g.own = own_offset(m, b, part,
                               b->offset +
                                   (size_t)b->begin * pst_dtype_size(b->dtype));
        if (!pst_vec_push(PST_TAG_EXEC, &l->grads, g))
            return pst_diag_nomem(m->diag, sizeof(g));
    }
    return PST_OK;
}

/* The bucket that a parameter's values are gathered with: of its first use on
 * this rank. NULL: no memory. */
static struct pst_bucket *value_bucket(struct maker *m, unsigned index,
                                       const struct pst_flat_part **ret_part)
{
    struct pst_layout *l = m->l;
    const struct pst_flat_part *first =
        &l->flats.parts.at[l->flats.first[index]];
    const struct pst_flat_part *end = l->flats.parts.at + l->flats.parts.n;

    for (const struct pst_flat_part *p = first;
         p < end && p->param == (int)index; p++) {
        struct pst_bucket *b = find_bucket(l, p->flat);

        *ret_part = p;
        if (b != NULL)
            return b;
    }
    /* Other ranks contribute; the sum comes here. */
    *ret_part = first;
    if (add_bucket(m, (struct pst_bucket){.stage = first->stage,
                                          .flat = first->flat,
                                          .dtype = PST_F32,
                                          .numel = first->numel,
                                          .gathers = true,
                                          .shared = true,
                                          .scatters = pst_role_scatters(
                                              m->role, index)}) != PST_OK)
        return NULL;
    return &l->buckets.at[l->buckets.n - 1];
}

/* Values that replicas gather lie as their gradients do. */
static enum pst_status layout_value(struct maker *m, struct pst_rank_param *p)
{
    struct pst_layout *l = m->l;
    const unsigned index = (unsigned)p->index;
    const struct pst_plan_param *param = &m->role->plan->params.at[index];
    const struct pst_flat_part *part;
    struct pst_bucket *b;

    if (!pst_role_shares(m->role, index)) {
        p->data = p->own_data =
            reserve(m, p->bytes,
                    param->kind == PST_VALUE_PARAM ? &l->memory.params
                                                   : &l->memory.buffers);
        return PST_OK;
    }
    b = value_bucket(m, index, &part);
    if (b == NULL)
        return pst_diag_nomem(m->diag, sizeof(*b));
    if (pst_role_gathers(m->role, index)) {
        if (b->own_data == 0)
            b->own_data = reserve(m, share_bytes(b), &l->memory.params);
        p->own_data = own_offset(m, b, part, b->own_data);
        return PST_OK;
    }
    if (b->data == 0)
        b->data = reserve(m, bucket_bytes(b), &l->memory.params);
    p->data = b->data + (size_t)part->begin * sizeof(float);
    p->own_data =
        own_offset(m, b, part, b->data + (size_t)b->begin * sizeof(float));
    return PST_OK;
}

/* The value, and a copy of what a step changes. */
static enum pst_status layout_param(struct maker *m, unsigned index)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    const struct pst_plan_param *param = &role->plan->params.at[index];
    size_t bytes = pst_meta_bytes(&param->meta);
    struct pst_rank_param p = {
        .index = (int)index, .bytes = bytes, .updated = param->carried};
    bool here = false, changes = false;
    enum pst_status status;

    l->param_at[index] = -1;
    for (unsigned s = 0; s < role->sched->n_stages; s++) {
        if (l->stages[s].program == NULL || !reads(param, s))
            continue;
        here = true;
        changes = changes || is_updated(m, s, index);
    }
    if (!here)
        return PST_OK;
    p.updated = p.updated || changes;
    status = layout_value(m, &p);
    if (status != PST_OK)
        return status;
    if (changes && (param->carried || !role->options.no_undo))
        p.shadow = reserve(m, bytes, &l->memory.buffers);
    l->param_at[index] = (int)l->params.n;
    return pst_vec_push(PST_TAG_EXEC, &l->params, p)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(p));
}

/* Where the sum of the parameter's gradient is kept. */
static void layout_sum(struct maker *m, struct pst_rank_param *p, size_t bytes)
{
    struct pst_layout *l = m->l;
    const struct pst_flat_part *part;
    const struct pst_bucket *b;

    for (size_t i = 0; i < l->grads.n && p->own_grad == 0; i++)
        if (l->grads.at[i].param == p->index)
            p->own_grad = l->grads.at[i].own;
    if (p->own_grad != 0)
        return;
    /* Only other ranks contribute; the sum comes here. */
    if (!pst_role_scatters(m->role, (unsigned)p->index)) {
        p->own_grad = reserve(m, bytes, &l->memory.grads) +
                      (size_t)p->begin * sizeof(float);
        return;
    }
    b = value_bucket(m, (unsigned)p->index, &part);
    p->own_grad = own_offset(m, b, part, b->own_grads);
}

static enum pst_status layout_states(struct maker *m, struct pst_rank_param *p)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    const struct pst_plan_param *param = &role->plan->params.at[p->index];
    const size_t bytes = pst_meta_bytes(&param->meta);
    unsigned n_states;

    if (!role->options.train ||
        pst_uses_total(role->uses, (unsigned)p->index) == 0 ||
        !pst_role_owns(role, (unsigned)p->index))
        return PST_OK;
    p->n = pst_meta_numel(&param->meta);
    if (pst_role_shares(role, (unsigned)p->index))
        pst_flats_range(&l->flats, (unsigned)p->index, role->options.replicas,
                        role->replica, &p->begin, &p->n);
    layout_sum(m, p, bytes);
    p->trained = true;
    p->counted =
        pst_role_wants_norm(role) &&
        (role->replica == 0 || pst_role_shares(role, (unsigned)p->index)) &&
        param->meta.dtype == PST_F32 &&
        role->sched->rank_of[param->stages[0]] == (int)role->rank;
    if (pst_role_optim(role) == NULL)
        return PST_OK;
    if (param->meta.dtype != PST_F32)
        return pst_diag_set(m->diag, PST_ERR_UNSUPPORTED,
                            "parameter '%s' is %s: only f32 is trained (the "
                            "optimizer \"none\" leaves it as it is)",
                            param->fqn, pst_dtype_name(param->meta.dtype));
    n_states = pst_optim_n_states(pst_role_optim(role), &role->options.optim);
    for (unsigned i = 0; i < n_states; i++)
        p->state[i] =
            reserve(m, (size_t)p->n * sizeof(float), &l->memory.optim);
    return PST_OK;
}

struct fixed {
    struct maker *m;
    unsigned stage;
    const struct pst_program *program;
    enum pst_status status;
    struct pst_diag *diag;
};

static size_t accumulator(const struct fixed *f, int param, unsigned use)
{
    const struct maker *m = f->m;
    const struct pst_layout *l = m->l;
    size_t at = 0;

    for (size_t i = 0; i < l->grads.n; i++)
        if (l->grads.at[i].param == param && l->grads.at[i].stage == f->stage &&
            l->grads.at[i].use <= use)
            at = l->grads.at[i].offset;
    return at;
}

static size_t prepared(struct fixed *f, const struct pst_value *value)
{
    struct maker *m = f->m;
    const struct pst_prepared_value *same =
        pst_prepared_find(&m->prepared, f->program, value);
    struct pst_prepared_value new = {.program = f->program, .value = value};

    if (same != NULL)
        return same->offset;
    new.offset =
        reserve(m, pst_meta_span(&value->meta), &m->l->memory.prepared);
    if (!pst_vec_push(PST_TAG_EXEC, &m->prepared.all, new))
        f->status = pst_diag_nomem(f->diag, sizeof(new));
    return new.offset;
}

static size_t fixed_place(void *ctx, const struct pst_value *value,
                          unsigned use)
{
    struct fixed *f = ctx;
    const struct maker *m = f->m;
    const struct pst_layout *l = m->l;
    int index;

    if (value->kind == PST_VALUE_SEED)
        return l->stages[f->stage].seed_offset;
    if (value->kind == PST_VALUE_NODE)
        return prepared(f, value);
    index = pst_plan_find_param(m->role->plan, value->fqn);
    if (index < 0)
        return 0;
    if (value->kind == PST_VALUE_GRAD)
        return accumulator(f, index, use);
    return l->param_at[index] < 0 ? 0 : l->params.at[l->param_at[index]].data;
}

/* A program that was lent has its places already; here only sizes count. */
static void count_prepared(struct fixed *f)
{
    const struct pst_exec_list *list = &f->program->lists[PST_LIST_P];

    for (unsigned i = 0; i < list->n; i++) {
        const struct pst_node *node = list->at[i].node;

        for (unsigned k = 0; k < node->n_outs; k++)
            if (node->outs[k]->base == NULL &&
                f->program->places[node->outs[k]->id].region == PST_R_FIXED)
                (void)prepared(f, node->outs[k]);
    }
}

/* Gradients that are summed in each microbatch begin anew in it. */
static void mark_scattered(const struct maker *m, struct pst_program *program)
{
    for (unsigned k = 0; k < PST_N_LISTS; k++)
        for (unsigned i = 0; i < program->lists[k].n; i++) {
            struct pst_exec_node *x = &program->lists[k].at[i];

            x->each =
                x->role != PST_GRAD_NONE &&
                pst_role_scatters(m->role, (unsigned)pst_plan_find_param(
                                               m->role->plan, x->grad->fqn));
        }
}

static enum pst_status compile(struct maker *m, unsigned stage,
                               struct pst_program *program)
{
    struct fixed fixed = {.m = m,
                          .stage = stage,
                          .program = program,
                          .status = PST_OK,
                          .diag = m->diag};
    enum pst_status status = PST_OK;

    if (pst_program_is_compiled(program))
        count_prepared(&fixed);
    else
        status =
            pst_program_compile(program, fixed_place, &fixed, NULL, m->diag);
    if (status == PST_OK)
        status = fixed.status;
    if (status == PST_OK && m->role->options.shard >= PST_SHARING_ZERO2)
        mark_scattered(m, program);
    if (status == PST_OK)
        pst_prepared_skip(&m->prepared, program);
    return status;
}

/* Bytes that a step copies. */
static void count_copies(struct maker *m)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;

    for (size_t i = 0; i < l->params.n; i++)
        if (l->params.at[i].shadow != 0)
            l->memory.copied += l->params.at[i].bytes;
    for (unsigned s = 0; s < role->sched->n_stages; s++)
        for (int mb = 0; mb < (int)role->sched->n_microbatches; mb++)
            if (l->stages[s].program != NULL)
                l->memory.copied +=
                    pst_layout_program(l, role, (int)s, mb)->copied;
}

/* What replicas share is there in turn; which kernels need it is known once
 * programs have their lists. */
static enum pst_status layout_residency(struct maker *m)
{
    struct pst_layout *l = m->l;
    enum pst_status status = PST_OK;
    size_t base, size = 0;

    for (unsigned s = 0; s < m->role->sched->n_stages; s++) {
        struct pst_program *programs[] = {l->stages[s].program,
                                          l->stages[s].tail};

        for (size_t k = 0; k < PST_COUNT(programs) && status == PST_OK; k++)
            if (programs[k] != NULL && !pst_program_is_compiled(programs[k]))
                status = pst_program_compile(programs[k], NULL, NULL, "kernels",
                                             m->diag);
    }
    if (status == PST_OK)
        status = pst_residency_make(l, m->role, m->heap, &size, m->diag);
    if (status != PST_OK)
        return status;
    base = reserve(m, size, &l->memory.gathered);
    for (size_t i = 0; i < l->buckets.n; i++) {
        struct pst_bucket *b = &l->buckets.at[i];

        if (b->own_data != 0)
            b->data += base;
        if (b->scatters && !b->gathers) {
            b->offset += base;
            b->incoming += base;
        }
    }
    for (size_t i = 0; i < l->params.n; i++) {
        struct pst_rank_param *p = &l->params.at[i];
        const struct pst_flat_part *part;

        if (pst_role_gathers(m->role, (unsigned)p->index))
            p->data = value_bucket(m, (unsigned)p->index, &part)->data +
                      (size_t)part->begin * sizeof(float);
    }
    return PST_OK;
}

static enum pst_status lay_out_fixed(struct maker *m)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    enum pst_status status = PST_OK;

    /* Offset 0 means "none"; kernels leave numbers for the host there. */
    reserve(m, sizeof(double), &l->memory.buffers);
    l->param_at = pst_arena_calloc(m->heap, role->plan->params.n + 1,
                                   sizeof(*l->param_at));
    if (l->param_at == NULL)
        return pst_diag_nomem(m->diag, role->plan->params.n * sizeof(int));
    status =
        pst_flats_make(role->uses, role->options.shard >= PST_SHARING_ZERO2,
                       m->heap, &l->flats, m->diag);
    if (status == PST_OK)
        status = layout_buckets(m);
    for (unsigned i = 0; i < role->plan->params.n && status == PST_OK; i++)
        status = layout_param(m, i);
    if (status == PST_OK)
        layout_sums(m);
    if (status == PST_OK && role->options.shard >= PST_SHARING_ZERO2)
        status = layout_residency(m);
    if (status == PST_OK)
        status = layout_grads(m);
    for (size_t i = 0; i < l->params.n && status == PST_OK; i++)
        status = layout_states(m, &l->params.at[i]);
    for (unsigned s = 0; s < role->sched->n_stages && status == PST_OK; s++) {
        if (l->stages[s].program == NULL)
            continue;
        l->stages[s].seed_offset =
            reserve(m, sizeof(double), &l->memory.buffers);
        status = compile(m, s, l->stages[s].program);
        if (status == PST_OK && l->stages[s].tail != NULL)
            status = compile(m, s, l->stages[s].tail);
    }
    if (status == PST_OK)
        count_copies(m);
    return status;
}

enum pst_status pst_layout_fixed(struct pst_layout *l,
                                 const struct pst_rank_role *role,
                                 struct pst_arena *heap, struct pst_diag *diag)
{
    struct maker m = {.l = l, .role = role, .heap = heap, .diag = diag};
    enum pst_status status = lay_out_fixed(&m);

    pst_vec_fini(&m.prepared.all);
    return status;
}

static void layout_pool(struct maker *m, struct pst_slot_pool *pool)
{
    struct pst_layout *l = m->l;
    const bool stash =
        (pool->writer == PST_WRITER_F && pool->end != PST_END_F) ||
        (pool->writer == PST_WRITER_I && pool->end != PST_END_I);
    const size_t bytes = pst_size_mul(pool->size, pool->n);

    pool->base =
        reserve(m, bytes, stash ? &l->memory.stash : &l->memory.messages);
    if (pool->end == PST_END_W)
        l->memory.for_w = pst_size_add(l->memory.for_w, pst_mem_round(bytes));
}

static void layout_pools(struct maker *m)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    for (unsigned s = 0; s < role->sched->n_stages; s++) {
        struct pst_rank_stage *stage = &l->stages[s];

        for (unsigned k = PST_R_FIRST; k < stage->n_pools; k++)
            if (stage->pools[k].shares == NULL)
                layout_pool(m, &stage->pools[k]);
        if (stage->program != NULL)
            l->memory.in_flight =
                PST_MAX(l->memory.in_flight, pst_schedule_peak(role->sched, s));
    }
    for (unsigned s = 0; s < role->sched->n_stages; s++)
        for (unsigned k = PST_R_FIRST; k < l->stages[s].n_pools; k++)
            if (l->stages[s].pools[k].shares != NULL)
                l->stages[s].pools[k].base = l->stages[s].pools[k].shares->base;
}

static enum pst_status layout_outputs(struct maker *m)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    l->outputs = pst_arena_calloc(m->heap, role->plan->outputs.n + 1,
                                  sizeof(*l->outputs));
    if (l->outputs == NULL)
        return pst_diag_nomem(m->diag, role->plan->outputs.n * sizeof(size_t));
    for (size_t i = 0; role->options.keep_outputs && i < role->plan->outputs.n;
         i++) {
        const struct pst_plan_output *o = &role->plan->outputs.at[i];

        if (o->is_tensor && l->stages[pst_plan_output_stage(o)].program != NULL)
            l->outputs[i] = reserve(
                m,
                pst_output_bytes(role->plan, &role->options, i,
                                 role->first_mb + role->sched->n_microbatches) -
                    pst_output_bytes(role->plan, &role->options, i,
                                     role->first_mb),
                &l->memory.outputs);
    }
    return PST_OK;
}

/* Bytes of the workspace of its actions. */
static size_t stage_work(const struct pst_rank_stage *s)
{
    return PST_MAX(s->program->regions[PST_R_WORK].size,
                   s->tail != NULL ? s->tail->regions[PST_R_WORK].size : 0);
}

static void layout_work(struct maker *m, const struct pst_actions *actions)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    size_t work = 0;

    for (unsigned s = 0; s < role->sched->n_stages; s++)
        if (l->stages[s].program != NULL)
            work = PST_MAX(work, stage_work(&l->stages[s]));
    for (unsigned i = 0; i < actions->n; i++)
        if (actions->at[i].a.kind == PST_ACT_REDUCE &&
            actions->at[i].a.param >= 0)
            work = PST_MAX(
                work, pst_owners_work(role, &l->flats, actions->at[i].a.param));
    l->work = reserve(m, work, &l->memory.workspace);
}

enum pst_status pst_layout_rest(struct pst_layout *l,
                                const struct pst_rank_role *role,
                                const struct pst_actions *actions,
                                struct pst_arena *heap, struct pst_diag *diag)
{
    struct maker m = {.l = l, .role = role, .heap = heap, .diag = diag};
    enum pst_status status;

    layout_pools(&m);
    status = layout_outputs(&m);
    for (size_t i = 0; i < l->buckets.n; i++)
        if (!l->buckets.at[i].scatters)
            l->buckets.at[i].incoming = reserve(
                &m,
                pst_bucket_incoming(&l->buckets.at[i], role->options.replicas),
                &l->memory.messages);
    if (role->scattered_size > 0)
        l->scattered = reserve(&m, role->scattered_size, &l->memory.messages);
    layout_work(&m, actions);
    if (status == PST_OK && !pst_size_fits(l->memory.arena))
        status = pst_diag_set(diag, PST_ERR_SHAPE,
                              "the tensors of rank %u are larger than any "
                              "memory: no machine can run them",
                              pst_role_number(role));
    return status;
}

/* --- afterwards ----------------------------------------------------------- */

void pst_layout_fini(struct pst_layout *l)
{
    pst_vec_fini(&l->params);
    pst_vec_fini(&l->grads);
    pst_vec_fini(&l->buckets);
    pst_vec_fini(&l->residency);
    pst_flats_fini(&l->flats);
}

const struct pst_rank_param *pst_layout_param(const struct pst_layout *l,
                                              unsigned param)
{
    const int at = l->param_at[param];

    return at < 0 ? NULL : &l->params.at[at];
}

unsigned char *pst_layout_address(const struct pst_layout *l,
                                  unsigned char *base, int stage,
                                  struct pst_loc loc, int slot)
{
    const struct pst_slot_pool *pool = &l->stages[stage].pools[loc.region];

    if (loc.region == PST_R_FIXED)
        return base + loc.offset;
    if (loc.region == PST_R_WORK)
        return base + l->work + loc.offset;
    if (slot < 0)
        return NULL;
    return base + pool->base + (size_t)slot * pool->size + loc.offset;
}
