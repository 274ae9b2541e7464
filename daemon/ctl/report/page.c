// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/report/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/ctl/print.h"
#include "daemon/ctl/report/chart.h"

#define MIB       1048576.0
#define MAX_BARS  64
#define MAX_STEPS 20000 /* maximum spans in the timeline picture */

static const char style[] =
    ":root{--bg:#fff;--fg:#1c1f24;--dim:#667085;--edge:#e2e5ea;--warn:#9a6700;"
    "--bad:#c0362c;--c0:#2f6fde;--c1:#d9822b;--c2:#3a9d5d;--c3:#b04fc2;"
    "--c4:#8a94a6;--c5:#1fa3b8;--c6:#c7a52a;--c7:#d1577f;--c8:#7a6ad8}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e4e7ec;"
    "--dim:#98a2b3;--edge:#2c323b;--warn:#e0b040;--bad:#ff7b6e;--c0:#6ea8fe;"
    "--c1:#f0a860;--c2:#63c98a;--c3:#d68be6;--c4:#7d8798;--c5:#58cbdd;"
    "--c6:#e3c65c;--c7:#f08aac;--c8:#a79bf3}}\n"
    "body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,"
    "sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}\n"
    "p.dim,td.dim{color:var(--dim)}.chart{width:100%;height:auto}\n"
    ".chart text{fill:var(--dim);font:11px system-ui,sans-serif}\n"
    ".grid{stroke:var(--edge)}.line{fill:none;stroke-width:1.5}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}"
    "dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}\n"
    "table{border-collapse:collapse;width:100%;font-size:.85rem}"
    "td{border-top:1px solid var(--edge);padding:.2rem .6rem .2rem 0;"
    "vertical-align:top;overflow-wrap:anywhere}"
    "td:nth-child(-n+3){white-space:nowrap}\n"
    "tr.warn td{color:var(--warn)}tr.error td{color:var(--bad)}\n"
    ".key{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 1em}"
    ".legend{color:var(--dim);font-size:.85rem;margin:.2rem 0}\n"
    /* The timeline picture has its own colours, which are made for a white
     * background. */
    ".paper{background:#fff;overflow-x:auto;border-radius:4px}\n";

static void add_style(struct pst_str *out)
{
    pst_str_add(out, "<style>\n");
    pst_str_add(out, style);
    for (int i = 0; i < 9; i++)
        pst_str_addf(out,
                     ".line.c%d{stroke:var(--c%d)}.bar.c%d,.dot.c%d{fill:"
                     "var(--c%d)}.key.c%d{background:var(--c%d)}\n",
                     i, i, i, i, i, i, i);
    pst_str_add(out, "</style>\n");
}

