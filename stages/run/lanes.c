// SPDX-License-Identifier: Apache-2.0
#include "stages/run/lanes.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "stages/base/host/thread.h"
#include "stages/layout/role.h"
#include "stages/run/engine.h"

#define LOOK_EVERY      0.01 /* seconds between two checks of a waiting rank */
#define LOOKS_OF_A_STOP 100  /* maximum number of checks while ranks stop */

struct lane {
    struct pst_lanes *lanes;
    struct pst_rank *rank;
    struct pst_pool *pool;
    pthread_t thread; /* unused by the first lane */
    struct pst_diag diag;
    enum pst_status status;
    uint64_t seen; /* state that the transport's wait() keeps for this lane */
    bool runs;     /* the lane's thread runs a step */
};

struct pst_lanes {
    struct pst_engine *engine;
    uint64_t moves; /* sum of pst_rank_moves at the last check_lanes() */

    /* protects the next four members and `runs` of lanes */
    pthread_mutex_t lock;
    pthread_cond_t begins, ends;
    uint64_t round;   /* number of steps that were begun */
    unsigned running; /* threads that run a step, without the first lane */
    bool closes;      /* threads must end */

    pthread_mutex_t fill_lock; /* serializes calls of fill */
    pst_fill_fn fill;
    void *fill_ctx;

    atomic_bool stopped;
    unsigned n, n_threads;
    struct lane at[];
};

/* --- the work of one rank ------------------------------------------------- */

static enum pst_status check_lanes(struct pst_lanes *lanes);

static enum pst_status wait_for_peers(struct lane *l)
{
    struct pst_transport *t = l->lanes->engine->transport;

    if (pst_rank_polls(l->rank))
        sched_yield();
    else
        t->ops->wait(t, pst_role_number(pst_rank_role(l->rank)), &l->seen,
                     LOOK_EVERY);
    return l == l->lanes->at ? check_lanes(l->lanes) : PST_OK;
}

/* Runs a rank's step. status is PST_AGAIN at the end if the lane was stopped.
 */
static void run_lane(struct lane *l)
{
    enum pst_status status = PST_AGAIN;

    while (status == PST_AGAIN &&
           !atomic_load_explicit(&l->lanes->stopped, memory_order_relaxed)) {
        status = pst_rank_advance(l->rank);
        if (status == PST_AGAIN && wait_for_peers(l) != PST_OK)
            status = PST_ERR_PEER;
    }
    l->status = status;
    if (status != PST_OK)
        atomic_store_explicit(&l->lanes->stopped, true, memory_order_relaxed);
}

static void *serve_lane(void *arg)
{
    struct lane *l = arg;
    struct pst_lanes *lanes = l->lanes;
    uint64_t round = 0;

    pthread_mutex_lock(&lanes->lock);
    for (;;) {
        while (lanes->round == round && !lanes->closes)
            pthread_cond_wait(&lanes->begins, &lanes->lock);
        if (lanes->closes)
            break;
        round = lanes->round;
        pthread_mutex_unlock(&lanes->lock);
        pst_alive_begin_lane();
        run_lane(l);
        pthread_mutex_lock(&lanes->lock);
        l->runs = false;
        if (--lanes->running == 0)
            pthread_cond_signal(&lanes->ends);
    }
    pthread_mutex_unlock(&lanes->lock);
    return NULL;
}

/* --- watching the other lanes --------------------------------------------- */

static void time_after(double seconds, struct timespec *ret)
{
    (void)clock_gettime(CLOCK_MONOTONIC, ret);
    ret->tv_nsec += (long)(seconds * 1e9);
    if (ret->tv_nsec >= 1000000000) {
        ret->tv_sec++;
        ret->tv_nsec -= 1000000000;
    }
}

/* Waits LOOK_EVERY seconds at most. Returns true if all other lanes have ended.
 */
static bool wait_for_ends(struct pst_lanes *lanes)
{
    struct timespec until;
    bool ret;

    time_after(LOOK_EVERY, &until);
    pthread_mutex_lock(&lanes->lock);
    if (lanes->running > 0)
        (void)pthread_cond_timedwait(&lanes->ends, &lanes->lock, &until);
    ret = lanes->running == 0;
    pthread_mutex_unlock(&lanes->lock);
    return ret;
}

void pst_lanes_stop(struct pst_lanes *lanes)
{
    atomic_store_explicit(&lanes->stopped, true, memory_order_relaxed);
    for (unsigned i = 0; i < LOOKS_OF_A_STOP && !wait_for_ends(lanes); i++)
        ;
}

bool pst_lanes_runs(struct pst_lanes *lanes, unsigned i)
{
    bool ret;

    pthread_mutex_lock(&lanes->lock);
    ret = lanes->at[i].runs;
    pthread_mutex_unlock(&lanes->lock);
    return ret;
}

bool pst_lanes_are_stuck(struct pst_lanes *lanes)
{
    bool ret;

    pthread_mutex_lock(&lanes->lock);
    ret = lanes->running > 0;
    pthread_mutex_unlock(&lanes->lock);
    return ret;
}

/* Reports progress of the process if any rank has made progress, else checks
 * the watchdog's limit. */
static enum pst_status check_lanes(struct pst_lanes *lanes)
{
    uint64_t moves = 0;

    for (unsigned i = 0; i < lanes->n; i++)
        moves += pst_rank_moves(lanes->at[i].rank);
    if (moves == lanes->moves)
        return pst_engine_watch(lanes->engine, &lanes->at[0].diag);
    lanes->moves = moves;
    lanes->engine->awake = (struct pst_awake){0};
    pst_alive_progress();
    return PST_OK;
}

