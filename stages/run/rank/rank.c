// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/rank.h"

#include "stages/compile/hosted.h"
#include "stages/ops/devices.h"
#include "stages/run/rank/bind.h"
#include "stages/run/rank/recordings.h"
#include "stages/run/rank/whole.h"

/* --- life ----------------------------------------------------------------- */

/* Refuses (--no-fallback) a plan with kernels that this rank's device leaves to
 * the host. Each rank checks its own device. */
static enum pst_status refuse_hosted(const struct pst_rank_plan *plan,
                                     struct pst_diag *diag)
{
    struct pst_hosted_list list = {0};
    struct pst_str text = {0};
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < plan->role.sched->n_stages; s++) {
        const struct pst_rank_stage *stage = &plan->layout.stages[s];

        if (status == PST_OK && stage->program != NULL)
            status = pst_hosted_add(&list, stage->program, diag);
    }
    pst_hosted_print(&list, &text);
    if (status == PST_OK && list.all.n > 0)
        status =
            pst_diag_set(diag, PST_E_DEVICE_FALLBACK,
                         "rank %u: the device %s has no kernel for %s",
                         pst_role_number(&plan->role),
                         plan->role.options.device->name, pst_str_text(&text));
    pst_str_fini(&text);
    pst_hosted_fini(&list);
    return status;
}

/* Refuses --tf32 where this rank's matmuls cannot be in TF32. */
static enum pst_status check_tf32(const struct pst_rank_role *role,
                                  struct pst_diag *diag)
{
    const struct pst_device *device = role->options.device;
    const unsigned rank = pst_role_number(role);
    enum pst_status status;

    if (!role->options.tf32)
        return PST_OK;
    status = pst_device_refuse_tf32(device, rank, diag);
    if (status != PST_OK)
        return status;
    status = device->check_tf32(diag);
    if (status != PST_OK)
        pst_diag_prefix(diag, "rank %u", rank);
    return status;
}

enum pst_status pst_rank_new(const struct pst_rank_role *role,
                             struct pst_programs *lent, struct pst_rank **ret,
                             struct pst_diag *diag)
{
    struct pst_rank *r = pst_calloc(PST_TAG_EXEC, 1, sizeof(*r));
    enum pst_status status;

    if (r == NULL)
        return pst_diag_nomem(diag, sizeof(*r));
    status = check_tf32(role, diag);
    if (status == PST_OK)
        status = pst_rank_plan_init(&r->plan, role, lent, diag);
    if (status == PST_OK && role->options.no_fallback)
        status = refuse_hosted(&r->plan, diag);
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
    pst_stash_close(&r->stash);
    if (r->device != NULL)
        pst_recordings_free(&r->plan.actions, r->plan.role.sched->n_stages,
                            &r->step, &r->device->mem);
    pst_rank_plan_fini(&r->plan);
    pst_free(r);
}

/* --- start ---------------------------------------------------------------- */

/* Sets the pointers between the components of the rank. */
static void connect_parts(struct pst_rank *r, struct pst_transport *transport)
{
    const unsigned spaces = transport->ops->spaces;

    r->traffic = (struct pst_traffic){
        .transport = transport,
        .mem = &r->device->mem,
        .signs = &r->signs,
        .rank = pst_role_number(&r->plan.role),
        .staged = (r->plan.role.options.device->space & spaces) == 0};
    r->reductions = (struct pst_reductions){
        .role = &r->plan.role, .device = r->device, .traffic = &r->traffic};
    r->replicas = (struct pst_replicas){
        .role = &r->plan.role, .device = r->device, .traffic = &r->traffic};
    r->agreement = (struct pst_agreement){.role = &r->plan.role,
                                          .layout = &r->plan.layout,
                                          .traffic = &r->traffic};
}

/* Initializes the components that change in a step, and messages that belong to
 * no action. */
static enum pst_status start_parts(struct pst_rank *r, struct pst_diag *diag)
{
    enum pst_status status = pst_counters_init(
        &r->counters, &r->plan.role, &r->plan.layout, &r->plan.heap, diag);

