// SPDX-License-Identifier: Apache-2.0
/* Layout of a rank's parameters, gradients and optimizer states: which are
 * adjacent, and which are sharded over replicas. */
#include "stages/base/checked.h"

#include "stages/compile/memplan.h"
#include "stages/graph/low.h"
#include "stages/layout/maker.h"
#include "stages/layout/memory/residency.h"

static bool stage_reads(const struct pst_plan_param *param, unsigned stage)
{
    for (unsigned i = 0; i < param->n_stages; i++)
        if (param->stages[i] == stage)
            return true;
    return false;
}

static bool is_updated(const struct pst_layout_maker *m, unsigned stage,
                       unsigned param)
{
    const struct pst_graph *graph = m->l->stages[stage].program->graph;

    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE &&
            pst_plan_find_param(m->role->plan,
                                graph->outputs.at[i].target->fqn) == (int)param)
            return true;
    return false;
}

static enum pst_status add_bucket(struct pst_layout_maker *m,
                                  struct pst_bucket b)
{
    const unsigned n = m->role->options.replicas;

    pst_flat_share(b.numel, b.unit, n,
                   pst_flat_share_number(b.first_owner, n, m->role->replica),
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

/* Adds buckets for the flats of this rank's stages. */
static enum pst_status layout_buckets(struct pst_layout_maker *m)
{
    struct pst_layout *l = m->l;
    struct pst_bucket *b = NULL;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < l->flats.all.n && status == PST_OK; i++) {
        const struct pst_flat *f = &l->flats.all.at[i];

        if (l->stages[f->stage].program != NULL)
            status = add_bucket(
                m, (struct pst_bucket){.stage = f->stage,
                                       .flat = (unsigned)i,
                                       .dtype = f->dtype,
                                       .numel = f->numel,
                                       .unit = f->unit,
                                       .first_owner = f->first_owner,
                                       .gathers = !m->role->options.train});
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

static size_t shard_bytes(const struct pst_bucket *b)
{
    return pst_size_mul((size_t)b->n, pst_dtype_size(b->dtype));
}

/* Returns the offset of this rank's shard of a parameter; base: offset of its
 * shard of the bucket. */
static size_t own_offset(const struct pst_layout_maker *m,
                         const struct pst_bucket *b,
                         const struct pst_flat_part *part, size_t base)
{
    int64_t begin, n;

    pst_flats_range(&m->l->flats, (unsigned)part->param,
                    m->role->options.replicas, m->role->replica, &begin, &n);
    return n == 0 ? base
                  : base + (size_t)(part->begin + begin - b->begin) *
                               pst_dtype_size(b->dtype);
}

/* Makes the accumulators of a flat contiguous, so that few messages suffice for
 * all of them (replicas.c). */
static void layout_sums(struct pst_layout_maker *m)
{
    struct pst_layout *l = m->l;

    for (size_t i = 0; i < l->buckets.n; i++) {
        struct pst_bucket *b = &l->buckets.at[i];

        if (b->scatters)
            b->own_grads =
                pst_layout_reserve(m, shard_bytes(b), &l->memory.grads);
        else if (!b->gathers)
            b->offset =
                pst_layout_reserve(m, bucket_bytes(b), &l->memory.grads);
    }
}

/* Lays out gradients, once all buckets have offsets. */
static enum pst_status layout_grads(struct pst_layout_maker *m)
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
        if (l->grad_at[g.param] < 0)
            l->grad_at[g.param] = (int)l->grads.n;
        if (!pst_vec_push(PST_TAG_EXEC, &l->grads, g))
            return pst_diag_nomem(m->diag, sizeof(g));
    }
    return PST_OK;
}

/* Returns the bucket with which a parameter's values are gathered: that of its
 * first use on this rank, or a new one. NULL: out of memory. */
static struct pst_bucket *value_bucket(struct pst_layout_maker *m,
                                       unsigned index,
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
    /* Accumulators are on other ranks only, but this rank updates values. */
    *ret_part = first;
    if (add_bucket(
            m, (struct pst_bucket){
                   .stage = first->stage,
                   .flat = first->flat,
                   .dtype = PST_F32,
                   .numel = first->numel,
                   .unit = l->flats.all.at[first->flat].unit,
                   .first_owner = l->flats.all.at[first->flat].first_owner,
                   .gathers = true,
                   .shared = true,
                   .scatters = pst_role_scatters(m->role, index)}) != PST_OK)
        return NULL;
    return &l->buckets.at[l->buckets.n - 1];
}

/* Sets the offsets of a parameter's value. Values that replicas gather have the
 * same layout as the gradients in their bucket. */
static enum pst_status layout_value(struct pst_layout_maker *m,
                                    struct pst_rank_param *p)
{
    struct pst_layout *l = m->l;
    const unsigned index = (unsigned)p->index;
    const struct pst_plan_param *param = &m->role->plan->params.at[index];
    const struct pst_flat_part *part;
    struct pst_bucket *b;

