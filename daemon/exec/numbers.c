// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/macros.h"
#include "stages/base/str.h"

/* Minimum number of losses before the first reported spike. */
#define WARM_UP 20
#define WINDOW  100 /* number of losses that mean and variance cover */
/* a loss that is so many standard deviations above the mean is a spike */
#define FAR   6.0
#define QUIET 10   /* minimum losses between two reported spikes */
#define LEAST 1e-3 /* minimum standard deviation, relative to the mean */

enum pstd_numbers_action pstd_numbers_decide(struct pstd_numbers *n,
                                             uint64_t step, uint64_t checkpoint)
{
    const bool is_new = step > n->furthest;

    n->furthest = PST_MAX(n->furthest, step);
    if (strcmp(n->policy, "stop") == 0)
        return PSTD_NUMBERS_STOP;
    if (is_new && pst_has_prefix(n->policy, "rollback")) {
        if (checkpoint > n->rolled_to)
            n->rollbacks = 0;
        n->rolled_to = checkpoint;
        n->in_a_row = 0; /* steps that were left out are made again */
        return n->rollbacks++ < n->limit ? PSTD_NUMBERS_ROLLBACK
                                         : PSTD_NUMBERS_STOP;
    }
    if (n->in_a_row >= n->limit)
        return PSTD_NUMBERS_STOP;
    n->in_a_row++;
    return PSTD_NUMBERS_SKIP;
}

void pstd_numbers_count_applied(struct pstd_numbers *n)
{
    n->in_a_row = 0;
}

/* Updates mean and variance by a number that is `off` above the mean. */
static void include_number(struct pstd_spikes *s, double weight, double off)
{
    s->mean += weight * off;
    s->variance = (1 - weight) * (s->variance + weight * off * off);
}

static double spread_of(const struct pstd_spikes *s)
{
    return PST_MAX(sqrt(s->variance), LEAST * fabs(s->mean));
}

double pstd_spikes_add(struct pstd_spikes *s, double loss)
{
    const double weight = 1 / (double)PST_MIN(s->seen + 1, (uint64_t)WINDOW);
    const double off = loss - s->mean;
    const double spread = spread_of(s);
    const double far = spread > 0 ? off / spread : 0;

    if (!isfinite(loss))
        return 0;
    if (s->seen++ >= WARM_UP && far > FAR) {
        const bool is_reported = s->last == 0 || s->seen - s->last > QUIET;

        /* If losses stay at the new level, mean and variance adapt to it. */
        s->variance += weight * (off * off - s->variance) / WINDOW;
        s->mean += weight * off / 2;
        s->last = s->seen;
        return is_reported ? far : 0;
    }
    include_number(s, weight, off);
    return 0;
}

/* --- --on-spike ----------------------------------------------------------- */

/* Lines of a checkpoint's settings: NAME=SEEN MEAN VARIANCE */
#define LOSS "spikes.loss"
#define NORM "spikes.norm"
/* Line of a checkpoint's settings: NAME=SKIPPED IN_A_ROW FURTHEST ROLLBACKS
 * ROLLED_TO */
#define SKIPS "spikes.mended"

double pstd_gauge_compute_limit(const struct pstd_gauge *g,
                                const struct pstd_spikes *of)
{
    if (of->seen < PST_MIN(g->window, (uint64_t)WARM_UP))
        return INFINITY;
    return of->mean + g->threshold * spread_of(of);
}

static void add_number(struct pstd_spikes *to, uint64_t window, double x)
{
    if (!isfinite(x))
        return;
    to->seen++;
    include_number(to, 1 / (double)PST_MIN(to->seen, window), x - to->mean);
}

void pstd_gauge_add(struct pstd_gauge *g, double loss, double norm)
{
    add_number(&g->loss, g->window, loss);
    add_number(&g->norm, g->window, norm);
}

void pstd_gauge_print(const struct pstd_gauge *g, char *ret, size_t size)
{
    (void)snprintf(
        ret, size, LOSS "=%llu %.17g %.17g\n" NORM "=%llu %.17g %.17g\n",
        (unsigned long long)g->loss.seen, g->loss.mean, g->loss.variance,
        (unsigned long long)g->norm.seen, g->norm.mean, g->norm.variance);
}

void pstd_numbers_print(const struct pstd_numbers *n, uint64_t skipped,
                        char *ret, size_t size)
{
    (void)snprintf(ret, size, SKIPS "=%llu %llu %llu %llu %llu\n",
                   (unsigned long long)skipped, (unsigned long long)n->in_a_row,
                   (unsigned long long)n->furthest,
                   (unsigned long long)n->rollbacks,
                   (unsigned long long)n->rolled_to);
}

/* Returns the text after "NAME=", or NULL. */
static const char *find_value(const char *name, const char *lines)
{
    const size_t n = strlen(name);

    while (*lines != '\0') {
        if (strncmp(lines, name, n) == 0 && lines[n] == '=')
            return lines + n + 1;
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
    return NULL;
}

static struct pstd_spikes read_spikes(const char *name, const char *lines)
{
    const char *value = find_value(name, lines);
    unsigned long long seen = 0;
    struct pstd_spikes ret = {0};

    if (value == NULL)
        return ret;
    // NOLINTNEXTLINE(cert-err34-c): what is read is checked
    if (sscanf(value, "%llu %lf %lf", &seen, &ret.mean, &ret.variance) != 3)
        return (struct pstd_spikes){0};
    ret.seen = seen;
    return isfinite(ret.mean) && isfinite(ret.variance) && ret.variance >= 0
               ? ret
               : (struct pstd_spikes){0};
}

void pstd_gauge_read(struct pstd_gauge *g, const char *lines)
{
    g->loss = read_spikes(LOSS, lines);
    g->norm = read_spikes(NORM, lines);
}

void pstd_numbers_read(struct pstd_numbers *n, uint64_t *ret_skipped,
                       const char *lines)
{
    const char *value = find_value(SKIPS, lines);
    unsigned long long x[5] = {0};

    // NOLINTNEXTLINE(cert-err34-c): what is read is checked
    if (value == NULL || sscanf(value, "%llu %llu %llu %llu %llu", &x[0], &x[1],
                                &x[2], &x[3], &x[4]) != 5)
        memset(x, 0, sizeof(x));
    *ret_skipped = x[0];
    n->in_a_row = x[1];
    n->furthest = x[2];
    n->rollbacks = x[3];
    n->rolled_to = x[4];
}
