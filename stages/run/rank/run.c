// SPDX-License-Identifier: Apache-2.0
/* The executor: a loop over actions without decisions. It accesses tensors only
 * through kernels and copies of the rank's device. */
#include <stdio.h>

#include "stages/base/host/fault.h"
#include "stages/base/host/thread.h"
#include "stages/run/rank/probe.h"
#include "stages/run/rank/rank.h"
#include "stages/run/rank/recordings.h"
#include "stages/run/rank/step/update.h"
#include "stages/run/rank/whole.h"

/* Seconds between two polls of messages while kernels run. */
#define PROGRESS_EVERY 0.0005

/* Records the first fault that the host finds in a step, with its location. */
static void record_fault(struct pst_rank *r, enum pst_error error,
                         const struct pst_action *a, const char *what,
                         const char *text)
{
    if (r->step.error != PST_E_NONE)
        return;
    r->step.error = error;
    r->step.fault_microbatch = (int)r->plan.role.first_mb + a->microbatch;
    snprintf(r->step.fault_text, sizeof(r->step.fault_text),
             "rank %u, stage %d, microbatch %d, %s: %.200s",
             pst_role_number(&r->plan.role), a->stage, r->step.fault_microbatch,
             what, text);
}

static void poll_messages(struct pst_rank *r)
{
    if (r->replicas.n_busy > 0 && r->step.progressed == PST_OK)
        /* this poll also continues reductions over replicas */
        r->step.progressed = pst_traffic_poll(&r->traffic);
    else
        r->traffic.transport->ops->progress(r->traffic.transport);
}

static void make_progress(struct pst_rank *r)
{
    double now;

    pst_signs_count_progress(&r->signs);
    /* Polling messages may enqueue copies and events, which must not be
     * recorded. */
    if (pst_role_job_size(&r->plan.role) < 2 || r->step.records)
        return;
    now = pst_now();
    if (now - r->step.last_progress < PROGRESS_EVERY)
        return;
    r->step.last_progress = now;
    pst_alive_progress();
    poll_messages(r);
}

static void bind_operands(const struct pst_operand *from,
                          const struct pst_loc *at, unsigned n,
                          unsigned char *const *base, struct pst_operand *to)
{
    for (unsigned i = 0; i < n; i++) {
        to[i].meta = from[i].meta;
        /* The address of an absent operand is NULL: base[PST_R_NONE] is NULL,
         * and its offset is 0. */
        to[i].data = (void *)((uintptr_t)base[at[i].region] + at[i].offset);
    }
}

/* Launches a node's kernel on a copy of the program's call, with addresses, the
 * random key, and whether the result is accumulated. */
static void run_node(struct pst_rank *r, const struct pst_rank_stage *stage,
                     const struct pst_exec_node *n, unsigned site,
                     unsigned char *const *base, const struct pst_action *a)
{
    bool traced = pst_trace_wants(&r->step.trace, &r->plan.role, a);
    unsigned before = 0;
    const bool assigns =
        n->first_touch && (n->each || a->microbatch == stage->first_backward);
    struct pst_call call = n->call;

    call.in = r->step.operands;
    call.out = r->step.operands + call.n_in;
    bind_operands(n->call.in, n->in, call.n_in, base, call.in);
    bind_operands(n->call.out, n->out, call.n_out, base, call.out);
    call.scratch =
        call.scratch_size > 0 ? base[PST_R_WORK] + n->scratch.offset : NULL;
    call.pool = r->device->pool;
    call.fault = pst_readback_fault(&r->plan.layout, r->device);
    call.site = site;
    call.rng.seed = r->plan.role.options.seed;
    call.rng.step = r->step.number;
    call.rng.microbatch = r->plan.role.first_mb + (uint32_t)a->microbatch;
    call.accumulate = n->role == PST_GRAD_FUSED && !assigns;
    if (n->role == PST_GRAD_ADD && assigns)
        r->device->mem.device->zero(&r->device->mem, call.in[0].data,
                                    pst_meta_bytes(call.in[0].meta));
    if (traced && call.chain != NULL)
        traced = !pst_trace_chain(&r->step.trace, &r->plan.role, r->device, a,
                                  n->node, &call);
    if (traced)
        before = pst_trace_before(r->device, &call);
    r->device->mem.device->launch(&r->device->mem, n->kernel, &call);
    if (traced)
        pst_trace_after(&r->step.trace, &r->plan.role, r->device, a, n->node,
                        &call, before);
}

