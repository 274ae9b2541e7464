// SPDX-License-Identifier: Apache-2.0
/*
 * Checks gradients in f64 against finite differences of the loss. Where the
 * loss has a kink at the parameters, any gradient between the one-sided
 * differences is right. Parameters whose gradients this leaves undecided are
 * checked again beside the kink.
 */
#include "stages/verify/verifier.h"

#include <math.h>
#include <stdio.h>

#include "stages/base/host/alive.h"
#include "stages/base/plural.h"

/* Time limit of the central differences: the duration of DIFFERENCE_STEPS
 * steps, but at least DIFFERENCE_SECONDS. It limits the number of groups of
 * parameters that are checked at once. A group with an error is divided into
 * halves. */
#define DIFFERENCE_STEPS   6
#define DIFFERENCE_SECONDS 1.0
/* At a kink, a gradient must lie between the one-sided differences in all but
 * KINK_OUTSIDE of KINK_ATTEMPTS directions: these may meet another kink. */
#define KINK_ATTEMPTS 16
#define KINK_OUTSIDE  1
/* A direction decides if half the distance of its one-sided differences is at
 * most KINK_CLOSE of a typical derivative; KINK_ENOUGH such directions accept a
 * gradient. */
#define KINK_CLOSE   0.1
#define KINK_ENOUGH  3
#define KINK_HURRIED 2 /* as KINK_ENOUGH, when time is short */
/* Maximum number of parameter names in a line of unchecked gradients. */
#define NAMES 20

/* Reports that the gradients of [begin, end), taken together, are wrong. */
static void report_group(struct verifier *v, const unsigned *list,
                         unsigned begin, unsigned end, double error)
{
    const struct pst_plan *plan = v->joined;
    char name[300], more[340] = "";

    (void)snprintf(name, sizeof(name), "grad.%s",
                   plan->params.at[list[begin]].fqn);
    if (end - begin > 1)
        (void)snprintf(more, sizeof(more),
                       "or one of the next %u, up to grad.%.200s, ",
                       end - begin - 1, plan->params.at[list[end - 1]].fqn);
    pst_verifier_differs(
        v, name,
        "%sdiffers from the finite difference of the loss by %.3g times what "
        "is allowed (f64, central differences)",
        more, error);
}

struct differences {
    struct pst_wide *wide;
    const unsigned *list;
    unsigned n;
    bool *chosen;
    double until; /* time after which no group is halved */
    unsigned directions;
    struct pst_unsure *unsure;
};

enum answer { RIGHT, WRONG, OPEN };

/* Checks the gradients of the chosen parameters. *ret_best: error of the best
 * attempt. *ret is OPEN if they lie between one-sided differences that are too
 * far apart to decide, or if time ran out. */
static enum pst_status check_chosen(struct verifier *v, struct differences *s,
                                    enum answer *ret, double *ret_best)
{
    struct pst_wide_error error = {.plain = INFINITY};
    enum pst_status status = PST_OK;
    unsigned outside = 0, near_kinks = 0;

    *ret_best = INFINITY;
    *ret = OPEN;
    for (unsigned a = 0; a < KINK_ATTEMPTS && status == PST_OK; a++) {
        if (a > 0 && outside == 0 && pst_now() > s->until) {
            *ret = near_kinks >= KINK_HURRIED ? RIGHT : OPEN;
            return PST_OK;
        }
        s->directions++;
        status = pst_wide_check(s->wide, s->chosen, a, &error, v->diag);
        *ret_best = PST_MIN(*ret_best, error.plain);
        outside += error.kinked > 1;
        near_kinks += error.kinked <= 1 && error.apart <= KINK_CLOSE;
        if (a < PST_WIDE_ATTEMPTS && error.plain <= 1)
            *ret = RIGHT;
        else if (a + 1 < PST_WIDE_ATTEMPTS)
            continue;
        else if (outside > KINK_OUTSIDE)
            *ret = WRONG;
        else if (near_kinks >= KINK_ENOUGH)
            *ret = RIGHT;
        if (*ret != OPEN)
            return status;
    }
    return status;
}

static enum pst_status add_unsure(struct verifier *v,
                                  const struct differences *s, unsigned begin,
                                  unsigned end)
{
    for (unsigned k = begin; k < end; k++)
        if (!pst_vec_push(PST_TAG_EXEC, s->unsure, s->list[k]))
            return pst_diag_nomem(v->diag, sizeof(unsigned));
    return PST_OK;
}

