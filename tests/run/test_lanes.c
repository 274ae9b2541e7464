// SPDX-License-Identifier: Apache-2.0
/* Tests ranks of one process, each on a thread of its own. */
#include <pthread.h>
#include <unistd.h>

#include "stages/layout/layout.h"
#include "tests/run/job.h"

static struct run run_so(bool side_by_side, unsigned stages, unsigned flags,
                         struct pst_exec_options options)
{
    options.side_by_side = side_by_side;
    return run_as(stages, flags, &options);
}

static void same_bits(unsigned stages, unsigned flags,
                      const struct pst_exec_options *options)
{
    struct run turns = run_so(false, stages, flags, *options);
    struct run lanes = run_so(true, stages, flags, *options);

    assert_same_dump(turns.dump, lanes.dump);
    assert_true(turns.norm == lanes.norm && turns.loss == lanes.loss);
    pst_dump_free(turns.dump);
    pst_dump_free(lanes.dump);
}

static void keeps_the_bits(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};

    (void)state;
    for (unsigned stages = 2; stages <= 4; stages++)
        for (size_t k = 0; k < PST_COUNT(schedules); k++)
            for (unsigned threads = 1; threads <= 2; threads++) {
                const unsigned ranks = k == 2 ? 2 : stages;
                struct pst_exec_options options =
                    net_options(schedules[k], ranks, 6, "adamw");

                if (k == 2 && stages != 4)
                    continue;
                options.threads = threads;
                same_bits(stages, NET_TRANSMIT, &options);
                options.replicas = 2;
                same_bits(stages, NET_STILL, &options);
            }
}

/* A data source that records the threads which call it: one for each rank, but
 * only one at a time. */
struct source {
    struct net_data data;
    pthread_t seen[64];
    unsigned n;
    atomic_uint inside;
};

static enum pst_status watch_fill(void *ctx, uint64_t step, unsigned microbatch,
                                  unsigned input, void *dst,
                                  struct pst_diag *diag)
{
    struct source *s = ctx;
    const enum pst_status status =
        net_fill(&s->data, step, microbatch, input, dst, diag);

    assert_int_equal(atomic_fetch_add(&s->inside, 1), 0);
    if (s->n < PST_COUNT(s->seen))
        s->seen[s->n++] = pthread_self();
    (void)usleep(200);
    atomic_fetch_sub(&s->inside, 1);
    return status;
}

static void has_threads(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 3, 4, "sgd");
    struct source source = {.n = 0};
    struct job job;
    bool other = false;

    (void)state;
    options.side_by_side = true;
    job_init(&job, 3, &options);
    source.data = job.data;
    assert_ok(pst_engine_step(job.engine, 0, watch_fill, &source, 0, &job.last,
                              &job.net.diag),
              &job.net.diag);
    for (unsigned i = 1; i < source.n; i++)
        other = other || !pthread_equal(source.seen[i], source.seen[0]);
    assert_true(other);
    job_fini(&job);
}

/* After a fault on one rank nothing is applied, and the engine continues. */
static void faults_are_all_ranks(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 4, 4, "adamw");
    struct job job;

    (void)state;
    options.side_by_side = true;
    job_init(&job, 4, &options);
    run_steps(&job, 0, 1);
    job.data.bad_step = 1;
    job.data.bad_microbatch = 2;
    assert_int_equal(job_step(&job, 1), PST_ERR_RANGE);
    assert_non_null(strstr(job.net.diag.text, "rank 3"));
    assert_non_null(strstr(job.net.diag.text, "microbatch 2"));
    job.data.fails = true;
    assert_int_equal(job_step(&job, 1), PST_ERR_RANGE);
    assert_non_null(strstr(job.net.diag.text, "no such sample"));
    run_steps(&job, 2, 4);
    job_fini(&job);
}

static struct pst_transport_ops broken;

/* Acts as isend of a transport that fails on rank 2 only. */
static enum pst_status fail_on_2(struct pst_transport *t, unsigned self_rank,
                                 unsigned peer, int tag, const void *buf,
                                 size_t len, struct pst_request *req)
{
    if (self_rank == 2)
        return PST_ERR_PEER;
    return pst_transport_self.isend(t, self_rank, peer, tag, buf, len, req);
}

/* If sends of rank 2 fail, the ranks that wait for them stop, too. */
static void a_failure_stops_all(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 4, 4, "sgd");
    struct job job;

    (void)state;
    options.side_by_side = true;
    job_init(&job, 4, &options);
    run_steps(&job, 0, 1);
    broken = pst_transport_self;
    broken.isend = fail_on_2;
    job.transport->ops = &broken;
    assert_int_equal(job_step(&job, 1), PST_ERR_PEER);
    assert_non_null(strstr(job.net.diag.text, "rank 2: a message to rank"));
    assert_false(pst_engine_is_stuck(job.engine));
    job_fini(&job);
}

#define MAX_SLEEP_MS 300000

static atomic_bool awake; /* ends the sleep of sleep_once */

/* Sleeps in its first call until the test has seen what that causes. */
static void sleep_once(const struct pst_call *call)
{
    static atomic_bool slept;

    (void)call;
    if (atomic_exchange(&slept, true))
        return;
    for (unsigned i = 0; i < MAX_SLEEP_MS / 10 && !atomic_load(&awake); i++)
        (void)usleep(10000);
}

/* A kernel of rank 1 runs for longer than the limit: rank and action are named.
 */
static void names_who_is_stuck(void **state)
{
    struct pst_exec_options options = net_options("gpipe", 3, 2, "sgd");
    struct pst_kernel *kernel;
    struct pst_exec_node *node;
    struct pst_program *p;
    struct job job;

    (void)state;
    options.side_by_side = true;
    /* A limit in seconds, longer than a rank waits at a time. */
    options.watchdog = 1;
    job_init(&job, 3, &options);
    run_steps(&job, 0, 1);
    p = pst_rank_layout(job.engine->ranks[1])->stages[1].program;
    node = &p->lists[PST_LIST_B].at[0];
    kernel = pst_arena_memdup(&p->arena, node->kernel, sizeof(*kernel));
    assert_non_null(kernel);
    kernel->run = sleep_once;
    node->kernel = kernel;
    assert_int_equal(job_step(&job, 1), PST_ERR_PEER);
    assert_non_null(strstr(job.net.diag.text,
                           "rank 1 does not come out of 1B0 (stage 1, "
                           "microbatch 0"));
    assert_non_null(strstr(job.net.diag.text, "rank 0 waits to run"));
    assert_true(pst_engine_is_stuck(job.engine));
    atomic_store(&awake, true);
    job_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_bits),
        cmocka_unit_test(has_threads),
        cmocka_unit_test(faults_are_all_ranks),
        cmocka_unit_test(a_failure_stops_all),
        cmocka_unit_test(names_who_is_stuck),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
