// SPDX-License-Identifier: Apache-2.0
/* Tests the schedule "auto": it is never slower than a named schedule, faster
 * where stages differ, within the memory limit, and can always run. */
#include "stages/sched/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

static enum pst_status make(const char *name, unsigned ranks, unsigned n,
                            const struct pst_costs *costs, double limit,
                            struct pst_schedule **ret, struct pst_diag *diag)
{
    double work[64];
    const struct pst_schedule_options o = {.name = name,
                                           .ranks = ranks,
                                           .stages = costs->n_stages,
                                           .microbatches = n,
                                           .train = true,
                                           .costs = work,
                                           .model = costs,
                                           .memory_limit = limit};

    for (unsigned s = 0; s < costs->n_stages; s++)
        work[s] = costs->stages[s].seconds.forward +
                  costs->stages[s].seconds.input +
                  costs->stages[s].seconds.weight;
    return pst_schedule_make(&o, ret, diag);
}

static double step_of(const struct pst_schedule *s,
                      const struct pst_costs *costs)
{
    struct pst_diag diag;
    struct pst_sim sim;
    double step;

    assert_ok(pst_schedule_simulate(s, costs, &sim, &diag), &diag);
    step = sim.step;
    pst_sim_fini(&sim);
    return step;
}

/* Lowers the schedule with the links of the costs, and checks the result. */
static void check_lowered(struct pst_schedule *s, const struct pst_costs *costs)
{
    struct pst_link links[256];
    struct pst_diag diag;
    size_t n = 0;

    for (; n < costs->n_links; n++)
        links[n] = costs->links[n].link;
    for (int i = 1; i < (int)s->n_stages && !costs->links; i++)
        links[n++] = (struct pst_link){i - 1, i, true};
    assert_ok(pst_schedule_lower(s, links, n, NULL, 0, 1, &diag), &diag);
    assert_ok(pst_schedule_check(s, links, n, NULL, 0, &diag), &diag);
}