static void begin_round(struct pst_lanes *lanes)
{
    lanes->engine->awake = (struct pst_awake){0};
    atomic_store_explicit(&lanes->stopped, false, memory_order_relaxed);
    for (unsigned i = 0; i < lanes->n; i++) {
        pst_diag_init(&lanes->at[i].diag);
        lanes->at[i].rank = lanes->engine->ranks[i];
        lanes->at[i].status = PST_AGAIN;
        pst_rank_set_diag(lanes->at[i].rank, &lanes->at[i].diag);
    }
    pthread_mutex_lock(&lanes->lock);
    for (unsigned i = 1; i < lanes->n; i++)
        lanes->at[i].runs = true;
    lanes->running = lanes->n - 1;
    lanes->round++;
    pthread_cond_broadcast(&lanes->begins);
    pthread_mutex_unlock(&lanes->lock);
}

enum pst_status pst_lanes_run(struct pst_lanes *lanes, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    begin_round(lanes);
    run_lane(&lanes->at[0]);
    while (lanes->at[0].status == PST_OK && status == PST_OK &&
           !wait_for_ends(lanes))
        status = check_lanes(lanes);
    if (status != PST_OK)
        lanes->at[0].status = status;
    if (lanes->at[0].status != PST_OK)
        pst_lanes_stop(lanes);
    for (unsigned i = 0; i < lanes->n; i++)
        if (!pst_lanes_runs(lanes, i) && lanes->at[i].status != PST_OK &&
            lanes->at[i].status != PST_AGAIN)
            return pst_diag_carry(diag, lanes->at[i].diag.error,
                                  lanes->at[i].status, "%s",
                                  lanes->at[i].diag.text);
    return PST_OK;
}

/* --- data ----------------------------------------------------------------- */

void pst_lanes_source(struct pst_lanes *lanes, pst_fill_fn fill, void *ctx)
{
    lanes->fill = fill;
    lanes->fill_ctx = ctx;
}

enum pst_status pst_lanes_fill(void *ctx, uint64_t step, unsigned microbatch,
                               unsigned input, void *dst, struct pst_diag *diag)
{
    struct pst_lanes *lanes = ctx;
    enum pst_status status;

    pthread_mutex_lock(&lanes->fill_lock);
    status = lanes->fill(lanes->fill_ctx, step, microbatch, input, dst, diag);
    pthread_mutex_unlock(&lanes->fill_lock);
    return status;
}

/* --- life ----------------------------------------------------------------- */

struct pst_pool *pst_lanes_pool(const struct pst_lanes *lanes, unsigned i)
{
    return lanes->at[i].pool;
}

pthread_t pst_lanes_thread(const struct pst_lanes *lanes, unsigned i)
{
    return i == 0 ? pthread_self() : lanes->at[i].thread;
}

static enum pst_status start_thread(struct lane *l, struct pst_diag *diag)
{
    const int err = pst_thread_start(&l->thread, serve_lane, l);

    if (err != 0)
        return pst_diag_errno(diag, err, "the thread of rank %u",
                              pst_role_number(pst_rank_role(l->rank)));
    l->lanes->n_threads++;
    return PST_OK;
}

static void init_locks(struct pst_lanes *lanes)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&lanes->lock, NULL);
    pthread_mutex_init(&lanes->fill_lock, NULL);
    pthread_cond_init(&lanes->begins, NULL);
    pthread_cond_init(&lanes->ends, &attr);
    pthread_condattr_destroy(&attr);
}

enum pst_status pst_lanes_new(struct pst_engine *engine, struct pst_lanes **ret,
                              struct pst_diag *diag)
{
    const size_t bytes =
        sizeof(struct pst_lanes) + engine->n_local * sizeof(struct lane);
    struct pst_lanes *lanes = pst_calloc(PST_TAG_EXEC, 1, bytes);
    enum pst_status status = PST_OK;

    if (lanes == NULL)
        return pst_diag_nomem(diag, bytes);
    init_locks(lanes);
    lanes->engine = engine;
    lanes->n = engine->n_local;
    for (unsigned i = 0; i < lanes->n && status == PST_OK; i++) {
        struct lane *l = &lanes->at[i];

        l->lanes = lanes;
        l->rank = engine->ranks[i];
        status = pst_pool_new(engine->grid->options.threads, &l->pool, diag);
        if (status == PST_OK && i > 0)
            status = start_thread(l, diag);
    }
    if (status != PST_OK) {
        pst_lanes_free(lanes);
        return status;
    }
    engine->transport->threads = true;
    *ret = lanes;
    return PST_OK;
}

void pst_lanes_free(struct pst_lanes *lanes)
{
    if (lanes == NULL)
        return;
    pthread_mutex_lock(&lanes->lock);
    lanes->closes = true;
    pthread_cond_broadcast(&lanes->begins);
    pthread_mutex_unlock(&lanes->lock);
    for (unsigned i = 1; i <= lanes->n_threads; i++)
        pthread_join(lanes->at[i].thread, NULL);
    for (unsigned i = 0; i < lanes->n; i++)
        pst_pool_free(lanes->at[i].pool);
    pthread_cond_destroy(&lanes->begins);
    pthread_cond_destroy(&lanes->ends);
    pthread_mutex_destroy(&lanes->fill_lock);
    pthread_mutex_destroy(&lanes->lock);
    pst_free(lanes);
}
