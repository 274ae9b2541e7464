// SPDX-License-Identifier: Apache-2.0
/* Tests engines whose steps have different numbers of microbatches: they have
 * the bits of engines with one number that load each other's checkpoints. */
#include "stages/tune/choose.h"
#include "tests/folder.h"
#include "tests/run/job.h"

#define EACH 2 /* steps with each number of microbatches */

struct row {
    const char *schedule;
    unsigned stages, ranks, replicas, counts[4];
    const char *shard, *stash;
    unsigned flags;
};

static const struct row rows[] = {
    {"1f1b", 3, 3, 1, {4, 9, 2, 1}},
    {"gpipe", 3, 2, 1, {2, 6, 3, 6}, NULL, NULL, NET_TRANSMIT},
    {"interleaved-1f1b", 4, 2, 1, {4, 8, 2, 4}},
    {"zb-h1", 2, 2, 1, {3, 9, 1, 3}},
    {"zb-v", 4, 2, 1, {8, 4, 9, 8}},
    {"dualpipe-v", 4, 2, 1, {6, 8, 4, 6}},
    {"auto", 4, 2, 1, {1, 9, 4, 2}},
    {"1f1b", 2, 2, 2, {2, 5, 8, 3}},
    {"1f1b", 2, 2, 2, {2, 4, 8, 2}, "zero1"},
    {"1f1b", 3, 1, 3, {3, 6, 9, 3}, "zero2"},
    {"zb-h1", 2, 2, 2, {4, 8, 2, 6}, "zero3"},
    {"gpipe", 2, 1, 2, {4, 8, 2, 6}, "zero3", NULL, NET_STILL},
    {"gpipe", 2, 2, 1, {2, 6, 9, 3}, NULL, "ram"},
    {"gpipe", 2, 2, 1, {8, 3, 5, 8}, NULL, "disk:."},
};

static struct pst_exec_options options_of(const struct row *row,
                                          unsigned microbatches)
{
    struct pst_exec_options ret =
        net_options(row->schedule, row->ranks, microbatches, "adamw");

    ret.replicas = row->replicas;
    ret.shard_by = row->shard;
    ret.stash = row->stash;
    ret.stash_keep = row->stash != NULL ? 2 : 0;
    ret.verify = true;
    return ret;
}

/* Sets ret to the different numbers of microbatches of the row, and returns how
 * many there are. */
static unsigned distinct(const struct row *row, unsigned ret[4])
{
    unsigned n = 0;

    for (unsigned i = 0; i < PST_COUNT(row->counts); i++) {
        unsigned k = 0;

        while (k < n && ret[k] != row->counts[i])
            k++;
        if (k == n)
            ret[n++] = row->counts[i];
    }
    return n;
}

static void make_steps(struct job *job, unsigned from)
{
    for (unsigned s = from; s < from + EACH; s++) {
        const uint64_t calls = pst_alloc_calls();

        assert_ok(job_step(job, s), &job->net.diag);
        assert_true(job->last.applied);
        assert_int_equal(pst_alloc_calls(), calls);
    }
}

/* Runs the steps with the i-th number of microbatches in an engine of their
 * own, which begins with the checkpoint of the steps before. */
static struct run make_part(const struct row *row, unsigned i)
{
    const struct pst_exec_options options = options_of(row, row->counts[i]);
    struct run ret;
    uint64_t step;
    struct job job;
    char dir[32];

    (void)snprintf(dir, sizeof(dir), "row-%td", row - rows);
    job_init_as(&job, row->stages, row->flags, &options);
    if (i > 0)
        assert_ok(net_load(job.engine, dir, &step, &job.net.diag),
                  &job.net.diag);
    make_steps(&job, i * EACH);
    assert_ok(pst_engine_save(job.engine, dir, (i + 1) * EACH, 2, NULL,
                              &job.net.diag),
              &job.net.diag);
    ret.dump = job_dump(&job);
    ret.loss = job.last.loss;
    ret.norm = job.last.grad_norm;
    job_fini(&job);
    return ret;
}

/* Checks that steps with all numbers of microbatches have used the whole arena,
 * and no byte beyond it. */
static void check_memory(const struct job *job, const struct row *row)
{
    for (unsigned k = 0; k < pst_engine_n_local(job->engine); k++) {
        const size_t arena = pst_engine_memory(job->engine, k).arena;

        assert_true(pst_engine_high_water(job->engine, k) <= arena);
        if (row->stash == NULL)
            assert_int_equal(pst_engine_high_water(job->engine, k), arena);
    }
}

