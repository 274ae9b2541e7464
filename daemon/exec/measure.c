// SPDX-License-Identifier: Apache-2.0
/* Measures finished steps, for traces, results and cost files. */
#include "daemon/exec/session.h"

#include "stages/base/alloc.h"
#include "stages/run/measure.h"
#include "stages/sched/simulate.h"
#include "stages/tune/estimate.h"

static enum pst_status simulate_step(struct pstd_session *s,
                                     const struct pst_costs *costs,
                                     struct pst_timeline *ret,
                                     struct pst_diag *diag)
{
    struct pst_sim sim;
    enum pst_status status = pst_schedule_simulate(
        pst_engine_schedule(s->w->engine), costs, &sim, diag);

    if (status != PST_OK)
        return status;
    *ret = sim.timeline;
    sim.timeline = (struct pst_timeline){.n_ranks = 0};
    pst_sim_fini(&sim);
    return PST_OK;
}

/* Rank 0: adds the prediction, and the shares of the measured step. */
static enum pst_status complete_trace(struct pstd_session *s,
                                      const struct pst_costs *costs,
                                      struct pstd_trace *t,
                                      struct pst_diag *diag)
{
    enum pst_status status = simulate_step(s, costs, &t->predicted, diag);

    /* A schedule that has run cannot deadlock. If the simulator reports that it
     * would, that is no error: only the prediction is missing. */
    if (status == PST_ERR_INPUT)
        status = PST_OK;
    if (status == PST_OK) {
        t->shares = pst_calloc(PST_TAG_DAEMON, t->measured.n_ranks + 1,
                               sizeof(*t->shares));
        if (t->shares == NULL)
            status = pst_diag_nomem(diag, sizeof(*t->shares));
    }
    if (status != PST_OK)
        return status;
    pst_timeline_shares(&t->measured, t->shares);
    return PST_OK;
}

/* Writes the costs to the file of --write-costs. If this fails, the run fails,
 * but the daemon continues. */
static void write_costs(struct pstd_session *s, struct pst_costs *costs)
{
    struct pst_diag diag;
    enum pst_status status =
        pst_costs_add_modules(s->w->plan, &s->options, costs, &diag);

    if (status == PST_OK)
        status = pst_costs_write(costs, s->config.write_costs, &diag);
    if (status != PST_OK && s->result->diag.status == PST_OK)
        s->result->diag = diag;
}

/* COLLECTIVE. Makes a trace of the newest step. *ret: owned, NULL except on
 * rank 0. ended: the run has ended, so --write-costs is written. */
static enum pst_status make_trace(struct pstd_session *s, bool ended,
                                  struct pstd_trace **ret,
                                  struct pst_diag *diag)
{
    struct pstd_trace *t = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*t));
    struct pst_costs costs = {.plan = ""};
    enum pst_status status = PST_OK;

    *ret = NULL;
    if (t == NULL) {
        (void)pst_diag_nomem(diag, sizeof(*t));
        status = PST_ERR_NOMEM;
    }
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK && t != NULL)
        status = pst_engine_timeline(s->w->engine, &t->measured, diag);
    if (status == PST_OK)
        status = pst_engine_costs(s->w->engine, &costs, diag);
    if (status == PST_OK && t != NULL) {
        t->step = s->step;
        if (s->w->rank == 0)
            status = complete_trace(s, &costs, t, diag);
        if (status == PST_OK && s->w->rank == 0 && ended &&
            s->config.write_costs != NULL)
            write_costs(s, &costs);
        status = pstd_agree_status(s->w, status, diag);
    }
    pst_costs_fini(&costs);
    if (status == PST_OK && s->w->rank == 0)
        *ret = t;
    else
        pstd_trace_free(t);
    return status;
}

enum pst_status pstd_session_trace(struct pstd_session *s,
                                   struct pst_diag *diag)
{
    struct pstd_trace *trace = NULL;
    struct pstd_note note;
    enum pst_status status;

    status = make_trace(s, false, &trace, diag);
    if (status != PST_OK)
        return status;
    pstd_note_init(&note, PSTD_EVENT_TRACE);
    pstd_note_int(&note, "step", (int64_t)s->step);
    note.payload = trace;
    pstd_mailbox_post(s->w->mailbox, &note, true);
    return PST_OK;
}

enum pst_status pstd_session_measure(struct pstd_session *s,
                                     struct pst_diag *diag)
{
    if (s->done == 0 || s->w->engine == NULL)
        return PST_OK;
    return make_trace(s, true, &s->result->trace, diag);
}
