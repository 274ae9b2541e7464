// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/top/view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/print.h"

#define MIB        1048576.0
#define MAX_CURVE  8 /* maximum rows of the curve */
#define MIN_EVENTS 3
/* Minimum number of spaces between parts of a line that are shown whole or not
 * at all: between items of a list, and between cells of a table. */
#define ITEMS 2
#define CELLS 1

/* --- lines ---------------------------------------------------------------- */

/* Returns the number of bytes of the first `columns` characters. */
static size_t clip_text(const char *text, unsigned columns)
{
    size_t at = 0;

    while (columns-- > 0 && text[at] != '\0') {
        const size_t n = pst_utf8_length(text + at);

        at += n > 0 ? n : 1;
    }
    return at;
}

/* Returns the number of bytes of those parts of a line that fit into the
 * columns as a whole. Parts are at least `apart` spaces apart. */
static size_t clip_parts(const char *text, unsigned columns, size_t apart)
{
    const size_t n = clip_text(text, columns);
    size_t end = n;

    if (text[n] == '\0')
        return n;
    for (size_t i = 1; i <= n; i++)
        if (text[i - 1] != ' ' && strspn(text + i, " ") >= apart)
            end = i;
    return end;
}

struct page {
    const struct pstctl_top_screen *screen;
    pstctl_top_fn fn;
    unsigned rows; /* rows printed so far */
};

/* Prints as much of the line as fits (nothing if the page is full), and frees
 * the line. apart: minimum spaces between parts that are shown whole or not at
 * all; 0: the line may be cut anywhere. */
static void put_parts(struct page *p, enum pstctl_top_colour colour,
                      size_t apart, struct pst_str *line)
{
    if (p->rows < p->screen->rows) {
        const char *text = pst_str_text(line);
        const unsigned columns = p->screen->columns;
        struct pst_str shown = {0};

        pst_str_addn(&shown, text,
                     apart > 0 ? clip_parts(text, columns, apart)
                               : clip_text(text, columns));
        p->fn(colour, pst_str_text(&shown));
        pst_str_fini(&shown);
        p->rows++;
    }
    pst_str_fini(line);
}

static void put_line(struct page *p, enum pstctl_top_colour colour,
                     struct pst_str *line)
{
    put_parts(p, colour, 0, line);
}

/* --- the curve ------------------------------------------------------------ */

/* Bits of the dots of a braille character (U+2800): two columns of four. */
static const unsigned char dots[2][4] = {{0x01, 0x02, 0x04, 0x40},
                                         {0x08, 0x10, 0x20, 0x80}};

/* Divides n values into `places` buckets, and returns the mean of the finite
 * values in bucket i; NaN: there is none. */
static double bucket_mean(const double *values, size_t n, size_t i,
                          size_t places)
{
    size_t from = i * n / places, to = (i + 1) * n / places, count = 0;
    double sum = 0;

    if (to <= from)
        to = from + 1;
    for (size_t k = from; k < to && k < n; k++)
        if (isfinite(values[k])) {
            sum += values[k];
            count++;
        }
    return count > 0 ? sum / (double)count : (double)NAN;
}

static void find_range(const double *values, size_t n, double *ret_min,
                       double *ret_max)
{
    *ret_min = INFINITY;
    *ret_max = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i])) {
            *ret_min = fmin(*ret_min, values[i]);
            *ret_max = fmax(*ret_max, values[i]);
        }
    if (*ret_max - *ret_min < 1e-12)
        *ret_max = *ret_min + 1e-12;
}

static void add_cell(unsigned char bits, bool utf8, struct pst_str *out)
{
    const char text[] = {(char)0xe2, (char)(0xa0 | bits >> 6),
                         (char)(0x80 | (bits & 0x3f)), '\0'};

    if (utf8)
        pst_str_add(out, bits != 0 ? text : " ");
    else
        pst_str_add(out, bits != 0 ? "*" : " ");
}

