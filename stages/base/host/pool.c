// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/pool.h"

#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/base/host/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_THREADS 1024

/* Number of pauses for which a waiting thread spins: about 20 us (a pause takes
 * some 40 ns), since kernels follow each other faster than that. SPINS_FULL: if
 * there are more threads than cores, a spinning thread keeps the thread that it
 * waits for off the core. */
#define SPINS      500
#define SPINS_FULL 20

struct helper {
    struct pst_pool *pool;
    pthread_t thread;
    unsigned part;
};

/* The two words that threads wait on are on separate cache lines. */
struct pst_pool {
    unsigned threads, spins;
    pst_pool_fn fn;
    void *ctx;
    const struct pst_node *const *node; /* the caller's pst_thread_node */
    int stop;
    char pad_0[64];
    atomic_uint round;    /* counts calls of pst_pool_run; helpers wait on it */
    atomic_uint sleepers; /* helpers that sleep in the kernel */
    char pad_1[64];
    atomic_uint left;  /* unfinished parts of this round */
    atomic_uint waits; /* 1 while the caller sleeps in the kernel */
    char pad_2[64];
    struct helper helpers[];
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void futex_wait(atomic_uint *word, unsigned while_it_is)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_it_is, NULL, NULL, 0);
}

static void futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/*
 * Waits for the next round. No wake-up is lost: the helper increments
 * `sleepers` before the kernel compares `round`, and pst_pool_run increments
 * `round` before it reads `sleepers`, all sequentially consistent.
 */
static void wait_for_round(struct pst_pool *pool, unsigned seen)
{
    for (unsigned i = 0; i < pool->spins; i++) {
        if (atomic_load_explicit(&pool->round, memory_order_acquire) != seen)
            return;
        pause_cpu();
    }
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->round) == seen)
        futex_wait(&pool->round, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *run_helper(void *arg)
{
    struct helper *h = arg;
    struct pst_pool *pool = h->pool;
    unsigned seen = 0;

    for (;;) {
        wait_for_round(pool, seen);
        seen++;
        if (pool->stop)
            return NULL;
        pst_thread_node = pool->node;
        pool->fn(pool->ctx, h->part, pool->threads);
        if (atomic_fetch_sub(&pool->left, 1) == 1 && atomic_load(&pool->waits))
            futex_wake_all(&pool->left);
    }
}

static void start_round(struct pst_pool *pool)
{
    atomic_fetch_add(&pool->round, 1);
    if (atomic_load(&pool->sleepers))
        futex_wake_all(&pool->round);
}

/* Stops the n helpers that have been started. */
static void stop_helpers(struct pst_pool *pool, unsigned n)
{
    pool->stop = 1;
    start_round(pool);
    for (unsigned i = 0; i < n; i++)
        pthread_join(pool->helpers[i].thread, NULL);
}

enum pst_status pst_pool_new(unsigned threads, struct pst_pool **ret,
                             struct pst_diag *diag)
{
    struct pst_pool *pool;
    size_t bytes;

    if (threads < 1 || threads > MAX_THREADS)
        return pst_diag_set(diag, PST_E_HOST_THREADS,
                            "%u threads asked for, must be 1 to %d", threads,
                            MAX_THREADS);
    bytes = sizeof(*pool) + (threads - 1) * sizeof(pool->helpers[0]);
    pool = pst_calloc(PST_TAG_BASE, 1, bytes);
    if (!pool)
        return pst_diag_nomem(diag, bytes);
    pool->threads = threads;
    pool->spins = threads > pst_cpu_count() ? SPINS_FULL : SPINS;
    for (unsigned i = 0; i + 1 < threads; i++) {
        struct helper *h = &pool->helpers[i];
        int err;

        h->pool = pool;
        h->part = i + 1;
        err = pst_thread_start(&h->thread, run_helper, h);
        if (err) {
            stop_helpers(pool, i);
            pst_free(pool);
            return pst_diag_errno(diag, err, "kernel thread %u of %u", i + 1,
                                  threads - 1);
        }
    }
    *ret = pool;
    return PST_OK;
}

void pst_pool_free(struct pst_pool *pool)
{
    if (!pool)
        return;
    stop_helpers(pool, pool->threads - 1);
    pst_free(pool);
}

enum pst_status pst_pool_bind(const struct pst_pool *pool, pthread_t caller,
                              const unsigned *processors, struct pst_diag *diag)
{
    enum pst_status status = pst_thread_bind(caller, processors[0], diag);

    for (unsigned i = 1; i < pool->threads && status == PST_OK; i++)
        status =
            pst_thread_bind(pool->helpers[i - 1].thread, processors[i], diag);
    return status;
}

unsigned pst_pool_threads(const struct pst_pool *pool)
{
    return pool ? pool->threads : 1;
}

void pst_pool_run(struct pst_pool *pool, pst_pool_fn fn, void *ctx)
{
    unsigned left;

    if (!pool || pool->threads == 1) {
        fn(ctx, 0, 1);
        return;
    }
    pool->fn = fn;
    pool->ctx = ctx;
    pool->node = pst_thread_node;
    atomic_store(&pool->left, pool->threads - 1);
    start_round(pool);
    fn(ctx, 0, pool->threads);
    for (unsigned i = 0; i < pool->spins; i++) {
        if (!atomic_load_explicit(&pool->left, memory_order_acquire))
            return;
        pause_cpu();
    }
    atomic_store(&pool->waits, 1);
    while ((left = atomic_load(&pool->left)))
        futex_wait(&pool->left, left);
    atomic_store(&pool->waits, 0);
}

void pst_pool_share(int64_t n, int64_t grain, unsigned part, unsigned parts,
                    int64_t *begin, int64_t *end)
{
    const int64_t step = grain > 1 ? grain : 1;
    const int64_t units = n / step + (n % step != 0);
    const int64_t each = units / parts, rest = units % parts;
    const int64_t first = part * each + PST_MIN((int64_t)part, rest);
    const int64_t last = first + each + ((int64_t)part < rest);

    *begin = PST_MIN(first * step, n);
    *end = PST_MIN(last * step, n);
}
