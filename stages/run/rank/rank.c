// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/rank.h"

#include <string.h>

#include "stages/compile/memplan.h"

bool pst_rank_owns(const struct pst_rank *r, unsigned param)
{
    const struct pst_plan_param *p = &r->plan->params.at[param];

    return !p->transmit || r->sched->rank_of[p->home] == (int)r->rank;
}

const struct pst_rank_param *pst_rank_param(const struct pst_rank *r,
                                            unsigned param)
{
    int at = r->param_at[param];

    return at < 0 ? NULL : &r->params.at[at];
}

/* --- life ----------------------------------------------------------------- */

static bool splits(const struct pst_schedule *sched, unsigned rank,
                   unsigned stage)
{
    for (size_t i = 0; i < sched->ranks[rank].n; i++)
        if (sched->ranks[rank].at[i].kind == PST_ACT_I &&
            sched->ranks[rank].at[i].stage == (int)stage)
            return true;
    return false;
}

static enum pst_status make_program(struct pst_rank *r, unsigned stage,
                                    const struct pst_program_options *options,
                                    bool tail, struct pst_program **ret,
                                    struct pst_diag *diag)
{
    const struct pst_plan *plan = tail ? r->options.tail : pst_rank_plan(r, 0);
    struct pst_program **at;
    enum pst_status status = PST_OK;

    if (r->lent == NULL)
        return pst_program_new(plan, stage, options, ret, diag);
    at = pst_programs_at(r->lent, stage, options->split_iw, plan != r->plan);
    if (*at == NULL)
        status = pst_program_new(plan, stage, options, at, diag);
    *ret = *at;
    return status;
}

static enum pst_status make_programs(struct pst_rank *r, struct pst_diag *diag)
{
    const int last = (int)r->sched->n_microbatches - 1;
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < r->sched->n_stages && status == PST_OK; s++) {
        struct pst_rank_stage *stage = &r->stages[s];
        struct pst_program_options options = {
            .train = r->options.train,
            .split_iw = splits(r->sched, r->rank, s),
            .keep_outputs = r->options.keep_outputs,
            .device = r->options.device,
            .isa = pst_cpu_isa(),
            .threads = r->options.threads,
            .bf16 = r->options.bf16,
        };

        if (r->sched->rank_of[s] != (int)r->rank)
            continue;
        stage->waiting_f = pst_arena_calloc(&r->heap, r->sched->n_microbatches,
                                            sizeof(unsigned));
        stage->waiting_b = pst_arena_calloc(&r->heap, r->sched->n_microbatches,
                                            sizeof(unsigned));
        if (stage->waiting_f == NULL || stage->waiting_b == NULL)
            return pst_diag_nomem(diag, r->sched->n_microbatches);
        status = make_program(r, s, &options, false, &stage->program, diag);
        if (status == PST_OK && pst_rank_plan(r, 0) != pst_rank_plan(r, last))
            status = make_program(r, s, &options, true, &stage->tail, diag);
    }
    return status;
}

static const char *changed_buffer(const struct pst_graph *graph)
{
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE)
            return graph->outputs.at[i].target->fqn;
    return NULL;
}

/* A buffer that every microbatch changes sees them in their order. */
static enum pst_status check_buffers(const struct pst_rank *r,
                                     struct pst_diag *diag)
{
    for (unsigned s = 0; s < r->sched->n_stages; s++) {
        const char *fqn;
        int last = -1;

        if (r->stages[s].program == NULL)
            continue;
        fqn = changed_buffer(r->stages[s].program->graph);
        for (unsigned i = 0; i < r->n_actions && fqn != NULL; i++) {
            const struct pst_action *a = &r->actions[i].a;

            if (a->kind != PST_ACT_F || a->stage != (int)s)
                continue;
            if (a->microbatch < last)
                return pst_diag_set(
                    diag, PST_ERR_UNSUPPORTED,
                    "schedule %s runs microbatch %d of stage %u after %d, but "
                    "'%s' changes with every microbatch: put its forwards in "
                    "order",
                    r->sched->name, a->microbatch, s, last, fqn);
            last = a->microbatch;
        }
    }
    return PST_OK;
}

