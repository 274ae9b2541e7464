// SPDX-License-Identifier: Apache-2.0
#include "tests/run/proof/proof.h"

#include "stages/base/str.h"

#define NOBODY (-1)

struct checker {
    const struct pst_rank_role *role;
    const struct pst_layout *layout;
    const struct pst_action *action; /* the current action */
    /* Microbatch in each slot, NOBODY: none; [stage][region * most + slot]. */
    int **holders;
    unsigned most; /* highest number of slots of any pool */
    /* microbatch in each location outside of the arena, or NOBODY */
    int *outside;
    unsigned done; /* number of copies that must have ended by now */
    struct pst_arena arena;
    struct pst_diag *diag;
};

static enum pst_status report_violation(const struct checker *c, unsigned stage,
                                        int microbatch, unsigned slot,
                                        const char *what)
{
    struct pst_str action = {0};

    if (c->action != NULL)
        pst_action_print(c->action, &action);
    (void)pst_diag_set(c->diag, PST_E_INTERNAL_BUG,
                       "rank %u, %s: what stage %u keeps of microbatch %d %s "
                       "slot %u",
                       pst_role_number(c->role),
                       action.len > 0 ? pst_str_text(&action)
                                      : "end of the step",
                       stage, (int)c->role->first_mb + microbatch, what, slot);
    pst_str_fini(&action);
    return PST_ERR_INTERNAL;
}

static int *holder_of(const struct checker *c, unsigned stage, unsigned region,
                      unsigned slot)
{
    return &c->holders[stage][region * c->most + slot];
}

static enum pst_status end_copy(const struct checker *c,
                                const struct pst_spill_job *job)
{
    int *slot = holder_of(c, job->stage, job->region, job->slot);

    if (!job->in) {
        if (*slot != job->microbatch)
            return report_violation(c, job->stage, job->microbatch, job->slot,
                                    "is copied out and is not in");
        c->outside[job->place] = job->microbatch;
        *slot = NOBODY;
        return PST_OK;
    }
    if (*slot != NOBODY)
        return report_violation(c, job->stage, job->microbatch, job->slot,
                                "comes back over another microbatch into");
    if (c->outside[job->place] != job->microbatch)
        return report_violation(c, job->stage, job->microbatch, job->slot,
                                "is not where it was put, for");
    c->outside[job->place] = NOBODY;
    *slot = job->microbatch;
    return PST_OK;
}

/* Checks that no copy that may run during the action uses the slot. issued:
 * number of copies that may have begun. */
static enum pst_status check_concurrent(const struct checker *c,
                                        unsigned issued, unsigned region,
                                        unsigned slot)
{
    const unsigned stage = (unsigned)c->action->stage;

    for (unsigned i = c->done; i < issued; i++) {
        const struct pst_spill_job *job = &c->layout->spills.jobs.at[i];

        if (job->stage == stage && job->region == region && job->slot == slot)
            return report_violation(c, stage, c->action->microbatch, slot,
                                    "may meet a copy in");
    }
    return PST_OK;
}

/* True if this is the last action that reads the region. */
static bool is_last(const struct pst_slot_pool *pool,
                    const struct pst_action *a)
{
    return a->kind == PST_ACT_W || a->kind == PST_ACT_B ||
           (a->kind == PST_ACT_I && pool->end == PST_END_I);
}

static bool is_first(const struct pst_slot_pool *pool,
                     const struct pst_action *a)
{
    return a->kind == PST_ACT_F ||
           (pool->writer == PST_WRITER_I && a->kind != PST_ACT_W);
}