static uint64_t random_bits(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static double random_real(uint64_t *state)
{
    return (double)random_bits(state) / 0x1p31;
}

/* Draws costs: stages that differ by up to a factor of 5, edges to any later
 * stage, messages. */
static void random_costs(struct pst_costs *costs, unsigned stages,
                         uint64_t *state)
{
    struct pst_diag diag;

    assert_ok(pst_costs_init(costs, stages, &diag), &diag);
    for (unsigned s = 0; s < stages; s++) {
        struct pst_stage_cost *c = &costs->stages[s];

        c->seconds.forward = 1 + 4 * random_real(state);
        c->seconds.input = c->seconds.forward * (.5 + random_real(state));
        c->seconds.weight = c->seconds.forward * (.5 + random_real(state));
        if (random_bits(state) % 2)
            c->backward = .9 * (c->seconds.input + c->seconds.weight);
        c->stash = 10 * c->seconds.forward;
        c->keep = c->stash * random_real(state);
        c->fixed = 100;
    }
    costs->links = pst_arena_calloc(&costs->arena, 2 * (size_t)stages,
                                    sizeof(*costs->links));
    assert_non_null(costs->links);
    for (unsigned s = 0; s + 1 < stages; s++) {
        const unsigned far = s + 1 + random_bits(state) % (stages - s - 1);
        struct pst_link_cost *l = &costs->links[costs->n_links++];

        *l = (struct pst_link_cost){
            {(int)s, (int)s + 1, true}, random_real(state), random_real(state)};
        if (far > s + 1) {
            l = &costs->links[costs->n_links++];
            *l = (struct pst_link_cost){
                {(int)s, (int)far, random_bits(state) % 2}, .1, .1};
        }
    }
    costs->wire.latency = .1 * random_real(state);
    costs->wire.bandwidth = random_bits(state) % 2 ? 2 : 0;
    costs->overlap = random_bits(state) % 2;
}

/* Asserts that no named schedule is faster than `step` seconds. */
static void compare_names(unsigned ranks, unsigned n,
                          const struct pst_costs *costs, double step)
{
    size_t n_rows;
    const struct pst_sched_row *rows = pst_sched_rows(&n_rows);

    for (size_t k = 0; k < n_rows; k++) {
        struct pst_schedule *s;
        struct pst_diag diag;

        if (!rows[k].trains ||
            make(rows[k].name, ranks, n, costs, 0, &s, &diag) != PST_OK)
            continue;
        assert_ok(pst_schedule_order(s, &diag), &diag);
        if (step_of(s, costs) < step * (1 - 1e-9))
            fail_msg("%s is faster than auto: %u ranks, %u stages, %u "
                     "microbatches",
                     rows[k].name, ranks, costs->n_stages, n);
        pst_schedule_free(s);
    }
}

static void never_slower_than_a_named_one(void **state)
{
    static const struct {
        unsigned ranks, stages, microbatches;
    } shapes[] = {{1, 1, 3}, {2, 2, 1}, {2, 4, 5},  {3, 3, 7}, {4, 4, 8},
                  {4, 8, 8}, {4, 8, 3}, {3, 7, 10}, {2, 8, 6}};
    uint64_t seed = 1;

    (void)state;
    for (unsigned i = 0; i < 4 * PST_COUNT(shapes); i++) {
        const unsigned ranks = shapes[i / 4].ranks;
        const unsigned n = shapes[i / 4].microbatches;
        struct pst_schedule *s;
        struct pst_costs costs;
        struct pst_diag diag;
        double step;

        random_costs(&costs, shapes[i / 4].stages, &seed);
        assert_ok(make("auto", ranks, n, &costs, 0, &s, &diag), &diag);
        step = step_of(s, &costs);
        assert_true(s->candidates.n >= 7);
        assert_float_equal(s->candidates.at[0].step, step, 1e-9 * step);
        check_lowered(s, &costs);
        pst_schedule_free(s);
        compare_names(ranks, n, &costs, step);
        pst_costs_fini(&costs);
    }
}

/* Four ranks with unequal stages: at least 5 % faster than 1F1B, except where
 * the first rank has most work, since 1F1B keeps that rank busy. */
static void beats_1f1b_on_uneven_stages(void **state)
{
    static const double work[][8] = {{1, 1, 1, 1},
                                     {1, 2, 1, 1},
                                     {2, 1, 1, 2},
                                     {1, 1.2, 1.4, 1.6},
                                     {1, 3, 2, 1},
                                     {1, 2, 1, 3, 1, 2, 1, 1},
                                     {5, 1, 1, 1, 1, 1, 1, 5},
                                     {1, 1, 1, 1, 4, 4, 4, 4}};

    (void)state;
    for (unsigned i = 0; i < 2 * PST_COUNT(work); i++) {
        const unsigned n = i % 2 ? 4 : 8;
        struct pst_schedule *s;
        struct pst_costs costs;
        struct pst_diag diag;
        const unsigned stages = work[i / 2][7] > 0 ? 8 : 4;
        double step, plain;

        assert_ok(pst_costs_init(&costs, stages, &diag), &diag);
        for (unsigned k = 0; k < stages; k++) {
            const double w = work[i / 2][k];

            costs.stages[k].seconds = (struct pst_seconds){w, w, w};
        }
        assert_ok(make("auto", 4, n, &costs, 0, &s, &diag), &diag);
        step = step_of(s, &costs);
        pst_schedule_free(s);
        assert_ok(make("1f1b", 4, n, &costs, 0, &s, &diag), &diag);
        plain = step_of(s, &costs);
        pst_schedule_free(s);
        if (step > .95 * plain)
            fail_msg("case %u, %u microbatches: auto %g, 1f1b %g", i / 2, n,
                     step, plain);
        pst_costs_fini(&costs);
    }
}

static double peak_of(const struct pst_schedule *s,
                      const struct pst_costs *costs)
{
    struct pst_diag diag;
    struct pst_sim sim;
    double peak = 0;

    assert_ok(pst_schedule_simulate(s, costs, &sim, &diag), &diag);
    for (unsigned r = 0; r < s->n_ranks; r++)
        peak = fmax(peak, sim.ranks[r].peak_bytes);
    pst_sim_fini(&sim);
    return peak;
}

/* With smaller and smaller limits, steps take longer, and no limit is exceeded.
 * The refusal of the last limit states what is missing. */
static void keeps_within_memory(void **state)
{
    double last = 0, limit;
    unsigned made = 0;
    struct pst_costs costs;
    struct pst_diag diag;

    (void)state;
    assert_ok(pst_costs_init(&costs, 4, &diag), &diag);
    for (unsigned k = 0; k < 4; k++)
        costs.stages[k] = (struct pst_stage_cost){
            .seconds = {1, 1, 1}, .stash = 10, .keep = 5, .fixed = 100};
    for (unsigned tighter = 0;; tighter++) {
        struct pst_schedule *s = NULL;
        enum pst_status status;
        double step;

        limit = 100 + 16 * 10 - 5.0 * tighter;
        status = make("auto", 4, 8, &costs, limit, &s, &diag);
        if (status != PST_OK) {
            assert_int_equal(status, PST_ERR_USAGE);
            break;
        }
        step = step_of(s, &costs);
        assert_true(peak_of(s, &costs) <= limit);
        /* Half a percent may have been traded for memory. */
        assert_true(step >= last * (1 - 0.0051));
        last = step;
        made++;
        check_lowered(s, &costs);
        pst_schedule_free(s);
    }
    assert_float_equal(limit, 105, 1e-9); /* one microbatch needs 110 */
    assert_true(made > 10);
    assert_true(last > 1.5 * 24); /* hardly a pipeline any more */
    assert_non_null(strstr(diag.text, "0.00 MiB more"));
    assert_non_null(strstr(diag.text, "rank"));
    pst_costs_fini(&costs);
}

/* A larger limit never gives a slower schedule, for any costs; no limit counts
 * as the largest. */
static void a_larger_limit_is_never_slower(void **state)
{
    static const struct {
        unsigned ranks, stages, microbatches;
    } shapes[] = {{2, 2, 4}, {2, 4, 5}, {3, 3, 7}, {3, 7, 4}, {4, 8, 8}};
    uint64_t seed = 7;

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(shapes); i++) {
        double last = INFINITY;
        struct pst_costs costs;
        unsigned made = 0;

        random_costs(&costs, shapes[i].stages, &seed);
        for (double limit = 150; last > 0; limit *= 1.15) {
            const bool none = limit > 3000;
            struct pst_schedule *s;
            struct pst_diag diag;

            if (make("auto", shapes[i].ranks, shapes[i].microbatches, &costs,
                     none ? 0 : limit, &s, &diag) != PST_OK)
                continue;
            if (s->candidates.at[0].step > last)
                fail_msg("case %u: %g with %g bytes, %g with less", i,
                         s->candidates.at[0].step, limit, last);
            assert_true(none || peak_of(s, &costs) <= limit);
            last = none ? 0 : s->candidates.at[0].step;
            made++;
            pst_schedule_free(s);
        }
        assert_true(made > 5);
        pst_costs_fini(&costs);
    }
}