/* Gradients are added up in the order of microbatches: whoever
 * made the schedule has seen to that (pst_schedule_order). */
static enum pst_status check_order(struct pst_rank *r, struct pst_diag *diag)
{
    int *last =
        pst_arena_calloc(&r->heap, r->sched->n_stages + 1, sizeof(*last));
    enum pst_status status = check_buffers(r, diag);

    if (status != PST_OK)
        return status;
    if (last == NULL)
        return pst_diag_nomem(diag, r->sched->n_stages * sizeof(*last));
    for (unsigned s = 0; s < r->sched->n_stages; s++)
        r->stages[s].first_backward = last[s] = -1;
    for (unsigned i = 0; i < r->n_actions; i++) {
        const struct pst_action *a = &r->actions[i].a;

        if (a->kind != PST_ACT_B && a->kind != PST_ACT_W)
            continue;
        if (r->stages[a->stage].first_backward < 0)
            r->stages[a->stage].first_backward = a->microbatch;
        if (last[a->stage] > a->microbatch)
            return pst_diag_set(diag, PST_ERR_INTERNAL,
                                "schedule %s adds the gradients of stage %d "
                                "up out of order",
                                r->sched->name, a->stage);
        last[a->stage] = a->microbatch;
    }
    return PST_OK;
}

static enum pst_status plan_rank(struct pst_rank *r, struct pst_diag *diag)
{
    const size_t n = r->sched->ranks[r->rank].n;
    enum pst_status status;

    r->stages =
        pst_arena_calloc(&r->heap, r->sched->n_stages, sizeof(*r->stages));
    r->actions = pst_arena_calloc(&r->heap, n + 1, sizeof(*r->actions));
    if (r->stages == NULL || r->actions == NULL)
        return pst_diag_nomem(diag, n * sizeof(*r->actions));
    r->n_actions = (unsigned)n;
    r->optim = r->options.train ? r->options.optim.row : NULL;
    for (size_t i = 0; i < n; i++)
        r->actions[i].a = r->sched->ranks[r->rank].at[i];
    status = make_programs(r, diag);
    if (status == PST_OK)
        status = check_order(r, diag);
    if (status == PST_OK)
        status = pst_layout_fixed(r, diag);
    if (status == PST_OK)
        status = pst_rank_assign_slots(r, diag);
    if (status != PST_OK)
        return status;
    return pst_layout_rest(r, diag);
}

enum pst_status pst_rank_new(const struct pst_rank_facts *facts,
                             struct pst_programs *lent, struct pst_rank **ret,
                             struct pst_diag *diag)
{
    struct pst_rank *r = pst_calloc(PST_TAG_EXEC, 1, sizeof(*r));
    enum pst_status status;

    if (r == NULL)
        return pst_diag_nomem(diag, sizeof(*r));
    pst_arena_init(&r->heap, PST_TAG_EXEC);
    r->plan = facts->plan;
    r->uses = facts->uses;
    r->lent = lent;
    r->options = *facts->options;
    r->weights = facts->weights;
    r->scattered_size = facts->scattered_size;
    r->replica = facts->replica;
    r->rank = facts->rank;
    r->first = facts->replica * facts->options->ranks;
    r->sched = facts->sched;
    r->first_mb = facts->first_mb;
    status = plan_rank(r, diag);
    if (status != PST_OK) {
        pst_rank_free(r);
        return status;
    }
    *ret = r;
    return PST_OK;
}