void pstctl_top_curve(const double *values, size_t n, unsigned columns,
                      unsigned rows, bool utf8, struct pst_str *out)
{
    const unsigned label = 9;
    const unsigned wide = columns > label + 4 ? columns - label : 4;
    unsigned char cells[MAX_CURVE][512] = {{0}};
    const unsigned cols = PST_MIN(wide, 512u);
    double min, max;

    rows = PST_MIN(rows, (unsigned)MAX_CURVE);
    find_range(values, n, &min, &max);
    if (rows == 0 || n == 0 || !isfinite(min))
        return;
    for (unsigned i = 0; i < 2 * cols; i++) {
        const double y = bucket_mean(values, n, i, 2 * (size_t)cols);
        unsigned at;

        if (!isfinite(y))
            continue;
        at = (unsigned)((max - y) / (max - min) * (4 * rows - 1) + 0.5);
        cells[at / 4][i / 2] |= dots[i % 2][at % 4];
    }
    for (unsigned r = 0; r < rows; r++) {
        if (r == 0)
            pst_str_addf(out, "%8.4g ", max);
        else if (r == rows - 1)
            pst_str_addf(out, "%8.4g ", min);
        else
            pst_str_add(out, "         ");
        for (unsigned i = 0; i < cols; i++)
            add_cell(cells[r][i], utf8, out);
        pst_str_add(out, "\n");
    }
}

static void put_curve(struct page *p, const struct pstctl_top_view *v,
                      unsigned rows)
{
    struct pst_str curve = {0};
    const char *at;

    pstctl_top_curve(v->losses, v->n_losses, p->screen->columns, rows,
                     p->screen->utf8, &curve);
    at = pst_str_text(&curve);
    while (*at != '\0') {
        const size_t n = strcspn(at, "\n");
        struct pst_str line = {0};

        pst_str_addn(&line, at, n);
        put_line(p, PSTCTL_TOP_PLAIN, &line);
        at += n + (at[n] == '\n');
    }
    pst_str_fini(&curve);
}

/* --- the head ------------------------------------------------------------- */

static void put_head(struct page *p, const struct pstctl_top_view *v)
{
    struct pst_str line = {.visible = 1};

    pst_str_addf(&line, "%s  %s%s", v->job, v->answers ? v->state : "no answer",
                 v->paused ? " (paused)" : "");
    if (v->steps > 0)
        pst_str_addf(&line, "  step %llu/%llu", (unsigned long long)v->step,
                     (unsigned long long)v->steps);
    if (isfinite(v->eta)) {
        pst_str_add(&line, "  ETA ");
        pstctl_duration(v->eta, &line);
    }
    put_parts(p, PSTCTL_TOP_HEAD, ITEMS, &line);
    line = (struct pst_str){.visible = 1};
    if (!v->answers) {
        pst_str_addf(&line, "%s", v->why);
        put_line(p, PSTCTL_TOP_WARN, &line);
        return;
    }
    if (strcmp(v->state, "serving") == 0) {
        pst_str_addf(&line, "%llu answered  %llu refused  %llu waiting  ",
                     (unsigned long long)v->answered,
                     (unsigned long long)v->refused,
                     (unsigned long long)v->waiting);
        pstctl_duration(v->answer_s, &line);
        pst_str_add(&line, "/answer");
        put_parts(p, PSTCTL_TOP_PLAIN, ITEMS, &line);
        return;
    }
    if (v->steps == 0 || (isnan(v->loss) && !(v->step_s > 0))) {
        pst_str_add(&line, "no step so far");
        put_line(p, PSTCTL_TOP_PLAIN, &line);
        return;
    }
    pst_str_add(&line, "loss ");
    pstctl_loss(v->loss, &line);
    pst_str_addf(&line, "  lr %.3g  ", v->lr);
    pstctl_duration(v->step_s, &line);
    pst_str_add(&line, "/step");
    if (v->tok_s > 0) {
        pst_str_add(&line, "  ");
        pstctl_count(v->tok_s, &line);
        pst_str_add(&line, " tok/s");
    }
    pst_str_addf(&line, "  bubble %.0f%%", 100 * v->bubble);
    put_parts(p, PSTCTL_TOP_PLAIN, ITEMS, &line);
    line = (struct pst_str){.visible = 1};
    if (isfinite(v->eval_loss)) {
        pst_str_add(&line, "evaluated ");
        pstctl_loss(v->eval_loss, &line);
        pst_str_add(&line, ", best ");
        pstctl_loss(v->eval_best, &line);
        pst_str_add(&line, "  ");
    }
    for (unsigned i = 0; i < v->n_sets; i++) {
        pst_str_addf(&line, "%s ", v->sets[i].name);
        pstctl_loss(v->sets[i].loss, &line);
        pst_str_add(&line, "  ");
    }
    if (v->checkpoint > 0)
        pst_str_addf(&line, "checkpoint of step %llu",
                     (unsigned long long)v->checkpoint);
    if (line.len > 0)
        put_parts(p, PSTCTL_TOP_PLAIN, ITEMS, &line);
    pst_str_fini(&line);
    line = (struct pst_str){.visible = 1};
    if (v->error[0] != '\0') {
        pst_str_addf(&line, "last error: %s", v->error);
        put_line(p, PSTCTL_TOP_BAD, &line);
    }
    pst_str_fini(&line);
}

