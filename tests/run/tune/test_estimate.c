// SPDX-License-Identifier: Apache-2.0
/* Tests the costs of a plan, estimated ones and ones transferred to another
 * cut, and the schedules that are chosen by them within a memory limit. */
#include <math.h>

#include "stages/sched/simulate.h"
#include "stages/tune/choose.h"
#include "stages/tune/estimate.h"
#include "tests/run/job.h"

static void add(struct pst_seconds *sum, struct pst_seconds more)
{
    sum->forward += more.forward;
    sum->input += more.input;
    sum->weight += more.weight;
}

static struct pst_seconds sum_of(const struct pst_costs *costs)
{
    struct pst_seconds sum = {0};

    for (unsigned s = 0; s < costs->n_stages; s++)
        add(&sum, costs->stages[s].seconds);
    return sum;
}

/* Asserts equal times. Of I and W only the sum is compared, since its division
 * depends on the cut. */
static void assert_same(struct pst_seconds a, struct pst_seconds b)
{
    assert_float_equal(a.forward, b.forward, 1e-9);
    assert_float_equal(a.input + a.weight, b.input + b.weight, 1e-9);
}

static struct pst_costs estimate(struct net *net,
                                 const struct pst_exec_options *options)
{
    struct pst_costs costs;

    assert_ok(pst_plan_costs(net->plan, options, &costs, &net->diag),
              &net->diag);
    return costs;
}

/* The cut moves work between stages but adds none; bytes of links are those of
 * the plan's edges. */
static void estimates_do_not_depend_on_the_cut(void **state)
{
    struct pst_seconds whole = {0};
    double optim = 0;

    (void)state;
    for (unsigned stages = 1; stages <= 4; stages++) {
        struct pst_exec_options options = net_options("1f1b", 1, 4, "adamw");
        struct pst_costs costs;
        double bytes = 0, want = 0;
        struct net net;

        net_init_as(&net, stages, 0);
        costs = estimate(&net, &options);
        assert_int_equal(costs.n_stages, stages);
        assert_string_equal(costs.plan, net.plan->digest);
        if (stages == 1)
            whole = sum_of(&costs);
        assert_true(whole.forward > 0 && whole.input >= 0 && whole.weight > 0);
        assert_float_equal(sum_of(&costs).forward, whole.forward, 1e-9);
        optim += costs.stages[0].optim;
        for (size_t i = 0; i < costs.n_links; i++)
            bytes += costs.links[i].bytes_f;
        for (size_t i = 0; i < net.plan->edges.n; i++)
            want += (double)pst_meta_bytes(&net.plan->edges.at[i].meta);
        assert_float_equal(bytes, want, 0);
        for (unsigned s = 0; s < stages; s++) {
            const struct pst_stage_cost *c = &costs.stages[s];

            assert_true(c->seconds.forward > 0);
            assert_true(c->stash >= c->keep && c->fixed > 0);
        }
        pst_costs_fini(&costs);
        net_fini(&net);
    }
    assert_true(optim > 0);
}

/* All callers get the same seconds for the same nodes and rates: the forward
 * pass of an estimate, and the placement of stages. */
static void all_ask_one_function(void **state)
{
    struct pst_rates rates = pst_rates_reference;
    struct pst_exec_options options = net_options("1f1b", 1, 4, "none");
    double seconds[2], before[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct pst_cost_setup setup = {&rates, options.threads, false};
        struct pst_costs costs;
        struct net net;

        options.rates = &rates;
        net_init_as(&net, 2, 0);
        costs = estimate(&net, &options);
        assert_ok(pst_plan_seconds(net.plan, &options, seconds, &net.diag),
                  &net.diag);
        for (unsigned s = 0; s < 2; s++) {
            const struct pst_graph *graph = net.plan->stages.at[s].graph;
            double want = 0;

            for (size_t k = 0; k < graph->nodes.n; k++)
                want += pst_cost_of_node(&setup, graph->nodes.at[k]);
            assert_float_equal(costs.stages[s].seconds.forward, want, 1e-12);
            assert_float_equal(seconds[s], 3 * want, 1e-12);
            assert_true(i == 0 || seconds[s] > 1.5 * before[s]);
            before[s] = seconds[s];
        }
        assert_true(costs.wire.bandwidth == rates.wire);
        pst_costs_fini(&costs);
        net_fini(&net);
        rates.bytes /= 2; /* simulates a slower machine */
        rates.launch *= 2;
        rates.f32 /= 2;
        rates.f64 /= 2;
        rates.wire /= 2;
    }
}

/* Costs measured with 2 stages are also used for 4: the total work is the
 * same. */