    if (status == PST_OK)
        status =
            pst_transmission_init(&r->values, &r->plan.role, &r->plan.layout,
                                  r->device, &r->plan.heap, diag);
    if (status == PST_OK)
        status = pst_reductions_init(&r->reductions, &r->plan.layout,
                                     &r->plan.actions, &r->plan.heap, diag);
    if (status == PST_OK)
        status = pst_replicas_init(&r->replicas, &r->plan.layout, &r->plan.heap,
                                   diag);
    if (status == PST_OK)
        status = pst_agree_init(&r->agreement, &r->plan.heap, diag);
    if (status == PST_OK)
        status = pst_ring_init(&r->step.ring, &r->plan.heap, r->plan.actions.n,
                               diag);
    if (status != PST_OK)
        return status;
    r->step.timings = pst_arena_calloc(&r->plan.heap, r->plan.actions.n + 1,
                                       sizeof(*r->step.timings));
    return r->step.timings != NULL
               ? PST_OK
               : pst_diag_nomem(diag,
                                r->plan.actions.n * sizeof(*r->step.timings));
}

/* Prepares the recording of updates. */
static enum pst_status start_updates(struct pst_rank *r, struct pst_diag *diag)
{
    bool records;

    if (!pst_update_init(&r->step.slots, &r->plan.role, &r->plan.layout,
                         &r->plan.heap, &records))
        return pst_diag_nomem(diag, r->plan.layout.params.n *
                                        sizeof(*r->step.slots.of));
    r->step.update.n = records;
    return PST_OK;
}

static enum pst_status bind_actions(struct pst_rank *r, struct pst_diag *diag)
{
    const struct pst_binding b = {.role = &r->plan.role,
                                  .layout = &r->plan.layout,
                                  .actions = &r->plan.actions,
                                  .channels = &r->plan.channels,
                                  .device = r->device,
                                  .counters = &r->counters,
                                  .reductions = &r->reductions,
                                  .heap = &r->plan.heap,
                                  .diag = diag};
    unsigned n = 0;
    enum pst_status status = pst_bind_messages(&b, &n);

    if (status == PST_OK)
        status = pst_bind_instrs(&b);
    if (status != PST_OK)
        return status;
    n += r->reductions.n_messages + r->replicas.n_messages + r->values.n +
         r->agreement.n_messages;
    return pst_traffic_init(&r->traffic, n, &r->plan.heap, diag);
}

/* Allocates an array of operands that is large enough for every node of this
 * rank. */
static enum pst_status make_operands(struct pst_rank *r, struct pst_diag *diag)
{
    unsigned most = 0;

    for (unsigned s = 0; s < r->plan.role.sched->n_stages; s++) {
        const struct pst_program *programs[] = {
            r->plan.layout.stages[s].program, r->plan.layout.stages[s].tail};

        for (size_t i = 0; i < PST_COUNT(programs); i++)
            for (int l = 0; programs[i] != NULL && l < PST_N_LISTS; l++)
                for (unsigned k = 0; k < programs[i]->lists[l].n; k++)
                    most = PST_MAX(most,
                                   programs[i]->lists[l].at[k].call.n_in +
                                       programs[i]->lists[l].at[k].call.n_out);
    }
    r->step.operands =
        pst_arena_calloc(&r->plan.heap, most + 1, sizeof(*r->step.operands));
    return r->step.operands != NULL
               ? PST_OK
               : pst_diag_nomem(diag, most * sizeof(*r->step.operands));
}

enum pst_status pst_rank_start(struct pst_rank *r,
                               struct pst_transport *transport,
                               struct pst_rank_device *device,
                               struct pst_diag *diag)
{
    enum pst_status status;

