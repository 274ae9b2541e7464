// SPDX-License-Identifier: Apache-2.0
/*
 * Transport with all ranks in this process. A send completes when its receive
 * is posted and the bytes are copied (rendezvous), so that a plan that would
 * deadlock over MPI with blocking sends also deadlocks here. Ranks may be
 * threads: then a lock protects the queues, the second of two partners copies
 * without holding it, and a rank that waits sleeps until one of its messages
 * was copied.
 *
 * Unmatched sends and receives wait in a queue selected by source, destination
 * and tag. Slots are recycled: once the maximum number of messages was in
 * flight, posting allocates nothing.
 */
#include "stages/net/transport.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stages/base/alloc.h"
#include "stages/base/str.h"

#define MAX_RANKS  4096
#define N_QUEUES   256 /* power of two */
#define FIRST_POOL 1024
#define NONE       (-1)
#define YIELDS     50 /* calls of sched_yield before a rank sleeps */

struct slot {
    struct pst_request *req;
    void *buf; /* read only for a send */
    size_t len;
    unsigned from, to;
    int tag;
    bool send;
    int next; /* index of the next slot in the queue or the free list */
};

struct queue {
    int first, last;
};

/* Lets a rank wait for messages that the thread of its partner completes. */
struct ended {
    pthread_cond_t more; /* signalled whenever n grows */
    /* messages completed so far; written with the lock held */
    atomic_uint_fast64_t n;
};

struct self {
    struct pst_transport base;
    unsigned size;
    pthread_mutex_t lock; /* protects all members below if there are threads */
    struct ended *ended;  /* per rank */
    struct slot *slots;
    int n_slots, free;
    struct queue queues[N_QUEUES];
};

static void lock(struct self *t)
{
    if (t->base.threads)
        pthread_mutex_lock(&t->lock);
}

static void unlock(struct self *t)
{
    if (t->base.threads)
        pthread_mutex_unlock(&t->lock);
}

static bool grow_slots(struct self *t)
{
    const int n = t->n_slots ? 2 * t->n_slots : FIRST_POOL;
    struct slot *slots =
        pst_realloc(PST_TAG_NET, t->slots, (size_t)n * sizeof(*slots));

    if (!slots)
        return false;
    t->slots = slots;
    for (int i = n; i-- > t->n_slots;) {
        slots[i].next = t->free;
        t->free = i;
    }
    t->n_slots = n;
    return true;
}

static bool init_ends(struct self *t)
{
    pthread_condattr_t attr;

    t->ended = pst_calloc(PST_TAG_NET, t->size, sizeof(*t->ended));
    if (!t->ended)
        return false;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (unsigned i = 0; i < t->size; i++)
        pthread_cond_init(&t->ended[i].more, &attr);
    pthread_condattr_destroy(&attr);
    return true;
}

static void fini_ends(struct self *t)
{
    for (unsigned i = 0; t->ended && i < t->size; i++)
        pthread_cond_destroy(&t->ended[i].more);
    if (t->ended)
        pthread_mutex_destroy(&t->lock);
    pst_free(t->ended);
}

static enum pst_status self_open(const char *spec, struct pst_transport **ret_t,
                                 struct pst_diag *diag)
{
    struct self *t;
    int64_t size;

    if (!spec || !pst_parse_i64(spec, &size) || size < 1 || size > MAX_RANKS)
        return pst_diag_set(diag, PST_E_NET_TRANSPORT,
                            "transport self: \"%s\" is not a number of ranks "
                            "from 1 to %d",
                            spec ? spec : "", MAX_RANKS);
    t = pst_calloc(PST_TAG_NET, 1, sizeof(*t));
    if (!t)
        return pst_diag_nomem(diag, sizeof(*t));
    t->base.ops = &pst_transport_self;
    t->size = (unsigned)size;
    t->free = NONE;
    for (size_t i = 0; i < N_QUEUES; i++)
        t->queues[i] = (struct queue){NONE, NONE};
    if (!init_ends(t) || !grow_slots(t)) {
        fini_ends(t);
        pst_free(t);
        return pst_diag_nomem(diag, FIRST_POOL * sizeof(struct slot));
    }
    *ret_t = &t->base;
    return PST_OK;
}

