// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/timeline.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/trace.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/print.h"
#include "stages/base/host/fs.h"

/* Kinds of idle time, in the order of the columns. */
static const struct {
    enum pst_span_kind kind;
    const char *key, *column;
} causes[] = {
    {PST_SPAN_WARM_UP, "warm_up", "warm-up"},
    {PST_SPAN_DRAIN, "drain", "drain"},
    {PST_SPAN_IMBALANCE, "imbalance", "imbalance"},
    {PST_SPAN_MESSAGE, "message", "message"},
    {PST_SPAN_OTHER, "other", "other"},
};

static double idle_share(const struct pst_shares *s, double step,
                         enum pst_span_kind kind)
{
    double seconds = s->seconds[kind];

    for (int k = 0; k < PST_N_SPANS && kind == PST_SPAN_MESSAGE; k++)
        if (pst_span_class(k) == PST_CLASS_MOVE)
            seconds += s->seconds[k];
    return step > 0 ? seconds / step : 0;
}

void pstctl_shares_json(const struct pst_shares *shares, double step,
                        json_t *object)
{
    for (size_t i = 0; i < PST_COUNT(causes); i++)
        (void)json_object_set_new(
            object, causes[i].key,
            pstctl_json_real(idle_share(shares, step, causes[i].kind)));
}

static double mean_bubble(const struct pst_timeline *t,
                          const struct pst_shares *shares)
{
    double sum = 0;

    for (unsigned r = 0; r < t->n_ranks; r++)
        sum += shares[r].bubble;
    return t->n_ranks > 0 ? sum / t->n_ranks : 0;
}

void pstctl_shares_print(const char *what, const struct pst_timeline *timeline,
                         const struct pst_shares *shares,
                         const struct pst_timeline *beside,
                         const struct pst_shares *beside_shares,
                         struct pst_str *out)
{
    pst_str_addf(out, "%s step ", what);
    pstctl_duration(timeline->step, out);
    pst_str_addf(out, ", bubble %.1f%%", 100 * mean_bubble(timeline, shares));
    if (beside != NULL) {
        pst_str_addf(out, "; %s ", beside->name);
        pstctl_duration(beside->step, out);
        pst_str_addf(out, ", %.1f%%", 100 * mean_bubble(beside, beside_shares));
    }
    pst_str_add(out, "\nrank  bubble");
    if (beside != NULL)
        pst_str_add(out, "  predicted");
    for (size_t i = 0; i < PST_COUNT(causes); i++)
        pst_str_addf(out, "  %s", causes[i].column);
    pst_str_add(out, "\n");
    for (unsigned r = 0; r < timeline->n_ranks; r++) {
        pst_str_addf(out, "%4u %6.1f%%", r, 100 * shares[r].bubble);
        /* Predictions are equal for all replicas. */
        if (beside != NULL)
            pst_str_addf(out, " %9.1f%%",
                         100 * beside_shares[r % beside->n_ranks].bubble);
        for (size_t i = 0; i < PST_COUNT(causes); i++)
            pst_str_addf(
                out, " %*.1f%%", (int)strlen(causes[i].column),
                100 * idle_share(&shares[r], timeline->step, causes[i].kind));
        pst_str_add(out, "\n");
    }
}

enum pst_status pstctl_write_text(const char *path, struct pst_str *text,
                                  struct pst_diag *diag)
{
    enum pst_status status =
        text->failed
            ? pst_diag_nomem(diag, text->len)
            : pst_file_write(path, pst_str_text(text), text->len, diag);

    pst_str_fini(text);
    return status;
}

enum pst_status pstctl_timelines_write(
    const struct pstd_config *config,
    const struct pst_timeline *const *timelines, size_t n, const char *title,
    struct pst_diag *diag)
{
    struct pst_str text = {0};
    enum pst_status status = PST_OK;

    if (config->svg != NULL) {
        pst_timeline_svg(timelines, n, title, &text);
        status = pstctl_write_text(config->svg, &text, diag);
    }
    if (config->trace != NULL && status == PST_OK) {
        pst_timeline_trace(timelines, n, &text);
        status = pstctl_write_text(config->trace, &text, diag);
    }
    return status;
}

bool pstctl_is_measured(const struct pstd_config *config,
                        const Pst__Control__Result *result)
{
    const char *const files[] = {config->svg, config->trace, config->dump,
                                 config->write_costs};

    if (result->steps > result->first_step)
        return true;
    for (size_t i = 0; i < PST_COUNT(files); i++)
        if (files[i] != NULL)
            pstctl_printf(stderr,
                          "penstock: the run had no step left to make, so "
                          "nothing was measured: %s was not written\n",
                          files[i]);
    return false;
}