static void add_time(double time, struct pst_str *out)
{
    const time_t seconds = (time_t)time;
    char text[40];
    struct tm tm;

    (void)gmtime_r(&seconds, &tm);
    (void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
    pst_str_add(out, text);
}

/* --- the head ------------------------------------------------------------- */

static void add_fact(struct pst_str *out, const char *name, const char *text)
{
    if (*text == '\0')
        return;
    pst_str_addf(out, "<dt>%s</dt><dd>", name);
    pstctl_html_add(out, text);
    pst_str_add(out, "</dd>\n");
}

static const struct pstctl_point *newest_point(
    const struct pstctl_points *points)
{
    return points->n > 0 ? &points->at[points->n - 1] : NULL;
}

static const struct pstctl_point *lowest_point(
    const struct pstctl_points *points)
{
    const struct pstctl_point *best = newest_point(points);

    for (size_t i = 0; i < points->n; i++)
        if (points->at[i].y < best->y)
            best = &points->at[i];
    return best;
}

/* Adds the step time and the rate of the run: those of the median step if the
 * run has ended, else means over the reported steps. */
static void add_rate(const struct pstctl_story *s, struct pst_str *out)
{
    const size_t n = PST_MIN(s->step_s.n, s->rate.n);
    const bool ended = isfinite(s->median) && s->median > 0;
    double seconds = 0, amount = 0;
    struct pst_str text = {0};

    for (size_t i = 0; i < n; i++) {
        seconds += s->step_s.at[i].y;
        amount += s->step_s.at[i].y * s->rate.at[i].y;
    }
    if (!(seconds > 0))
        return;
    seconds /= (double)n;
    amount /= (double)n;
    if (ended)
        seconds = s->median;
    pstctl_duration(seconds, &text);
    pst_str_add(&text, " a step, ");
    pstctl_count(amount / seconds, &text);
    pst_str_add(&text, s->tokens ? " tokens/s" : " samples/s");
    if (ended)
        pst_str_add(&text, " (median of the run)");
    else
        pst_str_addf(&text, " (mean of %zu step%s)", n, n == 1 ? "" : "s");
    add_fact(out, "rate", pst_str_text(&text));
    pst_str_fini(&text);
}

static void add_set(const struct pstctl_set_story *set, struct pst_str *out)
{
    const struct pstctl_point *last = newest_point(&set->eval);
    struct pst_str name = {0}, text = {0};

    if (last == NULL)
        return;
    pst_str_addf(&name, "evaluation on %s", set->name);
    pst_str_addf(&text, "%.6g at step %.0f", last->y, last->x);
    add_fact(out, pst_str_text(&name), pst_str_text(&text));
    pst_str_fini(&name);
    pst_str_fini(&text);
}

static void add_progress(const struct pstctl_story *s, struct pst_str *out)
{
    const struct pstctl_point *loss = newest_point(&s->loss);
    const struct pstctl_point *best = lowest_point(&s->eval);
    struct pst_str text = {0};

    if (loss == NULL) {
        add_fact(out, "progress", "no step was made");
        return;
    }
    pst_str_addf(&text, "step %.0f", loss->x);
    if (s->steps >= loss->x)
        pst_str_addf(&text, " of %.0f", s->steps);
    pst_str_addf(&text, ", loss %.6g", loss->y);
    add_fact(out, "progress", pst_str_text(&text));
    pst_str_fini(&text);
    if (best != NULL) {
        pst_str_addf(&text, "%.6g at step %.0f, the best of %zu", best->y,
                     best->x, s->eval.n);
        add_fact(out, "evaluation", pst_str_text(&text));
        pst_str_fini(&text);
    }
    for (unsigned i = 0; i < s->n_sets; i++)
        add_set(&s->sets[i], out);
    add_rate(s, out);
}

static void add_hosts(const struct pstctl_story *s, struct pst_str *out)
{
    struct pst_str text = {0};

    for (unsigned r = 0; r < s->ranks; r++) {
        const char *host = s->rank[r].host;
        bool had = host == NULL;

        for (unsigned k = 0; k < r && !had; k++)
            had = s->rank[k].host != NULL && strcmp(s->rank[k].host, host) == 0;
        if (!had)
            pst_str_addf(&text, "%s%s", text.len > 0 ? ", " : "", host);
    }
    add_fact(out, "hosts", pst_str_text(&text));
    pst_str_fini(&text);
}

/* Returns a text for the field `by` of the event stop. */
static const char *stop_text(const char *by)
{
    static const char *const words[][2] = {
        {"command", ", by a command"},
        {"signal", ", by a signal"},
        {"rank", ", by a signal to another rank"},
        {"launcher", ", by the launcher"}};

    for (size_t i = 0; i < PST_COUNT(words); i++)
        if (strcmp(by, words[i][0]) == 0)
            return words[i][1];
    return "";
}

static void add_end(const struct pstctl_story *s, struct pst_str *out)
{
    struct pst_str text = {0};

    if (*s->status == '\0')
        pst_str_add(&text, "the log has no end of the run");
    else if (strcmp(s->status, "OK") != 0)
        pst_str_add(&text, s->status);
    else if (s->stopped)
        pst_str_addf(&text, "stopped on request%s", stop_text(s->stop_by));
    else if (isfinite(s->patience))
        pst_str_addf(&text,
                     "ended early: %.0f evaluations were not better than that "
                     "of step %.0f",
                     s->patience, s->better);
    else
        pst_str_add(&text, "done");
    if (*s->end_text != '\0')
        pst_str_addf(&text, ": %s", s->end_text);
    add_fact(out, "end", pst_str_text(&text));
    pst_str_fini(&text);
}

static void add_head(const struct pstctl_story *s, struct pst_str *out)
{
    struct pst_str text = {0};

    pst_str_add(out, "<h1>");
    pstctl_html_add(out, s->job);
    pst_str_add(out, "</h1>\n<p class=\"dim\">");
    add_time(s->begin, out);
    pst_str_add(out, " to ");
    add_time(s->end, out);
    pst_str_add(out, " UTC</p>\n<dl>\n");
    add_progress(s, out);
    add_end(s, out);
    add_fact(out, "plan", s->plan);
    pst_str_addf(&text, "%u, stages %s, %s", s->ranks,
                 *s->placement != '\0' ? s->placement : "not known",
                 *s->transport != '\0' ? s->transport : "?");
    add_fact(out, "ranks", pst_str_text(&text));
    pst_str_fini(&text);
    add_hosts(s, out);
    pst_str_addf(&text, "%s%s%s%s%s", s->schedule,
                 *s->schedule != '\0' ? ", " : "", s->optimizer,
                 *s->optimizer != '\0' ? ", " : "", s->dtype);
    add_fact(out, "step", pst_str_text(&text));
    pst_str_fini(&text);
    add_fact(out, "options", s->options);
    if (s->starts > 1) {
        pst_str_addf(&text, "%u, %u by the supervisor", s->starts, s->restarts);
        add_fact(out, "starts", pst_str_text(&text));
        pst_str_fini(&text);
    }
    add_fact(out, "penstock", s->version);
    pst_str_add(out, "</dl>\n");
    if (s->bad > 0)
        pst_str_addf(out,
                     "<p class=\"dim\">%llu of %llu lines of the logs could "
                     "not be read.</p>\n",
                     (unsigned long long)s->bad, (unsigned long long)s->lines);
}

/* --- curves --------------------------------------------------------------- */

static void add_curves(const struct pstctl_story *s, struct pst_str *out)
{
    struct pstctl_series loss[1 + PSTD_MAX_SETS] = {
        {"loss", &s->loss, false}, {"evaluation", &s->eval, true}};
    size_t n_loss = s->eval.n > 0 ? 2 : 1;
    const struct pstctl_series rate[] = {
        {s->tokens ? "tokens a second" : "samples a second", &s->rate, false}};
    const struct pstctl_series lr[] = {{"learning rate", &s->lr, false}};
    const struct pstctl_series step[] = {
        {"seconds of a step", &s->step_s, false}};

    if (s->loss.n == 0) {
        pst_str_add(out, "<p>There is nothing to draw: the logs contain no "
                         "step.</p>\n");
        return;
    }
    pst_str_add(out, "<h2>Loss</h2>\n");
    for (unsigned i = 0; i < s->n_sets; i++)
        loss[1 + i] =
            (struct pstctl_series){s->sets[i].name, &s->sets[i].eval, true};
    n_loss = s->n_sets > 0 ? 1 + s->n_sets : n_loss;
    pstctl_chart_lines(loss, n_loss, out);
    pst_str_add(out, "<h2>Learning rate</h2>\n");
    pstctl_chart_lines(lr, 1, out);
    pst_str_addf(out, "<h2>%s a second</h2>\n",
                 s->tokens ? "Tokens" : "Samples");
    pstctl_chart_lines(rate, 1, out);
    pst_str_add(out, "<h2>Seconds of a step</h2>\n");
    pstctl_chart_lines(step, 1, out);
}

static void add_timeline(const struct pstctl_story *s, struct pst_str *out)
{
    const struct pst_timeline *timeline = &s->timeline;
    struct pst_str title = {0};

    if (timeline->spans.n == 0 || timeline->spans.n > MAX_STEPS)
        return;
    pst_str_addf(&title, "step %llu", (unsigned long long)s->timeline_step);
    pst_str_add(out, "<h2>A step</h2>\n<p class=\"dim\">The newest one "
                     "that all ranks have recorded. A box has the number "
                     "of its microbatch; it includes the wait for its "
                     "inputs.</p>\n<div class=\"paper\">\n");
    pst_timeline_svg(&timeline, 1, pst_str_text(&title), out);
    pst_str_add(out, "</div>\n");
    pst_str_fini(&title);
}

/* --- ranks ---------------------------------------------------------------- */

static double sum_parts(const double *parts, size_t n)
{
    double all = 0;

    for (size_t i = 0; i < n; i++)
        all += parts[i];
    return all;
}

static void name_bar(struct pstctl_bar *bar, const struct pstctl_story *s,
                     unsigned r)
{
    const char *stages = s->rank[r].stages;

    (void)snprintf(bar->name, sizeof(bar->name), "rank %u%s%.40s", r,
                   stages != NULL && *stages != '\0' ? ": " : "",
                   stages != NULL ? stages : "");
}

static void add_memory(const struct pstctl_story *s, struct pst_str *out)
{
    static const char *const parts[] = {
#define TEXT(field, text) text,
        PSTCTL_MEMORY_LIST(TEXT)};
    struct pstctl_bar bars[MAX_BARS] = {0};
    double most = 0;
    size_t n = 0;

    for (unsigned r = 0; r < s->ranks && n < MAX_BARS; r++) {
        const struct pstctl_rank_story *rank = &s->rank[r];
        const double all = sum_parts(rank->memory, PSTCTL_N_MEMORY);

        if (all <= 0)
            continue;
        name_bar(&bars[n], s, r);
        if (rank->rss > 0)
            (void)snprintf(bars[n].text, sizeof(bars[n].text),
                           "%.1f MiB (resident %.1f)", all / MIB,
                           rank->rss / MIB);
        else
            (void)snprintf(bars[n].text, sizeof(bars[n].text), "%.1f MiB",
                           all / MIB);
        memcpy(bars[n].parts, rank->memory, sizeof(rank->memory));
        most = fmax(most, all);
        n++;
    }
    if (n == 0)
        return;
    pst_str_add(out, "<h2>Memory by rank and use</h2>\n<p class=\"dim\">What "
                     "was planned, and is reserved before the first step.</p>"
                     "\n");
    pstctl_chart_bars(bars, n, parts, PSTCTL_N_MEMORY, most, out);
}

/* Adds a chart of how ranks spent their time. of_shares: shows the measured
 * step by cause of waiting; otherwise shows all reported steps. */
static void add_times(const struct pstctl_story *s, bool of_shares,
                      struct pst_str *out)
{
    static const char *const times[] = {PSTCTL_TIMES_LIST(TEXT)};
    static const char *const shares[] = {PSTCTL_SHARES_LIST(TEXT)};
#undef TEXT
    const size_t n_parts = of_shares ? PSTCTL_N_SHARES : PSTCTL_N_TIMES;
    struct pstctl_bar bars[MAX_BARS] = {0};
    size_t n = 0;

    for (unsigned r = 0; r < s->ranks && n < MAX_BARS; r++) {
        const double *from = of_shares ? s->rank[r].shares : s->rank[r].times;
        const double all = sum_parts(from, n_parts);

        if (all <= 0)
            continue;
        name_bar(&bars[n], s, r);
        for (size_t k = 0; k < n_parts; k++)
            bars[n].parts[k] = from[k] / all;
        (void)snprintf(bars[n].text, sizeof(bars[n].text), "%.0f%% at work",
                       100 * (of_shares ? from[0] / all
                                        : (from[0] + from[1] + from[2]) / all));
        n++;
    }
    if (n == 0)
        return;
    pst_str_add(out, of_shares ? "<h2>One step, by cause of waiting</h2>\n"
                               : "<h2>What steps were spent with</h2>\n");
    pstctl_chart_bars(bars, n, of_shares ? shares : times, n_parts, 1, out);
}

/* --- events --------------------------------------------------------------- */

static void add_events(const struct pstctl_story *s, struct pst_str *out)
{
    if (s->events.n == 0)
        return;
    pst_str_add(out, "<h2>Events</h2>\n");
    if (s->left_out > 0)
        pst_str_addf(out,
                     "<p class=\"dim\">The %zu before these are left "
                     "out.</p>\n",
                     s->left_out);
    pst_str_add(out, "<table>\n");
    for (size_t i = 0; i < s->events.n; i++) {
        const struct pstctl_shown_event *e = &s->events.at[i];

        pst_str_addf(out, "<tr class=\"%s\"><td class=\"dim\">",
                     strcmp(e->level, "error") == 0  ? "error"
                     : strcmp(e->level, "warn") == 0 ? "warn"
                                                     : "info");
        add_time(e->time, out);
        if (e->rank < 0)
            pst_str_add(out, "</td><td>job</td><td>");
        else
            pst_str_addf(out, "</td><td>rank %d</td><td>", e->rank);
        pstctl_html_add(out, e->event);
        pst_str_add(out, "</td><td>");
        pstctl_html_add(out, e->text);
        pst_str_add(out, "</td></tr>\n");
    }
    pst_str_add(out, "</table>\n");
}

void pstctl_page_render(const struct pstctl_story *s, struct pst_str *out)
{
    pst_str_add(out,
                "<!DOCTYPE html>\n"
                "<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n"
                "<head>\n<meta charset=\"utf-8\"/>\n"
                "<meta name=\"viewport\" content=\"width=device-width\"/>\n"
                "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
                "<title>");
    pstctl_html_add(out, s->job);
    pst_str_add(out, "</title>\n");
    add_style(out);
    pst_str_add(out, "</head>\n<body>\n");
    add_head(s, out);
    add_curves(s, out);
    add_timeline(s, out);
    add_times(s, true, out);
    add_times(s, false, out);
    add_memory(s, out);
    add_events(s, out);
    pst_str_add(out, "</body>\n</html>\n");
}
