// SPDX-License-Identifier: Apache-2.0
/* Events of a CUDA device. A pst_event is a number; the driver's event objects
 * are in a ring for each queue. */
#include "stages/device/cuda/event.h"

#include <stdlib.h>

#include "stages/base/host/alive.h"
#include "stages/base/macros.h"

/* Times are measured from a recent event of COMPUTE, called a base: the driver
 * returns time differences as float milliseconds, which within a quarter of a
 * second are exact to 30 ns. */
#define BASE_S  .25
#define N_BASES 1024

struct pst_cuda_clock {
    void *events[N_BASES];
    double at[N_BASES]; /* time of each base, in seconds of pst_now() */
    unsigned n, known;  /* number of bases, and of those whose time is known:
                         * the first ones */
    double newest;      /* pst_now() when the newest base was recorded */
};

static void *event_of(const struct pst_cuda_queue *q, uint64_t number)
{
    return q->events[number % PST_CUDA_EVENTS];
}

enum pst_status pst_cuda_events_open(struct pst_cuda_context *c,
                                     struct pst_diag *diag)
{
    for (unsigned i = 0; i < PST_N_QUEUES; i++) {
        struct pst_cuda_queue *q = &c->queues[i];

        q->events = calloc(PST_CUDA_EVENTS, sizeof(*q->events));
        q->bases = calloc(PST_CUDA_EVENTS, sizeof(*q->bases));
        if (q->events == NULL || q->bases == NULL)
            return pst_diag_nomem(diag, PST_CUDA_EVENTS * sizeof(void *));
    }
    c->clock = calloc(1, sizeof(*c->clock));
    return c->clock != NULL ? PST_OK : pst_diag_nomem(diag, sizeof(*c->clock));
}

static void destroy_events(const struct pst_cuda_context *c, void **events,
                           unsigned n)
{
    for (unsigned i = 0; events != NULL && i < n; i++)
        if (events[i] != NULL)
            (void)c->driver->event_destroy(events[i]);
}

void pst_cuda_events_close(struct pst_cuda_context *c)
{
    for (unsigned i = 0; i < PST_N_QUEUES; i++) {
        destroy_events(c, c->queues[i].events, PST_CUDA_EVENTS);
        free(c->queues[i].events);
        free(c->queues[i].bases);
    }
    if (c->clock != NULL)
        destroy_events(c, c->clock->events, N_BASES);
    free(c->clock);
}

static bool record_event(struct pst_cuda_context *c, void **event, void *stream)
{
    if (*event == NULL &&
        !pst_cuda_check(c, c->driver->event_create(event, 0), "cuEventCreate"))
        return false;
    return pst_cuda_check(c, c->driver->event_record(*event, stream),
                          "cuEventRecord");
}

/* Records a new base if the newest one is older than BASE_S. It overwrites the
 * oldest of N_BASES. */
static void keep_base(struct pst_cuda_context *c)
{
    struct pst_cuda_clock *clock = c->clock;
    const double now = pst_now();

    if (clock->n > 0 && now - clock->newest < BASE_S)
        return;
    if (!record_event(c, &clock->events[clock->n % N_BASES],
                      c->queues[PST_QUEUE_COMPUTE].stream))
        return;
    if (clock->n == 0) { /* the host measures the time of this base only */
        (void)pst_cuda_check(c, c->driver->event_sync(clock->events[0]),
                             "cuEventSynchronize");
        clock->at[0] = pst_now();
        clock->known = 1;
    }
    clock->n++;
    clock->newest = now;
}

/* Determines the times of all bases up to number `base`, each from the one
 * before it, and returns the time of `base`. */
