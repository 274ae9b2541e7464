// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_TIMING_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_TIMING_H
/*
 * When the device began and ended a piece of work, by events: what they say is
 * known only when the device has come that far. The rank's own thread.
 */
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/ring.h"

struct pst_timing {
    bool used;
    struct pst_event begin, end;
    double paused, idle; /* the host had nothing to give: since, in all */
};

static inline void pst_timing_begin(struct pst_timing *s,
                                    struct pst_rank_device *d)
{
    s->used = true;
    s->idle = 0;
    d->mem.device->record(&d->mem, PST_QUEUE_COMPUTE, &s->begin);
}

/* All is launched, or the host waits in the middle. */
static inline void pst_timing_pause(struct pst_timing *s,
                                    struct pst_rank_device *d)
{
    d->mem.device->record(&d->mem, PST_QUEUE_COMPUTE, &s->end);
    s->paused = pst_now();
}

static inline void pst_timing_resume(struct pst_timing *s)
{
    s->idle += pst_now() - s->paused;
}

/* Once its end is passed: sets the mark, returns the seconds of work and frees
 * the span. 0: it was not used. */
static inline double pst_timing_take(struct pst_timing *s,
                                     struct pst_rank_device *d,
                                     struct pst_mark *ret)
{
    if (!s->used)
        return 0;
    s->used = false;
    ret->start = d->mem.device->time(&d->mem, &s->begin);
    ret->end = d->mem.device->time(&d->mem, &s->end);
    return ret->end - ret->start - s->idle;
}

#endif
