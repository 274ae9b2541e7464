// SPDX-License-Identifier: Apache-2.0
/* Tests how times of actions are recorded, collected, explained, and converted
 * to costs. */
#include <math.h>

#include "stages/run/measure.h"
#include "stages/run/rank/step/ring.h"
#include "tests/run/job.h"

static unsigned count(const struct pst_timeline *t, int rank,
                      enum pst_span_kind kind)
{
    unsigned n = 0;

    for (size_t i = 0; i < t->spans.n; i++)
        n += t->spans.at[i].rank == rank && t->spans.at[i].kind == kind;
    return n;
}

/* The first two steps do not count, as soon as there are others. */
static void cold_steps_do_not_count(void **state)
{
    struct pst_ring ring = {0};
    struct pst_arena arena;
    struct pst_diag diag;

    (void)state;
    pst_diag_init(&diag);
    pst_arena_init(&arena, PST_TAG_EXEC);
    assert_ok(pst_ring_init(&ring, &arena, 1, &diag), &diag);
    for (unsigned step = 0; step < 2 * PST_RING_STEPS; step++) {
        pst_ring_begin(&ring, step, 0);
        pst_ring_end(&ring, 1);
        for (unsigned i = 0; i < PST_RING_STEPS; i++)
            assert_int_equal(pst_ring_counts(&ring, i),
                             ring.steps[i].whole &&
                                 (step < 2 || ring.steps[i].step >= 2));
    }
    pst_arena_fini(&arena);
}

static struct pst_timeline timeline_of(struct job *job)
{
    struct pst_timeline t;

    assert_ok(pst_engine_timeline(job->engine, &t, &job->net.diag),
              &job->net.diag);
    return t;
}

/* Every action occurs once, in sequence on each rank, and every gap is
 * explained. */
static void draws_a_step(void **state)
{
    struct pst_exec_options options = net_options("zb-v", 2, 4, "adamw");
    struct pst_shares shares[2];
    struct pst_timeline t;
    struct job job;

    (void)state;
    job_init(&job, 4, &options);
    t = timeline_of(&job);
    assert_int_equal(t.spans.n, 0); /* nothing has run */
    run_steps(&job, 0, 12);
    t = timeline_of(&job);
    assert_int_equal(t.n_ranks, 2);
    assert_true(t.step > 0);
    for (int r = 0; r < 2; r++) {
        double end = 0;

        assert_int_equal(count(&t, r, PST_SPAN_F), 8);
        assert_int_equal(count(&t, r, PST_SPAN_I), 8);
        assert_int_equal(count(&t, r, PST_SPAN_W), 8);
        assert_int_equal(count(&t, r, PST_SPAN_OPTIM), 1);
        for (size_t i = 0; i < t.spans.n; i++) {
            const struct pst_span *s = &t.spans.at[i];

            if (s->rank != r)
                continue;
            assert_true(s->start >= end - 1e-9 && s->end >= s->start);
            end = s->end;
        }
        assert_true(end <= t.step + 1e-9);
    }
    pst_timeline_shares(&t, shares);
    for (int r = 0; r < 2; r++) {
        double sum = 0;

        for (int k = 0; k < PST_N_SPANS; k++)
            sum += shares[r].seconds[k];
        assert_true(sum > 0.5 * t.step && sum <= t.step * 1.000001);
        assert_true(shares[r].bubble >= 0 && shares[r].bubble < 1);
    }
    pst_timeline_fini(&t);
    job_fini(&job);
}

/* Returns the span of a stage's action for a microbatch. */
static const struct pst_span *find_span(const struct pst_timeline *t,
                                        enum pst_span_kind kind, int stage,
                                        int microbatch)
{
    for (size_t i = 0; i < t->spans.n; i++) {
        const struct pst_span *s = &t->spans.at[i];

        if (s->kind == kind && s->stage == stage && s->microbatch == microbatch)
            return s;
    }
    fail_msg("no span of stage %d, microbatch %d", stage, microbatch);
    return NULL;
}

/* Waiting is no work: an action does not begin before the one that computes
 * what it reads has ended, on whichever rank. */
