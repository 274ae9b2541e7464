// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a step: every rank reports to rank 0 (faults, losses, squares of
 * its gradients), rank 0 decides and tells all. A step is applied by all ranks
 * or by none, and commands take effect at the same step.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/run/rank/rank.h"

static struct pst_report *report_of(const struct pst_rank *r, unsigned rank)
{
    return (struct pst_report *)((unsigned char *)r->report +
                                 rank * r->report_size);
}

/* Each parameter counts once: on the rank of its first stage, replica 0. */
static void count_squares(struct pst_rank *r)
{
    const struct pst_exec_options *o = &r->role.options;

    if (!o->train || (o->optim.clip_norm <= 0 && !o->grad_norm))
        return;
    for (size_t i = 0; i < r->layout.params.n; i++) {
        struct pst_rank_param *p = &r->layout.params.at[i];
        const struct pst_plan_param *param = &r->role.plan->params.at[p->index];

        p->counted =
            p->trained && param->meta.dtype == PST_F32 &&
            r->role.replica == 0 &&
            r->role.sched->rank_of[param->stages[0]] == (int)r->role.rank;
    }
    for (size_t i = 0;
         pst_role_number(&r->role) == 0 && i < r->role.plan->params.n; i++) {
        const struct pst_plan_param *p = &r->role.plan->params.at[i];

        if (p->n_stages > 0)
            r->squares[r->n_squares++] =
                &report_of(r, (unsigned)r->role.sched->rank_of[p->stages[0]])
                     ->values[o->microbatches + i];
    }
}

enum pst_status pst_agree_init(struct pst_rank *r, struct pst_diag *diag)
{
    const unsigned n =
        pst_role_number(&r->role) == 0 ? pst_role_job_size(&r->role) : 1;

    r->report_size = sizeof(struct pst_report) +
                     (r->role.options.microbatches + r->role.plan->params.n) *
                         sizeof(double);
    r->decision_size = sizeof(struct pst_decision) +
                       r->role.options.microbatches * sizeof(double);
    r->report = pst_arena_calloc(&r->heap, n, r->report_size);
    r->decision = pst_arena_calloc(&r->heap, 1, r->decision_size);
    r->control_messages =
        pst_arena_calloc(&r->heap, 2 * (size_t)pst_role_job_size(&r->role),
                         sizeof(struct pst_message));
    r->squares = pst_arena_calloc(&r->heap, r->role.plan->params.n + 1,
                                  sizeof(*r->squares));
    if (r->report == NULL || r->decision == NULL ||
        r->control_messages == NULL || r->squares == NULL)
        return pst_diag_nomem(diag, r->report_size * n);
    count_squares(r);
    return PST_OK;
}

/* The kernel leaves it where the arena has no value (layout.c). */
static double sum_of_squares(struct pst_rank *r, const struct pst_rank_param *p)
{
    void *const from = pst_rank_at(r, p->grad);
    const struct pst_task task = {.dtype = PST_F32,
                                  .n = (int64_t)(p->bytes / sizeof(float)),
                                  .to = pst_rank_at(r, 0),
                                  .from = &from,
                                  .n_from = 1,
                                  .pool = r->pool,
                                  .isa = pst_cpu_isa()};

    r->mem.device->run(&r->mem, r->tasks.sumsq, &task);
    return *(const double *)pst_device_pull(&r->mem, task.to, sizeof(double));
}

static void write_report(struct pst_rank *r)
{
    struct pst_report *report = r->report;
    double *squares = report->values + r->role.options.microbatches;

    report->fault = r->fault.set;
    report->control = r->control;
    memcpy(report->text, r->fault_text, sizeof(report->text));
    for (size_t i = 0; i < r->layout.params.n; i++) {
        const struct pst_rank_param *p = &r->layout.params.at[i];

        if (p->counted)
            squares[p->index] = sum_of_squares(r, p);
    }
    report->first = r->role.first_mb;
    report->n = r->role.sched->n_microbatches;
    r->times.step = pst_now() - r->started;
    report->times = r->times;
}

static enum pst_status post(struct pst_rank *r, unsigned slot, bool send,
                            unsigned peer, int tag, void *data, size_t len)
{
    struct pst_message *m = &r->control_messages[slot];

    *m = (struct pst_message){.data = data,
                              .len = len,
                              .space = PST_SPACE_HOST,
                              .tag = tag,
                              .peer = peer,
                              .send = send,
                              .counter = &r->control_waiting};
    return pst_rank_post(r, m);
}

static enum pst_status post_reports(struct pst_rank *r)
{
    enum pst_status status = PST_OK;

