// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/report/curves.h"

#include <math.h>
#include <string.h>

#include "daemon/common/steps/steps.h"

#define TAG PST_TAG_CLIENT
/* A history with more steps than this is thinned: steps are divided into so
 * many groups, and only the steps with the smallest and the largest loss of
 * each group are drawn. */
#define GROUPS 1000000

struct curves {
    struct pstctl_points loss, lr, rate, step_s;
    uint64_t group; /* number of steps in a group */
    size_t n;       /* steps of the current group so far */
    struct pstd_steps_record low, high;
    double seconds, count; /* sums over the current group */
    bool failed;
};

static bool push_point(struct pstctl_points *points, double x, double y)
{
    const struct pstctl_point p = {x, y};

    return !isfinite(y) || pst_vec_push(TAG, points, p);
}

static void add_points(struct curves *c, const struct pstd_steps_record *r)
{
    c->failed = c->failed || !push_point(&c->loss, (double)r->step, r->loss) ||
                !push_point(&c->lr, (double)r->step, r->lr);
}

/* Adds the points of a group of steps. */
static void end_group(struct curves *c)
{
    const bool low_first = c->low.step <= c->high.step;

    if (c->n == 0)
        return;
    add_points(c, low_first ? &c->low : &c->high);
    if (c->low.step != c->high.step)
        add_points(c, low_first ? &c->high : &c->low);
    if (c->seconds > 0)
        c->failed =
            c->failed ||
            !push_point(&c->step_s, (double)c->low.step,
                        c->seconds / (double)c->n) ||
            !push_point(&c->rate, (double)c->low.step, c->count / c->seconds);
    c->n = 0;
    c->seconds = c->count = 0;
}

static bool add_record(void *ctx, const struct pstd_steps_record *r)
{
    struct curves *c = ctx;

    if (c->n == 0 || !(c->low.loss <= r->loss))
        c->low = *r;
    if (c->n == 0 || !(c->high.loss >= r->loss))
        c->high = *r;
    c->seconds += (double)r->seconds;
    c->count += r->count;
    if (++c->n >= c->group)
        end_group(c);
    return !c->failed;
}

/* True if the newest step that both the logs and the history have has the same
 * values in both. Otherwise the history belongs to an earlier run, which used
 * the folder. */
static bool belongs_to_run(const struct pstd_steps *history,
                           const struct pstctl_story *s)
{
    struct pstd_steps_record r = {0};
    enum pstd_steps_kind kind = PSTD_STEPS_MISSING;
    struct pst_diag ignored;

    for (size_t i = s->loss.n; i-- > 0 && kind != PSTD_STEPS_GOOD;) {
        const double step = s->loss.at[i].x;

        if (!(step >= 1 && step <= (double)PSTD_STEPS_MOST) ||
            pstd_steps_find(history, (uint64_t)step, &r, &kind, &ignored) !=
                PST_OK)
            return false;
        if (kind == PSTD_STEPS_GOOD)
            return fabs(r.loss - s->loss.at[i].y) <= 1e-5 * fabs(r.loss);
    }
    return false;
}

/* Adds to `all` the points of the logs before step `first` and after step
 * `last`, and replaces the logs' points by `all`. */
static bool merge_points(struct pstctl_points *logs, struct pstctl_points *all,
                         double first, double last)
{
    struct pstctl_points ret = {0};
    bool ok = true;

    for (size_t i = 0; i < logs->n && ok && logs->at[i].x < first; i++)
        ok = pst_vec_push(TAG, &ret, logs->at[i]);
    for (size_t i = 0; i < all->n && ok; i++)
        ok = pst_vec_push(TAG, &ret, all->at[i]);
    for (size_t i = 0; i < logs->n && ok; i++)
        if (logs->at[i].x > last)
            ok = pst_vec_push(TAG, &ret, logs->at[i]);
    pst_vec_fini(logs);
    *logs = ret;
    return ok;
}

static enum pst_status read_curves(const struct pstd_steps *history,
                                   struct pstctl_story *s,
                                   struct pst_diag *diag)
{
    struct curves c = {.group = 1 + history->slots / GROUPS};
    struct pstd_steps_counts counts;
    double first, last;
    bool ok = true;
    enum pst_status status =
        pstd_steps_each(history, add_record, &c, &counts, diag);

    end_group(&c);
    if (status == PST_OK && c.loss.n > 0) {
        first = c.loss.at[0].x;
        last = c.loss.at[c.loss.n - 1].x;
        ok = merge_points(&s->loss, &c.loss, first, last) &&
             merge_points(&s->lr, &c.lr, first, last) &&
             merge_points(&s->rate, &c.rate, first, last) &&
             merge_points(&s->step_s, &c.step_s, first, last);
        s->tokens = history->head.tokens;
        s->recorded = counts.good;
    }
    if (status == PST_OK && (c.failed || !ok))
        status = pst_diag_nomem(diag, c.loss.n * sizeof(struct pstctl_point));
    pst_vec_fini(&c.loss);
    pst_vec_fini(&c.lr);
    pst_vec_fini(&c.rate);
    pst_vec_fini(&c.step_s);
    return status;
}

enum pst_status pstctl_curves_read(const char *dir, struct pstctl_story *s,
                                   struct pst_diag *diag)
{
    struct pstd_steps history = {0};
    struct pst_diag ignored;
    enum pst_status status = PST_OK;

    if (pstd_steps_open(dir, &history, &ignored) != PST_OK)
        return PST_OK;
    if (belongs_to_run(&history, s))
        status = read_curves(&history, s, diag);
    pstd_steps_close(&history);
    return status;
}