static enum pst_status check_action(const struct checker *c,
                                    const struct pst_rank_action *x,
                                    unsigned issued)
{
    const struct pst_rank_stage *stage = &c->layout->stages[x->a.stage];
    enum pst_status status = PST_OK;

    for (unsigned k = PST_R_FIRST;
         k < stage->n_pools && k < PST_R_BOUNDARY && status == PST_OK; k++) {
        int *at;

        if (!pst_spill_is_for(c->role, &stage->pools[k], k) || x->slot[k] < 0)
            continue;
        at = holder_of(c, (unsigned)x->a.stage, k, (unsigned)x->slot[k]);
        status = check_concurrent(c, issued, k, (unsigned)x->slot[k]);
        if (status == PST_OK && is_first(&stage->pools[k], &x->a)) {
            if (*at != NOBODY)
                return report_violation(c, (unsigned)x->a.stage,
                                        x->a.microbatch, (unsigned)x->slot[k],
                                        "is made over another microbatch in");
            *at = x->a.microbatch;
        }
        if (status == PST_OK && *at != x->a.microbatch)
            return report_violation(c, (unsigned)x->a.stage, x->a.microbatch,
                                    (unsigned)x->slot[k], "is not in");
        if (is_last(&stage->pools[k], &x->a))
            *at = NOBODY;
    }
    return status;
}

static enum pst_status init(struct checker *c)
{
    const unsigned n = c->role->sched->n_stages;
    const size_t places = (size_t)c->layout->spills.n_outside + 1;

    for (unsigned s = 0; s < n; s++)
        for (unsigned k = PST_R_FIRST;
             k < c->layout->stages[s].n_pools && k < PST_R_BOUNDARY; k++)
            c->most = PST_MAX(c->most, c->layout->stages[s].pools[k].n);
    c->holders = pst_arena_calloc(&c->arena, n, sizeof(*c->holders));
    c->outside = pst_arena_alloc(&c->arena, places * sizeof(*c->outside));
    if (c->holders == NULL || c->outside == NULL)
        return pst_diag_nomem(c->diag, places * sizeof(*c->outside));
    for (size_t i = 0; i < places; i++)
        c->outside[i] = NOBODY;
    for (unsigned s = 0; s < n; s++) {
        const size_t slots = (size_t)c->most * PST_R_BOUNDARY;

        c->holders[s] = pst_arena_alloc(&c->arena, (slots + 1) * sizeof(int));
        if (c->holders[s] == NULL)
            return pst_diag_nomem(c->diag, slots * sizeof(int));
        for (size_t i = 0; i < slots; i++)
            c->holders[s][i] = NOBODY;
    }
    return PST_OK;
}

static enum pst_status check_actions(struct checker *c,
                                     const struct pst_actions *actions)
{
    const struct pst_spills *s = &c->layout->spills;
    enum pst_status status = PST_OK;
    unsigned issued = 0;

    for (unsigned i = 0; i < actions->n && status == PST_OK; i++) {
        const struct pst_rank_action *x = &actions->at[i];

        if (!pst_action_computes(&x->a))
            continue;
        c->action = &x->a;
        if (x->copies_before > issued)
            return report_violation(c, (unsigned)x->a.stage, x->a.microbatch, 0,
                                    "waits for a copy that has not begun, of");
        for (; c->done < x->copies_before && status == PST_OK; c->done++)
            status = end_copy(c, &s->jobs.at[c->done]);
        if (status == PST_OK)
            status = check_action(c, x, issued);
        issued = x->copies_after;
    }
    c->action = NULL;
    if (status == PST_OK && (issued != s->jobs.n || c->done != s->jobs.n))
        return pst_diag_set(c->diag, PST_E_INTERNAL_BUG,
                            "rank %u: %zu copies of the stash, %u of them are "
                            "begun and %u waited for",
                            pst_role_number(c->role), s->jobs.n, issued,
                            c->done);
    return status;
}

enum pst_status prove_spills(const struct pst_rank_role *role,
                             const struct pst_layout *layout,
                             const struct pst_actions *actions,
                             struct pst_diag *diag)
{
    struct checker c = {.role = role, .layout = layout, .diag = diag};
    enum pst_status status;

    if (layout->spills.jobs.n == 0)
        return PST_OK;
    pst_arena_init(&c.arena, PST_TAG_TEST);
    status = init(&c);
    if (status == PST_OK)
        status = check_actions(&c, actions);
    pst_arena_fini(&c.arena);
    return status;
}
