// SPDX-License-Identifier: Apache-2.0
/* Tests replicas of a pipeline: R x P ranks share a batch (conformance 69). */
#include <math.h>
#include <stdatomic.h>
#include <time.h>

#include "stages/layout/layout.h"
#include "stages/run/rank/step/device.h"
#include "stages/tune/choose.h"
#include "tests/run/job.h"

static struct run replicated(unsigned stages, unsigned ranks, unsigned replicas,
                             unsigned microbatches, const char *schedule)
{
    struct pst_exec_options options =
        net_options(schedule, ranks, microbatches, "adamw");

    options.replicas = replicas;
    return run_as(stages, NET_STILL, &options);
}

/* Any number of replicas gives the same numbers to 1e-6, and the same bits each
 * time and for every cut and schedule of the pipeline. */
static void averages_gradients(void **state)
{
    static const unsigned microbatches[] = {4, 5, 7};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(microbatches); i++) {
        const unsigned m = microbatches[i];
        struct run whole = replicated(1, 1, 1, m, "gpipe");

        for (unsigned replicas = 2; replicas <= 4; replicas++) {
            struct run alone = replicated(1, 1, replicas, m, "gpipe");

            assert_near(whole.dump, alone.dump, 1e-6);
            assert_true(fabs(whole.loss - alone.loss) < 1e-6);
            for (unsigned stages = 2; stages <= 4; stages++) {
                struct run cut =
                    replicated(stages, PST_MIN(stages, 3), replicas, m,
                               replicas % 2 ? "gpipe" : "1f1b");

                assert_same_dump(alone.dump, cut.dump);
                assert_true(alone.loss == cut.loss && alone.norm == cut.norm);
                pst_dump_free(cut.dump);
            }
            pst_dump_free(alone.dump);
        }
        pst_dump_free(whole.dump);
    }
}

/* Losses and outputs of the first step are returned in the order of the batch.
 */
static void keeps_the_order_of_the_batch(void **state)
{
    struct run whole = replicated(2, 2, 1, 5, "1f1b");
    struct run shared = replicated(2, 2, 2, 5, "1f1b");

    (void)state;
    assert_memory_equal(pst_dump_find(whole.dump, "losses")->data,
                        pst_dump_find(shared.dump, "losses")->data,
                        5 * sizeof(float));
    assert_memory_equal(pst_dump_find(whole.dump, "output.1")->data,
                        pst_dump_find(shared.dump, "output.1")->data,
                        100 * sizeof(float));
    pst_dump_free(whole.dump);
    pst_dump_free(shared.dump);
}

static void refuses_what_cannot_be_shared(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 2, 3, "sgd");
    struct pst_memory memory[2];
    struct net net;

    (void)state;
    net_init(&net, 2);
    options.replicas = 4;
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_USAGE);
    net_fini(&net);
}

/*
 * After a step, a buffer that microbatches change is the same in all replicas:
 * as replica 0's microbatches left it. Nothing is trained here, and net_fill
 * identifies microbatches by their number in the step, so a single pipeline
 * with replica 0's share gives the same bits.
 */
static void has_the_buffers_of_replica_0(void **state)
{
    static const struct {
        unsigned replicas, microbatches, share;
    } cases[] = {{2, 5, 3}, {3, 7, 3}, {2, 4, 2}};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_exec_options options =
            net_options("gpipe", 1, cases[i].share, "none");
        struct run share = run(1, &options);

        for (unsigned stages = 1; stages <= 4; stages++) {
            struct run shared;

            options = net_options("1f1b", PST_MIN(stages, 3),
                                  cases[i].microbatches, "none");
            options.replicas = cases[i].replicas;
            shared = run(stages, &options);
            assert_memory_equal(
                pst_dump_find(shared.dump, "buffer.n.seen")->data,
                pst_dump_find(share.dump, "buffer.n.seen")->data,
                sizeof(float[8]));
            pst_dump_free(shared.dump);
        }
        pst_dump_free(share.dump);
    }
}

/* Returns the buffer in the rank's arena. */
static void *seen_at(const struct job *job, unsigned rank)
{
    struct pst_rank *r = job->engine->ranks[rank];
    const int index = pst_plan_find_param(job->net.plan, "n.seen");

    return pst_rank_at(
        pst_rank_device(r),
        pst_layout_param(pst_rank_layout(r), (unsigned)index)->data);
}

static struct pst_device_memory *memory_of(const struct job *job, unsigned rank)
{
    return &pst_rank_device(job->engine->ranks[rank])->mem;
}

static float *pull_seen(const struct job *job, unsigned rank)
{
    return pst_device_pull(memory_of(job, rank), seen_at(job, rank),
                           8 * sizeof(float));
}

/* All replicas have the same buffer after a step; a step that is not applied
 * leaves it unchanged, and copies that differ prevent a checkpoint. */