static void measured_costs_serve_other_cuts(void **state)
{
    struct pst_exec_options options = net_options("1f1b", 1, 4, "adamw");
    struct pst_costs measured, other;
    struct pst_seconds modules = {0};
    struct net two, four;

    (void)state;
    net_init_as(&two, 2, 0);
    net_init_as(&four, 4, 0);
    measured = estimate(&two, &options);
    measured.stages[0].seconds = (struct pst_seconds){1, 2, 3};
    measured.stages[1].seconds = (struct pst_seconds){4, 5, 6};
    measured.stages[1].backward = 10;
    measured.wire = (struct pst_wire){.5, 1e6};
    assert_ok(pst_costs_add_modules(two.plan, &options, &measured, &two.diag),
              &two.diag);
    for (size_t i = 0; i < measured.n_modules; i++)
        add(&modules, measured.modules[i].seconds);
    assert_true(measured.n_modules > 3);
    assert_same(modules, sum_of(&measured));

    /* The same plan uses the costs by stage. */
    other = estimate(&two, &options);
    assert_ok(pst_costs_apply(two.plan, &options, &measured, &other, &two.diag),
              &two.diag);
    assert_same(other.stages[1].seconds, measured.stages[1].seconds);
    assert_float_equal(other.stages[1].backward, 10, 0);
    assert_float_equal(other.wire.bandwidth, 1e6, 0);
    pst_costs_fini(&other);

    /* Another plan uses them by module. */
    other = estimate(&four, &options);
    assert_ok(
        pst_costs_apply(four.plan, &options, &measured, &other, &four.diag),
        &four.diag);
    assert_same(sum_of(&other), sum_of(&measured));

    /* Costs of modules that the plan does not have are ignored. */
    for (size_t i = 0; i < measured.n_modules; i++)
        measured.modules[i].module = "elsewhere";
    assert_int_equal(
        pst_costs_apply(four.plan, &options, &measured, &other, &four.diag),
        PST_ERR_MISMATCH);
    pst_costs_fini(&other);
    pst_costs_fini(&measured);
    net_fini(&two);
    net_fini(&four);
}

/* auto keeps to a limit on the planned arenas, and its steps have the same bits
 * as any other schedule's. */
static void chooses_within_memory(void **state)
{
    struct pst_exec_options options = net_options("auto", 2, 8, "adamw");
    struct pst_exec_options plain = net_options("1f1b", 2, 8, "adamw");
    struct pst_memory memory[2], small[2];
    struct run a, b;
    struct net net;
    size_t most;

    (void)state;
    net_init_as(&net, 4, 0);
    assert_ok(pst_exec_plan(net.plan, &options, memory, &net.diag), &net.diag);
    most = PST_MAX(memory[0].arena, memory[1].arena);
    assert_ok(pst_exec_plan(net.plan, &plain, small, &net.diag), &net.diag);
    options.memory_limit = (double)PST_MAX(small[0].arena, small[1].arena);
    assert_true(options.memory_limit <= (double)most);
    assert_ok(pst_exec_plan(net.plan, &options, memory, &net.diag), &net.diag);
    for (unsigned k = 0; k < 2; k++)
        assert_true((double)memory[k].arena <= options.memory_limit);
    a = run(4, &options);
    b = run(4, &plain);
    assert_true(a.loss == b.loss);
    pst_dump_free(a.dump);
    pst_dump_free(b.dump);

    options.memory_limit = plain.memory_limit = 1000;
    assert_int_equal(pst_exec_plan(net.plan, &options, memory, &net.diag),
                     PST_ERR_USAGE);
    assert_non_null(strstr(net.diag.text, "no schedule fits"));
    assert_int_equal(pst_exec_plan(net.plan, &plain, memory, &net.diag),
                     PST_ERR_USAGE);
    assert_non_null(strstr(net.diag.text, "more than the memory limit"));
    net_fini(&net);
}

/* The time and memory that auto states for a schedule are those of its plan,
 * with messages and with sums over shared parameters and replicas. */
static void auto_says_what_the_plan_says(void **state)
{
    (void)state;
    for (unsigned replicas = 1; replicas <= 3; replicas++) {
        struct pst_exec_options options = net_options("auto", 2, 7, "adamw");
        const struct pst_candidate *c;
        struct pst_memory memory[2];
        struct pst_schedule *s;
        struct pst_costs costs;
        struct pst_sim sim;
        struct net net;

        net_init_as(&net, 4, 0);
        options.replicas = replicas;
        assert_ok(pst_exec_schedule(net.plan, &options, memory, &s, &net.diag),
                  &net.diag);
        assert_ok(pst_plan_costs(net.plan, &options, &costs, &net.diag),
                  &net.diag);
        assert_ok(pst_schedule_simulate(s, &costs, &sim, &net.diag), &net.diag);
        c = &s->candidates.at[0];
        assert_true(c->step == sim.step && c->bubble == sim.bubble);
        assert_true(c->peak == (double)memory[c->rank].arena);
        assert_true(memory[!c->rank].arena <= memory[c->rank].arena);
        pst_sim_fini(&sim);
        pst_costs_fini(&costs);
        pst_schedule_free(s);
        net_fini(&net);
    }
}

/* An engine that does not fit is refused before its arena is allocated. */
static void refuses_before_it_allocates(void **state)
{
    struct pst_exec_options options = net_options("gpipe", 2, 4, "sgd");
    const uint64_t live = pst_alloc_live(PST_TAG_ARENA);
    struct pst_transport *transport;
    struct pst_engine *engine = NULL;
    struct net net;

    (void)state;
    options.memory_limit = 1000;
    net_init_as(&net, 2, 0);
    assert_ok(pst_transport_self.open("2", &transport, &net.diag), &net.diag);
    assert_int_equal(
        pst_engine_new(net.plan, transport, &options, &engine, &net.diag),
        PST_ERR_USAGE);
    assert_null(engine);
    assert_int_equal(pst_alloc_live(PST_TAG_ARENA), live);
    pst_transport_self.close(transport);
    net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimates_do_not_depend_on_the_cut),
        cmocka_unit_test(all_ask_one_function),
        cmocka_unit_test(measured_costs_serve_other_cuts),
        cmocka_unit_test(chooses_within_memory),
        cmocka_unit_test(auto_says_what_the_plan_says),
        cmocka_unit_test(refuses_before_it_allocates),
    };

    return cmocka_run_group_tests_name("exec-estimate", tests, NULL, NULL);
}
