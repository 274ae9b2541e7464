// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/generate.h"

#include <math.h>
#include <stdint.h>

/*
 * Linear partition by dynamic programming, O(S^2 P), twice: first the minimum M
 * of the costliest group's cost, then, among the partitions that reach M, the
 * one with the least sum of squares (the most even one). Ties are resolved in
 * favor of small early groups, since early ranks hold more microbatches in
 * flight.
 */
struct table {
    const double *prefix; /* sums of the costs of the first 0 to S stages */
    double *best;         /* cost of the best g groups of the first s stages */
    unsigned *cut;        /* start of the last of these g groups */
    unsigned stages, ranks;
};

static double group_cost(const struct table *t, unsigned from, unsigned to)
{
    return t->prefix[to] - t->prefix[from];
}

/* Returns the cost of a partition with one more group. limit: infinity in the
 * first pass (the maximum counts), M in the second (the sum of squares). */
static double joined_cost(double before, double cost, double limit)
{
    if (isinf(limit))
        return fmax(before, cost);
    return cost <= limit ? before + cost * cost : INFINITY;
}

/* Finds the best last group of the first s stages in g groups. */
static void fill_cell(const struct table *t, unsigned g, unsigned s,
                      double limit)
{
    const size_t width = (size_t)t->stages + 1;
    double best = INFINITY;
    unsigned cut = g - 1;

    /* Ascending: among equal costs the earliest cut is kept, which makes the
     * last group the largest. */
    for (unsigned c = g - 1; c < s; c++) {
        const double all = joined_cost(t->best[(g - 1) * width + c],
                                       group_cost(t, c, s), limit);

        if (all < best) {
            best = all;
            cut = c;
        }
    }
    t->best[g * width + s] = best;
    t->cut[g * width + s] = cut;
}

static void fill_table(const struct table *t, double limit)
{
    const size_t width = (size_t)t->stages + 1;

    for (unsigned s = 1; s <= t->stages; s++) {
        t->best[width + s] = joined_cost(0.0, group_cost(t, 0, s), limit);
        t->cut[width + s] = 0;
    }
    for (unsigned g = 2; g <= t->ranks; g++)
        for (unsigned s = g; s <= t->stages; s++)
            fill_cell(t, g, s, limit);
}

static enum pst_status place_groups(unsigned stages, unsigned ranks,
                                    const double *costs, int *rank_of,
                                    struct pst_diag *diag)
{
    const size_t cells = ((size_t)ranks + 1) * (stages + 1);
    double *prefix =
        pst_calloc(PST_TAG_PLAN, (size_t)stages + 1, sizeof(double));
    struct table t = {prefix, pst_calloc(PST_TAG_PLAN, cells, sizeof(double)),
                      pst_calloc(PST_TAG_PLAN, cells, sizeof(unsigned)), stages,
                      ranks};
    enum pst_status status = PST_OK;

    if (!prefix || !t.best || !t.cut) {
        (void)pst_diag_nomem(diag, cells * sizeof(double));
        status = PST_ERR_NOMEM;
    }
    for (unsigned s = 0; s < stages && status == PST_OK; s++) {
        const double cost = costs ? costs[s] : 1.0;

        if (!isfinite(cost) || cost < 0)
            status = pst_diag_set(diag, PST_E_COSTS_STAGE,
                                  "the cost of stage %u is %g", s, cost);
        else
            prefix[s + 1] = prefix[s] + cost;
    }
    if (status == PST_OK) {
        unsigned end = stages;

        fill_table(&t, INFINITY);
        fill_table(&t, t.best[cells - 1]);
        for (unsigned g = ranks; g > 0; g--) {
            const unsigned begin = t.cut[(size_t)g * (stages + 1) + end];

            for (unsigned s = begin; s < end; s++)
                rank_of[s] = (int)g - 1;
            end = begin;
        }
    }
    pst_free(t.cut);
    pst_free(t.best);
    pst_free(prefix);
    return status;
}

