// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/saves/interval.h"

#include "stages/base/macros.h"

#define WARM    3  /* number of first steps, which differ from the others */
#define SMOOTH  16 /* number of steps that the smoothed duration covers */
#define FLOOR_S 1  /* minimum seconds from the end of a save to the next one */
/* Minimum time from the end of a save to the next one as a multiple of the
 * save's duration, so that the disk is not busy all the time. */
#define REST 2

void pstd_interval_init(struct pstd_interval *v, double share, double now)
{
    *v = (struct pstd_interval){
        .share = share, .start = now, .pause_end = now + FLOOR_S};
}

void pstd_interval_step(struct pstd_interval *v, double seconds, bool beside)
{
    const uint64_t n = v->steps > WARM ? v->steps - WARM : 0;

    if (beside) {
        v->extra += v->steps > WARM ? seconds - v->step_s : 0;
        return;
    }
    v->step_s += (seconds - v->step_s) / (double)PST_MIN(n + 1, SMOOTH);
    v->steps++;
}

void pstd_interval_begin(struct pstd_interval *v, double now)
{
    v->extra = 0;
    v->begun = now;
}

double pstd_interval_end(struct pstd_interval *v, double stall_s, double now)
{
    v->last = stall_s + PST_MAX(v->extra, 0);
    v->spent += v->last;
    v->extra = 0;
    v->forced = false;
    v->pause_end = now + PST_MAX(FLOOR_S, REST * (now - v->begun));
    return v->last;
}

void pstd_interval_request(struct pstd_interval *v)
{
    v->forced = true;
}

bool pstd_interval_is_due(const struct pstd_interval *v, double now)
{
    if (now < v->pause_end)
        return false;
    return v->forced || (v->share > 0 && v->steps > WARM &&
                         v->spent + v->last <= v->share * (now - v->start));
}
