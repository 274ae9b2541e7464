// SPDX-License-Identifier: Apache-2.0
/* Where everything of a rank lies in its arena; the sizes are the plan. */
#include <string.h>

#include "stages/base/checked.h"
#include "stages/run/rank/rank.h"

static size_t reserve(struct pst_rank *r, size_t bytes, size_t *account)
{
    size_t at = r->memory.arena;

    r->memory.arena = pst_size_add(at, pst_mem_round(bytes));
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

static bool is_updated(const struct pst_rank *r, unsigned stage, unsigned param)
{
    const struct pst_graph *graph = r->stages[stage].program->graph;

    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE &&
            pst_plan_find_param(r->plan, graph->outputs.at[i].target->fqn) ==
                (int)param)
            return true;
    return false;
}

/* The value, and a copy of what a step changes. */
static enum pst_status layout_param(struct pst_rank *r, unsigned index,
                                    struct pst_diag *diag)
{
    const struct pst_plan_param *param = &r->plan->params.at[index];
    size_t bytes = pst_meta_bytes(&param->meta);
    struct pst_rank_param p = {.index = (int)index, .bytes = bytes};
    bool here = false;

    r->param_at[index] = -1;
    for (unsigned s = 0; s < r->sched->n_stages; s++) {
        if (r->stages[s].program == NULL || !reads(param, s))
            continue;
        here = true;
        p.updated |= is_updated(r, s, index);
    }
    if (!here)
        return PST_OK;
    p.data = reserve(r, bytes,
                     param->kind == PST_VALUE_PARAM ? &r->memory.params
                                                    : &r->memory.buffers);
    if (p.updated)
        p.shadow = reserve(r, bytes, &r->memory.buffers);
    r->param_at[index] = (int)r->params.n;
    return pst_vec_push(PST_TAG_EXEC, &r->params, p)
               ? PST_OK
               : pst_diag_nomem(diag, sizeof(p));
}

/* The accumulators of a stage lie together, so that few messages do for all
 * of them (replicas.c). */
static enum pst_status layout_stage_grads(struct pst_rank *r, unsigned stage,
                                          struct pst_diag *diag)
{
    struct pst_bucket *bucket = NULL;

    for (unsigned i = 0; i < r->plan->params.n && r->options.train; i++) {
        const struct pst_meta *meta = &r->plan->params.at[i].meta;
        struct pst_rank_grad g = {.param = (int)i, .stage = stage};
        const size_t item = pst_dtype_size(meta->dtype);

        for (; g.use < pst_uses_parts(r->uses, i, stage); g.use++) {
            g.offset = reserve(r, pst_meta_bytes(meta), &r->memory.grads);
            if (!pst_vec_push(PST_TAG_EXEC, &r->grads, g))
                return pst_diag_nomem(diag, sizeof(g));
            if (bucket == NULL || bucket->dtype != meta->dtype) {
                struct pst_bucket b = {.stage = stage,
                                       .id = (unsigned)r->buckets.n,
                                       .dtype = meta->dtype,
                                       .offset = g.offset};

                if (!pst_vec_push(PST_TAG_EXEC, &r->buckets, b))
                    return pst_diag_nomem(diag, sizeof(b));
                bucket = &r->buckets.at[r->buckets.n - 1];
            }
            bucket->numel =
                (int64_t)((r->memory.arena - bucket->offset) / item);
        }
    }
    return PST_OK;
}

static enum pst_status layout_states(struct pst_rank *r,
                                     struct pst_rank_param *p,
                                     struct pst_diag *diag)
{
    const struct pst_plan_param *param = &r->plan->params.at[p->index];
    const size_t bytes = pst_meta_bytes(&param->meta);
    unsigned n_states;

