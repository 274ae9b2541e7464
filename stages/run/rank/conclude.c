// SPDX-License-Identifier: Apache-2.0
/* The end of a step on a rank: reads and reports the results of the device, and
 * applies the decision of all ranks. */
#include <stdio.h>

#include "stages/base/host/fault.h"
#include "stages/run/rank/rank.h"
#include "stages/run/rank/recordings.h"
#include "stages/run/rank/step/update.h"
#include "stages/run/rank/whole.h"

/* Records a fault of a kernel, after the step, unless the host has found a
 * fault in the same or an earlier microbatch: within a microbatch, faults that
 * the host finds take precedence. */
static void record_kernel_fault(struct pst_rank *r,
                                const struct pst_fault *fault)
{
    const struct pst_exec_node *n;
    const char *module, *source;
    char text[240];
    int stage;

    if (!fault->set)
        return;
    /* the fault may be in list P, so the next step runs that again */
    r->step.is_prepared = false;
    if (r->step.error != PST_E_NONE &&
        r->step.fault_microbatch <= (int)fault->microbatch)
        return;
    r->step.error = PST_E_OP_DATA;
    r->step.fault_microbatch = (int)fault->microbatch;
    n = pst_layout_site(&r->plan.layout, &r->plan.role, fault->site, &stage);
    pst_fault_describe(fault, n != NULL ? n->node : NULL, text, sizeof(text));
    module = n != NULL ? n->node->call->name : "";
    source = n != NULL ? n->node->source : "";
    snprintf(r->step.fault_text, sizeof(r->step.fault_text),
             "rank %u, stage %d, microbatch %u, %s%s%.120s%s%.120s: %s",
             pst_role_number(&r->plan.role), stage, fault->microbatch,
             n != NULL ? pst_node_origin(n->node) : "a kernel",
             module[0] != '\0' ? " of " : "", module,
             source[0] != '\0' ? " at " : "", source, text);
}

/* Records the times of the newest update, once the device has finished it. A
 * step ends with its update, even if the host has begun the next step before.
 */
static void record_optim(struct pst_rank *r)
{
    struct pst_ring_step *of = r->step.optim_of;

    if (!r->step.optim.used)
        return;
    r->step.times.optim =
        pst_timing_take(&r->step.optim, r->device, &of->optim);
    of->all.end = PST_MAX(of->all.end, of->optim.end);
}

/* Records the times of the step once the device has finished it and the
 * previous update. The host may have posted messages long before the device
 * reached the next actions, so no mark begins before the previous one ends. */
static void record_timings(struct pst_rank *r)
{
    struct pst_ring_step *now = r->step.ring.now;
    struct pst_times *times = &r->step.times;
    double last = 0;

    times->forward +=
        pst_timing_take(&r->step.prepare, r->device, &now->prepare);
    for (unsigned i = 0; i < r->plan.actions.n; i++) {
        struct pst_mark *mark = &now->marks[i];
        const double spent =
            pst_timing_take(&r->step.timings[i], r->device, mark);

        if (r->plan.actions.at[i].a.kind == PST_ACT_F)
            times->forward += spent;
        else
            times->backward += spent;
        mark->start = PST_MAX(mark->start, last);
        last = mark->end = PST_MAX(mark->end, mark->start);
    }
    record_optim(r);
}

static void record_device(struct pst_rank *r)
{
    struct pst_diag why;

    if (pst_rank_device_check(r->device, pst_role_number(&r->plan.role), "",
                              &why) == PST_OK)
        return;
    r->step.error = why.error;
    r->step.fault_microbatch = -1;
    (void)snprintf(r->step.fault_text, sizeof(r->step.fault_text), "%.*s",
                   (int)sizeof(r->step.fault_text) - 1, why.text);
}

static void measure_grads(void *ctx)
{
    struct pst_rank *r = ctx;

    pst_readback_measure(&r->plan.layout, r->device);
}

static enum pst_status report_outcome(struct pst_rank *r)
{
    struct pst_outcome outcome = {.trace = &r->step.trace,
                                  .control = r->step.control,
                                  .started = r->step.started,
                                  .times = &r->step.times,
                                  .text = r->step.fault_text};
    enum pst_status status;

    pst_fault_point("report");
    if (r->step.measure.n > 0 && !pst_fault_is_set())
        pst_recording_run(&r->step.measure, &r->step, &r->device->mem,
                          measure_grads, r);
    else
        measure_grads(r);
    outcome.readback = pst_readback_to_host(&r->plan.layout, r->device);
    if (!r->step.reports_again)
        record_timings(r);
    record_kernel_fault(r, outcome.readback.fault);
    record_device(r);
    outcome.fault = r->step.error;
    outcome.holds = r->step.holds;
    outcome.microbatch = r->step.fault_microbatch;
    if (r->step.updated != 0)
        outcome.stayed =
            pst_stayed_make(outcome.readback.stayed, r->step.updated);
    r->step.phase = pst_role_number(&r->plan.role) == 0 ? PST_RANK_COLLECT
                                                        : PST_RANK_DECISION;
    status = pst_agree_report(&r->agreement, &outcome);
    r->step.updated = 0;
    return status;
}

