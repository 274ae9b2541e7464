// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_TIMING_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_TIMING_H
/*
 * Start and end of work on the device, from events: they are known only once
 * the device has passed them. The rank's own thread.
 */
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/ring.h"

struct pst_timing {
    bool used;
    struct pst_event begin, end;
    double paused, idle; /* start of the current pause, and total, in which the
                            host launched nothing */
};

static inline void pst_timing_begin(struct pst_timing *s,
                                    struct pst_rank_device *d)
{
    s->used = true;
    s->idle = 0;
    d->mem.device->record(&d->mem, PST_QUEUE_COMPUTE, &s->begin);
}

/* All work is launched, or the host waits in the middle of it. */
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

/* Call once the end is passed: sets the mark, returns the seconds of work and
 * resets the timing. 0: it was not used. */
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
