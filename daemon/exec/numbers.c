// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/numbers.h"

#include <math.h>
#include <string.h>

#include "stages/base/macros.h"

/* Minimum number of losses before the first reported spike. */
#define WARM_UP 20
#define WINDOW  100 /* number of losses that mean and variance cover */
/* a loss that is so many standard deviations above the mean is a spike */
#define FAR   6.0
#define QUIET 10   /* minimum losses between two reported spikes */
#define LEAST 1e-3 /* minimum standard deviation, relative to the mean */

enum pstd_numbers_action pstd_numbers_failed(struct pstd_numbers *n,
                                             uint64_t step, uint64_t checkpoint)
{
    const bool is_new = step > n->furthest;

    n->furthest = PST_MAX(n->furthest, step);
    if (strcmp(n->policy, "stop") == 0)
        return PSTD_NUMBERS_STOP;
    if (is_new && strcmp(n->policy, "rollback") == 0) {
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
    n->skipped++;
    return PSTD_NUMBERS_SKIP;
}

void pstd_numbers_applied(struct pstd_numbers *n)
{
    n->in_a_row = 0;
}

double pstd_spikes_take(struct pstd_spikes *s, double loss)
{
    const double weight = 1 / (double)PST_MIN(s->seen + 1, (uint64_t)WINDOW);
    const double off = loss - s->mean;
    const double spread = PST_MAX(sqrt(s->variance), LEAST * fabs(s->mean));
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
    s->mean += weight * off;
    s->variance = (1 - weight) * (s->variance + weight * off * off);
    return 0;
}
