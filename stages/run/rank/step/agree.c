// SPDX-License-Identifier: Apache-2.0
#include "stages/run/rank/step/agree.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/layout/layout.h"

static struct pst_report *report_of(const struct pst_agreement *a,
                                    unsigned rank)
{
    return (struct pst_report *)((unsigned char *)a->report +
                                 rank * a->report_size);
}

const struct pst_report *pst_agree_reported(const struct pst_agreement *a,
                                            unsigned rank)
{
    return report_of(a, rank);
}

/* Finds where the reports have the sum of squares of each parameter's gradient:
 * in the report of the rank of its first stage in replica 0, which counts it
 * (layout.h). A sharded parameter has one sum in the report of that rank of
 * each replica. */
static void find_squares(struct pst_agreement *a)
{
    const struct pst_rank_role *role = a->role;

    if (!pst_role_wants_norm(role) || pst_role_number(role) != 0)
        return;
    for (unsigned i = 0; i < role->plan->params.n; i++) {
        const struct pst_plan_param *p = &role->plan->params.at[i];
        const unsigned n =
            pst_role_shares(role, i) ? role->options.replicas : 1;

        for (unsigned k = 0; p->n_stages > 0 && k < n; k++) {
            const unsigned rank = k * role->options.ranks +
                                  (unsigned)role->sched->rank_of[p->stages[0]];

            a->squares[a->n_squares++] = (struct pst_squares){
                .param = i,
                .rank = rank,
                .at = &report_of(a, rank)
                           ->values[role->options.microbatches + i]};
        }
    }
}

enum pst_status pst_agree_init(struct pst_agreement *a, struct pst_arena *heap,
                               struct pst_diag *diag)
{
    const unsigned n =
        pst_role_number(a->role) == 0 ? pst_role_job_size(a->role) : 1;

    a->report_size = sizeof(struct pst_report) +
                     (a->role->options.microbatches + a->role->plan->params.n) *
                         sizeof(double);
    a->decision_size = sizeof(struct pst_decision) +
                       a->role->options.microbatches * sizeof(double);
    a->report = pst_arena_calloc(heap, n, a->report_size);
    a->report_text = pst_arena_calloc(heap, n, sizeof(*a->report_text));
    a->decision = pst_arena_calloc(heap, 1, a->decision_size);
    a->n_messages = 2 * pst_role_job_size(a->role);
    a->messages = pst_arena_calloc(heap, a->n_messages, sizeof(*a->messages));
    a->squares = pst_arena_calloc(
        heap, a->role->plan->params.n * a->role->options.replicas + 1,
        sizeof(*a->squares));
    if (a->report == NULL || a->report_text == NULL || a->decision == NULL ||
        a->messages == NULL || a->squares == NULL)
        return pst_diag_nomem(diag, a->report_size * n);
    find_squares(a);
    return PST_OK;
}

/* True if a second message (struct pst_report_text) follows the report. */
static bool has_text(const struct pst_report *report)
{
    return report->fault != PST_E_NONE || report->traced;
}

static void write_losses(struct pst_agreement *a, const unsigned char *losses)
{
    const struct pst_plan *plan = a->role->plan;
    const struct pst_plan_output *loss =
        plan->loss >= 0 ? &plan->outputs.at[plan->loss] : NULL;

    if (loss == NULL || loss->stage < 0 ||
        a->layout->stages[loss->stage].program == NULL)
        return;
    for (unsigned m = 0; m < a->report->n; m++)
        a->report->values[a->report->first + m] = pst_load_f64(
            loss->meta.dtype, losses + (size_t)m * PST_READBACK_LOSS, 0);
}

static void write_report(struct pst_agreement *a, const struct pst_outcome *o)
{
    struct pst_report *report = a->report;
    double *squares = report->values + a->role->options.microbatches;

    report->fault = (int32_t)o->fault;
    report->control = o->control;
    report->microbatch = o->microbatch;
    report->traced = o->trace->on;
    report->holds = o->holds;
    if (has_text(report)) {
        struct pst_report_text *text = a->report_text;

        text->nan = o->trace->nan;
        text->inf = o->trace->inf;
        (void)snprintf(text->fault, sizeof(text->fault), "%s", o->text);
    }
    for (size_t i = 0; i < a->layout->params.n; i++) {
        const struct pst_rank_param *p = &a->layout->params.at[i];

        if (p->counted)
            squares[p->index] = o->readback.squares[i];
    }
    report->first = a->role->first_mb;
    report->n = a->role->sched->n_microbatches;
    write_losses(a, o->readback.losses);
    report->times = *o->times;
    report->stayed = o->stayed;
    report->times.step = pst_now() - o->started;
}