static void run_kernels(struct pst_rank *r, const struct pst_action *a,
                        const struct pst_exec_list *l, unsigned begin,
                        unsigned end, unsigned char *const *base)
{
    const struct pst_rank_stage *stage = &r->plan.layout.stages[a->stage];

    for (unsigned i = begin; i < end; i++) {
        if (l->at[i].computed_elsewhere)
            continue;
        pst_thread_node = &l->at[i].node;
        if (pst_fault_is_set())
            pst_fault_point("kernel");
        run_node(r, stage, &l->at[i], l->first_site + i, base, a);
        make_progress(r);
    }
    pst_thread_node = NULL;
}

/* List P of a program. */
struct prepared_list {
    struct pst_rank *r;
    unsigned stage;
    const struct pst_exec_list *list;
};

static void run_prepared(void *ctx)
{
    const struct prepared_list *w = ctx;
    unsigned char *base[PST_R_BOUNDARY] = {
        [PST_R_FIXED] = w->r->device->mem.base,
        [PST_R_WORK] = pst_rank_at(w->r->device, w->r->plan.layout.work)};
    const struct pst_action a = {.stage = (int)w->stage};

    run_kernels(w->r, &a, w->list, 0, w->list->n, base);
}

/* Runs list P of the stage's programs. Returns true if they have nodes in it.
 */
static bool prepare_stage(struct pst_rank *r, unsigned stage)
{
    const struct pst_program *programs[] = {
        r->plan.layout.stages[stage].program,
        r->plan.layout.stages[stage].tail};
    bool any = false;

    for (size_t i = 0; i < PST_COUNT(programs); i++) {
        struct pst_recording *made = &r->step.prepares[2 * stage + i];
        struct prepared_list work = {r, stage};

        if (programs[i] == NULL || programs[i]->lists[PST_LIST_P].n == 0)
            continue;
        work.list = &programs[i]->lists[PST_LIST_P];
        if (made->n > 0 && !r->step.trace.on && !pst_fault_is_set())
            pst_recording_run(made, &r->step, &r->device->mem, run_prepared,
                              &work);
        else
            run_prepared(&work);
        pst_rank_record_used(r->device,
                             pst_rank_at(r->device, r->plan.layout.work) +
                                 work.list->work);
        any = true;
    }
    return any;
}

static void prepare_stages(struct pst_rank *r)
{
    bool any = false;

    r->step.last_progress = pst_probe_now(r);
    pst_timing_begin(&r->step.prepare, r->device, pst_probe_now(r));
    r->step.trace.preparing = true;
    for (unsigned s = 0; s < r->plan.role.sched->n_stages; s++)
        any = prepare_stage(r, s) || any;
    r->step.trace.preparing = false;
    r->step.is_prepared = true;
    r->step.clock = pst_timing_pause(&r->step.prepare, r->device);
    r->step.prepare.used = any;
}

/* --- instructions --------------------------------------------------------- */

/* Copies an input that the caller has in memory of the device to its slot. */
static void copy_lent(struct pst_rank *r, const struct pst_instr *instr,
                      const struct pst_lent *lent)
{
    void *const from = (void *)lent->data;
    struct pst_meta to = lent->meta;
    const struct pst_task task = {.to = instr->to,
                                  .to_meta = &to,
                                  .from = &from,
                                  .n_from = 1,
                                  .meta = &lent->meta};

    pst_meta_set_contiguous(&to);
    r->device->mem.device->run(&r->device->mem, r->device->copy, &task);
}

/* Lets the actions that read the input read it in the caller's memory, or
 * copies it from there to its slot. Returns false if the caller has not lent
 * it, so that the slot must be filled. */
static bool lend_input(struct pst_rank *r, const struct pst_action *a,
                       const struct pst_instr *instr)
{
    const struct pst_device_memory *mem = &r->device->mem;
    struct pst_lent lent = {0};
    const bool is_lent =
        r->step.lend != NULL &&
        (instr->n_cells > 0 || mem->device->guest != NULL) &&
        r->step.lend(r->step.lend_ctx, mem, instr->n_cells > 0,
                     r->plan.role.first_mb + (unsigned)a->microbatch,
                     instr->index, &lent);
    void *const at = is_lent && !lent.copied ? (void *)lent.data : instr->to;

    for (unsigned i = 0; i < instr->n_cells; i++)
        *instr->cells[i] = at;
    if (is_lent && lent.copied)
        copy_lent(r, instr, &lent);
    if (is_lent && pst_trace_wants(&r->step.trace, &r->plan.role, a))
        pst_trace_input(&r->step.trace, &r->plan.role, r->device, a,
                        instr->index, at);
    return is_lent;
}

