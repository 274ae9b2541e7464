// SPDX-License-Identifier: Apache-2.0
/* Reports a rank that has waited for too long, and the message that it waits
 * for. */
#include "stages/layout/role.h"
#include "stages/run/engine.h"
#include "stages/run/lanes.h"
#include "stages/run/rank/step/ring.h"
#include "stages/run/rank/step/traffic.h"

/* Reports what each local rank waits for: they may wait for each other in a
 * cycle. known: message of the pulse, or NULL. */
static enum pst_status report_stuck_ranks(const struct pst_engine *engine,
                                          const char *known,
                                          struct pst_diag *diag)
{
    const uint64_t step = pst_rank_step_times(engine->ranks[0])->now->step;
    struct pst_str text = {0};
    enum pst_status status;

    for (unsigned i = 0; i < engine->n_local && text.len < 400; i++) {
        const struct pst_rank *r = engine->ranks[i];
        const bool runs =
            engine->lanes != NULL && pst_lanes_runs(engine->lanes, i);
        const struct pst_message *m = runs ? NULL : pst_rank_waits_for(r);

        if (!runs && pst_rank_is_done(r))
            continue;
        pst_str_add(&text, text.len > 0 ? "; " : "");
        if (runs)
            pst_rank_describe_running(r, &text);
        else
            pst_rank_describe(r, &text);
        if (m != NULL)
            pst_str_addf(&text,
                         m->send ? ": rank %u does not take what it is sent"
                                 : ": rank %u owes it",
                         m->peer);
    }
    if (known != NULL)
        status = pst_diag_set(diag, PST_E_RUN_STUCK, "%s; %s", known,
                              pst_str_text(&text));
    else
        status = pst_diag_set(diag, PST_E_RUN_STUCK,
                              PST_WATCHDOG_TEXT
                              " for %.3g s in step %llu: %s (--watchdog sets "
                              "the limit)",
                              engine->awake.now, (unsigned long long)step + 1,
                              pst_str_text(&text));
    pst_str_fini(&text);
    return status;
}

/* Compares the states of all ranks if they are in this process; otherwise
 * checks heartbeats (pulse.h). */
enum pst_status pst_engine_watch(struct pst_engine *engine,
                                 struct pst_diag *diag)
{
    const struct pst_rank *r = engine->ranks[0];
    const struct pst_message *m = pst_rank_waits_for(r);
    struct pst_transport *t = engine->transport;
    struct pst_pulse *pulse = t->pulse;
    enum pst_status status = PST_OK;
    struct pst_diag known;

    if (t->look != NULL)
        status = t->look(t->look_ctx, diag);
    if (status != PST_OK)
        return status;
    if (pulse != NULL &&
        pst_pulse_poll(pulse,
                       m != NULL ? m->peer : pst_role_number(pst_rank_role(r)),
                       &known) != PST_OK)
        return report_stuck_ranks(engine, known.text, diag);
    if (pulse != NULL && !t->ops->one_process)
        return PST_OK;
    pst_awake_update(&engine->awake, pst_now());
    if (engine->awake.stopped_s > 0)
        engine->awake.now = 0;
    if (engine->grid->options.watchdog <= 0 ||
        engine->awake.now <
            PST_MAX(engine->grid->options.watchdog, pst_alive_limit()))
        return PST_OK;
    if (engine->lanes != NULL)
        pst_lanes_stop(engine->lanes); /* so that their state can be read */
    return report_stuck_ranks(engine, NULL, diag);
}
