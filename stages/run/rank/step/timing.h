// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_RANK_STEP_TIMING_H
#define PENSTOCK_STAGES_RUN_RANK_STEP_TIMING_H
/*
 * Start and end of work on the device, by events: the times are known only once
 * the device has passed these. The rank's own thread.
 */
#include "stages/run/rank/step/device.h"
#include "stages/run/rank/step/ring.h"

struct pst_timing {
    bool used; /* the work has begun */
    struct pst_event begin, end;
    /* In a pause the host launches nothing. paused: time (pst_now()) at which
     * the current pause began; idle: seconds of all pauses before. */
    double paused, idle;
};

/* True if a call that launches work returns when the work is done, so that
 * events have the time of the host's clock. */
static inline bool pst_timing_is_immediate(const struct pst_rank_device *d)
{
    return d->mem.device->space == PST_SPACE_HOST;
}

/* now: pst_now(). */
static inline void pst_timing_begin(struct pst_timing *s,
                                    struct pst_rank_device *d, double now)
{
    s->used = true;
    s->idle = 0;
    if (pst_timing_is_immediate(d))
        s->begin.time = now;
    else
        d->mem.device->record(&d->mem, PST_QUEUE_COMPUTE, &s->begin);
}

/* Called when all work is launched, or when the host has to wait in the middle
 * of it. Returns the time. */
static inline double pst_timing_pause(struct pst_timing *s,
                                      struct pst_rank_device *d)
{
    d->mem.device->record(&d->mem, PST_QUEUE_COMPUTE, &s->end);
    s->paused = pst_timing_is_immediate(d) ? s->end.time : pst_now();
    return s->paused;
}

static inline void pst_timing_resume(struct pst_timing *s, double now)
{
    s->idle += now - s->paused;
}

/* Sets the mark, resets the timing, and returns the seconds of work without
 * pauses; 0: no work has begun. Call once the device has passed the end. */
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
