// SPDX-License-Identifier: Apache-2.0
/* Tests the simulator against reference numbers of the schedules, and against
 * small schedules computed by hand. Also tests cost files. */
#include "stages/sched/simulate.h"

#include "stages/base/host/fs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sched/made.h"

/* Makes costs of equal stages: F = f, I = W = b / 2. */
static void cost(struct pst_costs *costs, unsigned stages, double f, double b)
{
    struct pst_diag diag;

    assert_ok(pst_costs_init(costs, stages, &diag), &diag);
    for (unsigned s = 0; s < stages; s++)
        costs->stages[s].seconds = (struct pst_seconds){f, b / 2, b / 2};
}

static struct pst_sim simulate(const struct pst_schedule *s,
                               const struct pst_costs *costs)
{
    struct pst_sim sim;
    struct pst_diag diag;

    assert_ok(pst_schedule_simulate(s, costs, &sim, &diag), &diag);
    return sim;
}

static void lower(struct pst_schedule *s, unsigned early)
{
    struct pst_link links[64];
    struct pst_diag diag;

    for (int i = 0; i + 1 < (int)s->n_stages; i++)
        links[i] = (struct pst_link){i, i + 1, true};
    assert_ok(
        pst_schedule_lower(s, links, s->n_stages - 1, NULL, 0, early, &diag),
        &diag);
}

/* Makespans for 4 ranks and 8 microbatches; 48 units of work per rank. A stage
 * of a schedule with one stage per rank is twice as large. */
static void makespans_are_those_of_the_table(void **state)
{
    static const struct {
        const char *name;
        unsigned per_rank;
        double makespan;
        unsigned peak[4];
    } rows[] = {
        {"gpipe", 1, 66, {8, 8, 8, 8}},
        {"1f1b", 1, 66, {4, 3, 2, 1}},
        {"interleaved-1f1b", 2, 57, {11, 9, 7, 5}},
        {"looped-bfs", 2, 57, {16, 16, 16, 16}},
        {"zb-h1", 2, 51, {8, 8, 8, 8}},
        {"zb-v", 2, 51, {8, 8, 8, 8}},
        {"dualpipe-v", 2, 51, {9, 9, 9, 9}},
    };

    (void)state;
    for (size_t i = 0; i < 2 * PST_COUNT(rows); i++) {
        const unsigned v = rows[i / 2].per_rank;
        struct pst_schedule *s = made(rows[i / 2].name, 4, 4 * v, 8);
        struct pst_costs costs;
        struct pst_sim sim;
        bool whole;

        cost(&costs, 4 * v, v == 1 ? 2 : 1, v == 1 ? 4 : 2);
        if (i % 2)
            lower(s, 2);
        sim = simulate(s, &costs);
        assert_float_equal(sim.makespan, rows[i / 2].makespan, 1e-9);
        assert_float_equal(sim.step, sim.makespan, 0);
        assert_float_equal(sim.bubble, 1 - 48 / sim.makespan, 1e-9);
        for (unsigned r = 0; r < 4; r++)
            assert_int_equal(sim.ranks[r].peak_held, rows[i / 2].peak[r]);
        pst_sim_fini(&sim);
        costs.parts_together = true;
        sim = simulate(s, &costs);
        whole = i % 2 == 0 && strcmp(s->name, "dualpipe-v") == 0;
        assert_float_equal(sim.makespan, whole ? 54 : rows[i / 2].makespan,
                           1e-9);
        pst_sim_fini(&sim);
        pst_costs_fini(&costs);
        pst_schedule_free(s);
    }
}

static double seconds(const struct pst_sim *sim, unsigned rank,
                      enum pst_span_kind kind)
{
    return sim->shares[rank].seconds[kind];
}

/* 1F1B, 4 ranks, 8 microbatches, F = 1, B = 2. Rank 0 waits 6 for its first
 * gradient, and 1 between each of its last 4. Rank 3 waits 3 for its first
 * input, and 6 at the end. */
