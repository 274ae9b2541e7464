// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/lag.h"

#include <stdlib.h>
#include <string.h>

#include "stages/base/host/alive.h"
#include "stages/ops/core/op.h"

#define POISON 0xa5
/* Limits: actions that one poll runs, and actions that wait in all queues. */
#define MOST_AT_ONCE 4
#define MOST_WAITING 512
/* Number of events of each queue whose times are kept. */
#define N_TIMES 65536

enum kind { LAUNCH, TASK, COPY, ZERO, RECORD, WAIT };

/* A queued action, with copies of all that the caller may change meanwhile. */
struct work {
    struct work *next;
    enum kind kind;
    enum pst_queue queue;
    const struct pst_kernel *kernel;
    struct pst_call call; /* its operands are in tail */
    pst_task_fn fn;
    struct pst_task task; /* its addresses are in tail */
    struct pst_meta meta, to_meta;
    struct pst_update update;
    void *to;
    const void *from;
    size_t size;
    uint64_t ticket; /* ticket of RECORD and WAIT */
    union {
        struct pst_operand operands[1];
        void *from_list[1];
    } tail;
};

struct queue {
    struct work *first, **last;
    uint64_t given, passed; /* number of the last event recorded, and of the
                             * last one reached */
};

struct pst_lag {
    ptrdiff_t shift;
    uint64_t random, fail, done;
    unsigned waiting;
    bool failed;
    struct queue queues[PST_N_QUEUES];
    double times[PST_N_QUEUES][N_TIMES];
};

/* Returns the ticket of the queue's event `number`, in base PST_N_QUEUES: the
 * last digit is the queue. */
static uint64_t ticket_of(enum pst_queue queue, uint64_t number)
{
    return number * PST_N_QUEUES + queue;
}

static bool has_passed(const struct pst_lag *lag, uint64_t ticket)
{
    return ticket == 0 ||
           lag->queues[ticket % PST_N_QUEUES].passed >= ticket / PST_N_QUEUES;
}

static unsigned draw_number(struct pst_lag *lag, unsigned n)
{
    lag->random = lag->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(lag->random >> 33) % n;
}

struct pst_lag *pst_lag_new(ptrdiff_t shift, uint64_t seed, uint64_t fail)
{
    struct pst_lag *lag = calloc(1, sizeof(*lag));

    if (lag == NULL)
        return NULL;
    lag->shift = shift;
    lag->random = seed;
    lag->fail = fail;
    for (int i = 0; i < PST_N_QUEUES; i++)
        lag->queues[i].last = &lag->queues[i].first;
    return lag;
}

ptrdiff_t pst_lag_shift(const struct pst_lag *lag)
{
    return lag->shift;
}

void pst_lag_free(struct pst_lag *lag)
{
    for (int i = 0; lag != NULL && i < PST_N_QUEUES; i++)
        while (lag->queues[i].first != NULL) {
            struct work *w = lag->queues[i].first;

            lag->queues[i].first = w->next;
            free(w);
        }
    free(lag);
}

/* Maps a device address to host memory; NULL, an absent operand, stays NULL. */
static void *host_address(const struct pst_lag *lag, const void *at)
{
    return at == NULL ? NULL : (unsigned char *)at + lag->shift;
}

/* --- running actions ------------------------------------------------------ */

static void run_launch(struct pst_lag *lag, struct work *w)
{
    struct pst_call *c = &w->call;

    for (unsigned i = 0; i < c->n_in + c->n_out; i++)
        w->tail.operands[i].data = host_address(lag, w->tail.operands[i].data);
    c->in = w->tail.operands;
    c->out = w->tail.operands + c->n_in;
    c->scratch = host_address(lag, c->scratch);
    c->fault = host_address(lag, c->fault);
    w->kernel->run(c);
}

static void run_task(struct pst_lag *lag, struct work *w)
{
    struct pst_task *t = &w->task;

    for (unsigned i = 0; i < t->n_from; i++)
        w->tail.from_list[i] = host_address(lag, w->tail.from_list[i]);
    t->from = w->tail.from_list;
    t->to = host_address(lag, t->to);
    t->meta = t->meta != NULL ? &w->meta : NULL;
    t->to_meta = t->to_meta != NULL ? &w->to_meta : NULL;
    t->update = t->update != NULL ? &w->update : NULL;
    w->fn(t);
}

static void run_copy(struct pst_lag *lag, const struct work *w)
{
    const bool in = w->queue == PST_QUEUE_IN, out = w->queue == PST_QUEUE_OUT;

    if (w->size > 0)
        memcpy(out ? w->to : host_address(lag, w->to),
               in ? w->from : host_address(lag, w->from), w->size);
}

static void run_record(struct pst_lag *lag, const struct work *w)
{
    struct queue *q = &lag->queues[w->queue];

    q->passed = w->ticket / PST_N_QUEUES;
    lag->times[w->queue][q->passed % N_TIMES] = pst_now();
}

static void run_work(struct pst_lag *lag, struct work *w)
{
    switch (w->kind) {
    case LAUNCH:
        run_launch(lag, w);
        break;
    case TASK:
        run_task(lag, w);
        break;
    case COPY:
        run_copy(lag, w);
        break;
    case ZERO:
        if (w->size > 0)
            memset(host_address(lag, w->to), 0, w->size);
        break;
    case RECORD:
        run_record(lag, w);
        break;
    default:
        break;
    }
}

