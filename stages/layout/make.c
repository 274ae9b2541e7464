// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/make.h"

#include "stages/base/checked.h"
#include "stages/compile/memplan.h"
#include "stages/layout/delivery.h"
#include "stages/layout/maker.h"
#include "stages/layout/params/owners.h"

size_t pst_layout_reserve(struct pst_layout_maker *m, size_t bytes,
                          size_t *account)
{
    struct pst_layout *l = m->l;
    size_t at = l->memory.arena;

    l->memory.arena = pst_size_add(at, pst_mem_round(bytes));
    *account = pst_size_add(*account, pst_mem_round(bytes));
    return at;
}

struct fixed {
    struct pst_layout_maker *m;
    unsigned stage;
    const struct pst_program *program;
    enum pst_status status;
    struct pst_diag *diag;
};

static size_t accumulator_offset(const struct fixed *f, int param, unsigned use)
{
    const struct pst_layout_maker *m = f->m;
    const struct pst_layout *l = m->l;
    size_t at = 0;

    for (size_t i = pst_layout_grads_of(l, param);
         i < l->grads.n && l->grads.at[i].param == param; i++)
        if (l->grads.at[i].stage == f->stage && l->grads.at[i].use <= use)
            at = l->grads.at[i].offset;
    return at;
}

static size_t place_prepared(struct fixed *f, const struct pst_value *value)
{
    struct pst_layout_maker *m = f->m;
    const struct pst_prepared_value *same =
        pst_prepared_find(&m->prepared, f->program, value);
    struct pst_prepared_value new = {.program = f->program, .value = value};

    if (same != NULL)
        return same->offset;
    new.offset = pst_layout_reserve(m, pst_meta_span(&value->meta),
                                    &m->l->memory.prepared);
    if (!pst_vec_push(PST_TAG_EXEC, &m->prepared.all, new))
        f->status = pst_diag_nomem(f->diag, sizeof(new));
    return new.offset;
}

static size_t fixed_place(void *ctx, const struct pst_value *value,
                          unsigned use)
{
    struct fixed *f = ctx;
    const struct pst_layout_maker *m = f->m;
    const struct pst_layout *l = m->l;
    int index;

    if (value->kind == PST_VALUE_SEED)
        return l->stages[f->stage].seed_offset;
    if (value->kind == PST_VALUE_NODE)
        return place_prepared(f, value);
    index = pst_plan_find_param(m->role->plan, value->fqn);
    if (index < 0)
        return 0;
    if (value->kind == PST_VALUE_GRAD)
        return accumulator_offset(f, index, use);
    return l->param_at[index] < 0 ? 0 : l->params.at[l->param_at[index]].data;
}

/* Adds the values that a borrowed program prepares to m->prepared. Locations in
 * that program must not change; only the sizes are counted. */
static void count_prepared(struct fixed *f)
{
    const struct pst_exec_list *list = &f->program->lists[PST_LIST_P];

    for (unsigned i = 0; i < list->n; i++) {
        const struct pst_node *node = list->at[i].node;

        for (unsigned k = 0; k < node->n_outs; k++)
            if (node->outs[k]->base == NULL &&
                f->program->places[node->outs[k]->id].region == PST_R_FIXED)
                (void)place_prepared(f, node->outs[k]);
    }
}

/* Makes microbatches overwrite, not add to, the accumulators of gradients that
 * are reduced in each microbatch. */
static void mark_scattered(const struct pst_layout_maker *m,
                           struct pst_program *program)
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

static void number_sites(struct pst_layout *l, struct pst_program *program)
{
    for (int k = 0; k < PST_N_LISTS; k++) {
        program->lists[k].first_site = l->n_sites;
        l->n_sites += program->lists[k].n;
    }
}

static enum pst_status compile_program(struct pst_layout_maker *m,
                                       unsigned stage,
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
    if (status != PST_OK)
        return status;
    number_sites(m->l, program);
    pst_prepared_mark_skipped(&m->prepared, program);
    return PST_OK;
}

/* Sums up the bytes that a step copies (memory.copied). */
static void count_copies(struct pst_layout_maker *m)
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

/* Reserves the readback at offset 0, which means "none" elsewhere. */
static void reserve_readback(struct pst_layout_maker *m)
{
    struct pst_readback *r = &m->l->readback;

    r->fault = 0;
    r->stayed = r->fault + sizeof(struct pst_fault);
    r->losses = r->stayed + 2 * sizeof(uint64_t);
    r->squares =
        r->losses + pst_role_most_microbatches(m->role) * PST_READBACK_LOSS;
    r->bytes = r->squares + m->role->plan->params.n * sizeof(double);
    pst_layout_reserve(m, r->bytes, &m->l->memory.buffers);
}

static enum pst_status plan_fixed(struct pst_layout_maker *m)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    enum pst_status status;

    reserve_readback(m);
    status = pst_layout_params(m);
    for (unsigned s = 0; s < role->sched->n_stages && status == PST_OK; s++) {
        if (l->stages[s].program == NULL)
            continue;
        l->stages[s].seed_offset =
            pst_layout_reserve(m, sizeof(double), &l->memory.buffers);
        status = compile_program(m, s, l->stages[s].program);
        if (status == PST_OK && l->stages[s].tail != NULL)
            status = compile_program(m, s, l->stages[s].tail);
    }
    if (status == PST_OK)
        count_copies(m);
    return status;
}

enum pst_status pst_layout_fixed(struct pst_layout *l,
                                 const struct pst_rank_role *role,
                                 struct pst_arena *heap, struct pst_diag *diag)
{
    struct pst_layout_maker m = {
        .l = l, .role = role, .heap = heap, .diag = diag};
    enum pst_status status = plan_fixed(&m);