/* --- the trace of a job --------------------------------------------------- */

static enum pst_status make_shares(const struct pst_timeline *t,
                                   struct pst_shares **ret,
                                   struct pst_diag *diag)
{
    *ret = pst_calloc(PST_TAG_CLIENT, t->n_ranks + 1, sizeof(**ret));
    if (*ret == NULL)
        return pst_diag_nomem(diag, sizeof(**ret));
    pst_timeline_shares(t, *ret);
    return PST_OK;
}

static json_t *ranks_json(const struct pstd_trace *trace,
                          const struct pst_shares *predicted)
{
    const unsigned n = trace->predicted.n_ranks;
    json_t *ranks = json_array();

    for (unsigned r = 0; r < trace->measured.n_ranks; r++) {
        json_t *rank = json_pack(
            "{s:I s:o s:o}", "rank", (json_int_t)r, "bubble",
            pstctl_json_real(trace->shares[r].bubble), "predicted_bubble",
            n > 0 ? pstctl_json_real(predicted[r % n].bubble) : json_null());

        pstctl_shares_json(&trace->shares[r], trace->measured.step, rank);
        (void)json_array_append_new(ranks, rank);
    }
    return ranks;
}

static enum pst_status show_trace(const char *job,
                                  const struct pstd_config *config,
                                  const struct pstd_trace *trace, bool print,
                                  json_t *json, struct pst_diag *diag)
{
    const struct pst_timeline *const both[] = {&trace->measured,
                                               &trace->predicted};
    struct pst_shares *predicted = NULL;
    struct pst_str text = {0};
    enum pst_status status = make_shares(&trace->predicted, &predicted, diag);

    pst_str_addf(&text, "job %s, after step %llu", job,
                 (unsigned long long)trace->step);
    if (status == PST_OK)
        status = pstctl_timelines_write(config, both,
                                        trace->predicted.n_ranks > 0 ? 2 : 1,
                                        pst_str_text(&text), diag);
    pst_str_fini(&text);
    if (status == PST_OK && json != NULL) {
        (void)json_object_set_new(json, "step",
                                  json_integer((json_int_t)trace->step));
        (void)json_object_set_new(json, "step_s",
                                  pstctl_json_real(trace->measured.step));
        (void)json_object_set_new(
            json, "bubble",
            pstctl_json_real(mean_bubble(&trace->measured, trace->shares)));
        (void)json_object_set_new(json, "predicted_step_s",
                                  pstctl_json_real(trace->predicted.step));
        (void)json_object_set_new(
            json, "predicted_bubble",
            pstctl_json_real(mean_bubble(&trace->predicted, predicted)));
        (void)json_object_set_new(json, "ranks", ranks_json(trace, predicted));
    }
    if (status == PST_OK && print) {
        struct pst_str table = {.visible = 1};

        pstctl_shares_print("measured", &trace->measured, trace->shares,
                            trace->predicted.n_ranks > 0 ? &trace->predicted
                                                         : NULL,
                            predicted, &table);
        pstctl_print(stdout, &table);
        pst_str_fini(&table);
    }
    pst_free(predicted);
    return status;
}

enum pst_status pstctl_trace_print(const Pst__Control__Trace *from,
                                   const char *job,
                                   const struct pstd_config *config, bool print,
                                   json_t *json, struct pst_diag *diag)
{
    struct pstd_trace *trace = NULL;
    enum pst_status status = pstd_trace_read(from, &trace, diag);

    if (status == PST_OK && trace != NULL)
        status = show_trace(job, config, trace, print, json, diag);
    pstd_trace_free(trace);
    return status;
}

enum pst_status pstctl_trace_show(struct pstctl_conn *conn,
                                  const struct pstd_config *config, bool print,
                                  json_t *json, struct pst_diag *diag)
{
    pstd_frame *frame = NULL;
    enum pst_status status = pstctl_send_simple(
        conn, PST__CONTROL__REQUEST__BODY_GET_TRACE, &frame, diag);

    if (status != PST_OK)
        return status;
    if (frame->reply->body_case != PST__CONTROL__REPLY__BODY_TRACE)
        status =
            pst_diag_set(diag, PST_E_CONTROL_FRAME, "penstockd sent no trace");
    else
        status = pstctl_trace_print(frame->reply->trace, conn->job, config,
                                    print, json, diag);
    pstd_frame_free(frame);
    return status;
}
