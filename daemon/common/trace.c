// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/trace.h"

#include "stages/base/alloc.h"

#include <math.h>
#include <string.h>

#define MAX_SPANS 50000 /* maximum spans of both timelines in a reply */
#define MAX_RANKS 65536
#define NANO      1e9

void pstd_trace_free(struct pstd_trace *trace)
{
    if (trace == NULL)
        return;
    pst_timeline_fini(&trace->measured);
    pst_timeline_fini(&trace->predicted);
    pst_free(trace->shares);
    pst_free(trace);
}

/* --- to a message --------------------------------------------------------- */

static enum pst_status fill_timeline(const struct pst_timeline *from,
                                     Pst__Control__Timeline *to,
                                     struct pst_diag *diag)
{
    const size_t n = from->spans.n;

    pst__control__timeline__init(to);
    to->ranks = from->n_ranks;
    to->step_seconds = from->step;
    to->rank = pst_calloc(PST_TAG_DAEMON, n + 1, sizeof(*to->rank));
    to->kind = pst_calloc(PST_TAG_DAEMON, n + 1, sizeof(*to->kind));
    to->stage = pst_calloc(PST_TAG_DAEMON, n + 1, sizeof(*to->stage));
    to->microbatch = pst_calloc(PST_TAG_DAEMON, n + 1, sizeof(*to->microbatch));
    to->start_ns = pst_calloc(PST_TAG_DAEMON, n + 1, sizeof(*to->start_ns));
    to->length_ns = pst_calloc(PST_TAG_DAEMON, n + 1, sizeof(*to->length_ns));
    if (to->rank == NULL || to->kind == NULL || to->stage == NULL ||
        to->microbatch == NULL || to->start_ns == NULL || to->length_ns == NULL)
        return pst_diag_nomem(diag, n * 32);
    to->n_rank = to->n_kind = to->n_stage = to->n_microbatch = n;
    to->n_start_ns = to->n_length_ns = n;
    for (size_t i = 0; i < n; i++) {
        const struct pst_span *s = &from->spans.at[i];

        to->rank[i] = (uint32_t)s->rank;
        to->kind[i] = (uint32_t)s->kind;
        to->stage[i] = s->stage;
        to->microbatch[i] = s->microbatch;
        to->start_ns[i] = (uint64_t)llround(fmax(0, s->start) * NANO);
        to->length_ns[i] = (uint64_t)llround(fmax(0, s->end - s->start) * NANO);
    }
    return PST_OK;
}

static void free_timeline(Pst__Control__Timeline *t)
{
    if (t == NULL)
        return;
    pst_free(t->rank);
    pst_free(t->kind);
    pst_free(t->stage);
    pst_free(t->microbatch);
    pst_free(t->start_ns);
    pst_free(t->length_ns);
    pst_free(t);
}

void pstd_trace_free_message(Pst__Control__Trace *filled)
{
    free_timeline(filled->measured);
    free_timeline(filled->predicted);
}

enum pst_status pstd_trace_to_message(const struct pstd_trace *trace,
                                      Pst__Control__Trace *ret,
                                      struct pst_diag *diag)
{
    const size_t n = trace->measured.spans.n + trace->predicted.spans.n;
    enum pst_status status;

    if (n > MAX_SPANS)
        return pst_diag_set(diag, PST_E_TRACE_TOO_LONG,
                            "the timelines of a step have %zu spans, at most "
                            "%d fit into an answer: use fewer microbatches",
                            n, MAX_SPANS);
    pst__control__trace__init(ret);
    ret->step = trace->step;
    ret->measured = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*ret->measured));
    ret->predicted = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*ret->predicted));
    if (ret->measured == NULL || ret->predicted == NULL) {
        pstd_trace_free_message(ret);
        return pst_diag_nomem(diag, sizeof(*ret->measured));
    }
    status = fill_timeline(&trace->measured, ret->measured, diag);
    if (status == PST_OK)
        status = fill_timeline(&trace->predicted, ret->predicted, diag);
    if (status != PST_OK)
        pstd_trace_free_message(ret);
    return status;
}

/* --- from a message ------------------------------------------------------- */

static bool is_valid(const Pst__Control__Timeline *t)
{
    const size_t n = t->n_rank;

    if (t->ranks > MAX_RANKS || !(t->step_seconds >= 0) ||
        !isfinite(t->step_seconds) || t->n_kind != n || t->n_stage != n ||
        t->n_microbatch != n || t->n_start_ns != n || t->n_length_ns != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (t->rank[i] >= t->ranks || t->kind[i] >= PST_N_SPANS ||
            t->stage[i] < -1 || t->microbatch[i] < -1 ||
            (double)t->start_ns[i] + (double)t->length_ns[i] >
                (t->step_seconds + 1e-6) * NANO)
            return false;
    return true;
}

static enum pst_status read_timeline(const Pst__Control__Timeline *from,
                                     const char *name, struct pst_timeline *ret,
                                     struct pst_diag *diag)
{
    ret->name = name;
    if (from == NULL)
        return PST_OK;
    if (!is_valid(from))
        return pst_diag_set(diag, PST_E_CONTROL_FRAME,
                            "penstockd sent a timeline that makes no sense");
    ret->n_ranks = from->ranks;
    ret->step = from->step_seconds;
    for (size_t i = 0; i < from->n_rank; i++) {
        const double start = (double)from->start_ns[i] / NANO;

        if (!pst_timeline_add(ret, (int)from->rank[i],
                              (enum pst_span_kind)from->kind[i], from->stage[i],
                              from->microbatch[i], start,
                              start + (double)from->length_ns[i] / NANO))
            return pst_diag_nomem(diag, sizeof(struct pst_span));
    }
    return PST_OK;
}

enum pst_status pstd_trace_read(const Pst__Control__Trace *from,
                                struct pstd_trace **ret, struct pst_diag *diag)
{
    struct pstd_trace *t = pst_calloc(PST_TAG_CLIENT, 1, sizeof(*t));
    enum pst_status status;

    if (t == NULL)
        return pst_diag_nomem(diag, sizeof(*t));
    t->step = from->step;
    status = read_timeline(from->measured, "measured", &t->measured, diag);
    if (status == PST_OK)
        status = read_timeline(from->predicted, "predicted from measured costs",
                               &t->predicted, diag);
    if (status == PST_OK) {
        t->shares = pst_calloc(PST_TAG_CLIENT, t->measured.n_ranks + 1,
                               sizeof(*t->shares));
        if (t->shares == NULL)
            status = pst_diag_nomem(diag, sizeof(*t->shares));
        else
            pst_timeline_shares(&t->measured, t->shares);
    }
    if (status == PST_OK)
        *ret = t;
    else
        pstd_trace_free(t);
    return status;
}
