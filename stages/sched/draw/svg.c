// SPDX-License-Identifier: Apache-2.0
/*
 * Draws the timeline: time to the right, a row per rank, boxes colored by kind
 * with the microbatch in them, pale boxes for waiting by cause; below a row, if
 * known, the memory of the rank.
 */
#include "stages/sched/timeline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Margins, and heights of rows, in pixels. */
#define LEFT      64.0
#define RIGHT     96.0
#define TOP       44.0
#define ROW       24.0
#define MEMORY    14.0
#define GAP       6.0
#define HEADER    22.0 /* space above the rows of a timeline */
#define AXIS      30.0
#define LEGEND    20.0
#define MIN_WIDTH 900.0
#define MAX_WIDTH 8000.0
#define BOX       15.0 /* preferred width of a box */
#define DIGIT     5.6  /* width of a digit in a box */
#define MAX_TIPS  4000 /* maximum number of boxes with a tooltip */

static const char *const colours[PST_N_SPANS] = {
    [PST_SPAN_F] = "#5b9bd5",         [PST_SPAN_B] = "#70ad47",
    [PST_SPAN_I] = "#8fc76b",         [PST_SPAN_W] = "#4fb3a1",
    [PST_SPAN_PREPARE] = "#8a8fd0",   [PST_SPAN_OPTIM] = "#a679c5",
    [PST_SPAN_SEND] = "#c0504d",      [PST_SPAN_RECV] = "#d98880",
    [PST_SPAN_COPY] = "#b0a090",      [PST_SPAN_REDUCE] = "#e0a030",
    [PST_SPAN_WARM_UP] = "#ececec",   [PST_SPAN_DRAIN] = "#e0e0e0",
    [PST_SPAN_IMBALANCE] = "#ffe0a8", [PST_SPAN_MESSAGE] = "#ffc9c4",
    [PST_SPAN_OTHER] = "#d4d4ee",
};

struct picture {
    struct pst_str *out;
    double scale;          /* pixels per second */
    double width;          /* seconds of the longest step */
    int first_stage[4096]; /* per rank: lowest stage, -1: none */
    bool tips;
    bool used[PST_N_SPANS];
};

static void add_escaped(struct pst_str *out, const char *name)
{
    struct pst_str shown = {0};

    pst_str_add_visible(&shown, name);
    for (const char *text = pst_str_text(&shown); *text; text++) {
        const char c = *text;

        if (c == '<')
            pst_str_add(out, "&lt;");
        else if (c == '>')
            pst_str_add(out, "&gt;");
        else if (c == '&')
            pst_str_add(out, "&amp;");
        else if (c == '"')
            pst_str_add(out, "&quot;");
        else
            pst_str_addn(out, text, 1);
    }
    out->failed |= shown.failed;
    pst_str_fini(&shown);
}

/* Appends a time as "1.25 ms". The unit is chosen for each time: one unit for
 * the whole picture would hide short steps. */
static void add_seconds(struct pst_str *out, double seconds)
{
    if (seconds >= 1.0 || seconds == 0.0)
        pst_str_addf(out, "%.4g s", seconds);
    else if (seconds >= 1e-3)
        pst_str_addf(out, "%.4g ms", seconds * 1e3);
    else
        pst_str_addf(out, "%.4g \xc2\xb5s", seconds * 1e6);
}

static void add_box(struct picture *p, const struct pst_span *s, double y)
{
    const double x = LEFT + s->start * p->scale;
    const double w = (s->end - s->start) * p->scale;
    const bool idle = pst_span_class(s->kind) == PST_CLASS_IDLE;
    char number[16] = "";

    if (w < 0.02)
        return;
    p->used[s->kind] = true;
    pst_str_addf(p->out,
                 "<rect class=\"k%d%s\" x=\"%.2f\" y=\"%.1f\" "
                 "width=\"%.2f\" height=\"%.0f\"",
                 (int)s->kind, idle ? "" : " w", x, y, w, ROW);
    /* All but the first stage of a rank are paler. */
    if (pst_span_class(s->kind) == PST_CLASS_WORK &&
        s->stage > p->first_stage[s->rank])
        pst_str_add(p->out, " fill-opacity=\".62\"");
    if (p->tips) {
        pst_str_addf(p->out, "><title>%s", pst_span_text(s->kind));
        if (s->stage >= 0)
            pst_str_addf(p->out, ", stage %d", s->stage);
        if (s->microbatch >= 0)
            pst_str_addf(p->out, ", microbatch %d", s->microbatch);
        pst_str_add(p->out, ": ");
        add_seconds(p->out, s->end - s->start);
        pst_str_add(p->out, "</title></rect>\n");
    } else {
        pst_str_add(p->out, "/>\n");
    }
    if (idle || s->microbatch < 0)
        return;
    (void)snprintf(number, sizeof(number), "%d", s->microbatch);
    if (w >= DIGIT * (double)strlen(number) + 1.0)
        pst_str_addf(p->out,
                     "<text class=\"n\" x=\"%.2f\" y=\"%.1f\">%s"
                     "</text>\n",
                     x + w / 2, y + ROW / 2 + 3.5, number);
}