/* Checks the parameters list[begin] to list[end - 1] as one group. */
static enum pst_status check_range(struct verifier *v, struct differences *s,
                                   unsigned begin, unsigned end)
{
    const unsigned *list = s->list, middle = begin + (end - begin) / 2;
    enum answer answer = OPEN;
    enum pst_status status;
    bool jumps = false;
    double best;

    for (unsigned k = begin; k < end; k++)
        s->chosen[list[k]] = true;
    if (end - begin == 1)
        pst_verifier_report(v, "gradient %u of %u: %s", end, s->n,
                            v->plan->params.at[list[begin]].fqn);
    else
        pst_verifier_report(v, "gradients %u to %u of %u", begin + 1, end,
                            s->n);
    status = check_chosen(v, s, &answer, &best);
    if (status == PST_OK && answer == WRONG && end - begin == 1)
        status = pst_wide_is_discontinuous(s->wide, s->chosen, &jumps, v->diag);
    for (unsigned k = begin; k < end; k++)
        s->chosen[list[k]] = false;
    if (status != PST_OK || answer == RIGHT)
        return status;
    if (end - begin > 1 && pst_now() < s->until) {
        status = check_range(v, s, begin, middle);
        return status == PST_OK ? check_range(v, s, middle, end) : status;
    }
    if (answer == OPEN || jumps)
        return add_unsure(v, s, begin, end);
    report_group(v, list, begin, end, best);
    return PST_OK;
}

/* Returns the number of groups that `time` (in seconds) allows. */
static unsigned groups_of(const struct differences *s, double time)
{
    const double looks = time / PST_MAX(2 * pst_wide_seconds(s->wide), 1e-9);

    if (s->n == 0 || looks >= s->n)
        return s->n;
    return looks / 2 < 1.0 ? 1 : (unsigned)(looks / 2);
}

static int64_t elements_of(const struct verifier *v, const unsigned *list,
                           size_t n)
{
    int64_t sum = 0;

    for (size_t k = 0; k < n; k++)
        sum += pst_meta_numel(&v->joined->params.at[list[k]].meta);
    return sum;
}

static void report_differences(struct verifier *v, const struct differences *s,
                               unsigned groups, const char *where,
                               unsigned different)
{
    struct pst_str *text = &v->report.text;
    const unsigned n = s->n - (unsigned)s->unsure->n;
    const int64_t elements = elements_of(v, s->list, s->n) -
                             elements_of(v, s->unsure->at, s->unsure->n);

    v->report.compared += n;
    pst_str_addf(text,
                 "gradients of %u parameter%s (%lld element%s) checked against "
                 "finite differences in f64%s, along %u random direction%s",
                 n, pst_plural(n), (long long)elements,
                 pst_plural((uint64_t)elements), where, s->directions,
                 pst_plural(s->directions));
    if (groups < s->n)
        pst_str_addf(text, ", in %u group%s of parameters at once", groups,
                     pst_plural(groups));
    pst_str_addf(text, ", %u differ\n", different);
}

enum pst_status pst_verifier_differences(struct verifier *v,
                                         struct pst_wide *wide,
                                         const unsigned *list, unsigned n,
                                         const char *where,
                                         struct pst_unsure *unsure)
{
    const double now = pst_now();
    /* Reserves the time of one more uncut step, which follows. */
    const double left = v->until - v->whole - now;
    const double time =
        PST_MIN(PST_MAX(DIFFERENCE_STEPS * v->step, DIFFERENCE_SECONDS),
                PST_MAX(left, 0.0));
    const unsigned before = v->report.different;
    struct differences s = {
        .wide = wide,
        .list = list,
        .n = n,
        .chosen =
            pst_calloc(PST_TAG_EXEC, v->joined->params.n + 1, sizeof(bool)),
        .until = now + time,
        .unsure = unsure,
    };
    const unsigned groups = groups_of(&s, time);
    enum pst_status status = PST_OK;

    if (s.chosen == NULL)
        return pst_diag_nomem(v->diag, v->joined->params.n);
    for (unsigned g = 0; g < groups && status == PST_OK; g++)
        status = check_range(v, &s, (unsigned)((uint64_t)n * g / groups),
                             (unsigned)((uint64_t)n * (g + 1) / groups));
    pst_free(s.chosen);
    report_differences(v, &s, groups, where, v->report.different - before);
    return status;
}

void pst_verifier_unchecked(struct verifier *v, const struct pst_unsure *unsure,
                            const char *why)
{
    struct pst_str *text = &v->report.text;

    if (unsure->n == 0)
        return;
    v->report.unchecked += (unsigned)unsure->n;
    pst_str_addf(text, "not checked: %zu gradient%s, %s:", unsure->n,
                 pst_plural(unsure->n), why);
    for (size_t i = 0; i < unsure->n && i < NAMES; i++)
        pst_str_addf(text, "%s grad.%s", i > 0 ? "," : "",
                     v->joined->params.at[unsure->at[i]].fqn);
    if (unsure->n > NAMES)
        pst_str_addf(text, " and %zu more", unsure->n - NAMES);
    pst_str_add(text, "\n");
}