enum pst_status pst_schedule_place(enum pst_place place, unsigned stages,
                                   unsigned ranks, const double *costs,
                                   int *rank_of, struct pst_diag *diag)
{
    if (place == PST_PLACE_V && stages % ranks != 0)
        return pst_diag_set(diag, PST_E_SCHEDULE_COUNTS,
                            "%u stages do not lie there and back on %u ranks: "
                            "that needs a multiple of %u stages, say %u",
                            stages, ranks, ranks,
                            PST_MAX(2, (stages + ranks / 2) / ranks) * ranks);
    if (place == PST_PLACE_GROUPS && stages > ranks)
        return place_groups(stages, ranks, costs, rank_of, diag);
    for (unsigned s = 0; s < stages; s++)
        rank_of[s] =
            (int)(place == PST_PLACE_V && s / ranks % 2 ? ranks - 1 - s % ranks
                                                        : s % ranks);
    return PST_OK;
}

bool pst_sched_is_placed(const struct pst_schedule *sched, enum pst_place place)
{
    const int ranks = (int)sched->n_ranks, *rank_of = sched->rank_of;

    for (int s = 0; s < (int)sched->n_stages; s++) {
        const bool back = place == PST_PLACE_V && s / ranks % 2;
        const int grown = s ? rank_of[s] - rank_of[s - 1] : rank_of[s];

        if (place == PST_PLACE_GROUPS
                ? grown < 0 || grown > (s > 0)
                : rank_of[s] != (back ? ranks - 1 - s % ranks : s % ranks))
            return false;
    }
    return true;
}

/* Reads a number of at most 9 digits and advances. False: there is none, or it
 * is longer. */
static bool read_number(const char **at, unsigned *ret)
{
    unsigned digits = 0, x = 0;

    while (**at >= '0' && **at <= '9' && digits++ < 9)
        x = 10 * x + (unsigned)(*(*at)++ - '0');
    *ret = x;
    return digits > 0 && digits < 10;
}

static enum pst_status check_all_placed(const char *text, unsigned stages,
                                        unsigned ranks, const int *rank_of,
                                        struct pst_diag *diag)
{
    for (unsigned s = 0; s < stages; s++)
        if (rank_of[s] < 0)
            return pst_diag_set(diag, PST_E_SCHEDULE_PLACE,
                                "--place '%.80s' gives stage %u of %u no rank: "
                                "add %u=RANK",
                                text, s, stages, s);
    for (unsigned r = 0; r < ranks; r++) {
        bool found = false;

        for (unsigned s = 0; s < stages && !found; s++)
            found = rank_of[s] == (int)r;
        if (!found)
            return pst_diag_set(diag, PST_E_SCHEDULE_PLACE,
                                "--place '%.80s' gives rank %u of %u no stage: "
                                "add STAGE=%u or take fewer ranks",
                                text, r, ranks, r);
    }
    return PST_OK;
}

enum pst_status pst_sched_parse_place(const char *text, unsigned stages,
                                      unsigned ranks, int *rank_of,
                                      struct pst_diag *diag)
{
    const char *at = text;

    for (unsigned s = 0; s < stages; s++)
        rank_of[s] = -1;
    do {
        unsigned first, last, rank;
        bool good = read_number(&at, &first);

        last = first;
        if (good && *at == '-') {
            at++;
            good = read_number(&at, &last);
        }
        good = good && *at++ == '=' && read_number(&at, &rank);
        if (!good || (*at && *at != ','))
            return pst_diag_set(diag, PST_E_SCHEDULE_PLACE,
                                "--place '%.80s' is not STAGE=RANK,... or "
                                "FIRST-LAST=RANK,...: character %zu",
                                text, (size_t)(at - text) + 1);
        if (last >= stages || rank >= ranks || first > last)
            return pst_diag_set(diag, PST_E_SCHEDULE_PLACE,
                                "--place '%.80s' puts stages %u to %u on rank "
                                "%u: there are stages 0 to %u and ranks 0 to "
                                "%u",
                                text, first, last, rank, stages - 1, ranks - 1);
        for (unsigned s = first; s <= last; s++) {
            if (rank_of[s] >= 0)
                return pst_diag_set(diag, PST_E_SCHEDULE_PLACE,
                                    "--place '%.80s' puts stage %u on rank %d "
                                    "and on rank %u: name it once",
                                    text, s, rank_of[s], rank);
            rank_of[s] = (int)rank;
        }
    } while (*at++ == ',');
    return check_all_placed(text, stages, ranks, rank_of, diag);
}