static void apply_recorded(void *ctx)
{
    struct pst_rank *r = ctx;

    pst_update_apply(&r->plan.role, &r->plan.layout, r->device,
                     r->agreement.decision->norms, &r->step.slots, &r->signs);
}

/* Replays the updates with the numbers of this step, if they are recorded. */
static bool replay_updates(struct pst_rank *r)
{
    struct pst_step *step = &r->step;
    bool moved;

    if (step->update.n == 0 ||
        !pst_update_set_numbers(&step->slots, &r->plan.role, &r->plan.layout,
                                r->device, r->agreement.decision->norms,
                                &moved))
        return false;
    if (moved)
        pst_recording_forget(&step->update, &r->device->mem);
    pst_recording_run(&step->update, step, &r->device->mem, apply_recorded, r);
    pst_signs_count_progress(&r->signs); /* counts all updates as one */
    return true;
}

static void update_params(struct pst_rank *r)
{
    pst_timing_begin(&r->step.optim, r->device, pst_now());
    if (!replay_updates(r))
        pst_update_apply(&r->plan.role, &r->plan.layout, r->device,
                         r->agreement.decision->norms, NULL, &r->signs);
    r->step.updated = r->step.number + 1;
    r->step.is_prepared = false;
    (void)pst_timing_pause(&r->step.optim, r->device);
    r->step.optim_of = r->step.ring.now;
}

/* For tests: flips a bit of the first trained parameter. */
static void flip_param_bit(struct pst_rank *r)
{
    for (size_t i = 0; i < r->plan.layout.params.n; i++) {
        const struct pst_rank_param *p = &r->plan.layout.params.at[i];
        unsigned char *at = pst_rank_at(r->device, p->data);

        if (!p->trained)
            continue;
        pst_fault_data("weights",
                       pst_device_pull(&r->device->mem, at, p->bytes),
                       p->bytes);
        pst_device_push(&r->device->mem, at, p->bytes);
        return;
    }
}

/* Applies the decision: updates parameters, or restores the buffers from before
 * the step. */
static enum pst_status apply_decision(struct pst_rank *r)
{
    r->step.phase = PST_RANK_VALUES;
    r->step.times.optim = 0; /* drops the time of the previous step */
    if (r->agreement.decision->fault) {
        pst_update_restore(&r->plan.layout, r->device);
        return PST_OK;
    }
    /* no update; the new values of buffers are still sent to other ranks */
    if (r->step.holds) {
        r->step.phase = PST_RANK_GATHER;
        return PST_OK;
    }
    pst_fault_point("update");
    if (pst_role_optim(&r->plan.role) != NULL)
        update_params(r);
    pst_fault_point("updated");
    if (pst_fault_is_set())
        flip_param_bit(r);
    r->step.phase = PST_RANK_GATHER;
    return pst_replicas_gather(&r->replicas);
}

/* Continues once the values that other replicas have updated are gathered. */
static enum pst_status await_gather(struct pst_rank *r)
{
    if (r->replicas.n_busy > 0)
        return PST_AGAIN;
    r->step.phase = PST_RANK_VALUES;
    return pst_transmission_post(&r->values, &r->traffic);
}

static enum pst_status end_step(struct pst_rank *r)
{
    if (r->values.waiting > 0)
        return PST_AGAIN;
    r->step.phase = PST_RANK_DONE;
    if (r->step.optim.used &&
        r->device->mem.device->poll(&r->device->mem, &r->step.optim.end) ==
            PST_OK)
        record_optim(r);
    pst_ring_end(&r->step.ring, pst_now());
    return PST_OK;
}

/* Enters phase `next` if status is PST_OK. */
static enum pst_status enter_phase(struct pst_rank *r, enum pst_status status,
                                   enum pst_rank_phase next)
{
    if (status == PST_OK)
        r->step.phase = next;
    return status;
}

enum pst_status pst_rank_advance_end(struct pst_rank *r)
{
    switch (r->step.phase) {
    case PST_RANK_DRAIN:
        return enter_phase(r, r->traffic.n_active > 0 ? PST_AGAIN : PST_OK,
                           PST_RANK_REPORT);
    case PST_RANK_REPORT:
        return report_outcome(r);
    case PST_RANK_COLLECT:
        return enter_phase(r, pst_agree_decide(&r->agreement),
                           PST_RANK_DECISION);
    case PST_RANK_DECISION:
        return enter_phase(r, pst_agree_wait(&r->agreement), PST_RANK_APPLY);
    case PST_RANK_APPLY:
        return pst_rank_is_held(r->device) ? PST_AGAIN : apply_decision(r);
    case PST_RANK_GATHER:
        return await_gather(r);
    default:
        return end_step(r);
    }
}

/* The status of the device is ignored: the next step reports its failure. */
void pst_rank_await(struct pst_rank *r)
{
    if (r->step.optim.used &&
        pst_device_await(&r->device->mem, &r->step.optim.end) == PST_OK)
        record_optim(r);
}