static void fill_input(struct pst_rank *r, const struct pst_action *a,
                       const struct pst_instr *instr)
{
    struct pst_diag diag;

    if (lend_input(r, a, instr))
        return;
    pst_diag_init(&diag);
    /* The status is ignored: the end of the step reports a device failure. */
    (void)pst_device_await(&r->device->mem, &r->step.filled);
    if (r->step.fill(r->step.fill_ctx, r->step.number,
                     r->plan.role.first_mb + (unsigned)a->microbatch,
                     instr->index, pst_device_host(&r->device->mem, instr->to),
                     &diag) == PST_OK) {
        pst_device_put(&r->device->mem, instr->to, instr->bytes,
                       &r->step.filled);
        if (pst_trace_wants(&r->step.trace, &r->plan.role, a))
            pst_trace_input(&r->step.trace, &r->plan.role, r->device, a,
                            instr->index, instr->to);
        return;
    }
    record_fault(r, pst_rank_input_error(&diag), a, "input data", diag.text);
}

static void seed_loss_grad(struct pst_rank *r, const struct pst_instr *instr)
{
    const struct pst_task task = {.dtype = instr->dtype,
                                  .n = 1,
                                  .to = instr->to,
                                  .number = r->plan.role.weights[instr->index] *
                                            pst_role_loss_scale(&r->plan.role)};

    r->device->mem.device->run(&r->device->mem, r->device->seed, &task);
}

static void copy_strided(struct pst_rank *r, const struct pst_instr *instr)
{
    void *const from = (void *)instr->from;
    const struct pst_task task = {.to = instr->to,
                                  .to_meta = instr->to_meta,
                                  .from = &from,
                                  .n_from = 1,
                                  .meta = instr->from_meta};

    r->device->mem.device->run(&r->device->mem, r->device->copy, &task);
}

static enum pst_status run_event(struct pst_rank *r, const struct pst_action *a,
                                 const struct pst_residency_event *event)
{
    struct pst_replicas *with = &r->replicas;

    switch (event->task) {
    case PST_RESIDENCY_GATHER:
        return pst_replicas_begin_gather(with, event->bucket);
    case PST_RESIDENCY_SUM:
        return pst_replicas_scatter(
            with, event->bucket,
            a->microbatch == r->plan.layout.stages[a->stage].first_backward);
    case PST_RESIDENCY_VALUES:
        return pst_replicas_has_values(with, event->bucket) ? PST_OK
                                                            : PST_AGAIN;
    case PST_RESIDENCY_RELEASE:
        pst_replicas_release(with, event->bucket);
        return PST_OK;
    default:
        return pst_replicas_has_summed(with, event->bucket) ? PST_OK
                                                            : PST_AGAIN;
    }
}

static enum pst_status run_instr(struct pst_rank *r,
                                 const struct pst_rank_action *x,
                                 const struct pst_instr *instr)
{
    switch (instr->kind) {
    case PST_INSTR_FILL:
        fill_input(r, &x->a, instr);
        return PST_OK;
    case PST_INSTR_SEED:
        seed_loss_grad(r, instr);
        return PST_OK;
    case PST_INSTR_KERNELS:
        if (pst_stash_fault(&r->stash) == NULL)
            run_kernels(r, &x->a, instr->run, instr->begin, instr->end,
                        x->base);
        return PST_OK;
    case PST_INSTR_BUCKET:
        return run_event(r, &x->a, instr->event);
    default: /* COPY */
        if (instr->from_meta != NULL)
            copy_strided(r, instr);
        else
            r->device->mem.device->copy(&r->device->mem, PST_QUEUE_COMPUTE,
                                        instr->to, instr->from, instr->bytes);
        return PST_OK;
    }
}

/* The instructions of a recording. */
struct recorded_instrs {
    struct pst_rank *r;
    const struct pst_rank_action *x;
    const struct pst_instr *first;
};

static void run_recorded(void *ctx)
{
    const struct recorded_instrs *w = ctx;
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < w->first->recording->n && status == PST_OK; k++)
        status = run_instr(w->r, w->x, &w->first[k]); /* none of them waits */
}

/* False if kernels must run one by one, for example in a step that checks each
 * of them. */