/* --- ranks ---------------------------------------------------------------- */

static double percentage(double part, double all)
{
    return all > 0 && isfinite(part) ? 100 * part / all : 0;
}

static void put_rank(struct page *p, const struct pstctl_top_rank *r,
                     unsigned number)
{
    const double busy =
        percentage(r->forward + r->backward + r->optim, r->step);
    struct pst_str line = {.visible = 1};

    pst_str_addf(&line, "%4u %-7.7s", number, r->stages);
    if (!r->answers) {
        pst_str_add(&line, "  no socket here");
        put_line(p, PSTCTL_TOP_PLAIN, &line);
        return;
    }
    if (r->step > 0)
        pst_str_addf(&line, " %4.0f%% %4.0f%% %4.0f%%", busy,
                     percentage(r->recv, r->step),
                     percentage(r->other, r->step));
    else
        pst_str_add(&line, "    -     -     -");
    if (isfinite(r->rss))
        pst_str_addf(&line, " %7.1f", r->rss / MIB);
    else
        pst_str_add(&line, "       -");
    if (p->screen->columns >= 66 && r->step > 0)
        pst_str_addf(&line, "   %4.0f%% %4.0f%% %4.0f%%",
                     percentage(r->forward, r->step),
                     percentage(r->backward, r->step),
                     percentage(r->optim, r->step));
    put_parts(p,
              !(r->step > 0) ? PSTCTL_TOP_PLAIN
              : busy >= 50   ? PSTCTL_TOP_GOOD
                             : PSTCTL_TOP_WARN,
              CELLS, &line);
}

static void put_ranks(struct page *p, const struct pstctl_top_view *v,
                      unsigned rows)
{
    const unsigned shown =
        PST_MIN(PST_MIN(v->ranks, rows), (unsigned)PSTCTL_TOP_RANKS);
    struct pst_str line = {0};

    pst_str_add(&line, "rank stages   busy  recv other     MiB");
    if (p->screen->columns >= 66)
        pst_str_add(&line, "   forw  back optim");
    put_parts(p, PSTCTL_TOP_HEAD, CELLS, &line);
    for (unsigned i = 0; i < shown; i++)
        put_rank(p, &v->rank[i], i);
    if (shown < v->ranks) {
        pst_str_addf(&line, "... and %u more", v->ranks - shown);
        put_line(p, PSTCTL_TOP_PLAIN, &line);
    }
}

static void put_events(struct page *p, const struct pstctl_top_view *v)
{
    const unsigned free_rows =
        p->screen->rows - PST_MIN(p->rows, p->screen->rows);
    const size_t n = PST_MIN(v->n_events, (size_t)free_rows);

    for (size_t i = v->n_events - n; i < v->n_events; i++) {
        const struct pstctl_top_event *e = &v->events[i];
        struct pst_str line = {.visible = 1};

        pst_str_addf(&line, "%s", e->text);
        put_line(p,
                 e->level == 'e'   ? PSTCTL_TOP_BAD
                 : e->level == 'w' ? PSTCTL_TOP_WARN
                                   : PSTCTL_TOP_PLAIN,
                 &line);
    }
}

void pstctl_top_clear_rank(struct pstctl_top_rank *r)
{
    r->step = r->forward = r->backward = r->optim = NAN;
    r->recv = r->other = r->rss = NAN;
}

void pstctl_top_init(struct pstctl_top_view *v)
{
    memset(v, 0, sizeof(*v));
    v->eta = v->eval_loss = v->eval_best = NAN;
    for (unsigned i = 0; i < PSTCTL_TOP_RANKS; i++)
        pstctl_top_clear_rank(&v->rank[i]);
}

void pstctl_top_draw(const struct pstctl_top_view *v,
                     const struct pstctl_top_screen *screen, pstctl_top_fn fn)
{
    struct page p = {.screen = screen, .fn = fn};
    unsigned left, curve;

    put_head(&p, v);
    left = screen->rows - PST_MIN(p.rows, screen->rows);
    curve = v->n_losses > 1 && left > v->ranks + MIN_EVENTS + 3
                ? PST_MIN(left - v->ranks - MIN_EVENTS - 1, 8u)
                : 0;
    put_curve(&p, v, curve);
    left = screen->rows - PST_MIN(p.rows, screen->rows);
    if (v->ranks > 0 && left > 1)
        put_ranks(&p, v, left > MIN_EVENTS + 2 ? left - MIN_EVENTS - 1 : left);
    put_events(&p, v);
}