static void keeps_buffers_alike(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 1, 5, "adamw");
    float before[8];
    struct job job;

    (void)state;
    options.replicas = 3;
    job_init(&job, 2, &options);
    run_steps(&job, 0, 2);
    memcpy(before, pull_seen(&job, 0), sizeof(before));
    for (unsigned k = 1; k < 3; k++)
        assert_memory_equal(before, pull_seen(&job, k), sizeof(before));
    job.data.bad_step = 2;
    job.data.bad_microbatch = 4; /* a microbatch of replica 2 */
    assert_int_equal(job_step(&job, 2), PST_ERR_RANGE);
    for (unsigned k = 0; k < 3; k++)
        assert_memory_equal(before, pull_seen(&job, k), sizeof(before));
    assert_ok(pst_engine_check_copies(job.engine, 2, &job.net.diag),
              &job.net.diag);
    pull_seen(&job, 2)[3] += 1;
    pst_device_push(memory_of(&job, 2), seen_at(&job, 2), 8 * sizeof(float));
    assert_int_equal(pst_engine_check_copies(job.engine, 2, &job.net.diag),
                     PST_ERR_INTERNAL);
    assert_non_null(strstr(job.net.diag.text, "n.seen"));
    job_fini(&job);
}

/* --- messages that come in any order -------------------------------------- */

static const struct pst_transport_ops *prompt;
/* atomic, since ranks may run on threads of their own */
static atomic_uint chance;

/* A transport's `test` that often reports that a message has not arrived yet.
 */
static enum pst_status test_late(struct pst_transport *transport,
                                 struct pst_request *request)
{
    const unsigned drawn =
        (atomic_fetch_add(&chance, 1) * 2654435761u) >> 16 & 3;

    return drawn != 0 ? PST_AGAIN : prompt->test(transport, request);
}

static const char large[] =
    "graph next_id=10 {\n"
    "  input %x: f32[2, 1200]\n"
    "  param %w \"w\" grad: f32[2400, 1200]\n"
    "  %h: f32[2, 2400] = aten.linear.default(%x, %w, None)  # - - F id=0\n"
    "  %t: f32[2, 2400] = aten.tanh.default(%h)  # - - F id=1\n"
    "  %loss: f32[] = aten.sum.default(%t)  # - - F id=2\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* Returns the weight after a step of two replicas; late: with delayed messages.
 */
static float *step_of_large(bool late, enum pst_sharing shard)
{
    struct pst_exec_options options = net_options("gpipe", 1, 6, "sgd");
    const size_t bytes = (size_t)2400 * 1200 * sizeof(float);
    const struct pst_split_options none = {0};
    struct pst_step_result result;
    struct pst_transport *self;
    struct pst_transport_ops ops;
    struct pst_engine *engine;
    struct net_data data;
    struct net net;
    float *ret = malloc(bytes);

    options.replicas = 2;
    options.shard = shard;
    options.optim.clip_norm = 0;
    options.watchdog = 20;
    pst_diag_init(&net.diag);
    model_init(&net.model, large, NULL, 0);
    assert_ok(pst_split(&net.model, &none, &net.plan, &net.diag), &net.diag);
    data = net_data(&net);
    assert_ok(pst_transport_self.open("2", &self, &net.diag), &net.diag);
    prompt = self->ops;
    ops = *prompt;
    if (late)
        ops.test = test_late;
    self->ops = &ops;
    assert_ok(pst_engine_new(net.plan, self, &options, &engine, &net.diag),
              &net.diag);
    assert_ok(
        pst_engine_step(engine, 0, net_fill, &data, 0, &result, &net.diag),
        &net.diag);
    for (unsigned k = 0; k < 2; k++) {
        struct pst_rank *r = engine->ranks[k];
        const void *at =
            pst_rank_pull(pst_rank_device(r),
                          pst_layout_param(pst_rank_layout(r), 0)->data, bytes);

        if (k == 0)
            memcpy(ret, at, bytes);
        assert_memory_equal(ret, at, bytes);
    }
    pst_engine_free(engine);
    self->ops = prompt;
    prompt->close(self);
    net_fini(&net);
    return ret;
}

/* Sums are right even if there are more rounds than can be in flight at a time,
 * and rounds end in any order. */
static void sums_rounds_in_any_order(void **state)
{
    const size_t bytes = (size_t)2400 * 1200 * sizeof(float);
    const char *given = getenv("PST_TEST_SEED");
    float *want = step_of_large(false, PST_SHARING_NONE);

    (void)state;
    atomic_store(&chance, given != NULL ? (unsigned)strtoul(given, NULL, 10)
                                        : (unsigned)time(NULL));
    print_message("PST_TEST_SEED=%u\n", atomic_load(&chance));
    for (int i = 0; i < 6; i++) {
        float *got =
            step_of_large(true, i % 2 ? PST_SHARING_ZERO1 : PST_SHARING_NONE);

        assert_memory_equal(want, got, bytes);
        free(got);
    }
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_gradients),
        cmocka_unit_test(keeps_the_order_of_the_batch),
        cmocka_unit_test(refuses_what_cannot_be_shared),
        cmocka_unit_test(has_the_buffers_of_replica_0),
        cmocka_unit_test(keeps_buffers_alike),
        cmocka_unit_test(sums_rounds_in_any_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
