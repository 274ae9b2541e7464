// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDE   720.0
#define HIGH   220.0
#define LEFT   64.0
#define RIGHT  12.0
#define TOP    8.0
#define BOTTOM 24.0
#define DIGIT  7.0 /* maximum width of a digit */
/* a curve with more points is drawn as this number of buckets of points */
#define BUCKETS 480

void pstctl_html_add(struct pst_str *out, const char *text)
{
    struct pst_str shown = {0};

    pst_str_add_visible(&shown, text);
    for (const char *at = pst_str_text(&shown); *at != '\0'; at++) {
        if (strchr("<>&\"'", *at) != NULL)
            pst_str_addf(out, "&#%d;", *at);
        else
            pst_str_addn(out, at, 1);
    }
    out->failed |= shown.failed;
    pst_str_fini(&shown);
}

struct range {
    double min, max;
};

static void extend_range(struct range *r, double x)
{
    r->min = fmin(r->min, x);
    r->max = fmax(r->max, x);
}

/* Returns the distance between ticks, of which there are about four: 1, 2 or 5
 * times a power of ten. */
static double tick_distance(struct range r)
{
    const double rough = (r.max - r.min) / 4;
    const double power = pow(10, floor(log10(rough)));
    const double times = rough / power;

    return power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

static struct range range_of(const struct pstctl_series *series, size_t n,
                             bool of_x)
{
    struct range r = {INFINITY, -INFINITY};

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < series[i].points->n; k++)
            extend_range(&r, of_x ? series[i].points->at[k].x
                                  : series[i].points->at[k].y);
    if (r.max - r.min < 1e-9 * fmax(fabs(r.max), 1e-9)) {
        const double pad = of_x || r.max == 0 ? 1 : 0.1 * fabs(r.max);

        r.min -= of_x ? 0 : pad;
        r.max += pad;
    }
    return r;
}

static double map_x(double x, struct range r)
{
    return LEFT + (x - r.min) / (r.max - r.min) * (WIDE - LEFT - RIGHT);
}

static double map_y(double y, struct range r)
{
    return HIGH - BOTTOM -
           (y - r.min) / (r.max - r.min) * (HIGH - TOP - BOTTOM);
}

/* Adds a label below the x axis. A label at the right end is shifted so that it
 * stays in the picture. */
static void add_tick(double t, double x, struct pst_str *out)
{
    char text[32];
    const int n = snprintf(text, sizeof(text), "%.0f", t);
    const bool leaves = x + 0.5 * DIGIT * n > WIDE;

    pst_str_addf(out,
                 "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
                 leaves ? WIDE : x, HIGH - 6, leaves ? "end" : "middle", text);
}

static void add_axes(struct range x, struct range y, struct pst_str *out)
{
    const double dy = tick_distance(y), dx = fmax(tick_distance(x), 1);

    for (double t = ceil(y.min / dy) * dy; t <= y.max + 1e-9 * dy; t += dy)
        pst_str_addf(out,
                     "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" "
                     "y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
                     "text-anchor=\"end\">%.4g</text>\n",
                     LEFT, WIDE - RIGHT, map_y(t, y), map_y(t, y), LEFT - 6,
                     map_y(t, y) + 4, fabs(t) < 1e-9 * dy ? 0.0 : t);
    for (double t = ceil(x.min / dx) * dx; t <= x.max + 1e-9 * dx; t += dx)
        add_tick(t, map_x(t, x), out);
}

/* Draws points i to j - 1 as one vertical stroke from the lowest to the
 * highest. */
static void add_bucket(const struct pstctl_points *p, size_t i, size_t j,
                       struct range x, struct range y, struct pst_str *out)
{
    size_t low = i, high = i;

    for (size_t k = i; k < j; k++) {
        if (p->at[k].y < p->at[low].y)
            low = k;
        if (p->at[k].y > p->at[high].y)
            high = k;
    }
    for (int both = 0; both < (low == high ? 1 : 2); both++) {
        const size_t k = (both == 0) == (low < high) ? low : high;

        pst_str_addf(out, "%.1f,%.1f ", map_x(p->at[k].x, x),
                     map_y(p->at[k].y, y));
    }
}