static void keeps_a_placement_that_was_asked_for(void **state)
{
    struct pst_costs costs;
    struct pst_schedule *s;
    struct pst_diag diag;
    struct pst_schedule_options o = {.name = "auto",
                                     .ranks = 2,
                                     .stages = 3,
                                     .microbatches = 4,
                                     .train = true,
                                     .place = "0=1,1=0,2=1"};

    (void)state;
    assert_ok(pst_costs_init(&costs, 3, &diag), &diag);
    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    assert_int_equal(s->rank_of[0], 1);
    assert_int_equal(s->rank_of[1], 0);
    assert_int_equal(s->rank_of[2], 1);
    check_lowered(s, &costs);
    pst_schedule_free(s);
    o.place = NULL;
    o.model = &costs;
    o.stages = 4;
    assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_MISMATCH);
    pst_costs_fini(&costs);
}

static void survives_lack_of_memory(void **state)
{
    enum pst_status status = PST_ERR_NOMEM;
    struct pst_costs costs;
    uint64_t seed = 3, live;

    (void)state;
    random_costs(&costs, 4, &seed);
    live = pst_alloc_live(PST_TAG_PLAN);
    /* Tries some of the thousands of allocations: the steps grow with n. */
    for (uint64_t n = 1; status != PST_OK; n += 1 + n / 16) {
        struct pst_schedule *s = NULL;
        struct pst_diag diag;

        pst_alloc_fail_at(n);
        status = make("auto", 2, 2, &costs, 0, &s, &diag);
        pst_alloc_fail_at(0);
        if (status != PST_OK)
            assert_int_equal(status, PST_ERR_NOMEM);
        else
            pst_schedule_free(s);
        assert_int_equal(pst_alloc_live(PST_TAG_PLAN), live);
    }
    pst_costs_fini(&costs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_slower_than_a_named_one),
        cmocka_unit_test(beats_1f1b_on_uneven_stages),
        cmocka_unit_test(keeps_within_memory),
        cmocka_unit_test(a_larger_limit_is_never_slower),
        cmocka_unit_test(keeps_a_placement_that_was_asked_for),
        cmocka_unit_test(survives_lack_of_memory),
    };

    return cmocka_run_group_tests_name("sched-auto", tests, NULL, NULL);
}