void pst_rank_free(struct pst_rank *r)
{
    if (r == NULL)
        return;
    for (unsigned s = 0;
         r->stages != NULL && r->lent == NULL && s < r->sched->n_stages; s++) {
        pst_program_free(r->stages[s].program);
        pst_program_free(r->stages[s].tail);
    }
    pst_device_close(&r->mem);
    pst_vec_fini(&r->params);
    pst_vec_fini(&r->grads);
    pst_vec_fini(&r->prepared);
    pst_vec_fini(&r->channels);
    pst_vec_fini(&r->buckets);
    pst_arena_fini(&r->heap);
    pst_free(r);
}

/* --- start ---------------------------------------------------------------- */

/* Memory and kernels. */
static enum pst_status open_device(struct pst_rank *r, struct pst_diag *diag)
{
    const struct pst_device *device = r->options.device;
    const struct {
        const char *name;
        pst_task_fn *to;
    } tasks[] = {
        {"seed", &r->tasks.seed},
        {"copy", &r->tasks.copy},
        {"sum", &r->tasks.sum},
        {"sumsq", &r->tasks.sumsq},
        {r->optim != NULL ? r->optim->task : NULL, &r->tasks.update},
    };
    enum pst_status status =
        pst_device_open(device, PST_MAX(r->memory.arena, 1), &r->mem, diag);

    if (status != PST_OK)
        pst_diag_prefix(diag, "rank %u", pst_rank_number(r));
    for (size_t i = 0; i < PST_COUNT(tasks) && status == PST_OK; i++)
        if (tasks[i].name != NULL)
            status = pst_device_task(device, tasks[i].name, tasks[i].to, diag);
    r->arena = r->mem.base;
    return status;
}

static enum pst_status load_params(struct pst_rank *r, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < r->params.n && status == PST_OK; i++) {
        const struct pst_rank_param *p = &r->params.at[i];
        void *at = pst_rank_at(r, p->data);

        status = pst_plan_read_param(r->plan, (unsigned)p->index,
                                     pst_device_host(&r->mem, at), diag);
        if (status == PST_OK)
            pst_device_push(&r->mem, at, p->bytes);
        pst_alive_goes_on();
    }
    return status;
}

/* Room for the operands of any node of this rank. */
static enum pst_status make_operands(struct pst_rank *r, struct pst_diag *diag)
{
    unsigned most = 0;

    for (unsigned s = 0; s < r->sched->n_stages; s++) {
        const struct pst_program *programs[] = {r->stages[s].program,
                                                r->stages[s].tail};

        for (size_t i = 0; i < PST_COUNT(programs); i++)
            for (int l = 0; programs[i] != NULL && l < PST_N_LISTS; l++)
                for (unsigned k = 0; k < programs[i]->lists[l].n; k++)
                    most = PST_MAX(most,
                                   programs[i]->lists[l].at[k].call.n_in +
                                       programs[i]->lists[l].at[k].call.n_out);
    }
    r->operands = pst_arena_calloc(&r->heap, most + 1, sizeof(*r->operands));
    return r->operands != NULL
               ? PST_OK
               : pst_diag_nomem(diag, most * sizeof(*r->operands));
}

enum pst_status pst_rank_start(struct pst_rank *r,
                               struct pst_transport *transport,
                               struct pst_pool *pool, struct pst_diag *diag)
{
    enum pst_status status = open_device(r, diag);

    r->transport = transport;
    r->stages_messages =
        (r->options.device->space & transport->ops->spaces) == 0;
    r->pool = pool;
    if (status == PST_OK)
        status = load_params(r, diag);
    if (status != PST_OK)
        return status;
    status = make_operands(r, diag);
    if (status == PST_OK)
        status = pst_transmit_init(r, diag);
    if (status == PST_OK)
        status = pst_reductions_init(r, diag);
    if (status == PST_OK)
        status = pst_rank_bind_messages(r, diag);
    if (status == PST_OK)
        status = pst_replicas_init(r, diag);
    if (status == PST_OK)
        status = pst_agree_init(r, diag);
    if (status == PST_OK)
        status = pst_rank_bind(r, diag);
    if (status == PST_OK)
        status = pst_ring_init(&r->ring, &r->heap, r->n_actions, diag);
    return status;
}