static double time_of_base(struct pst_cuda_context *c, unsigned base)
{
    struct pst_cuda_clock *clock = c->clock;

    for (; clock->known <= base; clock->known++) {
        const unsigned to = clock->known % N_BASES;
        const unsigned from = (clock->known - 1) % N_BASES;
        float ms = 0.0F;

        if (!pst_cuda_check(c, c->driver->event_sync(clock->events[to]),
                            "cuEventSynchronize") ||
            !pst_cuda_check(c,
                            c->driver->event_elapsed(&ms, clock->events[from],
                                                     clock->events[to]),
                            "cuEventElapsedTime"))
            return pst_now();
        clock->at[to] = clock->at[from] + 1e-3 * (double)ms;
    }
    return clock->at[base % N_BASES];
}

void pst_cuda_record(struct pst_device_memory *mem, enum pst_queue queue,
                     struct pst_event *event)
{
    struct pst_cuda_context *c = mem->context;
    struct pst_cuda_queue *q = &c->queues[queue];
    const uint64_t number = q->given + 1;

    *event = (struct pst_event){.ticket = number * PST_N_QUEUES + queue};
    q->given = number;
    if (!pst_cuda_enter(c))
        return;
    if (number > PST_CUDA_EVENTS && q->passed < number - PST_CUDA_EVENTS) {
        (void)pst_cuda_check(c, c->driver->event_sync(event_of(q, number)),
                             "cuEventSynchronize");
        q->passed = number - PST_CUDA_EVENTS;
    }
    keep_base(c);
    if (c->clock->n - c->clock->known >= N_BASES / 2)
        (void)time_of_base(c, c->clock->n - 1);
    q->bases[number % PST_CUDA_EVENTS] = c->clock->n - 1;
    (void)record_event(c, &q->events[number % PST_CUDA_EVENTS], q->stream);
}

void pst_cuda_wait(struct pst_device_memory *mem, enum pst_queue queue,
                   const struct pst_event *event)
{
    struct pst_cuda_context *c = mem->context;
    const struct pst_cuda_queue *from =
        &c->queues[event->ticket % PST_N_QUEUES];
    const uint64_t number = event->ticket / PST_N_QUEUES;

    if (number <= from->passed || !pst_cuda_enter(c))
        return;
    (void)pst_cuda_check(c,
                         c->driver->stream_wait(c->queues[queue].stream,
                                                event_of(from, number), 0),
                         "cuStreamWaitEvent");
}

enum pst_status pst_cuda_poll(struct pst_device_memory *mem,
                              const struct pst_event *event)
{
    struct pst_cuda_context *c = mem->context;
    struct pst_cuda_queue *q = &c->queues[event->ticket % PST_N_QUEUES];
    const uint64_t number = event->ticket / PST_N_QUEUES;
    int error;

    if (!pst_cuda_enter(c))
        return PST_ERR_DEVICE;
    if (number <= q->passed)
        return PST_OK;
    error = c->driver->event_query(event_of(q, number));
    if (error == PST_CUDA_NOT_READY)
        return PST_AGAIN;
    if (!pst_cuda_check(c, error, "cuEventQuery"))
        return PST_ERR_DEVICE;
    q->passed = number;
    return PST_OK;
}

double pst_cuda_time(struct pst_device_memory *mem,
                     const struct pst_event *event)
{
    struct pst_cuda_context *c = mem->context;
    const struct pst_cuda_queue *q = &c->queues[event->ticket % PST_N_QUEUES];
    const uint64_t number = event->ticket / PST_N_QUEUES;
    unsigned base;
    double at;
    float ms = 0.0F;

    if (number == 0 || number + PST_CUDA_EVENTS <= q->given ||
        !pst_cuda_enter(c))
        return pst_now();
    base = q->bases[number % PST_CUDA_EVENTS];
    if (base + N_BASES <= c->clock->n) /* the base was overwritten since */
        base = c->clock->n - 1;
    at = time_of_base(c, base);
    if (!pst_cuda_check(
            c,
            c->driver->event_elapsed(&ms, c->clock->events[base % N_BASES],
                                     event_of(q, number)),
            "cuEventElapsedTime"))
        return pst_now();
    return at + 1e-3 * (double)ms;
}