static void begins_after_its_operands(void **state)
{
    struct pst_exec_options options = net_options("gpipe", 4, 4, "sgd");
    struct pst_timeline t;
    struct job job;

    (void)state;
    job_init(&job, 4, &options);
    run_steps(&job, 0, 12);
    t = timeline_of(&job);
    assert_int_equal(t.n_ranks, 4);
    for (int m = 0; m < 4; m++)
        for (int s = 1; s < 4; s++) {
            assert_true(find_span(&t, PST_SPAN_F, s, m)->start >=
                        find_span(&t, PST_SPAN_F, s - 1, m)->end - 1e-9);
            assert_true(find_span(&t, PST_SPAN_B, s - 1, m)->start >=
                        find_span(&t, PST_SPAN_B, s, m)->end - 1e-9);
        }
    pst_timeline_fini(&t);
    job_fini(&job);
}

/* The bubble that a step reports is that of its timeline, whichever rank ends
 * last. The smallest difference of several steps counts, because the
 * optimizer's time is that of the step before. */
static void reports_the_bubble(void **state)
{
    struct pst_exec_options options = net_options("gpipe", 4, 1, "sgd");
    double least = 1;
    struct job job;

    (void)state;
    job_init(&job, 4, &options);
    for (unsigned step = 0; step < 100; step++) {
        struct pst_shares shares[4];
        struct pst_timeline t;
        double mean = 0;

        run_steps(&job, step, step + 1);
        t = timeline_of(&job);
        pst_timeline_shares(&t, shares);
        for (unsigned r = 0; r < t.n_ranks; r++)
            mean += shares[r].bubble / t.n_ranks;
        least = fmin(least, fabs(job.last.bubble - mean));
        pst_timeline_fini(&t);
    }
    assert_true(least < 0.005);
    job_fini(&job);
}

/* The timeline of a job with replicas has the ranks of the whole job, and the
 * numbers of microbatches in the step. */
static void draws_replicas(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 2, 5, "sgd");
    struct pst_timeline t;
    unsigned seen = 0;
    struct job job;

    (void)state;
    options.replicas = 2;
    job_init_as(&job, 2, NET_STILL, &options);
    run_steps(&job, 0, 3);
    t = timeline_of(&job);
    assert_int_equal(t.n_ranks, 4);
    assert_int_equal(count(&t, 0, PST_SPAN_F), 3);
    assert_int_equal(count(&t, 3, PST_SPAN_F), 2);
    for (size_t i = 0; i < t.spans.n; i++)
        if (t.spans.at[i].kind == PST_SPAN_F && t.spans.at[i].stage == 1)
            seen |= 1u << t.spans.at[i].microbatch;
    assert_int_equal(seen, 31);
    pst_timeline_fini(&t);
    job_fini(&job);
}

static void measures_costs(void **state)
{
    static const char *const schedules[] = {"1f1b", "zb-h1"};

    (void)state;
    for (size_t k = 0; k < PST_COUNT(schedules); k++) {
        struct pst_exec_options options =
            net_options(schedules[k], 2, 4, "adamw");
        struct pst_costs costs;
        struct job job;

        job_init(&job, 4, &options);
        run_steps(&job, 0, 5);
        assert_ok(pst_engine_costs(job.engine, &costs, &job.net.diag),
                  &job.net.diag);
        assert_int_equal(costs.n_stages, 4);
        for (unsigned s = 0; s < 4; s++) {
            const struct pst_stage_cost *c = &costs.stages[s];

            assert_true(c->seconds.forward > 0 && c->seconds.forward < 1);
            assert_true(c->seconds.input >= 0 && c->seconds.weight >= 0);
            assert_true(k == 0 ? c->backward > 0 : c->seconds.input > 0);
            assert_true(c->optim > 0);
        }
        pst_costs_fini(&costs);
        job_fini(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cold_steps_do_not_count),
        cmocka_unit_test(draws_a_step),
        cmocka_unit_test(begins_after_its_operands),
        cmocka_unit_test(reports_the_bubble),
        cmocka_unit_test(draws_replicas),
        cmocka_unit_test(measures_costs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