static bool is_runnable(const struct pst_lag *lag, const struct queue *q)
{
    return q->first != NULL &&
           (q->first->kind != WAIT || has_passed(lag, q->first->ticket));
}

/* Runs one action that is ready, from a random queue; false if there is
 * none. */
static bool run_one(struct pst_lag *lag)
{
    const unsigned from = draw_number(lag, PST_N_QUEUES);

    for (unsigned i = 0; i < PST_N_QUEUES; i++) {
        struct queue *q = &lag->queues[(from + i) % PST_N_QUEUES];
        struct work *w = q->first;

        if (!is_runnable(lag, q))
            continue;
        q->first = w->next;
        if (q->first == NULL)
            q->last = &q->first;
        lag->waiting--;
        lag->failed |= lag->fail != 0 && ++lag->done >= lag->fail;
        if (!lag->failed || w->kind == RECORD)
            run_work(lag, w);
        free(w);
        return true;
    }
    return false;
}

/* --- queueing actions ----------------------------------------------------- */

static struct work *new_work(enum kind kind, enum pst_queue queue, size_t tail)
{
    struct work *w = calloc(1, sizeof(*w) + tail);

    if (w == NULL)
        abort();
    w->kind = kind;
    w->queue = queue;
    return w;
}

static void queue_work(struct pst_lag *lag, struct work *w)
{
    struct queue *q = &lag->queues[w->queue];

    *q->last = w;
    q->last = &w->next;
    lag->waiting++;
    while (lag->waiting > MOST_WAITING && run_one(lag)) {
    }
}

/* True if a queued copy to the device reads from these bytes. */
static bool is_source(const struct pst_lag *lag, const void *at, size_t size)
{
    const struct work *w = lag->queues[PST_QUEUE_IN].first;

    for (; w != NULL; w = w->next)
        if (w->kind == COPY &&
            (const char *)w->from < (const char *)at + size &&
            (const char *)at < (const char *)w->from + w->size)
            return true;
    return false;
}

void pst_lag_copy(struct pst_lag *lag, enum pst_queue queue, void *to,
                  const void *from, size_t size)
{
    struct work *w = new_work(COPY, queue, 0);

    w->to = to;
    w->from = from;
    w->size = size;
    if (queue == PST_QUEUE_OUT && size > 0 && !is_source(lag, to, size))
        memset(to, POISON, size);
    queue_work(lag, w);
}

void pst_lag_zero(struct pst_lag *lag, void *to, size_t size)
{
    struct work *w = new_work(ZERO, PST_QUEUE_COMPUTE, 0);

    w->to = to;
    w->size = size;
    queue_work(lag, w);
}

void pst_lag_launch(struct pst_lag *lag, const struct pst_kernel *kernel,
                    const struct pst_call *frame)
{
    const unsigned n = frame->n_in + frame->n_out;
    struct work *w =
        new_work(LAUNCH, PST_QUEUE_COMPUTE, n * sizeof(struct pst_operand));

    w->kernel = kernel;
    w->call = *frame;
    for (unsigned i = 0; i < frame->n_in; i++)
        w->tail.operands[i] = frame->in[i];
    for (unsigned i = 0; i < frame->n_out; i++)
        w->tail.operands[frame->n_in + i] = frame->out[i];
    queue_work(lag, w);
}

void pst_lag_run(struct pst_lag *lag, pst_task_fn fn,
                 const struct pst_task *task)
{
    struct work *w =
        new_work(TASK, PST_QUEUE_COMPUTE, task->n_from * sizeof(void *));

    w->fn = fn;
    w->task = *task;
    for (unsigned i = 0; i < task->n_from; i++)
        w->tail.from_list[i] = task->from[i];
    if (task->meta != NULL)
        w->meta = *task->meta;
    if (task->to_meta != NULL)
        w->to_meta = *task->to_meta;
    if (task->update != NULL)
        w->update = *task->update;
    queue_work(lag, w);
}

void pst_lag_record(struct pst_lag *lag, enum pst_queue queue,
                    struct pst_event *event)
{
    struct work *w = new_work(RECORD, queue, 0);

    w->ticket = ticket_of(queue, ++lag->queues[queue].given);
    *event = (struct pst_event){.ticket = w->ticket};
    queue_work(lag, w);
}

void pst_lag_wait(struct pst_lag *lag, enum pst_queue queue,
                  const struct pst_event *event)
{
    struct work *w = new_work(WAIT, queue, 0);

    w->ticket = event->ticket;
    queue_work(lag, w);
}

enum pst_status pst_lag_poll(struct pst_lag *lag, const struct pst_event *event)
{
    for (unsigned n = 1 + draw_number(lag, MOST_AT_ONCE); n > 0; n--)
        (void)run_one(lag);
    if (lag->failed)
        return PST_ERR_DEVICE;
    return has_passed(lag, event->ticket) ? PST_OK : PST_AGAIN;
}

double pst_lag_time(const struct pst_lag *lag, const struct pst_event *event)
{
    return lag->times[event->ticket % PST_N_QUEUES]
                     [event->ticket / PST_N_QUEUES % N_TIMES];
}