static void names_why_ranks_wait(void **state)
{
    struct pst_schedule *s = made("1f1b", 4, 4, 8);
    struct pst_costs costs;
    struct pst_sim sim;

    (void)state;
    cost(&costs, 4, 1, 2);
    sim = simulate(s, &costs);
    assert_float_equal(seconds(&sim, 0, PST_SPAN_WARM_UP), 6, 1e-9);
    assert_float_equal(seconds(&sim, 0, PST_SPAN_DRAIN), 3, 1e-9);
    assert_float_equal(seconds(&sim, 3, PST_SPAN_WARM_UP), 3, 1e-9);
    assert_float_equal(seconds(&sim, 3, PST_SPAN_DRAIN), 6, 1e-9);
    for (unsigned r = 0; r < 4; r++) {
        assert_float_equal(seconds(&sim, r, PST_SPAN_IMBALANCE), 0, 1e-9);
        assert_float_equal(seconds(&sim, r, PST_SPAN_MESSAGE), 0, 1e-9);
        assert_float_equal(seconds(&sim, r, PST_SPAN_F), 8, 1e-9);
        assert_float_equal(seconds(&sim, r, PST_SPAN_B), 16, 1e-9);
        assert_float_equal(sim.shares[r].bubble, 3.0 / 11, 1e-9);
    }
    pst_sim_fini(&sim);

    /* Rank 1 is twice as slow, so the others wait in the middle too. */
    costs.stages[1].seconds = (struct pst_seconds){2, 2, 2};
    sim = simulate(s, &costs);
    assert_true(seconds(&sim, 3, PST_SPAN_IMBALANCE) > 6);
    assert_true(seconds(&sim, 1, PST_SPAN_IMBALANCE) < 1e-9);
    assert_float_equal(seconds(&sim, 3, PST_SPAN_MESSAGE), 0, 1e-9);
    for (unsigned r = 0; r < 4; r++) {
        double all = 0;

        for (int k = 0; k < PST_N_SPANS; k++)
            all += seconds(&sim, r, k);
        assert_float_equal(all, sim.step, 1e-9);
    }
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    pst_schedule_free(s);
}

/* Two ranks, one microbatch. Messages have 3 s of latency and 2 bytes/s;
 * forward 4 bytes are sent, back 2. The seconds are: F 1, message 5, F 1, B 2,
 * message 4, B 2. */
static void messages_take_time(void **state)
{
    struct pst_link_cost link = {{0, 1, true}, 4, 2};
    struct pst_costs costs;

    (void)state;
    cost(&costs, 2, 1, 2);
    costs.links = &link;
    costs.n_links = 1;
    costs.wire = (struct pst_wire){3, 2};
    for (unsigned i = 0; i < 4; i++) {
        struct pst_schedule *s = made("gpipe", 2, 2, 1);
        struct pst_sim sim;

        costs.overlap = i < 2;
        if (i % 2)
            lower(s, 0);
        sim = simulate(s, &costs);
        assert_float_equal(sim.makespan, 15, 1e-9);
        if (costs.overlap) {
            assert_float_equal(seconds(&sim, 1, PST_SPAN_WARM_UP), 1, 1e-9);
            assert_float_equal(seconds(&sim, 1, PST_SPAN_MESSAGE), 5, 1e-9);
            assert_float_equal(seconds(&sim, 0, PST_SPAN_MESSAGE), 4, 1e-9);
        } else {
            assert_float_equal(seconds(&sim, 0, PST_SPAN_SEND), 5, 1e-9);
            assert_float_equal(seconds(&sim, 1, PST_SPAN_SEND), 4, 1e-9);
        }
        pst_sim_fini(&sim);
        pst_schedule_free(s);
    }
    pst_costs_fini(&costs);
}

/* GPipe with two microbatches: messages of a rank leave one after the other. F0
 * ends at 1; its message takes until 3, that of F1 until 5. With overlap rank 1
 * runs F1 from 5 to 6; without it the sender computes F1 only after the first
 * message has left: F1 from 3 to 4, arrival at 6. */
static void messages_share_the_line(void **state)
{
    struct pst_link_cost link = {{0, 1, true}, 4, 0};
    struct pst_schedule *s = made("gpipe", 2, 2, 2);
    struct pst_costs costs;
    struct pst_sim sim;

    (void)state;
    cost(&costs, 2, 1, 2);
    costs.links = &link;
    costs.n_links = 1;
    costs.wire.bandwidth = 2;
    sim = simulate(s, &costs);
    assert_float_equal(sim.makespan, 6 + 2 + 2 + 2, 1e-9);
    pst_sim_fini(&sim);
    costs.overlap = false;
    sim = simulate(s, &costs);
    assert_float_equal(sim.makespan, 7 + 2 + 2 + 2, 1e-9);
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    pst_schedule_free(s);
}