/* Does not wait for messages: no rank can post the other side of an unmatched
 * one any more. */
static void self_close(struct pst_transport *base)
{
    struct self *t = (struct self *)base;

    if (!t)
        return;
    pst_free(t->slots);
    fini_ends(t);
    pst_free(t);
}

static unsigned self_size(const struct pst_transport *base)
{
    return ((const struct self *)base)->size;
}

static unsigned self_rank(const struct pst_transport *base)
{
    (void)base;
    return 0;
}

static unsigned self_host_size(const struct pst_transport *base)
{
    (void)base;
    return 1;
}

static struct queue *queue_of(struct self *t, const struct slot *s)
{
    uint32_t hash = (uint32_t)s->tag * 2654435761u;

    hash = (hash ^ s->from) * 2246822519u;
    hash = (hash ^ s->to) * 3266489917u;
    return &t->queues[hash >> 24 & (N_QUEUES - 1)];
}

/* Removes from the queue the oldest message that matches `want` (a receive for
 * a send, or the reverse), and returns its slot; NONE: there is none. */
static int remove_match(struct self *t, struct queue *queue,
                        const struct slot *want)
{
    int before = NONE;

    for (int i = queue->first; i != NONE; i = t->slots[i].next) {
        const struct slot *s = &t->slots[i];

        if (s->send != want->send && s->tag == want->tag &&
            s->from == want->from && s->to == want->to) {
            if (before == NONE)
                queue->first = s->next;
            else
                t->slots[before].next = s->next;
            if (queue->last == i)
                queue->last = before;
            return i;
        }
        before = i;
    }
    return NONE;
}

static void end_request(struct pst_request *req, enum pst_status status)
{
    atomic_store_explicit(&req->state, (int)status, memory_order_release);
}

static void copy_message(const struct slot *mine, const struct slot *other)
{
    const struct slot *from = mine->send ? mine : other;
    const struct slot *to = mine->send ? other : mine;
    const bool fits = from->len == to->len;

    if (fits && from->len)
        memcpy(to->buf, from->buf, from->len);
    end_request(mine->req, fits ? PST_OK : PST_ERR_PEER);
    end_request(other->req, fits ? PST_OK : PST_ERR_PEER);
}

static void release_slot(struct self *t, int i)
{
    t->slots[i].next = t->free;
    t->free = i;
}

/* Copies the bytes from the send to the receive, and wakes the thread of the
 * rank that posted first. The caller holds the lock, which is released during
 * the copy. */
static PST_NOINLINE void copy_unlocked(struct self *t, const struct slot *mine,
                                       int i)
{
    const struct slot other = t->slots[i];
    struct ended *ended = &t->ended[other.send ? other.from : other.to];

    release_slot(t, i);
    unlock(t);
    copy_message(mine, &other);
    lock(t);
    atomic_fetch_add_explicit(&ended->n, 1, memory_order_release);
    pthread_cond_signal(&ended->more);
}

static enum pst_status enqueue_slot(struct self *t, struct queue *queue,
                                    const struct slot *mine)
{
    int i;

    if (t->free == NONE && !grow_slots(t))
        return PST_ERR_NOMEM;
    i = t->free;
    t->free = t->slots[i].next;
    t->slots[i] = *mine;
    t->slots[i].next = NONE;
    if (queue->last == NONE)
        queue->first = i;
    else
        t->slots[queue->last].next = i;
    queue->last = i;
    return PST_OK;
}

static enum pst_status post_slot(struct self *t, const struct slot *mine)
{
    struct queue *queue = queue_of(t, mine);
    enum pst_status status = PST_OK;
    int i;