    if (!pst_role_shares(m->role, index)) {
        p->data = p->own_data = pst_layout_reserve(
            m, p->bytes,
            param->kind == PST_VALUE_PARAM ? &l->memory.params
                                           : &l->memory.buffers);
        return PST_OK;
    }
    b = value_bucket(m, index, &part);
    if (b == NULL)
        return pst_diag_nomem(m->diag, sizeof(*b));
    if (pst_role_gathers(m->role, index)) {
        if (b->own_data == 0)
            b->own_data =
                pst_layout_reserve(m, shard_bytes(b), &l->memory.params);
        p->own_data = own_offset(m, b, part, b->own_data);
        return PST_OK;
    }
    if (b->data == 0)
        b->data = pst_layout_reserve(m, bucket_bytes(b), &l->memory.params);
    p->data = b->data + (size_t)part->begin * sizeof(float);
    p->own_data =
        own_offset(m, b, part, b->data + (size_t)b->begin * sizeof(float));
    return PST_OK;
}

/* Lays out the value of a parameter, buffer or constant, and a copy of a buffer
 * that steps change. */
static enum pst_status layout_param(struct pst_layout_maker *m, unsigned index)
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
        if (l->stages[s].program == NULL || !stage_reads(param, s))
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
        p.shadow = pst_layout_reserve(m, bytes, &l->memory.buffers);
    l->param_at[index] = (int)l->params.n;
    return pst_vec_push(PST_TAG_EXEC, &l->params, p)
               ? PST_OK
               : pst_diag_nomem(m->diag, sizeof(p));
}

/* Sets the location of the sum of the parameter's gradient. */
static void layout_sum(struct pst_layout_maker *m, struct pst_rank_param *p)
{
    const struct pst_plan_param *param = &m->role->plan->params.at[p->index];
    const size_t bytes =
        pst_size_mul((size_t)pst_meta_numel(&param->meta),
                     pst_dtype_size(pst_dtype_of_grad(param->meta.dtype)));
    struct pst_layout *l = m->l;
    const struct pst_flat_part *part;
    const struct pst_bucket *b;

    for (size_t i = pst_layout_grads_of(l, p->index);
         i < l->grads.n && l->grads.at[i].param == p->index && p->own_grad == 0;
         i++)
        p->own_grad = l->grads.at[i].own;
    if (p->own_grad != 0)
        return;
    /* Accumulators are on other ranks only; this rank stores the sum. */
    if (!pst_role_scatters(m->role, (unsigned)p->index)) {
        p->own_grad = pst_layout_reserve(m, bytes, &l->memory.grads) +
                      (size_t)p->begin * sizeof(float);
        return;
    }
    b = value_bucket(m, (unsigned)p->index, &part);
    p->own_grad = own_offset(m, b, part, b->own_grads);
}

/* Reserves the parameter's optimizer states. If one replica owns the whole
 * parameter, it has all of them and other replicas have none. */
