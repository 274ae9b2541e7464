// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/plan.h"

#include "stages/layout/make.h"
#include "stages/layout/memory/slots.h"

struct planner {
    const struct pst_rank_role *role;
    struct pst_programs *lent;
    struct pst_layout *layout;
    struct pst_actions *actions;
    struct pst_arena *heap;
    struct pst_diag *diag;
};

static bool splits_backward(const struct pst_schedule *sched, unsigned rank,
                            unsigned stage)
{
    for (size_t i = 0; i < sched->ranks[rank].n; i++)
        if (sched->ranks[rank].at[i].kind == PST_ACT_I &&
            sched->ranks[rank].at[i].stage == (int)stage)
            return true;
    return false;
}

static enum pst_status make_program(struct planner *p, unsigned stage,
                                    const struct pst_program_options *options,
                                    bool tail, struct pst_program **ret)
{
    const struct pst_rank_role *role = p->role;
    const struct pst_plan *plan =
        tail ? role->options.tail : pst_role_plan(role, 0);
    struct pst_program **at;
    enum pst_status status = PST_OK;

    if (p->lent == NULL)
        return pst_program_new(plan, stage, options, ret, p->diag);
    at = pst_programs_at(p->lent, stage, options->split_iw, plan != role->plan);
    if (*at == NULL)
        status = pst_program_new(plan, stage, options, at, p->diag);
    *ret = *at;
    return status;
}

static enum pst_status make_programs(struct planner *p)
{
    const struct pst_rank_role *role = p->role;
    const int last = (int)role->sched->n_microbatches - 1;
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < role->sched->n_stages && status == PST_OK; s++) {
        struct pst_rank_stage *stage = &p->layout->stages[s];
        struct pst_program_options options = {
            .train = role->options.train,
            .split_iw = role->splits != NULL
                            ? role->splits[s]
                            : splits_backward(role->sched, role->rank, s),
            .keep_outputs = role->options.keep_outputs,
            .device = role->options.device,
            .isa = pst_cpu_isa(),
            .threads = role->options.threads,
            .bf16 = role->options.bf16,
            .tf32 = role->options.tf32,
            .whole_logits = role->options.whole_logits,
            .no_chains = role->options.no_chains,
            .verify = role->options.verify,
            .recompute = role->options.recompute,
            .params_on_demand = role->options.shard >= PST_SHARING_ZERO3,
        };

        if (role->sched->rank_of[s] != (int)role->rank)
            continue;
        status = make_program(p, s, &options, false, &stage->program);
        if (status == PST_OK &&
            pst_role_plan(role, 0) != pst_role_plan(role, last))
            status = make_program(p, s, &options, true, &stage->tail);
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

/* Checks that forwards of a stage are in order of microbatches if each changes
 * a buffer. */
static enum pst_status check_buffers(const struct planner *p)
{
    const struct pst_rank_role *role = p->role;
    for (unsigned s = 0; s < role->sched->n_stages; s++) {
        const char *fqn;
        int last = -1;

        if (p->layout->stages[s].program == NULL)
            continue;
        fqn = changed_buffer(p->layout->stages[s].program->graph);
        for (unsigned i = 0; i < p->actions->n && fqn != NULL; i++) {
            const struct pst_action *a = &p->actions->at[i].a;

            if (a->kind != PST_ACT_F || a->stage != (int)s)
                continue;
            if (a->microbatch < last)
                return pst_diag_set(
                    p->diag, PST_E_SCHEDULE_BUFFER_ORDER,
                    "schedule %s runs microbatch %d of stage %u after %d, but "
                    "'%s' changes with every microbatch: put its forwards in "
                    "order",
                    role->sched->name, a->microbatch, s, last, fqn);
            last = a->microbatch;
        }
    }
    return PST_OK;
}

/* Checks that gradients are added in the order of microbatches, as
 * pst_schedule_order ensures. */
static enum pst_status check_order(struct planner *p)
{
    const struct pst_rank_role *role = p->role;
    int *last =
        pst_arena_calloc(p->heap, role->sched->n_stages + 1, sizeof(*last));
    enum pst_status status = check_buffers(p);

    if (status != PST_OK)
        return status;
    if (last == NULL)
        return pst_diag_nomem(p->diag, role->sched->n_stages * sizeof(*last));
    for (unsigned s = 0; s < role->sched->n_stages; s++)
        p->layout->stages[s].first_backward = last[s] = -1;
    for (unsigned i = 0; i < p->actions->n; i++) {
        const struct pst_action *a = &p->actions->at[i].a;

        if (a->kind != PST_ACT_B && a->kind != PST_ACT_W)
            continue;
        if (p->layout->stages[a->stage].first_backward < 0)
            p->layout->stages[a->stage].first_backward = a->microbatch;
        if (last[a->stage] > a->microbatch)
            return pst_diag_set(p->diag, PST_E_INTERNAL_BUG,
                                "schedule %s adds the gradients of stage %d "
                                "up out of order",
                                role->sched->name, a->stage);
        last[a->stage] = a->microbatch;
    }
    return PST_OK;
}

static enum pst_status copy_actions(struct pst_rank_plan *plan,
                                    struct pst_diag *diag)
{
    const struct pst_schedule *sched = plan->role.sched;
    const struct pst_action *list = sched->ranks[plan->role.rank].at;
    const size_t n = sched->ranks[plan->role.rank].n;

    plan->layout.stages = pst_arena_calloc(&plan->heap, sched->n_stages,
                                           sizeof(*plan->layout.stages));
    plan->actions.at =
        pst_arena_calloc(&plan->heap, n + 1, sizeof(*plan->actions.at));
    if (plan->layout.stages == NULL || plan->actions.at == NULL)
        return pst_diag_nomem(diag, n * sizeof(*plan->actions.at));
    plan->actions.n = (unsigned)n;
    for (size_t i = 0; i < n; i++)
        plan->actions.at[i].a = list[i];
    return PST_OK;
}

enum pst_status pst_rank_plan_init(struct pst_rank_plan *plan,
                                   const struct pst_rank_role *role,
                                   struct pst_programs *lent,
                                   struct pst_diag *diag)
{
    struct planner p = {&plan->role,    lent,        &plan->layout,
                        &plan->actions, &plan->heap, diag};
    enum pst_status status;

    *plan = (struct pst_rank_plan){.role = *role, .lent = lent};
    pst_arena_init(&plan->heap, PST_TAG_EXEC);
    plan->channels = (struct pst_channels){
        .role = &plan->role, .layout = &plan->layout, .heap = &plan->heap};
    status = copy_actions(plan, diag);
    if (status == PST_OK)
        status = make_programs(&p);
    if (status == PST_OK)
        status = check_order(&p);
    if (status == PST_OK)
        status =
            pst_layout_fixed(&plan->layout, &plan->role, &plan->heap, diag);
    if (status == PST_OK)
        status = pst_slots_assign(&plan->role, &plan->layout, &plan->actions,
                                  &plan->channels, &plan->heap, diag);
    return status == PST_OK
               ? pst_layout_finish(&plan->layout, &plan->role, &plan->actions,
                                   &plan->heap, diag)
               : status;
}

void pst_rank_plan_fini(struct pst_rank_plan *plan)
{
    for (unsigned s = 0; plan->layout.stages != NULL && plan->lent == NULL &&
                         s < plan->role.sched->n_stages;
         s++) {
        pst_program_free(plan->layout.stages[s].program);
        pst_program_free(plan->layout.stages[s].tail);
    }
    pst_layout_fini(&plan->layout);
    pst_channels_fini(&plan->channels);
    pst_arena_fini(&plan->heap);
}
