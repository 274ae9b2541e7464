// SPDX-License-Identifier: Apache-2.0
/*
 * Chrome's trace format, for chrome://tracing and ui.perfetto.dev. Written span
 * by span, without a tree in memory: a job of many ranks has millions of spans.
 */
#include "stages/sched/timeline.h"

#include <math.h>
#include <stdio.h>

#include "stages/base/alloc.h"
#include "stages/base/checked.h"

/* Converts to microseconds, rounded to nanoseconds. Starts and ends are
 * rounded, never durations: otherwise a span could overlap the next, and
 * viewers would nest them. */
static double to_microseconds(double seconds)
{
    return round(seconds * 1e9) / 1e3;
}

static void add_name(struct pst_str *out, const char *what, size_t pid,
                     unsigned tid, const char *name)
{
    pst_str_addf(out,
                 "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%zu,\"tid\":%u,"
                 "\"args\":{\"name\":",
                 what, pid, tid);
    pst_str_add_json(out, name);
    pst_str_add(out, "}},\n");
}

static void add_span(struct pst_str *out, size_t pid, const struct pst_span *s)
{
    const bool idle = pst_span_class(s->kind) == PST_CLASS_IDLE;

    pst_str_add(out, "{\"name\":\"");
    if (idle)
        pst_str_add(out, pst_span_text(s->kind));
    else if (s->stage >= 0)
        pst_str_addf(out, "%d%s", s->stage, pst_span_letters(s->kind));
    else
        pst_str_add(out, pst_span_letters(s->kind));
    if (!idle && s->microbatch >= 0)
        pst_str_addf(out, "%d", s->microbatch);
    pst_str_addf(out,
                 "\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%zu,\"tid\":%d,"
                 "\"ts\":%.3f,\"dur\":%.3f",
                 pst_span_text(s->kind), pid, s->rank,
                 to_microseconds(s->start),
                 to_microseconds(s->end) - to_microseconds(s->start));
    if (s->stage >= 0)
        pst_str_addf(out, ",\"args\":{\"stage\":%d,\"microbatch\":%d}",
                     s->stage, s->microbatch);
    pst_str_add(out, "},\n");
}

/* Forward and backward spans of all stages and microbatches. */
struct compute_spans {
    const struct pst_span **at; /* index: backward, stage, microbatch */
    size_t stages, microbatches;
};

static const struct pst_span *work_of(const struct compute_spans *w,
                                      size_t backward, size_t stage,
                                      size_t microbatch)
{
    return w->at[(backward * w->stages + stage) * w->microbatches + microbatch];
}

static bool is_backward(const struct pst_span *s)
{
    return s->kind == PST_SPAN_B || s->kind == PST_SPAN_I;
}

/* Finds the forward and backward span of each (stage, microbatch). False: there
 * are none, or memory runs out. */
static bool find_spans(const struct pst_timeline *t, struct compute_spans *w)
{
    size_t n;

    *w = (struct compute_spans){0};
    for (size_t k = 0; k < t->spans.n; k++) {
        const struct pst_span *s = &t->spans.at[k];

        if (s->kind != PST_SPAN_F && !is_backward(s))
            continue;
        if (s->stage < 0 || s->microbatch < 0)
            continue;
        w->stages = PST_MAX(w->stages, (size_t)s->stage + 1);
        w->microbatches = PST_MAX(w->microbatches, (size_t)s->microbatch + 1);
    }
    /* Each pair has a forward, so there are no more pairs than spans. */
    if (PST_MUL(w->stages, w->microbatches, &n) || n == 0 || n > t->spans.n)
        return false;
    w->at = pst_calloc(PST_TAG_PLAN, 2 * n, sizeof(*w->at));
    for (size_t k = 0; w->at != NULL && k < t->spans.n; k++) {
        const struct pst_span *s = &t->spans.at[k];

        if ((s->kind == PST_SPAN_F || is_backward(s)) && s->stage >= 0 &&
            s->microbatch >= 0)
            w->at[((size_t)is_backward(s) * w->stages + (size_t)s->stage) *
                      w->microbatches +
                  (size_t)s->microbatch] = s;
    }
    return w->at != NULL;
}

/* Draws an arrow from the end of the span that produced a message to the start
 * of its consumer, unless both are on the same rank. */
static void add_arrow(struct pst_str *out, size_t pid, uint64_t *id,
                      const struct pst_span *from, const struct pst_span *to)
{
    static const char head[] = "{\"name\":\"message\",\"cat\":\"message\",";
    double last;

    if (from == NULL || to == NULL || from->rank == to->rank)
        return;
    /* A moment inside the span, which excludes its end. */
    last = PST_MAX(to_microseconds(from->end) - 1e-3,
                   to_microseconds(from->start));
    pst_str_addf(out,
                 "%s\"ph\":\"s\",\"id\":%llu,\"pid\":%zu,\"tid\":%d,"
                 "\"ts\":%.3f},\n",
                 head, (unsigned long long)*id, pid, from->rank, last);
    pst_str_addf(out,
                 "%s\"ph\":\"f\",\"bp\":\"e\",\"id\":%llu,\"pid\":%zu,"
                 "\"tid\":%d,\"ts\":%.3f},\n",
                 head, (unsigned long long)*id, pid, to->rank,
                 to_microseconds(to->start));
    ++*id;
}

static void add_arrows(struct pst_str *out, size_t pid, uint64_t *id,
                       const struct pst_timeline *t)
{
    struct compute_spans w;

    if (!find_spans(t, &w))
        return;
    for (size_t s = 0; s + 1 < w.stages; s++)
        for (size_t m = 0; m < w.microbatches; m++) {
            add_arrow(out, pid, id, work_of(&w, 0, s, m),
                      work_of(&w, 0, s + 1, m));
            add_arrow(out, pid, id, work_of(&w, 1, s + 1, m),
                      work_of(&w, 1, s, m));
        }
    pst_free(w.at);
}

void pst_timeline_trace(const struct pst_timeline *const *timelines, size_t n,
                        struct pst_str *out)
{
    uint64_t id = 1;

    pst_str_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (size_t i = 0; i < n; i++) {
        const struct pst_timeline *t = timelines[i];

        for (size_t k = 0; k < t->spans.n; k++)
            add_span(out, i, &t->spans.at[k]);
        add_arrows(out, i, &id, t);
        for (size_t k = 0; k < t->levels.n; k++)
            pst_str_addf(out,
                         "{\"name\":\"bytes of rank %d\",\"ph\":\"C\","
                         "\"pid\":%zu,\"tid\":%d,\"ts\":%.3f,"
                         "\"args\":{\"bytes\":%.0f}},\n",
                         t->levels.at[k].rank, i, t->levels.at[k].rank,
                         to_microseconds(t->levels.at[k].at),
                         t->levels.at[k].bytes);
        for (unsigned r = 0; r < t->n_ranks; r++) {
            char name[32];

            (void)snprintf(name, sizeof(name), "rank %u", r);
            add_name(out, "thread_name", i, r, name);
        }
        add_name(out, "process_name", i, 0, t->name);
    }
    /* JSON allows no trailing comma. */
    pst_str_add(out, "{\"name\":\"end\",\"ph\":\"M\",\"pid\":0,\"tid\":0,"
                     "\"args\":{}}]}\n");
}