    if (!r->options.train || pst_uses_total(r->uses, (unsigned)p->index) == 0 ||
        !pst_rank_owns(r, (unsigned)p->index))
        return PST_OK;
    for (size_t i = 0; i < r->grads.n && p->grad == 0; i++)
        if (r->grads.at[i].param == p->index)
            p->grad = r->grads.at[i].offset;
    if (p->grad == 0) /* only other ranks contribute; the sum comes here */
        p->grad = reserve(r, bytes, &r->memory.grads);
    p->trained = true;
    if (r->optim == NULL)
        return PST_OK;
    if (param->meta.dtype != PST_F32)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "parameter '%s' is %s: only f32 is trained (the "
                            "optimizer \"none\" leaves it as it is)",
                            param->fqn, pst_dtype_name(param->meta.dtype));
    n_states = pst_optim_n_states(r->optim, &r->options.optim);
    for (unsigned i = 0; i < n_states; i++)
        p->state[i] = reserve(r, bytes, &r->memory.optim);
    return PST_OK;
}

struct fixed {
    struct pst_rank *r;
    unsigned stage;
    const struct pst_program *program;
    enum pst_status status;
    struct pst_diag *diag;
};

static size_t accumulator(const struct fixed *f, int param, unsigned use)
{
    const struct pst_rank *r = f->r;
    size_t at = 0;

    for (size_t i = 0; i < r->grads.n; i++)
        if (r->grads.at[i].param == param && r->grads.at[i].stage == f->stage &&
            r->grads.at[i].use <= use)
            at = r->grads.at[i].offset;
    return at;
}

static size_t prepared(struct fixed *f, const struct pst_value *value)
{
    struct pst_rank *r = f->r;
    const struct pst_rank_prepared *same =
        pst_prepared_find(r, f->program, value);
    struct pst_rank_prepared new = {.program = f->program, .value = value};

    if (same != NULL)
        return same->offset;
    new.offset = reserve(r, pst_meta_span(&value->meta), &r->memory.prepared);
    if (!pst_vec_push(PST_TAG_EXEC, &r->prepared, new))
        f->status = pst_diag_nomem(f->diag, sizeof(new));
    return new.offset;
}

