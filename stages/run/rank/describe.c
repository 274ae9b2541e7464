// SPDX-License-Identifier: Apache-2.0
/* Describes what a rank waits for, in any of its components. */
#include "stages/base/str.h"
#include "stages/run/rank/rank.h"
#include "stages/run/rank/whole.h"

/* True if the rank's next action waits for the message. */
static bool blocks_action(const struct pst_rank *r, const struct pst_message *m)
{
    const struct pst_rank_action *x = &r->plan.actions.at[r->step.pc];

    if (x->a.kind == PST_ACT_REDUCE)
        return m->counter == &r->reductions.waiting || m->on_done != NULL;
    if (x->receives != NULL && m->counter == x->receives)
        return true;
    for (unsigned i = 0; i < x->n_sends; i++)
        if (m->counter == x->sends[i])
            return true;
    return false;
}

/* If no message blocks the next action, returns any message in flight; NULL:
 * there is none. */
const struct pst_message *pst_rank_waits_for(const struct pst_rank *r)
{
    if (r->step.phase == PST_RANK_RUN && r->step.pc < r->plan.actions.n)
        for (unsigned i = 0; i < r->traffic.n_active; i++)
            if (blocks_action(r, r->traffic.active[i]))
                return r->traffic.active[i];
    return r->traffic.n_active > 0 ? r->traffic.active[0] : NULL;
}

static const char *const whiles[] = {
    [PST_RANK_DRAIN] = "messages at the end of the step",
    [PST_RANK_COLLECT] = "the report of a finished step",
    [PST_RANK_DECISION] = "the decision on a finished step",
    [PST_RANK_GATHER] = "what other replicas have updated",
    [PST_RANK_VALUES] = "values of transmitted parameters",
};

/* Appends "2F3 (stage 2, microbatch 3, action 7 of 20)". */
static void add_action(const struct pst_rank *r, unsigned pc,
                       struct pst_str *out)
{
    const struct pst_action *a = &r->plan.actions.at[pc].a;

    pst_action_print(a, out);
    pst_str_addf(out, " (stage %d", a->stage);
    if (a->microbatch >= 0)
        pst_str_addf(out, ", microbatch %d",
                     (int)r->plan.role.first_mb + a->microbatch);
    pst_str_addf(out, ", action %u of %u)", pc, r->plan.actions.n);
}

void pst_rank_describe(const struct pst_rank *r, struct pst_str *out)
{
    pst_str_addf(out, "rank %u waits ", pst_role_number(&r->plan.role));
    if (r->step.phase == PST_RANK_RUN && r->step.pc < r->plan.actions.n) {
        pst_str_add(out, "to run ");
        add_action(r, r->step.pc, out);
    } else if ((unsigned)r->step.phase < PST_COUNT(whiles) &&
               whiles[r->step.phase] != NULL) {
        pst_str_addf(out, "for %s", whiles[r->step.phase]);
    }
}

/* Describes a rank whose thread did not stop when requested: it is running, not
 * waiting for a message. */
void pst_rank_describe_running(const struct pst_rank *r, struct pst_str *out)
{
    const unsigned pc =
        atomic_load_explicit(&r->signs.at, memory_order_relaxed);

    pst_str_addf(out, "rank %u does not come out of ",
                 pst_role_number(&r->plan.role));
    add_action(r, PST_MIN(pc, r->plan.actions.n - 1), out);
}
