// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/health/straggler.h"

#include <string.h>

#include "stages/base/alloc.h"

#define COLD 4 /* first steps, which load, map memory and warm up caches */
/* A rank's step is slow if its time is more than TIMES times the expected one,
 * and longer than that by more than OF_STEP of the step and LEAST_S seconds. */
#define TIMES   1.3
#define OF_STEP 0.02
#define LEAST_S 1e-3
#define NAMED   12 /* slow steps in the window that make a rank a straggler */
/* With at most so many slow steps in the window, a rank is no longer a
 * straggler. */
#define GONE 4
/* Minimum number of steps from a measurement that explains nothing to the next
 * measurement: FIRST_WAIT at first; each such measurement doubles it, up to
 * LONGEST. */
#define FIRST_WAIT 64
#define LONGEST    4096
/* share of the excess time that a rank's messages must explain */
#define EXPLAINS 0.5

static double median(double *values, unsigned n)
{
    for (unsigned i = 1; i < n; i++) {
        const double x = values[i];
        unsigned k = i;

        for (; k > 0 && values[k - 1] > x; k--)
            values[k] = values[k - 1];
        values[k] = x;
    }
    if (n == 0)
        return 0;
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static double window_median(const double *ring)
{
    double copy[PSTD_STRAGGLER_WINDOW];

    memcpy(copy, ring, sizeof(copy));
    return median(copy, PSTD_STRAGGLER_WINDOW);
}

/* --- one series ----------------------------------------------------------- */

static unsigned count_slow(const struct pstd_series *p)
{
    unsigned n = 0;

    for (uint32_t bits = p->slow; bits != 0; bits &= bits - 1)
        n++;
    return n;
}

/* Adds the time of step n (from 0) to the times from which the base is
 * computed. */
static void add_base_time(struct pstd_series *p, uint64_t n, double seconds)
{
    if (n < COLD)
        return;
    p->newest[(n - COLD) % PSTD_STRAGGLER_WINDOW] = seconds;
    if (n - COLD + 1 == PSTD_STRAGGLER_WINDOW)
        p->base = window_median(p->newest);
}

static void add_ratio(struct pstd_series *p, uint64_t n, double ratio,
                      bool slow)
{
    p->ratios[n % PSTD_STRAGGLER_WINDOW] = ratio;
    p->slow = (p->slow << 1 | slow) & ((1u << PSTD_STRAGGLER_WINDOW) - 1);
}

/* Updates p->named; returns true if it has changed. wanted: minimum number of
 * slow steps in the window for a series to be named. */
static bool update_named(struct pstd_series *p, unsigned wanted)
{
    const unsigned n = count_slow(p);

    if (p->named ? n > GONE : n < wanted)
        return false;
    p->named = !p->named;
    return true;
}

static void emit_straggler(struct pstd_stragglers *s, unsigned rank,
                           const struct pstd_series *p, bool named,
                           bool communication)
{
    s->changes[s->n_changes++] =
        (struct pstd_straggler){.rank = rank,
                                .named = named,
                                .communication = communication,
                                .ratio = window_median(p->ratios)};
}

/* --- all ranks ------------------------------------------------------------ */

enum pst_status pstd_stragglers_init(struct pstd_stragglers *s, unsigned ranks,
                                     unsigned per_replica,
                                     struct pst_diag *diag)
{
    *s = (struct pstd_stragglers){.patience = FIRST_WAIT};
    if (ranks < 2)
        return PST_OK;
    s->series = pst_calloc(PST_TAG_DAEMON, ranks, sizeof(*s->series));
    s->work = pst_calloc(PST_TAG_DAEMON, ranks, sizeof(*s->work));
    s->sorted = pst_calloc(PST_TAG_DAEMON, ranks, sizeof(*s->sorted));
    s->peers = pst_calloc(PST_TAG_DAEMON, ranks, sizeof(*s->peers));
    s->changes =
        pst_calloc(PST_TAG_DAEMON, (size_t)ranks + 1, sizeof(*s->changes));
    if (s->series == NULL || s->work == NULL || s->sorted == NULL ||
        s->peers == NULL || s->changes == NULL) {
        pstd_stragglers_fini(s);
        return pst_diag_nomem(diag, ranks * sizeof(*s->series));
    }
    s->ranks = ranks;
    s->per_replica = per_replica;
    return PST_OK;
}

void pstd_stragglers_fini(struct pstd_stragglers *s)
{
    pst_free(s->series);
    pst_free(s->work);
    pst_free(s->sorted);
    pst_free(s->peers);
    pst_free(s->changes);
    *s = (struct pstd_stragglers){0};
}

void pstd_stragglers_reset(struct pstd_stragglers *s)
{
    s->n_changes = 0;
    if (s->has_link)
        emit_straggler(s, s->link, &s->steps, false, true);
    for (unsigned k = 0; k < s->ranks; k++) {
        if (s->series[k].named)
            emit_straggler(s, k, &s->series[k], false, false);
        s->series[k] = (struct pstd_series){0};
    }
    s->steps = (struct pstd_series){0};
    s->n = s->n_steps = s->measure_at = 0;
    s->patience = FIRST_WAIT;
    s->has_link = s->suspicious = false;
}

/* Returns the factor by which the other ranks have become slower since their
 * first steps: the median, at least 1. This rank may be slower by the same
 * factor. s->sorted has the ratios of all ranks; own: this rank's ratio. */
static double slowdown_of_others(const struct pstd_stragglers *s, double own)
{
    const unsigned n = s->ranks - 1; /* number of the other ranks */
    unsigned at = 0;
    double low, high;

    while (at < n && s->sorted[at] < own)
        at++;
    high = s->sorted[n / 2 < at ? n / 2 : n / 2 + 1];
    low = n % 2 == 1 ? high : s->sorted[n / 2 - 1 < at ? n / 2 - 1 : n / 2];
    return PST_MAX(1.0, (low + high) / 2);
}

/* Returns the median time of the ranks with the same stages in other replicas,
 * scaled to this rank's number of microbatches; 0: there are no such ranks. */
static double peers_median(const struct pstd_stragglers *s,
                           const struct pstd_work *work, unsigned rank)
{
    unsigned n = 0;

    for (unsigned k = rank % s->per_replica; k < s->ranks; k += s->per_replica)
        if (k != rank && work[k].microbatches > 0)
            s->peers[n++] = work[k].seconds / work[k].microbatches;
    return median(s->peers, n) * work[rank].microbatches;
}

static void check_rank(struct pstd_stragglers *s, const struct pstd_work *work,
                       unsigned rank, double least)
{
    struct pstd_series *p = &s->series[rank];
    const double took = work[rank].seconds, peers = peers_median(s, work, rank);
    double expected = p->base * slowdown_of_others(s, took / p->base);

    /* Detects a rank that has been slow from the first step on. */
    if (peers > 0 && peers < expected)
        expected = peers;
    add_ratio(p, s->n, took / expected,
              took > TIMES * expected && took - expected > least);
    if (update_named(p, NAMED))
        emit_straggler(s, rank, p, p->named, false);
}

/* Detects steps that have become slower although no rank computes for longer.
 * All steps of the window must be slow: a shared processor slows some steps
 * down, late messages slow all of them down. */
static void check_steps(struct pstd_stragglers *s, double seconds,
                        bool is_explained)
{
    struct pstd_series *p = &s->steps;
    const bool was = p->named;

    if (is_explained)
        return;
    add_ratio(p, s->n_steps++, seconds / p->base,
              seconds > TIMES * p->base && seconds - p->base > LEAST_S);
    (void)update_named(p, PSTD_STRAGGLER_WINDOW);
    if (was && !p->named && s->has_link) {
        s->has_link = false;
        emit_straggler(s, s->link, p, false, true);
    }
    s->suspicious = p->named && !s->has_link && s->n >= s->measure_at;
    s->excess = p->base * (window_median(p->ratios) - 1);
}

void pstd_stragglers_step(struct pstd_stragglers *s,
                          const struct pstd_work *work, double seconds)
{
    const double least = PST_MAX(LEAST_S, OF_STEP * seconds);
    bool is_explained = false;

    s->n_changes = 0;
    s->suspicious = false;
    if (s->ranks == 0)
        return;
    if (s->n < COLD + PSTD_STRAGGLER_WINDOW) {
        for (unsigned k = 0; k < s->ranks; k++)
            add_base_time(&s->series[k], s->n, PST_MAX(work[k].seconds, 1e-9));
        add_base_time(&s->steps, s->n++, PST_MAX(seconds, 1e-9));
        return;
    }
    for (unsigned k = 0; k < s->ranks; k++) {
        const double took = work[k].seconds, base = s->series[k].base;

        s->sorted[k] = took / base;
        is_explained |= took > TIMES * base && took - base > least;
    }
    (void)median(s->sorted, s->ranks);
    for (unsigned k = 0; k < s->ranks; k++)
        check_rank(s, work, k, least);
    check_steps(s, seconds, is_explained);
    s->n++;
}

void pstd_stragglers_measured(struct pstd_stragglers *s, const double *messages)
{
    unsigned worst = 0;

    s->n_changes = 0;
    s->suspicious = false;
    if (s->ranks == 0 || s->has_link)
        return;
    for (unsigned k = 1; k < s->ranks; k++)
        if (messages[k] > messages[worst])
            worst = k;
    if (messages[worst] < EXPLAINS * s->excess) {
        s->measure_at = s->n + s->patience;
        s->patience = PST_MIN(2 * s->patience, (uint64_t)LONGEST);
        return;
    }
    s->link = worst;
    s->has_link = true;
    emit_straggler(s, worst, &s->steps, true, true);
}

unsigned pstd_stragglers_count(const struct pstd_stragglers *s)
{
    unsigned n = s->has_link;

    for (unsigned k = 0; k < s->ranks; k++)
        n += s->series[k].named;
    return n;
}