static bool may_replay(struct pst_rank *r, const struct pst_action *a)
{
    return !pst_fault_is_set() && pst_stash_fault(&r->stash) == NULL &&
           !pst_trace_wants(&r->step.trace, &r->plan.role, a);
}

/* Runs the action's instructions from step.instr on. PST_AGAIN: it waits in the
 * middle of the action. */
static enum pst_status run_instrs(struct pst_rank *r,
                                  const struct pst_rank_action *x)
{
    enum pst_status status = PST_OK;

    for (; r->step.instr < x->n_instrs && status == PST_OK; r->step.instr++) {
        const struct pst_instr *instr = &x->instrs[r->step.instr];
        struct recorded_instrs work = {r, x, instr};

        if (instr->recording != NULL && may_replay(r, &x->a)) {
            pst_recording_run(instr->recording, &r->step, &r->device->mem,
                              run_recorded, &work);
            make_progress(r);
            r->step.instr += instr->recording->n - 1;
        } else {
            status = run_instr(r, x, instr);
        }
    }
    if (status != PST_OK) {
        r->step.instr--;
        return status;
    }
    r->step.instr = 0;
    r->device->high_water = PST_MAX(r->device->high_water, x->arena_end);
    return PST_OK;
}

/* --- actions -------------------------------------------------------------- */

/* True while a slot that the action is the first to write is still being sent.
 */
static bool is_leaving(const struct pst_rank_action *x)
{
    for (unsigned i = 0; i < x->n_sends; i++)
        if (*x->sends[i] > 0)
            return true;
    return false;
}

/* True if the values that the action reads have arrived, and the slots that it
 * writes are not being sent. */
static bool is_ready(const struct pst_rank_action *x)
{
    return *x->receives == 0 && !is_leaving(x);
}

/* Waits until the stash's thread has reloaded or evicted the slots that this
 * action needs. It waits for that thread only, so this cannot deadlock. A copy
 * that failed is a fault of the step. */
static void await_stash(struct pst_rank *r, const struct pst_rank_action *x)
{
    const double begin = pst_now();
    const struct pst_diag *fault;
    bool moved;

    while (pst_stash_await(&r->stash, x->copies_before, &moved) == PST_AGAIN) {
        if (moved)
            pst_signs_count_progress(&r->signs);
        if (pst_role_job_size(&r->plan.role) > 1)
            poll_messages(r);
    }
    r->step.clock = pst_now();
    r->step.times.wait_other += r->step.clock - begin;
    fault = pst_stash_fault(&r->stash);
    if (fault != NULL)
        record_fault(r, pst_rank_input_error(fault), &x->a, "stash",
                     fault->text);
}

static enum pst_status run_compute(struct pst_rank *r,
                                   struct pst_rank_action *x)
{
    struct pst_timing *timing = &r->step.timings[r->step.pc];
    const bool begins = r->step.instr == 0;
    enum pst_status status;

    if (begins && !is_ready(x))
        return PST_AGAIN;
    pst_probe_wait(r, PST_OK); /* computing does not count as waiting */
    if (begins && r->stash.layout != NULL)
        await_stash(r, x);
    if (pst_role_job_size(&r->plan.role) > 1) /* see make_progress */
        r->step.last_progress = pst_probe_now(r);
    if (begins) {
        pst_timing_begin(timing, r->device, pst_probe_now(r));
        pst_fault_point("compute");
    } else {
        pst_timing_resume(timing, pst_probe_now(r));
    }
    status = run_instrs(r, x);
    if (status == PST_OK)
        pst_stash_issue(&r->stash, x->copies_after);
    r->step.clock = pst_timing_pause(timing, r->device);
    return status;
}

static enum pst_status post_all(struct pst_rank *r, struct pst_rank_action *x)
{
    enum pst_status status = PST_OK;

    if (is_leaving(x))
        return PST_AGAIN;
    for (unsigned i = 0; i < x->n_messages && status == PST_OK; i++)
        status = pst_traffic_post(&r->traffic, &x->messages[i]);
    return status;
}