/* Each pair of ranks may have a link of its own: 1 s there, 7 s back. */
static void ways_may_differ(void **state)
{
    const struct pst_wire wires[4] = {{0, 0}, {1, 0}, {7, 0}, {0, 0}};
    struct pst_schedule *s = made("gpipe", 2, 2, 1);
    struct pst_costs costs;
    struct pst_sim sim;

    (void)state;
    cost(&costs, 2, 1, 2);
    costs.wires = wires;
    sim = simulate(s, &costs);
    assert_float_equal(sim.makespan, 1 + 1 + 1 + 2 + 7 + 2, 1e-9);
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    pst_schedule_free(s);
}

/* Ranks 0 and 1 share a parameter; the optimizer begins after all sums. */
static void reduces_and_steps(void **state)
{
    const unsigned owners[] = {0, 1};
    const struct pst_shared shared = {0, owners, 2};
    const struct pst_link link = {0, 1, true};
    struct pst_schedule *s = made("1f1b", 2, 2, 1);
    struct pst_costs costs;
    struct pst_diag diag;
    struct pst_sim sim;

    (void)state;
    cost(&costs, 2, 1, 2);
    costs.stages[0].reduce = 5;
    costs.stages[0].optim = 1;
    costs.stages[1].optim = 3;
    assert_ok(pst_schedule_lower(s, &link, 1, &shared, 1, 0, &diag), &diag);
    sim = simulate(s, &costs);
    assert_float_equal(sim.makespan, 1 + 1 + 2 + 2 + 5, 1e-9);
    assert_float_equal(sim.step, sim.makespan + 3, 1e-9);
    for (unsigned r = 0; r < 2; r++) {
        assert_float_equal(seconds(&sim, r, PST_SPAN_REDUCE), 5, 1e-9);
        assert_float_equal(seconds(&sim, r, PST_SPAN_OPTIM), r ? 3 : 1, 1e-9);
    }
    assert_float_equal(seconds(&sim, 0, PST_SPAN_DRAIN), 2, 1e-9);
    assert_float_equal(seconds(&sim, 1, PST_SPAN_DRAIN), 2, 1e-9);
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    pst_schedule_free(s);
}

/* F runs on rank 0 at 0-1 and on rank 1 at 1-2, B on rank 1 at 2-4 and on rank
 * 0 at 4-6. Rank 1 sums its stage from 4 to 9, while rank 0 continues. Rank 0
 * sums its own from 6 to 7. */
static void sums_over_replicas_move_beside_the_work(void **state)
{
    struct pst_schedule *s = made("1f1b", 2, 2, 1);
    struct pst_costs costs;
    struct pst_sim sim;

    (void)state;
    lower(s, 0);
    for (int r = 0; r < 2; r++) {
        const struct pst_action a = {
            PST_ACT_REDUCE, (int16_t)r, -1, -1, -1, -1};

        assert_true(pst_vec_push(PST_TAG_PLAN, &s->ranks[r], a));
    }
    cost(&costs, 2, 1, 2);
    costs.stages[0].sum = 1;
    costs.stages[1].sum = 5;
    sim = simulate(s, &costs);
    assert_float_equal(sim.makespan, 9, 1e-9);
    assert_float_equal(seconds(&sim, 0, PST_SPAN_REDUCE), 1, 1e-9);
    assert_float_equal(seconds(&sim, 1, PST_SPAN_REDUCE), 5, 1e-9);
    assert_float_equal(seconds(&sim, 0, PST_SPAN_DRAIN), 2, 1e-9);
    pst_sim_fini(&sim);
    costs.overlap = false;
    sim = simulate(s, &costs);
    assert_float_equal(sim.makespan, 9, 1e-9);
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    pst_schedule_free(s);
}