    if (pst_role_number(&r->role) != 0) {
        status = post(r, 0, true, 0, PST_MSG_REPORT, r->report, r->report_size);
        if (status == PST_OK)
            status = post(r, 1, false, 0, PST_MSG_DECISION, r->decision,
                          r->decision_size);
        return status;
    }
    for (unsigned k = 1; k < pst_role_job_size(&r->role) && status == PST_OK;
         k++)
        status = post(r, k, false, k, PST_MSG_REPORT, report_of(r, k),
                      r->report_size);
    return status;
}

static double total_norm(const struct pst_rank *r)
{
    double sum = 0;

    if (!r->role.options.train ||
        (r->role.options.optim.clip_norm <= 0 && !r->role.options.grad_norm))
        return NAN;
    for (unsigned i = 0; i < r->n_squares; i++)
        sum += *r->squares[i];
    return sqrt(sum);
}

/* Every microbatch's loss comes from its replica; adds them in order. */
static double mean_loss(struct pst_rank *r)
{
    const int stage = r->role.plan->outputs.at[r->role.plan->loss].stage;
    double sum = 0;

    for (unsigned k = 0; k < r->role.options.replicas; k++) {
        const struct pst_report *report =
            report_of(r, k * r->role.options.ranks +
                             (unsigned)r->role.sched->rank_of[stage]);

        for (unsigned m = report->first; m < report->first + report->n; m++) {
            r->decision->losses[m] = report->values[m];
            if (r->role.weights[m] > 0) /* else its mean may be of nothing */
                sum += report->values[m] * r->role.weights[m];
        }
    }
    return sum;
}

/* "is not a number" */
static const char *not_finite(double x)
{
    return isnan(x) ? "is not a number" : "is infinite";
}

/* A step that would make parameters worthless, as far as it is known: losses
 * always are, the norm of gradients where they are clipped. */
static void refuse_not_finite(const struct pst_rank *r, struct pst_decision *v)
{
    const int stage = r->role.plan->outputs.at[r->role.plan->loss].stage;

    for (unsigned m = 0; m < r->role.options.microbatches && stage >= 0; m++) {
        if (isfinite(v->losses[m]) || !(r->role.weights[m] > 0))
            continue;
        v->fault = v->diverged = 1;
        snprintf(v->text, sizeof(v->text),
                 "rank %d, stage %d, microbatch %u: the loss %s",
                 r->role.sched->rank_of[stage], stage, m,
                 not_finite(v->losses[m]));
        return;
    }
    if (r->role.options.optim.clip_norm > 0 && !isfinite(v->norm)) {
        v->fault = v->diverged = 1;
        snprintf(v->text, sizeof(v->text),
                 "the norm by which gradients are clipped %s",
                 not_finite(v->norm));
    }
}

static void decide(struct pst_rank *r)
{
    struct pst_decision *v = r->decision;
    double busy = 0;

    v->fault = v->diverged = 0;
    v->control = 0;
    v->loss = NAN;
    for (unsigned k = 0; k < pst_role_job_size(&r->role); k++) {
        const struct pst_report *report = report_of(r, k);

        v->control |= report->control;
        if (report->fault && !v->fault) {
            v->fault = 1;
            memcpy(v->text, report->text, sizeof(v->text));
        }
        if (report->times.step > 0)
            busy += (report->times.forward + report->times.backward) /
                    report->times.step / pst_role_job_size(&r->role);
    }
    v->busy = busy;
    v->norm = total_norm(r);
    if (r->role.plan->loss >= 0 &&
        r->role.plan->outputs.at[r->role.plan->loss].stage >= 0)
        v->loss = mean_loss(r);
    if (!v->fault && pst_role_optim(&r->role) != NULL)
        refuse_not_finite(r, v);
}

enum pst_status pst_rank_agree(struct pst_rank *r)
{
    enum pst_status status = PST_OK;

    switch (r->phase) {
    case PST_RANK_REPORT:
        write_report(r);
        status = post_reports(r);
        r->phase = pst_role_number(&r->role) == 0 ? PST_RANK_COLLECT
                                                  : PST_RANK_DECISION;
        return status;
    case PST_RANK_COLLECT:
        if (r->control_waiting > 0)
            return PST_AGAIN;
        decide(r);
        for (unsigned k = 1;
             k < pst_role_job_size(&r->role) && status == PST_OK; k++)
            status = post(r, k, true, k, PST_MSG_DECISION, r->decision,
                          r->decision_size);
        r->phase = PST_RANK_DECISION;
        return status;
    case PST_RANK_DECISION:
        if (r->control_waiting > 0)
            return PST_AGAIN;
        r->phase = PST_RANK_APPLY;
        return PST_OK;
    default:
        return pst_diag_set(r->diag, PST_ERR_INTERNAL,
                            "rank %u agrees in phase %d",
                            pst_role_number(&r->role), (int)r->phase);
    }
}