static enum pst_status post_message(struct pst_agreement *a, unsigned slot,
                                    bool send, unsigned peer, int tag,
                                    void *data, size_t len)
{
    struct pst_message *m = &a->messages[slot];

    *m = (struct pst_message){.data = data,
                              .len = len,
                              .space = PST_SPACE_HOST,
                              .tag = tag,
                              .peer = peer,
                              .send = send,
                              .counter = &a->waiting};
    return pst_traffic_post(a->traffic, m);
}

enum pst_status pst_agree_report(struct pst_agreement *a,
                                 const struct pst_outcome *o)
{
    enum pst_status status = PST_OK;

    write_report(a, o);
    a->text_asked = false;
    a->text[0] = '\0';
    if (pst_role_number(a->role) != 0) {
        status = post_message(a, 0, true, 0, PST_MSG_REPORT, a->report,
                              a->report_size);
        if (status == PST_OK && has_text(a->report))
            status = post_message(a, 1, true, 0, PST_MSG_REPORT, a->report_text,
                                  sizeof(*a->report_text));
        if (status == PST_OK)
            status = post_message(a, 2, false, 0, PST_MSG_DECISION, a->decision,
                                  a->decision_size);
        return status;
    }
    for (unsigned k = 1; k < pst_role_job_size(a->role) && status == PST_OK;
         k++)
        status = post_message(a, k, false, k, PST_MSG_REPORT, report_of(a, k),
                              a->report_size);
    return status;
}

/* Sets the norm of all gradients, and the norms by which they are clipped. */
static void find_norms(const struct pst_agreement *a)
{
    struct pst_decision *v = a->decision;
    const double scale = pst_role_loss_scale(a->role);
    double all = 0, sums[PST_CLIPS] = {0};

    v->norm = NAN;
    if (!pst_role_wants_norm(a->role))
        return;
    for (unsigned i = 0; i < a->n_squares; i++) {
        const struct pst_squares *x = &a->squares[i];
        const struct pst_optim_options *o =
            pst_role_optim(a->role) != NULL ? pst_role_update(a->role, x->param)
                                            : &a->role->options.optim;

        all += *x->at;
        sums[o->clip_rule] += *x->at;
    }
    v->norm = sqrt(all) / scale;
    for (unsigned k = 0; k < PST_CLIPS; k++)
        v->norms[k] = sqrt(sums[k]) / scale;
}

/* Returns the loss of the step: copies the microbatches' losses from the
 * reports of their replicas, and adds them in order of microbatches. */
static double mean_loss(struct pst_agreement *a)
{
    const int stage = a->role->plan->outputs.at[a->role->plan->loss].stage;
    bool any = false;
    double sum = 0;

    for (unsigned k = 0; k < a->role->options.replicas; k++) {
        const struct pst_report *report =
            report_of(a, k * a->role->options.ranks +
                             (unsigned)a->role->sched->rank_of[stage]);

        for (unsigned m = report->first; m < report->first + report->n; m++) {
            a->decision->losses[m] = report->values[m];
            /* nothing counts: the loss may be NaN */
            if (!(a->role->weights[m] > 0))
                continue;
            sum += report->values[m] * a->role->weights[m];
            any = true;
        }
    }
    return any ? sum : NAN;
}

static const char *not_finite(double x)
{
    return isnan(x) ? "is not a number" : "is infinite";
}

/* Reports the first parameter whose gradient is not finite. */
static void blame_gradient(struct pst_agreement *a)
{
    for (unsigned k = 0; k < a->n_squares; k++) {
        const struct pst_squares *x = &a->squares[k];
        const struct pst_plan_param *p = &a->role->plan->params.at[x->param];

        if (isfinite(*x->at))
            continue;
        snprintf(a->text, sizeof(a->text),
                 "rank %u, stage %u: the gradient of '%.300s' %s", x->rank,
                 p->stages[0], p->fqn, not_finite(*x->at));
        return;
    }
    snprintf(a->text, sizeof(a->text), "the norm of all gradients %s",
             not_finite(a->decision->norm));
}