static size_t fixed_place(void *ctx, const struct pst_value *value,
                          unsigned use)
{
    struct fixed *f = ctx;
    const struct pst_rank *r = f->r;
    int index;

    if (value->kind == PST_VALUE_SEED)
        return r->stages[f->stage].seed_offset;
    if (value->kind == PST_VALUE_NODE)
        return prepared(f, value);
    index = pst_plan_find_param(r->plan, value->fqn);
    if (index < 0)
        return 0;
    if (value->kind == PST_VALUE_GRAD)
        return accumulator(f, index, use);
    return r->param_at[index] < 0 ? 0 : r->params.at[r->param_at[index]].data;
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

static enum pst_status compile(struct pst_rank *r, unsigned stage,
                               struct pst_program *program,
                               struct pst_diag *diag)
{
    struct fixed fixed = {.r = r,
                          .stage = stage,
                          .program = program,
                          .status = PST_OK,
                          .diag = diag};
    enum pst_status status = PST_OK;

    if (pst_program_is_compiled(program))
        count_prepared(&fixed);
    else
        status = pst_program_compile(program, fixed_place, &fixed, NULL, diag);
    if (status == PST_OK)
        status = fixed.status;
    if (status == PST_OK)
        pst_prepared_skip(r, program);
    return status;
}

enum pst_status pst_layout_fixed(struct pst_rank *r, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    /* Offset 0 means "none"; kernels leave numbers for the host there. */
    reserve(r, sizeof(double), &r->memory.buffers);
    r->param_at =
        pst_arena_calloc(&r->heap, r->plan->params.n + 1, sizeof(*r->param_at));
    if (r->param_at == NULL)
        return pst_diag_nomem(diag, r->plan->params.n * sizeof(int));
    for (unsigned i = 0; i < r->plan->params.n && status == PST_OK; i++)
        status = layout_param(r, i, diag);
    for (unsigned s = 0; s < r->sched->n_stages && status == PST_OK; s++)
        if (r->stages[s].program != NULL)
            status = layout_stage_grads(r, s, diag);
    for (size_t i = 0; i < r->params.n && status == PST_OK; i++)
        status = layout_states(r, &r->params.at[i], diag);
    for (unsigned s = 0; s < r->sched->n_stages && status == PST_OK; s++) {
        if (r->stages[s].program == NULL)
            continue;
        r->stages[s].seed_offset =
            reserve(r, sizeof(double), &r->memory.buffers);
        status = compile(r, s, r->stages[s].program, diag);
        if (status == PST_OK && r->stages[s].tail != NULL)
            status = compile(r, s, r->stages[s].tail, diag);
    }
    return status;
}

static void layout_pool(struct pst_rank *r, struct pst_slot_pool *pool)
{
    const bool stash =
        (pool->writer == PST_WRITER_F && pool->end != PST_END_F) ||
        (pool->writer == PST_WRITER_I && pool->end != PST_END_I);
    const size_t bytes = pst_size_mul(pool->size, pool->n);

    pool->base =
        reserve(r, bytes, stash ? &r->memory.stash : &r->memory.messages);
    if (pool->end == PST_END_W)
        r->memory.for_w = pst_size_add(r->memory.for_w, pst_mem_round(bytes));
}

static void layout_pools(struct pst_rank *r)
{
    for (unsigned s = 0; s < r->sched->n_stages; s++) {
        struct pst_rank_stage *stage = &r->stages[s];

        for (unsigned k = PST_R_FIRST; k < stage->n_pools; k++)
            if (stage->pools[k].shares == NULL)
                layout_pool(r, &stage->pools[k]);
        if (stage->program != NULL)
            r->memory.in_flight =
                PST_MAX(r->memory.in_flight, pst_schedule_peak(r->sched, s));
    }
    for (unsigned s = 0; s < r->sched->n_stages; s++)
        for (unsigned k = PST_R_FIRST; k < r->stages[s].n_pools; k++)
            if (r->stages[s].pools[k].shares != NULL)
                r->stages[s].pools[k].base = r->stages[s].pools[k].shares->base;
}

static enum pst_status layout_outputs(struct pst_rank *r, struct pst_diag *diag)
{
    r->outputs =
        pst_arena_calloc(&r->heap, r->plan->outputs.n + 1, sizeof(*r->outputs));
    if (r->outputs == NULL)
        return pst_diag_nomem(diag, r->plan->outputs.n * sizeof(size_t));
    for (size_t i = 0; r->options.keep_outputs && i < r->plan->outputs.n; i++) {
        const struct pst_plan_output *o = &r->plan->outputs.at[i];

        if (o->is_tensor && r->stages[pst_plan_output_stage(o)].program != NULL)
            r->outputs[i] = reserve(
                r,
                pst_output_bytes(r->plan, &r->options, i,
                                 r->first_mb + r->sched->n_microbatches) -
                    pst_output_bytes(r->plan, &r->options, i, r->first_mb),
                &r->memory.outputs);
    }
    return PST_OK;
}

static void layout_work(struct pst_rank *r)
{
    size_t work = 0;

    for (unsigned s = 0; s < r->sched->n_stages; s++)
        if (r->stages[s].program != NULL)
            work = PST_MAX(work, pst_stage_work(&r->stages[s]));
    for (unsigned i = 0; i < r->n_actions; i++)
        if (r->actions[i].a.kind == PST_ACT_REDUCE &&
            r->actions[i].a.param >= 0)
            work = PST_MAX(work, pst_reduce_work(r, r->actions[i].a.param));
    r->work = reserve(r, work, &r->memory.workspace);
}

enum pst_status pst_layout_rest(struct pst_rank *r, struct pst_diag *diag)
{
    enum pst_status status;

    layout_pools(r);
    status = layout_outputs(r, diag);
    for (size_t i = 0; i < r->buckets.n; i++)
        r->buckets.at[i].incoming = reserve(
            r, pst_bucket_incoming(r, &r->buckets.at[i]), &r->memory.messages);
    if (r->scattered_size > 0)
        r->scattered = reserve(r, r->scattered_size, &r->memory.messages);
    layout_work(r);
    if (status == PST_OK && !pst_size_fits(r->memory.arena))
        status = pst_diag_set(diag, PST_ERR_SHAPE,
                              "the tensors of rank %u are larger than any "
                              "memory: no machine can run them",
                              pst_rank_number(r));
    return status;
}
