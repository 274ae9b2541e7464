// SPDX-License-Identifier: Apache-2.0
/*
 * Chrome's trace format: read by chrome://tracing and ui.perfetto.dev. Written
 * span by span, not built as a tree first: a job of many ranks has millions.
 */
#include "stages/sched/timeline.h"

#include <math.h>
#include <stdio.h>

/* Microseconds, in whole nanoseconds: rounded apart, a start and a length could
 * reach into the next span, which viewers take for one inside the other. */
static double ticks(double seconds)
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
                 pst_span_text(s->kind), pid, s->rank, ticks(s->start),
                 ticks(s->end) - ticks(s->start));
    if (s->stage >= 0)
        pst_str_addf(out, ",\"args\":{\"stage\":%d,\"microbatch\":%d}",
                     s->stage, s->microbatch);
    pst_str_add(out, "},\n");
}

void pst_timeline_trace(const struct pst_timeline *const *timelines, size_t n,
                        struct pst_str *out)
{
    pst_str_add(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (size_t i = 0; i < n; i++) {
        const struct pst_timeline *t = timelines[i];

        for (size_t k = 0; k < t->spans.n; k++)
            add_span(out, i, &t->spans.at[k]);
        for (size_t k = 0; k < t->levels.n; k++)
            pst_str_addf(out,
                         "{\"name\":\"bytes of rank %d\",\"ph\":\"C\","
                         "\"pid\":%zu,\"tid\":%d,\"ts\":%.3f,"
                         "\"args\":{\"bytes\":%.0f}},\n",
                         t->levels.at[k].rank, i, t->levels.at[k].rank,
                         ticks(t->levels.at[k].at), t->levels.at[k].bytes);
        for (unsigned r = 0; r < t->n_ranks; r++) {
            char name[32];

            (void)snprintf(name, sizeof(name), "rank %u", r);
            add_name(out, "thread_name", i, r, name);
        }
        add_name(out, "process_name", i, 0, t->name);
    }
    /* JSON has no comma behind the last one. */
    pst_str_add(out, "{\"name\":\"end\",\"ph\":\"M\",\"pid\":0,\"tid\":0,"
                     "\"args\":{}}]}\n");
}