static void add_series(const struct pstctl_series *s, size_t number,
                       struct range x, struct range y, struct pst_str *out)
{
    const struct pstctl_points *p = s->points;
    const size_t n = PST_MIN(p->n, (size_t)BUCKETS);

    if (p->n == 0)
        return;
    pst_str_addf(out, "<polyline class=\"line c%zu\" points=\"", number);
    for (size_t b = 0; b < n; b++)
        add_bucket(p, b * p->n / n, (b + 1) * p->n / n, x, y, out);
    pst_str_add(out, "\"/>\n");
    for (size_t k = 0; (s->dots || p->n == 1) && k < p->n && p->n <= BUCKETS;
         k++)
        pst_str_addf(out,
                     "<circle class=\"dot c%zu\" cx=\"%.1f\" cy=\"%.1f\" "
                     "r=\"3\"><title>step %.0f: %.6g</title></circle>\n",
                     number, map_x(p->at[k].x, x), map_y(p->at[k].y, y),
                     p->at[k].x, p->at[k].y);
}

static void add_legend(const char *const *names, size_t n, struct pst_str *out)
{
    pst_str_add(out, "<p class=\"legend\">");
    for (size_t i = 0; i < n; i++) {
        pst_str_addf(out, "<span class=\"key c%zu\"></span>", i);
        pstctl_html_add(out, names[i]);
        pst_str_add(out, " ");
    }
    pst_str_add(out, "</p>\n");
}

void pstctl_chart_lines(const struct pstctl_series *series, size_t n,
                        struct pst_str *out)
{
    const struct range x = range_of(series, n, true),
                       y = range_of(series, n, false);
    const char *names[PSTCTL_N_MEMORY];
    size_t any = 0;

    for (size_t i = 0; i < n; i++)
        any += series[i].points->n;
    if (any == 0)
        return;
    pst_str_addf(out,
                 "<svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
                 "aria-label=\"",
                 WIDE, HIGH);
    pstctl_html_add(out, series[0].name);
    pst_str_add(out, " by step\">\n");
    add_axes(x, y, out);
    for (size_t i = 0; i < n; i++) {
        add_series(&series[i], i, x, y, out);
        names[i] = series[i].name;
    }
    pst_str_add(out, "</svg>\n");
    if (n > 1)
        add_legend(names, n, out);
}

void pstctl_chart_bars(const struct pstctl_bar *bars, size_t n,
                       const char *const *parts, size_t n_parts, double most,
                       struct pst_str *out)
{
    const double row = 24, left = 120, right = 150;
    const double scale = (WIDE - left - right) / (most > 0 ? most : 1);

    pst_str_addf(out,
                 "<svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
                 "aria-label=\"by rank\">\n",
                 WIDE, row * (double)n + 4);
    for (size_t i = 0; i < n; i++) {
        const double y = row * (double)i + 2;
        double x = left;

        pst_str_addf(out, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">",
                     left - 6, y + 15);
        pstctl_html_add(out, bars[i].name);
        pst_str_add(out, "</text>\n");
        for (size_t k = 0; k < n_parts; k++) {
            const double wide = scale * bars[i].parts[k];

            if (!(wide >= 0.05))
                continue;
            pst_str_addf(out,
                         "<rect class=\"bar c%zu\" x=\"%.1f\" y=\"%.1f\" "
                         "width=\"%.1f\" height=\"%.0f\"><title>%s"
                         "</title></rect>\n",
                         k, x, y, wide, row - 6, parts[k]);
            x += wide;
        }
        pst_str_addf(out, "<text x=\"%.1f\" y=\"%.0f\">", x + 6, y + 15);
        pstctl_html_add(out, bars[i].text);
        pst_str_add(out, "</text>\n");
    }
    pst_str_add(out, "</svg>\n");
    add_legend(parts, n_parts, out);
}