static void add_memory(struct picture *p, const struct pst_timeline *t,
                       unsigned rank, double y, double most)
{
    double height = 0.0;

    pst_str_addf(p->out, "<path class=\"m\" d=\"M%.2f %.2f", LEFT, y + MEMORY);
    for (size_t i = 0; i < t->levels.n; i++) {
        const struct pst_level *l = &t->levels.at[i];

        if (l->rank != (int)rank)
            continue;
        height = most > 0.0 ? l->bytes / most * (MEMORY - 2.0) : 0.0;
        pst_str_addf(p->out, "H%.2fV%.2f", LEFT + l->at * p->scale,
                     y + MEMORY - height);
    }
    pst_str_addf(p->out, "H%.2fV%.2fZ\"/>\n", LEFT + t->step * p->scale,
                 y + MEMORY);
}

static double most_bytes(const struct pst_timeline *t, int rank)
{
    double most = 0.0;

    for (size_t i = 0; i < t->levels.n; i++)
        if (rank < 0 || t->levels.at[i].rank == rank)
            most = fmax(most, t->levels.at[i].bytes);
    return most;
}

static double row_height(const struct pst_timeline *t)
{
    return ROW + (t->levels.n ? MEMORY : 0.0) + GAP;
}

static void record_stages(struct picture *p, const struct pst_timeline *t)
{
    for (size_t i = 0; i < PST_COUNT(p->first_stage); i++)
        p->first_stage[i] = -1;
    for (size_t i = 0; i < t->spans.n; i++) {
        const struct pst_span *s = &t->spans.at[i];
        int *first = &p->first_stage[s->rank];

        /* Only spans of work count: a reduction may name a stage of another
         * rank. */
        if (pst_span_class(s->kind) == PST_CLASS_WORK && s->stage >= 0 &&
            (*first < 0 || s->stage < *first))
            *first = s->stage;
    }
}

/* Draws one timeline. Returns the y coordinate below it. */
static double add_timeline(struct picture *p, const struct pst_timeline *t,
                           struct pst_shares *shares, double y)
{
    const double height = row_height(t), most = most_bytes(t, -1);

    record_stages(p, t);
    pst_timeline_shares(t, shares);
    pst_str_addf(p->out, "<text class=\"h\" x=\"%.0f\" y=\"%.1f\">", LEFT,
                 y + HEADER - 8.0);
    add_escaped(p->out, t->name);
    pst_str_add(p->out, ": ");
    add_seconds(p->out, t->step);
    pst_str_add(p->out, "</text>\n");
    y += HEADER;
    for (size_t i = 0; i < t->spans.n; i++)
        add_box(p, &t->spans.at[i], y + t->spans.at[i].rank * height);
    for (unsigned r = 0; r < t->n_ranks; r++, y += height) {
        pst_str_addf(p->out,
                     "<text class=\"r\" x=\"%.0f\" y=\"%.1f\">rank %u</text>\n",
                     LEFT - 8.0, y + ROW / 2 + 4.0, r);
        if (!t->waits)
            pst_str_addf(p->out,
                         "<text x=\"%.1f\" y=\"%.1f\">bubble %.1f%%</text>\n",
                         LEFT + t->step * p->scale + 8.0, y + ROW / 2 + 4.0,
                         100.0 * shares[r].bubble);
        if (!t->levels.n)
            continue;
        add_memory(p, t, r, y + ROW, most);
        pst_str_addf(p->out, "<text class=\"s\" x=\"%.1f\" y=\"%.1f\">",
                     LEFT + t->step * p->scale + 8.0, y + ROW + MEMORY - 2.0);
        pst_str_addf(p->out, "%.4g MiB</text>\n",
                     most_bytes(t, (int)r) / 1048576.0);
    }
    return y;
}

/* Returns the seconds between two ticks: 1, 2 or 5 times a power of ten, for
 * about eight ticks. */