static void reserve_states(struct pst_layout_maker *m, struct pst_rank_param *p)
{
    const unsigned index = (unsigned)p->index;
    const struct pst_meta *meta = &m->role->plan->params.at[index].meta;
    const struct pst_optim_options *update = pst_role_update(m->role, index);
    struct pst_meta state;

    for (unsigned k = 0; k < PST_OPTIM_ALL_STATES; k++) {
        size_t bytes;

        if (!pst_optim_state(update, k, meta, &state))
            continue;
        if (pst_role_is_whole(m->role, index))
            bytes = p->n > 0 ? pst_meta_bytes(&state) : 0;
        else
            bytes = pst_optim_bytes(update, k, p->begin + p->n) -
                    pst_optim_bytes(update, k, p->begin);
        p->state[k] = pst_layout_reserve(m, bytes, &m->l->memory.optim);
    }
}

/* Refuses parameters that cannot be trained: dtypes other than f32 and bf16,
 * and bf16 with --transmit, with sharding, or with an optimizer that trains f32
 * only. */
static enum pst_status check_trained(const struct pst_rank_role *role,
                                     unsigned index, struct pst_diag *diag)
{
    const struct pst_plan_param *param = &role->plan->params.at[index];
    const struct pst_optim *row = pst_role_update(role, index)->row;

    if (param->meta.dtype == PST_F32)
        return PST_OK;
    if (param->meta.dtype != PST_BF16)
        return pst_diag_set(
            diag, PST_E_OPTIMIZER_DTYPE,
            "parameter '%s' is %s: only f32 and bf16 are trained (the "
            "optimizer \"none\" leaves it as it is)",
            param->fqn, pst_dtype_name(param->meta.dtype));
    if (row->whole || row->average != 0)
        return pst_diag_set(diag, PST_E_OPTIMIZER_DTYPE,
                            "parameter '%s' is bf16: optimizer %s trains f32 "
                            "only (give it another one with --group)",
                            param->fqn, row->name);
    if (param->transmit)
        return pst_diag_set(diag, PST_E_OPTIMIZER_DTYPE,
                            "parameter '%s' is bf16: only f32 is transmitted "
                            "(leave out --transmit, or --params bf16)",
                            param->fqn);
    if (role->options.replicas > 1 &&
        (role->sharing != NULL || role->options.shard != PST_SHARING_NONE))
        return pst_diag_set(diag, PST_E_OPTIMIZER_DTYPE,
                            "parameter '%s' is bf16: replicas shard f32 only "
                            "(leave out --shard, or --params bf16)",
                            param->fqn);
    return PST_OK;
}

static enum pst_status layout_states(struct pst_layout_maker *m,
                                     struct pst_rank_param *p)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    const struct pst_plan_param *param = &role->plan->params.at[p->index];
    enum pst_status status;

    if (pst_role_gathers(role, (unsigned)p->index))
        pst_flats_range(&l->flats, (unsigned)p->index, role->options.replicas,
                        role->replica, &p->begin, &p->n);
    if (!role->options.train ||
        pst_uses_total(role->uses, (unsigned)p->index) == 0 ||
        !pst_role_owns(role, (unsigned)p->index))
        return PST_OK;
    p->n = pst_meta_numel(&param->meta);
    if (pst_role_shares(role, (unsigned)p->index))
        pst_flats_range(&l->flats, (unsigned)p->index, role->options.replicas,
                        role->replica, &p->begin, &p->n);
    p->trained = true;
    p->counted =
        pst_role_wants_norm(role) &&
        (role->replica == 0 || pst_role_shares(role, (unsigned)p->index)) &&
        pst_dtype_of_grad(param->meta.dtype) == PST_F32 &&
        role->sched->rank_of[param->stages[0]] == (int)role->rank;
    if (pst_role_optim(role) == NULL)
        return PST_OK;
    status = check_trained(role, (unsigned)p->index, m->diag);
    if (status != PST_OK)
        return status;
    reserve_states(m, p);
    return PST_OK;
}