static void has_the_bits_of_separate_engines(void **state)
{
    (void)state;
    for (size_t r = 0; r < PST_COUNT(rows); r++) {
        const struct row *row = &rows[r];
        struct pst_exec_options options = options_of(row, row->counts[0]);
        unsigned counts[4];
        struct job job;

        options.counts = counts;
        options.n_counts = distinct(row, counts);
        job_init_as(&job, row->stages, row->flags, &options);
        for (unsigned i = 0; i < PST_COUNT(row->counts); i++) {
            const struct run want = make_part(row, i);
            const uint64_t calls = pst_alloc_calls();
            struct pst_dump *got;

            assert_ok(pst_engine_set_microbatches(job.engine, row->counts[i],
                                                  &job.net.diag),
                      &job.net.diag);
            assert_int_equal(pst_alloc_calls(), calls);
            make_steps(&job, i * EACH);
            got = job_dump(&job);
            assert_same_dump(want.dump, got);
            assert_true(want.loss == job.last.loss);
            assert_true(want.norm == job.last.grad_norm);
            pst_dump_free(want.dump);
            pst_dump_free(got);
        }
        check_memory(&job, row);
        job_fini(&job);
    }
}

/* An engine's arenas have the size that pst_exec_schedules computes for the
 * number of microbatches that needs most. */
static void plans_each_number(void **state)
{
    (void)state;
    for (size_t r = 0; r < PST_COUNT(rows); r++) {
        const struct row *row = &rows[r];
        struct pst_exec_options options = options_of(row, row->counts[0]);
        struct pst_schedule *scheds[4];
        struct pst_memory memory[4 * 4];
        unsigned counts[4];
        struct job job;

        options.counts = counts;
        options.n_counts = distinct(row, counts);
        job_init_as(&job, row->stages, row->flags, &options);
        assert_ok(pst_exec_schedules(job.net.plan, &options, memory, scheds,
                                     &job.net.diag),
                  &job.net.diag);
        for (unsigned k = 0; k < row->ranks; k++) {
            size_t most = 0;

            for (unsigned i = 0; i < options.n_counts; i++)
                most = PST_MAX(most, memory[i * row->ranks + k].arena);
            assert_int_equal(most, pst_engine_memory(job.engine, k).arena);
        }
        for (unsigned i = 0; i < options.n_counts; i++)
            pst_schedule_free(scheds[i]);
        job_fini(&job);
    }
}

static void expect_refusal(unsigned stages,
                           const struct pst_exec_options *options,
                           const char *text)
{
    struct pst_transport *transport;
    struct pst_engine *engine;
    struct net net;
    char ranks[16];

    net_init_as(&net, stages, 0);
    snprintf(ranks, sizeof(ranks), "%u",
             options->ranks * PST_MAX(options->replicas, 1));
    assert_ok(pst_transport_self.open(ranks, &transport, &net.diag), &net.diag);
    assert_int_not_equal(
        pst_engine_new(net.plan, transport, options, &engine, &net.diag),
        PST_OK);
    if (strstr(net.diag.text, text) == NULL)
        fail_msg("\"%s\" is not in: %s", text, net.diag.text);
    pst_transport_self.close(transport);
    net_fini(&net);
}

/* Every number is checked before the first step. */
static void refuses_by_name(void **state)
{
    static const unsigned counts[] = {4, 6, 3}, many[] = {1, 60};
    struct pst_exec_options options = net_options("dualpipe-v", 2, 4, "sgd");
    struct pst_memory memory[2];
    struct job job;

    (void)state;
    options.counts = counts;
    options.n_counts = PST_COUNT(counts);
    expect_refusal(4, &options,
                   "with 3 microbatches: schedule dualpipe-v needs");
    options.schedule = "gpipe";
    options.replicas = 4;
    options.ranks = 1;
    expect_refusal(2, &options, "with 3 microbatches: 4 replicas");

    options = net_options("gpipe", 2, 1, "sgd");
    job_init(&job, 2, &options);
    assert_ok(pst_exec_plan(job.net.plan, &options, memory, &job.net.diag),
              &job.net.diag);
    assert_int_equal(pst_engine_set_microbatches(job.engine, 2, &job.net.diag),
                     PST_ERR_USAGE);
    assert_non_null(strstr(job.net.diag.text, "2 microbatches are not among"));
    job_fini(&job);
    options.memory_limit = 1.5 * (double)memory[0].arena;
    options.counts = many;
    options.n_counts = PST_COUNT(many);
    expect_refusal(2, &options, "with 60 microbatches: with schedule gpipe");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_bits_of_separate_engines),
        cmocka_unit_test(plans_each_number),
        cmocka_unit_test(refuses_by_name),
    };

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