static void follows_memory(void **state)
{
    struct pst_schedule *s = made("1f1b", 2, 2, 4);
    struct pst_costs costs;
    struct pst_sim sim;
    double level[2] = {0, 0};

    (void)state;
    cost(&costs, 2, 1, 2);
    for (unsigned i = 0; i < 2; i++) {
        costs.stages[i].fixed = 1000;
        costs.stages[i].stash = 10 + i;
    }
    sim = simulate(s, &costs);
    assert_float_equal(sim.ranks[0].peak_bytes, 1020, 0);
    assert_float_equal(sim.ranks[1].peak_bytes, 1011, 0);
    for (size_t i = 0; i < sim.timeline.levels.n; i++)
        level[sim.timeline.levels.at[i].rank] = sim.timeline.levels.at[i].bytes;
    assert_float_equal(level[0], 1000, 0);
    assert_float_equal(level[1], 1000, 0);
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    pst_schedule_free(s);
}

/* Simulates 131072 actions: 64 ranks, 1024 microbatches. */
static void is_fast_enough_to_search_with(void **state)
{
    struct pst_schedule *s = made("1f1b", 64, 64, 1024);
    struct pst_costs costs;
    struct pst_sim sim;

    (void)state;
    cost(&costs, 64, 1, 2);
    sim = simulate(s, &costs);
    assert_float_equal(sim.makespan, 3 * (1024 + 63), 1e-6);
    pst_sim_fini(&sim);
    pst_costs_fini(&costs);
    pst_schedule_free(s);
}

static void refuses_what_stands_still(void **state)
{
    struct pst_schedule *s = made("1f1b", 2, 2, 2);
    struct pst_action *a = s->ranks[1].at, first = a[0];
    struct pst_costs costs;
    struct pst_diag diag;
    struct pst_sim sim;

    (void)state;
    /* Rank 1 needs microbatch 1 before rank 0 can continue with it. */
    a[0] = a[2];
    a[2] = first;
    cost(&costs, 2, 1, 2);
    s->ranks[0].n = 1;
    assert_int_equal(pst_schedule_simulate(s, &costs, &sim, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "rank 1, action 0 (1F1)"));
    costs.n_stages = 1;
    assert_int_equal(pst_schedule_simulate(s, &costs, &sim, &diag),
                     PST_ERR_MISMATCH);
    pst_costs_fini(&costs);
    pst_schedule_free(s);
}

static void survives_lack_of_memory(void **state)
{
    struct pst_schedule *s = made("1f1b", 2, 2, 3);
    enum pst_status status = PST_ERR_NOMEM;
    struct pst_costs costs;
    uint64_t live;

    (void)state;
    lower(s, 2);
    cost(&costs, 2, 1, 2);
    costs.stages[0].stash = 1;
    live = pst_alloc_live(PST_TAG_PLAN);
    for (uint64_t n = 1; status != PST_OK; n++) {
        struct pst_diag diag;
        struct pst_sim sim;

        assert_in_range(n, 1, 500);
        pst_alloc_fail_at(n);
        status = pst_schedule_simulate(s, &costs, &sim, &diag);
        pst_alloc_fail_at(0);
        if (status == PST_OK)
            pst_sim_fini(&sim);
        else
            assert_int_equal(status, PST_ERR_NOMEM);
        assert_int_equal(pst_alloc_live(PST_TAG_PLAN), live);
    }
    pst_costs_fini(&costs);
    pst_schedule_free(s);
}

/* --- files of costs ------------------------------------------------------ */

static void costs_come_back_from_a_file(void **state)
{
    struct pst_module_cost modules[] = {{"h.0", {.1, .2, .3}},
                                        {"a\"b", {1, 0, 1e-9}}};
    char path[] = "/tmp/penstock-costs-XXXXXX";
    struct pst_costs a, b;
    struct pst_diag diag;

    (void)state;
    assert_true(close(mkstemp(path)) == 0);
    cost(&a, 2, 1.0 / 3, 2e-5);
    a.plan = "abc";
    a.stages[1].backward = .7;
    a.stages[1].optim = .5;
    a.stages[0].reduce = .25;
    a.modules = modules;
    a.n_modules = 2;
    a.wire = (struct pst_wire){1e-5, 3e9};
    a.overlap = false;
    assert_ok(pst_costs_write(&a, path, &diag), &diag);
    assert_ok(pst_costs_read(path, &b, &diag), &diag);
    assert_string_equal(b.plan, "abc");
    assert_int_equal(b.n_stages, 2);
    assert_memory_equal(a.stages, b.stages, 2 * sizeof(*a.stages));
    assert_int_equal(b.n_modules, 2);
    assert_string_equal(b.modules[1].module, "a\"b");
    assert_memory_equal(&a.modules[1].seconds, &b.modules[1].seconds,
                        sizeof(struct pst_seconds));
    assert_memory_equal(&a.wire, &b.wire, sizeof(a.wire));
    assert_false(b.overlap);
    a.stages[0].optim = NAN;
    assert_int_equal(pst_costs_write(&a, path, &diag), PST_ERR_INTERNAL);
    pst_costs_fini(&a);
    pst_costs_fini(&b);
    (void)unlink(path);
}