static enum pst_status run_action(struct pst_rank *r, struct pst_rank_action *x)
{
    switch (x->a.kind) {
    case PST_ACT_F:
    case PST_ACT_B:
    case PST_ACT_I:
    case PST_ACT_W:
        return run_compute(r, x);
    case PST_ACT_SEND_F:
    case PST_ACT_RECV_F:
    case PST_ACT_SEND_B:
    case PST_ACT_RECV_B:
        return post_all(r, x);
    case PST_ACT_COPY_F:
    case PST_ACT_COPY_B:
        if (is_leaving(x))
            return PST_AGAIN;
        return run_instrs(r, x);
    case PST_ACT_REDUCE:
        if (x->a.param < 0)
            return pst_replicas_sum(&r->replicas, x->a.stage);
        return r->replicas.n_busy > 0
                   ? PST_AGAIN
                   : pst_reduce(&r->reductions, x->reduction);
    /* nothing to do: instructions of compute actions gather and release the
     * values */
    case PST_ACT_UNSHARD:
    case PST_ACT_RESHARD:
        return PST_OK;
    default:
        return pst_diag_set(r->traffic.diag, PST_E_INTERNAL_BUG,
                            "rank %u: unknown action %d",
                            pst_role_number(&r->plan.role), (int)x->a.kind);
    }
}

void pst_rank_note_fault(struct pst_rank *r, enum pst_error error,
                         const char *text)
{
    r->step.error = error;
    snprintf(r->step.fault_text, sizeof(r->step.fault_text), "%s", text);
}

void pst_rank_begin(struct pst_rank *r, uint64_t step, pst_fill_fn fill,
                    void *fill_ctx, unsigned control,
                    const struct pst_trace_order *trace)
{
    r->step.phase = PST_RANK_RUN;
    r->step.pc = r->step.instr = 0;
    r->step.number = step;
    r->step.fill = fill;
    r->step.fill_ctx = fill_ctx;
    r->step.lend = NULL;
    r->step.control = control;
    r->step.holds = r->step.reports_again = false;
    r->step.error = PST_E_NONE;
    r->step.fault_microbatch = -1;
    r->step.fault_text[0] = '\0';
    r->step.times = (struct pst_times){.optim = r->step.times.optim};
    pst_stash_begin(&r->stash, step);
    r->step.started = pst_now();
    r->step.clock = 0;
    r->step.waiting_since = 0;
    r->step.progressed = PST_OK;
    pst_ring_begin(&r->step.ring, step, r->step.started);
    pst_readback_begin(&r->plan.layout, r->device);
    pst_update_save(&r->plan.layout, r->device);
    pst_trace_begin(&r->step.trace, trace);
    pst_trace_params(&r->step.trace, &r->plan.role, &r->plan.layout, r->device);
}

void pst_rank_lend(struct pst_rank *r, pst_lend_fn lend, void *ctx)
{
    r->step.lend = lend;
    r->step.lend_ctx = ctx;
}

void pst_rank_hold(struct pst_rank *r)
{
    r->step.holds = true;
}

void pst_rank_resume(struct pst_rank *r, bool new_grads)
{
    r->step.holds = false;
    r->step.reports_again = new_grads;
    r->step.phase = new_grads ? PST_RANK_REPORT : PST_RANK_APPLY;
    r->step.waiting_since = 0;
}

/* Runs or continues the next action. */
static enum pst_status run_next(struct pst_rank *r)
{
    struct pst_rank_action *x = &r->plan.actions.at[r->step.pc];
    enum pst_status status;

    pst_probe_begin_action(r, x);
    status = run_action(r, x);
    pst_probe_end_action(r, x, status);
    r->step.pc += status == PST_OK;
    return status;
}

static enum pst_status advance_rank(struct pst_rank *r)
{
    enum pst_status status;

    if (r->step.phase != PST_RANK_RUN) {
        pst_probe_begin_phase(r);
        status = pst_rank_advance_end(r);
        pst_probe_end_phase(r, status);
        return status;
    }
    if (!r->step.is_prepared)
        prepare_stages(r);
    if (r->step.pc < r->plan.actions.n)
        return run_next(r);
    pst_alive_action(0, -1, -1);
    r->step.phase = PST_RANK_DRAIN;
    return PST_OK;
}

enum pst_status pst_rank_advance(struct pst_rank *r)
{
    enum pst_status status = r->step.progressed;

    if (status == PST_OK)
        status = pst_traffic_poll(&r->traffic);
    while (status == PST_OK && r->step.phase != PST_RANK_DONE) {
        status = advance_rank(r);
        pst_probe_wait(r, status);
        if (status == PST_AGAIN) {
            /* Polls once more: the message may have arrived meanwhile. */
            unsigned before = r->traffic.n_active;
            enum pst_status polled = pst_traffic_poll(&r->traffic);

            if (polled != PST_OK)
                return polled;
            if (r->traffic.n_active < before)
                status = PST_OK;
        }
    }
    return status;
}
