// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/out_queue.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "stages/base/alloc.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

#define MAX_WAITING ((size_t)4 << 20)
#define HURRY_S     2

struct piece {
    FILE *out;
    size_t n;
};

/* Pieces of output in the order in which they are to be written. */
struct batch {
    struct pst_str text;
    struct PST_VEC(struct piece) pieces;
};

static struct {
    bool begun, hurry;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct batch waiting;
    bool ending, ended;
    unsigned long long left_out; /* texts */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void batch_fini(struct batch *b)
{
    pst_str_fini(&b->text);
    pst_vec_fini(&b->pieces);
    *b = (struct batch){0};
}

static void write_batch(const struct batch *b, unsigned long long left_out)
{
    const char *at = pst_str_text(&b->text);

    for (size_t i = 0; i < b->pieces.n; at += b->pieces.at[i++].n)
        (void)fwrite(at, 1, b->pieces.at[i].n, b->pieces.at[i].out);
    if (left_out > 0)
        (void)fprintf(stderr,
                      "penstock: %llu message%s left out, since the output "
                      "took none\n",
                      left_out, left_out == 1 ? " is" : "s are");
    (void)fflush(stdout); /* main checks the streams for errors */
    (void)fflush(stderr);
}

static void *write_queue(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&queue.lock);
    while (!queue.ending || queue.waiting.pieces.n > 0) {
        struct batch batch = queue.waiting;
        const unsigned long long left_out = queue.left_out;

        if (batch.pieces.n == 0) {
            pthread_cond_wait(&queue.changed, &queue.lock);
            continue;
        }
        queue.waiting = (struct batch){0};
        queue.left_out = 0;
        pthread_mutex_unlock(&queue.lock);
        write_batch(&batch, left_out);
        batch_fini(&batch);
        pthread_mutex_lock(&queue.lock);
    }
    queue.ended = true;
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
    return NULL;
}

void pstctl_queue_begin(void)
{
    pthread_condattr_t clock;
    sigset_t all, before;

    if (queue.begun || pthread_condattr_init(&clock) != 0)
        return;
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    if (pthread_cond_init(&queue.changed, &clock) == 0) {
        /* The new thread blocks all signals: the thread that supervises the job
         * handles them. */
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_BLOCK, &all, &before);
        queue.begun =
            pthread_create(&queue.thread, NULL, write_queue, NULL) == 0;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    (void)pthread_condattr_destroy(&clock);
}

bool pstctl_queue_is_on(void)
{
    return queue.begun;
}

bool pstctl_queue_put(FILE *out, const char *text, size_t n, bool keep)
{
    const struct piece piece = {out, n};
    struct batch *b = &queue.waiting;

    if (!queue.begun)
        return false;
    pthread_mutex_lock(&queue.lock);
    if (!keep && b->text.len + n > MAX_WAITING) {
        queue.left_out++;
    } else if (pst_vec_push(PST_TAG_DAEMON, &b->pieces, piece)) {
        pst_str_addn(&b->text, text, n);
        if (b->text.failed) { /* a failed text has dropped its content */
            queue.left_out += b->pieces.n;
            batch_fini(b);
        }
    } else {
        queue.left_out++;
    }
    pthread_cond_broadcast(&queue.changed);
    pthread_mutex_unlock(&queue.lock);
    return true;
}

void pstctl_queue_shorten_wait(void)
{
    queue.hurry = true;
}

bool pstctl_queue_end(void)
{
    struct timespec until;
    int err = 0;
    bool ended;

    if (!queue.begun)
        return true;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += HURRY_S;
    pthread_mutex_lock(&queue.lock);
    queue.ending = true;
    pthread_cond_broadcast(&queue.changed);
    while (!queue.ended && err != ETIMEDOUT)
        err = queue.hurry
                  ? pthread_cond_timedwait(&queue.changed, &queue.lock, &until)
                  : pthread_cond_wait(&queue.changed, &queue.lock);
    ended = queue.ended;
    pthread_mutex_unlock(&queue.lock);
    if (ended) {
        (void)pthread_join(queue.thread, NULL);
        queue.begun = false;
    }
    return ended;
}