    pst_vec_fini(&m.prepared.all);
    return status;
}

static void layout_pool(struct pst_layout_maker *m, struct pst_slot_pool *pool)
{
    struct pst_layout *l = m->l;
    const bool stash =
        (pool->writer == PST_WRITER_F && pool->end != PST_END_F) ||
        (pool->writer == PST_WRITER_I && pool->end != PST_END_I);
    const size_t bytes = pst_size_mul(pool->size, pool->n);

    pool->base = pst_layout_reserve(
        m, bytes, stash ? &l->memory.stash : &l->memory.messages);
    if (pool->end == PST_END_W)
        l->memory.for_w = pst_size_add(l->memory.for_w, pst_mem_round(bytes));
}

static void layout_pools(struct pst_layout_maker *m)
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

/* Reserves memory for all microbatches of this rank of a user output, or of the
 * gradient of a model input. bytes: pst_output_bytes or pst_input_bytes. */
static size_t reserve_kept(struct pst_layout_maker *m,
                           size_t (*bytes)(const struct pst_plan *,
                                           const struct pst_exec_options *,
                                           size_t, unsigned),
                           size_t index)
{
    const struct pst_rank_role *role = m->role;

    return pst_layout_reserve(
        m,
        bytes(role->plan, &role->options, index,
              role->first_mb + role->sched->n_microbatches) -
            bytes(role->plan, &role->options, index, role->first_mb),
        &m->l->memory.outputs);
}

static enum pst_status layout_outputs(struct pst_layout_maker *m)
{
    const struct pst_rank_role *role = m->role;
    const struct pst_plan *plan = role->plan;
    struct pst_layout *l = m->l;

    l->outputs =
        pst_arena_calloc(m->heap, plan->outputs.n + 1, sizeof(*l->outputs));
    l->parts = pst_arena_calloc(m->heap, plan->parts.n + 1, sizeof(*l->parts));
    if (l->outputs == NULL || l->parts == NULL)
        return pst_diag_nomem(m->diag, plan->outputs.n * sizeof(size_t));
    for (size_t i = 0; role->options.keep_outputs && i < plan->outputs.n; i++) {
        const struct pst_plan_output *o = &plan->outputs.at[i];

        if (o->is_tensor && l->stages[pst_plan_output_stage(o)].program != NULL)
            l->outputs[i] = reserve_kept(m, pst_output_bytes, i);
    }
    for (size_t i = 0; role->options.train && i < plan->parts.n; i++)
        if (l->stages[plan->parts.at[i].stage].program != NULL)
            l->parts[i] =
                reserve_kept(m, pst_input_bytes, plan->parts.at[i].input);
    return PST_OK;
}

/* Returns the bytes of workspace that suffice for every action of the stage. */
static size_t stage_work(const struct pst_rank_stage *s)
{
    return PST_MAX(s->program->regions[PST_R_WORK].size,
                   s->tail != NULL ? s->tail->regions[PST_R_WORK].size : 0);
}

/* Returns the bytes of scratch that suffice for every update of this rank and
 * of the same rank in other replicas. */
static size_t update_work(const struct pst_layout_maker *m)
{
    size_t work = 0;

    for (size_t i = 0; i < m->l->params.n; i++) {
        const struct pst_rank_param *p = &m->l->params.at[i];
        const unsigned index = (unsigned)p->index;

        if (p->trained && pst_role_optim(m->role) != NULL)
            work = PST_MAX(
                work, pst_optim_work(pst_role_update(m->role, index),
                                     &m->role->plan->params.at[index].meta));
    }
    return work;
}

static void layout_work(struct pst_layout_maker *m,
                        const struct pst_actions *actions)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    size_t work = update_work(m);

    for (unsigned s = 0; s < role->sched->n_stages; s++)
        if (l->stages[s].program != NULL)
            work = PST_MAX(work, stage_work(&l->stages[s]));
    for (unsigned i = 0; i < actions->n; i++)
        if (actions->at[i].a.kind == PST_ACT_REDUCE &&
            actions->at[i].a.param >= 0)
            work = PST_MAX(
                work, pst_owners_work(role, &l->flats, actions->at[i].a.param));
    l->work = pst_layout_reserve(m, work, &l->memory.workspace);
}

enum pst_status pst_layout_finish(struct pst_layout *l,
                                  const struct pst_rank_role *role,
                                  const struct pst_actions *actions,
                                  struct pst_arena *heap, struct pst_diag *diag)
{
    struct pst_layout_maker m = {
        .l = l, .role = role, .heap = heap, .diag = diag};
    const size_t delivered = pst_delivery_size(role);
    enum pst_status status;

    layout_pools(&m);
    status = layout_outputs(&m);
    for (size_t i = 0; i < l->buckets.n; i++)
        if (!l->buckets.at[i].scatters)
            l->buckets.at[i].incoming = pst_layout_reserve(
                &m,
                pst_bucket_incoming(&l->buckets.at[i], role->options.replicas),
                &l->memory.messages);
    if (delivered > 0)
        l->scattered = pst_layout_reserve(&m, delivered, &l->memory.messages);
    layout_work(&m, actions);
    if (status == PST_OK && !pst_size_fits(l->memory.arena))
        status = pst_diag_set(diag, PST_E_MEMORY_TOO_LARGE,
                              "the tensors of rank %u are larger than any "
                              "memory: no machine can run them",
                              pst_role_number(role));
    return status;
}