    mine->req->impl = NULL;
    if (mine->from >= t->size || mine->to >= t->size || mine->tag < 0) {
        end_request(mine->req, PST_ERR_RANGE);
        return PST_ERR_RANGE;
    }
    end_request(mine->req, PST_AGAIN);
    lock(t);
    i = remove_match(t, queue, mine);
    if (i == NONE) {
        status = enqueue_slot(t, queue, mine);
        if (status != PST_OK)
            end_request(mine->req, status);
    } else if (t->base.threads) {
        copy_unlocked(t, mine, i);
    } else {
        copy_message(mine, &t->slots[i]);
        release_slot(t, i);
    }
    unlock(t);
    return status;
}

static enum pst_status self_isend(struct pst_transport *base,
                                  unsigned self_rank, unsigned peer, int tag,
                                  const void *buf, size_t len,
                                  struct pst_request *req)
{
    const struct slot mine = {.req = req,
                              .buf = (void *)(uintptr_t)buf,
                              .len = len,
                              .from = self_rank,
                              .to = peer,
                              .tag = tag,
                              .send = true};

    return post_slot((struct self *)base, &mine);
}

static enum pst_status self_irecv(struct pst_transport *base,
                                  unsigned self_rank, unsigned peer, int tag,
                                  void *buf, size_t len,
                                  struct pst_request *req)
{
    const struct slot mine = {.req = req,
                              .buf = buf,
                              .len = len,
                              .from = peer,
                              .to = self_rank,
                              .tag = tag};

    return post_slot((struct self *)base, &mine);
}

static enum pst_status self_test(struct pst_transport *base,
                                 struct pst_request *req)
{
    (void)base;
    return (enum pst_status)atomic_load_explicit(&req->state,
                                                 memory_order_acquire);
}

/* Unused: all ranks are one process, which needs no heartbeats. */
static enum pst_status self_take(struct pst_transport *base, int tag, void *buf,
                                 size_t len, unsigned *ret_from)
{
    (void)base;
    (void)tag;
    (void)buf;
    (void)len;
    (void)ret_from;
    return PST_AGAIN;
}

static void self_progress(struct pst_transport *base)
{
    (void)base; /* messages complete when their second side is posted */
}

/* Yields until a message has completed since *seen, YIELDS times at most:
 * sleeping and waking takes longer than most waits. */
static bool await_completion(struct ended *ended, uint64_t *seen)
{
    for (unsigned i = 0; i < YIELDS; i++) {
        const uint64_t n =
            atomic_load_explicit(&ended->n, memory_order_acquire);

        if (n != *seen) {
            *seen = n;
            return true;
        }
        sched_yield();
    }
    return false;
}

static void self_wait(struct pst_transport *base, unsigned self_rank,
                      uint64_t *seen, double seconds)
{
    struct self *t = (struct self *)base;
    struct ended *ended = &t->ended[self_rank];
    struct timespec until;

    if (!base->threads) {
        sched_yield();
        return;
    }
    if (await_completion(ended, seen))
        return;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&t->lock);
    if (ended->n == *seen)
        (void)pthread_cond_timedwait(&ended->more, &t->lock, &until);
    *seen = ended->n;
    pthread_mutex_unlock(&t->lock);
}

static void self_abort(struct pst_transport *base, int exit_code)
{
    (void)base;
    _exit(exit_code);
}

const struct pst_transport_ops pst_transport_self = {
    .name = "self",
    .spaces = PST_SPACE_HOST,
    .one_process = true,
    .open = self_open,
    .close = self_close,
    .size = self_size,
    .rank = self_rank,
    .host_size = self_host_size,
    .isend = self_isend,
    .irecv = self_irecv,
    .test = self_test,
    .take = self_take,
    .progress = self_progress,
    .wait = self_wait,
    .abort = self_abort,
};
