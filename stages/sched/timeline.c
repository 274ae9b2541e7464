// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text, *letters;
    enum pst_span_class class;
} kinds[PST_N_SPANS] = {
#define PST_SPAN_ROW(name, text, letters, class)                               \
    [PST_SPAN_##name] = {text, letters, PST_CLASS_##class},
    PST_SPAN_LIST(PST_SPAN_ROW)
#undef PST_SPAN_ROW
};

static const enum pst_span_kind of_action[PST_N_ACTIONS] = {
    [PST_ACT_F] = PST_SPAN_F,           [PST_ACT_B] = PST_SPAN_B,
    [PST_ACT_I] = PST_SPAN_I,           [PST_ACT_W] = PST_SPAN_W,
    [PST_ACT_SEND_F] = PST_SPAN_SEND,   [PST_ACT_RECV_F] = PST_SPAN_RECV,
    [PST_ACT_SEND_B] = PST_SPAN_SEND,   [PST_ACT_RECV_B] = PST_SPAN_RECV,
    [PST_ACT_COPY_F] = PST_SPAN_COPY,   [PST_ACT_COPY_B] = PST_SPAN_COPY,
    [PST_ACT_REDUCE] = PST_SPAN_REDUCE,
};

enum pst_span_kind pst_span_of_action(enum pst_action_kind kind)
{
    return (unsigned)kind < PST_N_ACTIONS ? of_action[kind] : PST_N_SPANS;
}

const char *pst_span_text(enum pst_span_kind kind)
{
    return kinds[kind].text;
}

const char *pst_span_letters(enum pst_span_kind kind)
{
    return kinds[kind].letters;
}

enum pst_span_class pst_span_class(enum pst_span_kind kind)
{
    return kinds[kind].class;
}

void pst_timeline_fini(struct pst_timeline *timeline)
{
    pst_vec_fini(&timeline->spans);
    pst_vec_fini(&timeline->levels);
}

bool pst_timeline_add(struct pst_timeline *timeline, int rank,
                      enum pst_span_kind kind, int stage, int microbatch,
                      double start, double end)
{
    const struct pst_span span = {start, end, rank, kind, stage, microbatch};

    return pst_vec_push(PST_TAG_PLAN, &timeline->spans, span);
}

/* Compares spans by rank, start and end: an empty span comes after the span
 * that ends at this time and before the one that starts then. */
static int compare_spans(const void *a, const void *b)
{
    const struct pst_span *x = a, *y = b;

    if (x->rank != y->rank)
        return (x->rank > y->rank) - (x->rank < y->rank);
    if (x->start != y->start)
        return (x->start > y->start) - (x->start < y->start);
    return (x->end > y->end) - (x->end < y->end);
}

/* When each value was computed, to find the causes of gaps. */
struct explain {
    struct pst_timeline *timeline;
    const int *rank_of;
    unsigned n_stages, n_microbatches;
    const struct pst_link *links;
    size_t n_links;
    double *made_f, *made_b; /* per (stage, microbatch); -1: never */
    /* per rank: start of its first backward, end of its last forward */
    double *first_b, *last_f;
};

static size_t cell_of(const struct explain *x, const struct pst_span *s)
{
    return (size_t)s->stage * x->n_microbatches + (size_t)s->microbatch;
}

static bool has_cell(const struct explain *x, const struct pst_span *s)
{
    return s->stage >= 0 && s->stage < (int)x->n_stages && s->microbatch >= 0 &&
           s->microbatch < (int)x->n_microbatches;
}

static bool is_backward(enum pst_span_kind kind)
{
    return kind == PST_SPAN_B || kind == PST_SPAN_I;
}

static void record_work(struct explain *x)
{
    for (size_t i = 0; i < x->timeline->spans.n; i++) {
        const struct pst_span *s = &x->timeline->spans.at[i];

        if (s->kind == PST_SPAN_F)
            x->last_f[s->rank] = fmax(x->last_f[s->rank], s->start);
        else if (is_backward(s->kind))
            x->first_b[s->rank] = fmin(x->first_b[s->rank], s->start);
        else
            continue;
        if (has_cell(x, s))
            (s->kind == PST_SPAN_F ? x->made_f : x->made_b)[cell_of(x, s)] =
                s->end;
    }
    /* Without a backward, warm-up lasts until the first forward. */
    for (unsigned r = 0; r < x->timeline->n_ranks; r++) {
        if (!isinf(x->first_b[r]))
            continue;
        for (size_t i = 0; i < x->timeline->spans.n; i++) {
            const struct pst_span *s = &x->timeline->spans.at[i];

            if (s->rank == (int)r && s->kind == PST_SPAN_F)
                x->first_b[r] = fmin(x->first_b[r], s->start);
        }
    }
}

/* Returns when the last input from another rank was computed; -1 if the span
 * has no such input. */
static double last_remote_input(const struct explain *x,
                                const struct pst_span *s)
{
    const bool forward = s->kind == PST_SPAN_F;
    double made = -1.0;

    if ((!forward && !is_backward(s->kind)) || !has_cell(x, s))
        return made;
    for (size_t i = 0; i < x->n_links; i++) {
        const struct pst_link *l = &x->links[i];
        const int here = forward ? l->to : l->from;
        const int there = forward ? l->from : l->to;
        const int mb = s->microbatch - pst_link_carries(l);

        if (mb < 0 || here != s->stage || x->rank_of[there] == s->rank ||
            (!forward && !l->grad))
            continue;
        made = fmax(
            made,
            (forward
                 ? x->made_f
                 : x->made_b)[(size_t)there * x->n_microbatches + (size_t)mb]);
    }
    return made;
}

/* Fills the time from `from` to the start of the span with at most two
 * spans. */
static bool fill_gap(struct explain *x, double from, const struct pst_span *s)
{
    struct pst_timeline *t = x->timeline;
    const double made = last_remote_input(x, s);
    const double split = fmin(fmax(made, from), s->start);
    enum pst_span_kind why = PST_SPAN_IMBALANCE;

    if (made < 0.0 && s->kind != PST_SPAN_OPTIM &&
        pst_span_class(s->kind) == PST_CLASS_WORK)
        return pst_timeline_add(t, s->rank, PST_SPAN_OTHER, -1, -1, from,
                                s->start);
    if (s->start <= x->first_b[s->rank])
        why = PST_SPAN_WARM_UP;
    else if (from > x->last_f[s->rank])
        why = PST_SPAN_DRAIN;
    if (made < 0.0) /* work without inputs: a reduction, the optimizer */
        return pst_timeline_add(t, s->rank, why, -1, -1, from, s->start);
    if (split > from && !pst_timeline_add(t, s->rank, why, -1, -1, from, split))
        return false;
    return split >= s->start || pst_timeline_add(t, s->rank, PST_SPAN_MESSAGE,
                                                 -1, -1, split, s->start);
}

static bool fill_gaps(struct explain *x)
{
    struct pst_timeline *t = x->timeline;
    const size_t n = t->spans.n;
    size_t i = 0;

    for (int rank = 0; rank < (int)t->n_ranks; rank++) {
        double at = 0.0;

        for (; i < n && t->spans.at[i].rank == rank; i++) {
            const struct pst_span s = t->spans.at[i];

            if (s.start > at && !fill_gap(x, at, &s))
                return false;
            at = fmax(at, s.end);
        }
        if (at < t->step &&
            !pst_timeline_add(t, rank, PST_SPAN_DRAIN, -1, -1, at, t->step))
            return false;
    }
    return true;
}

static void drop_idle(struct pst_timeline *t)
{
    size_t kept = 0;

    for (size_t i = 0; i < t->spans.n; i++)
        if (pst_span_class(t->spans.at[i].kind) != PST_CLASS_IDLE)
            t->spans.at[kept++] = t->spans.at[i];
    t->spans.n = kept;
}

static void sort_spans(struct pst_timeline *t)
{
    if (t->spans.n)
        qsort(t->spans.at, t->spans.n, sizeof(*t->spans.at), compare_spans);
}

enum pst_status pst_timeline_explain(struct pst_timeline *timeline,
                                     const int *rank_of, unsigned n_stages,
                                     const struct pst_link *links,
                                     size_t n_links, struct pst_diag *diag)
{
    struct explain x = {.timeline = timeline,
                        .rank_of = rank_of,
                        .n_stages = n_stages,
                        .links = links,
                        .n_links = n_links};
    size_t cells;
    bool ok = true;

    drop_idle(timeline);
    sort_spans(timeline);
    for (size_t i = 0; i < timeline->spans.n; i++)
        if (timeline->spans.at[i].microbatch >= (int)x.n_microbatches)
            x.n_microbatches = (unsigned)timeline->spans.at[i].microbatch + 1;
    cells = (size_t)n_stages * x.n_microbatches;
    x.made_f = pst_calloc(PST_TAG_PLAN, cells, sizeof(double));
    x.made_b = pst_calloc(PST_TAG_PLAN, cells, sizeof(double));
    x.first_b = pst_calloc(PST_TAG_PLAN, timeline->n_ranks, sizeof(double));
    x.last_f = pst_calloc(PST_TAG_PLAN, timeline->n_ranks, sizeof(double));
    if (!x.made_f || !x.made_b || !x.first_b || !x.last_f) {
        ok = false;
    } else {
        for (size_t i = 0; i < cells; i++)
            x.made_f[i] = x.made_b[i] = -1.0;
        for (unsigned r = 0; r < timeline->n_ranks; r++)
            x.first_b[r] = INFINITY;
        record_work(&x);
        ok = fill_gaps(&x);
        sort_spans(timeline);
    }
    pst_free(x.last_f);
    pst_free(x.first_b);
    pst_free(x.made_b);
    pst_free(x.made_f);
    return ok ? PST_OK
              : pst_diag_nomem(diag,
                               timeline->spans.n * sizeof(struct pst_span));
}

void pst_timeline_shares(const struct pst_timeline *timeline,
                         struct pst_shares *ret)
{
    memset(ret, 0, timeline->n_ranks * sizeof(*ret));
    for (size_t i = 0; i < timeline->spans.n; i++) {
        const struct pst_span *s = &timeline->spans.at[i];

        ret[s->rank].seconds[s->kind] += s->end - s->start;
    }
    for (unsigned r = 0; r < timeline->n_ranks; r++) {
        double work = 0.0;

        for (int k = 0; k < PST_N_SPANS; k++)
            if (pst_span_class(k) == PST_CLASS_WORK)
                work += ret[r].seconds[k];
        if (timeline->step > 0.0) /* work may slightly exceed the step */
            ret[r].bubble = PST_MAX(0.0, 1.0 - work / timeline->step);
    }
}