/* Plans when sharded values are resident. The programs must have their lists,
 * which name the kernels that need values. */
static enum pst_status layout_residency(struct pst_layout_maker *m)
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
    base = pst_layout_reserve(m, size, &l->memory.gathered);
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

/* Returns the bytes that a parameter takes on its only owner; 0 if it has many
 * owners. */
static size_t owned_bytes(const struct pst_rank_role *role, unsigned param)
{
    const struct pst_meta *meta = &role->plan->params.at[param].meta;
    size_t bytes = pst_mem_round(pst_meta_bytes(meta)), parts = 0;
    struct pst_meta state;

    if (!pst_role_is_whole(role, param))
        return 0;
    /* zero2 and zero3 add a sum of gradients for each use; zero3 also adds the
     * value. */
    if (pst_role_scatters(role, param))
        parts += pst_uses_total(role->uses, param);
    parts += pst_role_gathers(role, param);
    bytes = pst_size_mul(bytes, parts);
    for (unsigned k = 0; k < PST_OPTIM_ALL_STATES; k++)
        if (pst_optim_state(pst_role_update(role, param), k, meta, &state))
            bytes = pst_size_add(bytes, pst_mem_round(pst_meta_bytes(&state)));
    return PST_MAX(bytes, (size_t)1);
}

/* Returns the number of elements that no shard may divide. */
static int64_t shard_block(const struct pst_rank_role *role)
{
    for (unsigned i = 0;
         pst_role_optim(role) != NULL && i < role->plan->params.n; i++)
        if (pst_role_update(role, i)->store == PST_STORE_INT8)
            return PST_OPTIM_BLOCK;
    return 1;
}

enum pst_status pst_layout_params(struct pst_layout_maker *m)
{
    const struct pst_rank_role *role = m->role;
    struct pst_layout *l = m->l;
    unsigned char *modes =
        pst_arena_calloc(m->heap, role->plan->params.n + 1, 1);
    size_t *whole =
        pst_arena_calloc(m->heap, role->plan->params.n + 1, sizeof(*whole));
    bool in_turn = false;
    enum pst_status status;

    l->param_at = pst_arena_calloc(m->heap, role->plan->params.n + 1,
                                   sizeof(*l->param_at));
    l->grad_at = pst_arena_calloc(m->heap, role->plan->params.n + 1,
                                  sizeof(*l->grad_at));
    if (l->param_at == NULL || l->grad_at == NULL || modes == NULL ||
        whole == NULL)
        return pst_diag_nomem(m->diag, role->plan->params.n * sizeof(int));
    for (unsigned i = 0; i < role->plan->params.n; i++) {
        l->grad_at[i] = -1;
        modes[i] = (unsigned char)pst_role_sharing(role, i);
        whole[i] = owned_bytes(role, i);
        in_turn = in_turn || modes[i] >= PST_SHARING_ZERO2;
    }
    status = pst_flats_make(role->uses, modes, whole, role->options.replicas,
                            role->options.shard_rows, shard_block(role),
                            m->heap, &l->flats, m->diag);
    if (status == PST_OK)
        status = layout_buckets(m);
    for (unsigned i = 0; i < role->plan->params.n && status == PST_OK; i++)
        status = layout_param(m, i);
    if (status == PST_OK)
        layout_sums(m);
    /* States precede everything whose offset may depend on the schedule. */
    for (size_t i = 0; i < l->params.n && status == PST_OK; i++)
        status = layout_states(m, &l->params.at[i]);
    if (status == PST_OK && in_turn)
        status = layout_residency(m);
    if (status == PST_OK && role->options.train)
        status = layout_grads(m);
    for (size_t i = 0; i < l->params.n && status == PST_OK; i++)
        if (l->params.at[i].trained)
            layout_sum(m, &l->params.at[i]);
    return status;
}