static double tick_of(double step)
{
    const double rough = step / 8.0;
    const double power = pow(10.0, floor(log10(rough)));

    if (rough <= power)
        return power;
    return rough <= 2.0 * power ? 2.0 * power
                                : (rough <= 5.0 * power ? 5.0 : 10.0) * power;
}

static void add_axis(struct picture *p, double step, double top, double y)
{
    const double tick = step > 0.0 ? tick_of(step) : 1.0;

    for (int i = 0; i * tick <= step * (1.0 + 1e-9); i++) {
        const double x = LEFT + i * tick * p->scale;

        pst_str_addf(p->out,
                     "<path class=\"a\" d=\"M%.2f %.1fV%.1f\"/>\n"
                     "<text class=\"t\" x=\"%.2f\" y=\"%.1f\">",
                     x, top, y + 4.0, x, y + 16.0);
        add_seconds(p->out, i * tick);
        pst_str_add(p->out, "</text>\n");
    }
}

static void add_legend(struct picture *p, double y)
{
    double x = LEFT;

    for (int k = 0; k < PST_N_SPANS; k++) {
        if (!p->used[k])
            continue;
        pst_str_addf(p->out,
                     "<rect class=\"k%d%s\" x=\"%.0f\" y=\"%.1f\" width=\"12\" "
                     "height=\"12\"/><text x=\"%.0f\" y=\"%.1f\">%s</text>\n",
                     k, pst_span_class(k) == PST_CLASS_IDLE ? "" : " w", x, y,
                     x + 17.0, y + 10.5, pst_span_text(k));
        x += 34.0 + 6.3 * (double)strlen(pst_span_text(k));
    }
}

static void add_style(struct pst_str *out)
{
    pst_str_add(out, "<style>text{font:11px sans-serif;fill:#333}"
                     ".n{font-size:9px;fill:#10243a;text-anchor:middle}"
                     ".r{text-anchor:end}.t{text-anchor:middle;fill:#666}"
                     ".s{font-size:9px;fill:#777}"
                     ".h{font-weight:bold}.T{font-size:14px;font-weight:bold}"
                     ".a{stroke:#000;stroke-opacity:.12;fill:none}"
                     ".m{fill:#c9c2dc}.w{stroke:#fff;stroke-width:.5}");
    for (int k = 0; k < PST_N_SPANS; k++)
        pst_str_addf(out, ".k%d{fill:%s}", k, colours[k]);
    pst_str_add(out, "</style>\n");
}

/* Returns a width in which the numbers of the fullest row are readable. */
static double find_width(const struct pst_timeline *const *timelines, size_t n)
{
    size_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = PST_MAX(most, timelines[i]->spans.n /
                                 PST_MAX(timelines[i]->n_ranks, 1u));
    return fmin(fmax(BOX * (double)most, MIN_WIDTH), MAX_WIDTH);
}

void pst_timeline_svg(const struct pst_timeline *const *timelines, size_t n,
                      const char *title, struct pst_str *out)
{
    struct picture p = {.out = out, .width = find_width(timelines, n)};
    struct pst_shares *shares = NULL;
    double step = 0.0, height = TOP + AXIS + LEGEND + 8.0, y = TOP;
    size_t spans = 0;
    unsigned ranks = 0;

    for (size_t i = 0; i < n; i++) {
        step = fmax(step, timelines[i]->step);
        spans += timelines[i]->spans.n;
        ranks = PST_MAX(ranks, timelines[i]->n_ranks);
        height += HEADER + timelines[i]->n_ranks * row_height(timelines[i]);
    }
    shares = pst_calloc(PST_TAG_PLAN, ranks, sizeof(*shares));
    if (!shares || ranks > PST_COUNT(p.first_stage)) {
        out->failed = 1;
        pst_free(shares);
        return;
    }
    p.scale = step > 0.0 ? p.width / step : 0.0;
    p.tips = spans <= MAX_TIPS;
    pst_str_addf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                 "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\">\n",
                 LEFT + p.width + RIGHT, height, LEFT + p.width + RIGHT,
                 height);
    add_style(out);
    pst_str_add(out, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
                     "<text class=\"T\" x=\"12\" y=\"24\">");
    add_escaped(out, title);
    pst_str_add(out, "</text>\n");
    for (size_t i = 0; i < n; i++)
        y = add_timeline(&p, timelines[i], shares, y);
    add_axis(&p, step, TOP + HEADER, y);
    add_legend(&p, y + AXIS);
    pst_str_add(out, "</svg>\n");
    pst_free(shares);
}