static void damaged_costs_are_refused(void **state)
{
#define HEAD "{\"format\":\"penstock-costs\",\"version\":1,\"stages\":"
    static const struct {
        const char *text, *names;
        enum pst_status status;
    } rows[] = {
        {"", "line 1", PST_ERR_INPUT},
        {"[]", "format", PST_ERR_INPUT},
        {"{\"format\":1}", "format", PST_ERR_INPUT},
        {"{\"format\":\"penstock-costs\",\"version\":2}", "version",
         PST_ERR_VERSION},
        {HEAD "[]}", "stages", PST_ERR_INPUT},
        {HEAD "{}}", "stages", PST_ERR_INPUT},
        {HEAD "[1]}", "stage 0", PST_ERR_INPUT},
        {HEAD "[{},{\"input\":-1}]}", "stage 1: \"input\"", PST_ERR_INPUT},
        {HEAD "[{\"forward\":1e300}]}", "forward", PST_ERR_INPUT},
        {HEAD "[{\"forward\":\"1\"}]}", "forward", PST_ERR_INPUT},
        {HEAD "[{}],\"modules\":3}", "modules", PST_ERR_INPUT},
        {HEAD "[{}],\"modules\":[{}]}", "module", PST_ERR_INPUT},
        {HEAD "[{}],\"modules\":[{\"module\":\"a\",\"weight\":null}]}",
         "weight", PST_ERR_INPUT},
        {HEAD "[{}],\"plan\":1}", "plan", PST_ERR_INPUT},
        {HEAD "[{}],\"overlap\":1}", "overlap", PST_ERR_INPUT},
        {HEAD "[{}],\"bandwidth\":-1}", "bandwidth", PST_ERR_INPUT},
        {HEAD "[{}],\"latency\":1,\"latency\":1}", "line", PST_ERR_INPUT},
    };
    char path[] = "/tmp/penstock-costs-XXXXXX";
    const uint64_t live = pst_alloc_live(PST_TAG_PLAN);
    struct pst_costs costs;
    struct pst_diag diag;

    (void)state;
    assert_true(close(mkstemp(path)) == 0);
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        assert_ok(
            pst_file_write(path, rows[i].text, strlen(rows[i].text), &diag),
            &diag);
        assert_int_equal(pst_costs_read(path, &costs, &diag), rows[i].status);
        if (!strstr(diag.text, rows[i].names))
            fail_msg("%s: no \"%s\"", diag.text, rows[i].names);
        assert_int_equal(pst_alloc_live(PST_TAG_PLAN), live);
    }
    (void)unlink(path);
    assert_int_equal(pst_costs_read(path, &costs, &diag), PST_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(makespans_are_those_of_the_table),
        cmocka_unit_test(names_why_ranks_wait),
        cmocka_unit_test(messages_take_time),
        cmocka_unit_test(messages_share_the_line),
        cmocka_unit_test(ways_may_differ),
        cmocka_unit_test(reduces_and_steps),
        cmocka_unit_test(sums_over_replicas_move_beside_the_work),
        cmocka_unit_test(follows_memory),
        cmocka_unit_test(is_fast_enough_to_search_with),
        cmocka_unit_test(refuses_what_stands_still),
        cmocka_unit_test(survives_lack_of_memory),
        cmocka_unit_test(costs_come_back_from_a_file),
        cmocka_unit_test(damaged_costs_are_refused),
    };

    return cmocka_run_group_tests_name("sched-simulate", tests, NULL, NULL);
}