/* True if all microbatches of the step have the weight 0. */
static bool has_no_weight(const struct pst_agreement *a)
{
    for (unsigned m = 0; m < a->role->options.microbatches; m++)
        if (a->role->weights[m] > 0)
            return false;
    return true;
}

/* Returns the rank of the job that computed the loss of a microbatch. */
static unsigned find_loss_rank(struct pst_agreement *a, int stage, unsigned m)
{
    const unsigned first = (unsigned)a->role->sched->rank_of[stage];
    const unsigned ranks = a->role->options.ranks;

    for (unsigned k = 0; k < a->role->options.replicas; k++) {
        const struct pst_report *report = report_of(a, k * ranks + first);

        if (m >= report->first && m - report->first < report->n)
            return k * ranks + first;
    }
    return first;
}

/* Refuses a step that would corrupt parameters: checks all losses, and the norm
 * of the gradients if they are clipped or checked. */
static void refuse_not_finite(struct pst_agreement *a)
{
    struct pst_decision *v = a->decision;
    const int stage = a->role->plan->outputs.at[a->role->plan->loss].stage;

    if (has_no_weight(a)) {
        v->fault = (int32_t)PST_E_RUN_NOT_FINITE;
        v->diverged = v->no_targets = 1;
        snprintf(a->text, sizeof(a->text),
                 "every target of the step is ignored, so that its loss is the "
                 "mean of nothing");
        return;
    }
    for (unsigned m = 0; m < a->role->options.microbatches && stage >= 0; m++) {
        if (isfinite(v->losses[m]) || !(a->role->weights[m] > 0))
            continue;
        v->fault = (int32_t)PST_E_RUN_NOT_FINITE;
        v->diverged = 1;
        v->microbatch = (int32_t)m;
        snprintf(a->text, sizeof(a->text),
                 "rank %u, stage %d, microbatch %u: the loss %s",
                 find_loss_rank(a, stage, m), stage, m,
                 not_finite(v->losses[m]));
        return;
    }
    if (pst_role_checks_norm(a->role) && !isfinite(v->norm)) {
        v->fault = (int32_t)PST_E_RUN_NOT_FINITE;
        v->diverged = v->backward = 1;
        v->overflow = a->role->scaler != NULL &&
                      pst_loss_scaler_can_halve(&a->role->options.loss_scale,
                                                a->role->scaler);
        blame_gradient(a);
    }
}

/* Refuses a step whose loss or norm is above the limit. */
static void refuse_spike(struct pst_agreement *a)
{
    struct pst_decision *v = a->decision;
    const double *limits = a->role->limits;
    const bool loss = limits != NULL && v->loss > limits[0];

    if (limits == NULL || (!loss && !(v->norm > limits[1])))
        return;
    v->fault = (int32_t)PST_E_RUN_SPIKE;
    v->spiked = 1;
    if (loss)
        snprintf(a->text, sizeof(a->text),
                 "the loss %.6g is above %.6g, far above the losses before",
                 v->loss, limits[0]);
    else
        snprintf(a->text, sizeof(a->text),
                 "the norm of all gradients %.6g is above %.6g, far above the "
                 "norms before",
                 v->norm, limits[1]);
}

/* Finds the origin over all ranks: the first infinity, if that comes before the
 * first NaN, else the first NaN. */
static void find_origin(struct pst_agreement *a)
{
    struct pst_decision *v = a->decision;
    const struct pst_origin *nan = &a->report_text[0].nan;
    const struct pst_origin *inf = &a->report_text[0].inf;
    const struct pst_origin *first;

    for (unsigned k = 1; k < pst_role_job_size(a->role); k++) {
        const struct pst_report_text *text = &a->report_text[k];

        nan = text->nan.order < nan->order ? &text->nan : nan;
        inf = text->inf.order < inf->order ? &text->inf : inf;
    }
    first = inf->order < nan->order ? inf : nan;
    v->fault = (int32_t)PST_E_RUN_NOT_FINITE;
    a->text[0] = '\0';
    if (first->order == PST_ORIGIN_NONE)
        return;
    v->microbatch = first->microbatch;
    snprintf(a->text, sizeof(a->text), "%s%s%s", first->text,
             first == inf && nan->order != PST_ORIGIN_NONE ? "; the first NaN: "
                                                           : "",
             first == inf && nan->order != PST_ORIGIN_NONE ? nan->text : "");
}

/* Refuses a step that only some ranks would end with an update, because callers
 * of the library have called different functions. */
