// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/probe.h"

#include "stages/base/host/fault.h"
#include "stages/run/rank/rank.h"
#include "stages/run/rank/whole.h"
#include "stages/run/watch/flight.h"

/* Returns the rank's flight recorder; NULL: it has none. */
static struct pst_flight *flight_of(const struct pst_rank *r)
{
    struct pst_flight *const *all = r->plan.role.options.flights;

    return all != NULL ? all[pst_role_number(&r->plan.role)] : NULL;
}

double pst_probe_now(struct pst_rank *r)
{
    if (r->step.clock == 0)
        r->step.clock = pst_now();
    return r->step.clock;
}

/* Records that a part has ended, or that it waits for a message. */
static void record_flight(struct pst_rank *r, enum pst_status status)
{
    struct pst_flight *const f = flight_of(r);
    const struct pst_message *m;

    if (f == NULL)
        return;
    if (status == PST_OK) {
        pst_flight_end(f, pst_probe_now(r));
    } else if (status == PST_AGAIN) {
        m = pst_rank_waits_for(r);
        if (m != NULL)
            pst_flight_waits(f, (int)m->peer, m->send);
    }
}

static void begin_flight(struct pst_rank *r, unsigned kind, int stage,
                         int microbatch)
{
    struct pst_flight *const f = flight_of(r);

    if (f != NULL)
        pst_flight_begin(f, pst_probe_now(r), r->step.number, kind, stage,
                         microbatch);
}

void pst_probe_begin_action(struct pst_rank *r, const struct pst_rank_action *x)
{
    const int microbatch =
        x->a.microbatch < 0 ? -1 : (int)r->plan.role.first_mb + x->a.microbatch;
    struct pst_mark *mark = &r->step.ring.now->marks[r->step.pc];

    atomic_store_explicit(&r->signs.at, r->step.pc, memory_order_relaxed);
    pst_alive_action(x->a.kind, x->a.stage, microbatch);
    begin_flight(r, x->a.kind, x->a.stage, microbatch);
    if (pst_fault_is_set()) {
        pst_fault_point(pst_action_word((enum pst_action_kind)x->a.kind));
        r->step.clock = 0; /* an injected fault may be a delay */
    }
    if (x->a.kind > PST_ACT_W && mark->start <= r->step.started)
        mark->start = pst_probe_now(r);
}

void pst_probe_end_action(struct pst_rank *r, const struct pst_rank_action *x,
                          enum pst_status status)
{
    if (status == PST_OK && x->a.kind > PST_ACT_W) {
        r->step.clock = 0;
        r->step.ring.now->marks[r->step.pc].end = pst_probe_now(r);
        /* compute actions report progress for each kernel */
        pst_signs_count_progress(&r->signs);
    }
    record_flight(r, status);
    pst_probe_wait(r, status);
}

void pst_probe_begin_phase(struct pst_rank *r)
{
    begin_flight(r, PST_FLIGHT_END + (unsigned)r->step.phase, -1, -1);
}

void pst_probe_end_phase(struct pst_rank *r, enum pst_status status)
{
    r->step.clock = 0;
    record_flight(r, status);
}

static void end_wait(struct pst_rank *r)
{
    const bool receives = r->step.phase == PST_RANK_RUN &&
                          r->step.pc < r->plan.actions.n &&
                          r->plan.actions.at[r->step.pc].a.kind <= PST_ACT_W;
    const double now = pst_probe_now(r);

    if (receives)
        r->step.times.wait_recv += now - r->step.waiting_since;
    else
        r->step.times.wait_other += now - r->step.waiting_since;
    r->step.waiting_since = 0;
}

void pst_probe_wait(struct pst_rank *r, enum pst_status status)
{
    if (status == PST_AGAIN)
        r->step.clock = 0;
    if (status != PST_AGAIN && r->step.waiting_since != 0)
        end_wait(r);
    else if (status == PST_AGAIN && r->step.waiting_since == 0)
        r->step.waiting_since = pst_now();
}
