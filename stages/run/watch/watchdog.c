// SPDX-License-Identifier: Apache-2.0
/* Whoever waits too long says for whom. */
#include "stages/run/engine.h"
#include "stages/run/lanes.h"

/* True of a message that the rank's next action waits for. */
static bool blocks(const struct pst_rank *r, const struct pst_message *m)
{
    const struct pst_rank_action *x = &r->actions.at[r->pc];
    const struct pst_rank_stage *stage = &r->layout.stages[x->a.stage];

    if (x->a.kind == PST_ACT_REDUCE)
        return m->counter == &r->reduce_waiting || m->piece != NULL;
    if (x->a.kind == PST_ACT_F &&
        m->counter == &stage->waiting_f[x->a.microbatch])
        return true;
    if (x->a.kind != PST_ACT_F && x->a.kind <= PST_ACT_W &&
        m->counter == &stage->waiting_b[x->a.microbatch])
        return true;
    for (unsigned i = 0; i < x->n_leaving; i++)
        if (m->counter == x->leaving[i])
            return true;
    return false;
}

/* Any message if no other reason is known. */
static const struct pst_message *find(const struct pst_rank *r)
{
    if (r->phase == PST_RANK_RUN && r->pc < r->actions.n)
        for (unsigned i = 0; i < r->n_active; i++)
            if (blocks(r, r->active[i]))
                return r->active[i];
    return r->n_active > 0 ? r->active[0] : NULL;
}

static const char *const whiles[] = {
    [PST_RANK_DRAIN] = "messages at the end of the step",
    [PST_RANK_COLLECT] = "the report of a finished step",
    [PST_RANK_DECISION] = "the decision on a finished step",
    [PST_RANK_VALUES] = "values of transmitted parameters",
};

/* "2F3 (stage 2, microbatch 3, action 7 of 20)". */
static void add_action(const struct pst_rank *r, unsigned pc,
                       struct pst_str *out)
{
    const struct pst_action *a = &r->actions.at[pc].a;

    pst_action_print(a, out);
    pst_str_addf(out, " (stage %d", a->stage);
    if (a->microbatch >= 0)
        pst_str_addf(out, ", microbatch %d",
                     (int)r->role.first_mb + a->microbatch);
    pst_str_addf(out, ", action %u of %u)", pc, r->actions.n);
}

/* "rank 1 waits to run 2F3 (...)". */
static void describe(const struct pst_rank *r, struct pst_str *out)
{
    pst_str_addf(out, "rank %u waits ", pst_role_number(&r->role));
    if (r->phase == PST_RANK_RUN && r->pc < r->actions.n) {
        pst_str_add(out, "to run ");
        add_action(r, r->pc, out);
    } else if ((unsigned)r->phase < PST_COUNT(whiles) &&
               whiles[r->phase] != NULL) {
        pst_str_addf(out, "for %s", whiles[r->phase]);
    }
}

/* Its thread did not stop when it was asked to: it does not wait for anybody.
 */
static void describe_running(const struct pst_rank *r, struct pst_str *out)
{
    const unsigned pc = atomic_load_explicit(&r->at, memory_order_relaxed);

    pst_str_addf(out, "rank %u does not come out of ",
                 pst_role_number(&r->role));
    add_action(r, PST_MIN(pc, r->actions.n - 1), out);
}

/* known: what ranks told each other. One process that is many ranks tells of
 * all of them: they may wait for each other in a ring. */
static enum pst_status report(const struct pst_engine *engine,
                              const char *known)
{
    const struct pst_rank *first = engine->ranks[0];
    struct pst_str text = {0};
    enum pst_status status;

    for (unsigned i = 0; i < engine->n_local && text.len < 400; i++) {
        const struct pst_rank *r = engine->ranks[i];
        const bool runs =
            engine->lanes != NULL && pst_lanes_runs(engine->lanes, i);
        const struct pst_message *m = runs ? NULL : find(r);

        if (!runs && r->phase == PST_RANK_DONE)
            continue;
        pst_str_add(&text, text.len > 0 ? "; " : "");
        if (runs)
            describe_running(r, &text);
        else
            describe(r, &text);
        if (m != NULL)
            pst_str_addf(&text,
                         m->send ? ": rank %u does not take what it is sent"
                                 : ": rank %u owes it",
                         m->peer);
    }
    if (known != NULL)
        status = pst_diag_set(first->diag, PST_ERR_PEER, "%s; %s", known,
                              pst_str_text(&text));
    else
        status = pst_diag_set(
            first->diag, PST_ERR_PEER,
            PST_WATCHDOG_TEXT " for %.3g s in step %llu: %s (--watchdog sets "
                              "the limit)",
            engine->awake.now, (unsigned long long)first->step + 1,
            pst_str_text(&text));
    pst_str_fini(&text);
    return status;
}

/* Ranks of one process know all of each other; others ask the pulse. */
enum pst_status pst_engine_watch(struct pst_engine *engine)
{
    const struct pst_rank *r = engine->ranks[0];
    const struct pst_message *m = find(r);
    struct pst_pulse *pulse = engine->transport->pulse;
    struct pst_diag diag;

    if (pulse != NULL &&
        pst_pulse_look(pulse, m != NULL ? m->peer : pst_role_number(&r->role),
                       &diag) != PST_OK)
        return report(engine, diag.text);
    if (pulse != NULL && !engine->transport->ops->one_process)
        return PST_OK;
    pst_awake_look(&engine->awake, pst_now());
    if (engine->awake.slept > 0)
        engine->awake.now = 0;
    if (engine->options.watchdog <= 0 ||
        engine->awake.now < engine->options.watchdog)
        return PST_OK;
    if (engine->lanes != NULL)
        pst_lanes_stop(engine->lanes); /* so that they can be looked at */
    return report(engine, NULL);
}