static void refuse_halves(struct pst_agreement *a)
{
    const bool holds = report_of(a, 0)->holds;

    for (unsigned k = 1; k < pst_role_job_size(a->role); k++)
        if ((bool)report_of(a, k)->holds != holds) {
            a->decision->fault = (int32_t)PST_E_LIBRARY_CALLS;
            snprintf(a->text, sizeof(a->text),
                     "rank %u called %s where rank 0 called %s", k,
                     holds ? "train_step" : "forward_backward",
                     holds ? "forward_backward" : "train_step");
            return;
        }
}

static void make_decision(struct pst_agreement *a)
{
    struct pst_decision *v = a->decision;
    const double n = pst_role_job_size(a->role);

    v->work = v->optim = 0;
    v->fault = v->diverged = v->no_targets = v->backward = v->spiked = 0;
    v->overflow = 0;
    v->microbatch = -1;
    v->control = 0;
    v->loss = NAN;
    v->stayed = (struct pst_stayed){0};
    a->text[0] = '\0';
    for (unsigned k = 0; k < pst_role_job_size(a->role); k++) {
        const struct pst_report *report = report_of(a, k);

        v->control |= report->control;
        if (report->fault && !v->fault) {
            v->fault = report->fault;
            v->microbatch = report->microbatch;
            (void)snprintf(a->text, sizeof(a->text), "%s",
                           a->report_text[k].fault);
        }
        if (report->stayed.n > 0 && v->stayed.n == 0) {
            v->stayed = report->stayed;
            v->stayed_rank = k;
        }
        v->work += (report->times.forward + report->times.backward) / n;
        v->optim += report->times.optim / n;
    }
    find_norms(a);
    if (a->role->plan->loss >= 0 &&
        a->role->plan->outputs.at[a->role->plan->loss].stage >= 0)
        v->loss = mean_loss(a);
    if (report_of(a, 0)->traced)
        find_origin(a);
    else if (!v->fault && pst_role_optim(a->role) != NULL)
        refuse_not_finite(a);
    if (!v->fault && pst_role_optim(a->role) != NULL)
        refuse_spike(a);
    if (!v->fault)
        refuse_halves(a);
}

/* Posts, once, the receives of the second messages of reports. */
static enum pst_status receive_texts(struct pst_agreement *a)
{
    enum pst_status status = PST_OK;

    if (a->text_asked)
        return PST_OK;
    a->text_asked = true;
    for (unsigned k = 1; k < pst_role_job_size(a->role) && status == PST_OK;
         k++)
        if (has_text(report_of(a, k)))
            status =
                post_message(a, k, false, k, PST_MSG_REPORT, &a->report_text[k],
                             sizeof(a->report_text[k]));
    return status;
}

enum pst_status pst_agree_decide(struct pst_agreement *a)
{
    const unsigned n = pst_role_job_size(a->role);
    enum pst_status status;

    if (a->waiting > 0)
        return PST_AGAIN;
    status = receive_texts(a);
    if (status != PST_OK || a->waiting > 0)
        return status != PST_OK ? status : PST_AGAIN;
    make_decision(a);
    for (unsigned k = 1; k < n && status == PST_OK; k++) {
        status = post_message(a, k, true, k, PST_MSG_DECISION, a->decision,
                              a->decision_size);
        if (status == PST_OK && a->decision->fault)
            status = post_message(a, n + k, true, k, PST_MSG_DECISION, a->text,
                                  sizeof(a->text));
    }
    return status;
}

enum pst_status pst_agree_wait(struct pst_agreement *a)
{
    enum pst_status status = PST_OK;

    if (a->waiting > 0)
        return PST_AGAIN;
    if (pst_role_number(a->role) != 0 && a->decision->fault && !a->text_asked) {
        a->text_asked = true;
        status = post_message(a, 2, false, 0, PST_MSG_DECISION, a->text,
                              sizeof(a->text));
    }
    if (status == PST_OK && a->waiting > 0)
        return PST_AGAIN;
    return status;
}

const char *pst_agree_describe_stayed(struct pst_agreement *a)
{
    const struct pst_decision *v = a->decision;

    a->stayed_text[0] = '\0';
    if (v->stayed.n > 0)
        pst_stayed_describe(&v->stayed, a->role, v->stayed_rank, a->stayed_text,
                            sizeof(a->stayed_text));
    return a->stayed_text;
}