    r->device = device;
    connect_parts(r, transport);
    status = make_operands(r, diag);
    if (status == PST_OK &&
        !pst_recordings_init(&r->step, &r->plan.layout,
                             r->plan.role.sched->n_stages,
                             device->mem.device->recorder != NULL &&
                                 !r->plan.role.options.no_graphs,
                             &r->plan.heap))
        status = pst_diag_nomem(diag, sizeof(struct pst_recording));
    if (status == PST_OK)
        status = start_updates(r, diag);
    if (status == PST_OK)
        status = start_parts(r, diag);
    if (status == PST_OK)
        status = pst_stash_open(&r->stash, &r->plan.role, &r->plan.layout,
                                r->device, &r->plan.heap, diag);
    return status == PST_OK ? bind_actions(r, diag) : status;
}

void pst_rank_continue_from(struct pst_rank *r, struct pst_rank *from)
{
    pst_rank_await(from);
    r->step.updated = from->step.updated;
    from->step.updated = 0;
    r->step.is_prepared = false;
    pst_stash_empty(&from->stash);
}

void pst_rank_set_peers(struct pst_rank *r,
                        const struct pst_device_memory *const *peers)
{
    r->traffic.peers = peers;
}

bool pst_rank_polls(const struct pst_rank *r)
{
    return pst_traffic_polls(&r->traffic);
}

/* --- accessors ------------------------------------------------------------ */

void pst_rank_set_diag(struct pst_rank *r, struct pst_diag *diag)
{
    r->traffic.diag = diag;
}

bool pst_rank_is_done(const struct pst_rank *r)
{
    return r->step.phase == PST_RANK_DONE;
}

uint64_t pst_rank_moves(const struct pst_rank *r)
{
    return atomic_load_explicit(&r->signs.work_done, memory_order_relaxed);
}

const struct pst_decision *pst_rank_decision(const struct pst_rank *r)
{
    return r->agreement.decision;
}

const char *pst_rank_decision_text(const struct pst_rank *r)
{
    return r->agreement.text;
}

const char *pst_rank_decision_stayed(struct pst_rank *r)
{
    return pst_agree_describe_stayed(&r->agreement);
}

struct pst_times pst_rank_times(const struct pst_rank *r)
{
    struct pst_times ret = r->step.times;

    ret.step = pst_now() - r->step.started;
    return ret;
}

struct pst_stayed pst_rank_take_stayed(struct pst_rank *r)
{
    const uint64_t step = r->step.updated;

    r->step.updated = 0;
    if (step == 0)
        return (struct pst_stayed){0};
    return pst_stayed_make(
        pst_readback_to_host(&r->plan.layout, r->device).stayed, step);
}

struct pst_times pst_rank_reported(const struct pst_rank *r, unsigned rank,
                                   unsigned *ret_microbatches)
{
    const struct pst_report *report = pst_agree_reported(&r->agreement, rank);

    *ret_microbatches = report->n;
    return report->times;
}

const struct pst_rank_role *pst_rank_role(const struct pst_rank *r)
{
    return &r->plan.role;
}

void pst_rank_retune(struct pst_rank *r, const struct pst_exec_options *options)
{
    struct pst_exec_options *o = &r->plan.role.options;

    o->optim = options->optim;
    o->groups = options->groups;
    o->no_decay = options->no_decay;
}

const struct pst_layout *pst_rank_layout(const struct pst_rank *r)
{
    return &r->plan.layout;
}

const struct pst_memory *pst_rank_memory(const struct pst_rank *r)
{
    return &r->plan.layout.memory;
}

struct pst_stash_totals pst_rank_stash(const struct pst_rank *r)
{
    return r->stash.totals;
}

struct pst_recorded pst_rank_recorded(const struct pst_rank *r)
{
    struct pst_recorded ret;

    pst_recordings_count(&r->plan.actions, r->plan.role.sched->n_stages,
                         &r->step, &ret);
    return ret;
}

const struct pst_actions *pst_rank_actions(const struct pst_rank *r)
{
    return &r->plan.actions;
}

const struct pst_ring *pst_rank_step_times(const struct pst_rank *r)
{
    return &r->step.ring;
}

struct pst_rank_device *pst_rank_device(struct pst_rank *r)
{
    return r->device;
}

void pst_rank_params_changed(struct pst_rank *r)
{
    r->step.is_prepared = false;
    r->step.updated = 0; /* the report of that update no longer applies */
}
