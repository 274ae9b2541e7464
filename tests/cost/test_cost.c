// SPDX-License-Identifier: Apache-2.0
/* Tests estimated durations of nodes, for given rates of a machine. */
#include "tests/test.h"

#include "stages/cost/cost.h"
#include "stages/graph/graph.h"

#include <math.h>

static const char text[] =
    "graph next_id=1 {\n"
    "  input %x: f32[256, 256]\n"
    "  input %h: bf16[256, 256]\n"
    "  input %d: f64[256, 256]\n"
    "  %y: f32[256, 256] = aten.mm.default(%x, %x) # - - F id=0\n"
    "  %i: bf16[256, 256] = aten.mm.default(%h, %h) # - - F id=0\n"
    "  %e: f64[256, 256] = aten.mm.default(%d, %d) # - - F id=0\n"
    "  %s: f32[256, 256] = aten.exp.default(%y) # - - F id=0\n"
    "  %v: f32[256, 256] view of %s + 0 = aten.alias.default(%s) # - - F id=0\n"
    "  output user %v \"0\"\n"
    "}\n";

/* Powers of ten, so that each part of a sum is visible. */
static const struct pst_rates rates = {.f32 = 1e12,
                                       .f64 = 1e11,
                                       .bf16 = 1e13,
                                       .bytes = 1e30,
                                       .launch = 0,
                                       .wire = 1e6};

static struct pst_graph *graph;

static int setup(void **state)
{
    struct pst_diag d;

    (void)state;
    pst_diag_init(&d);
    return pst_registry_init(&d) != PST_OK ||
           pst_graph_parse(text, &graph, &d) != PST_OK;
}

static int teardown(void **state)
{
    (void)state;
    pst_graph_free(graph);
    return 0;
}

static double cost(const struct pst_cost_setup *s, unsigned node)
{
    return pst_cost_of_node(s, graph->nodes.at[node]);
}

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-9 * b);
}

/* Each dtype has its own rate; operands are rounded where that is faster. */
static void operations(void **state)
{
    const double n = 2.0 * 256 * 256 * 256;
    struct pst_rates no = rates, slow = rates;
    struct pst_cost_setup s = {.rates = &rates};

    (void)state;
    assert_near(cost(&s, 0), n / 1e12);
    assert_near(cost(&s, 1), n / 1e13);
    assert_near(cost(&s, 2), n / 1e11);
    assert_near(cost(&s, 3), n / 512 / 1e12);
    s.bf16 = true;
    assert_near(cost(&s, 0), n / 1e13);
    assert_near(cost(&s, 2), n / 1e11);
    /* This operator is not a matmul. */
    assert_near(cost(&s, 3), n / 512 / 1e12);
    no.bf16 = 0;
    s.rates = &no;
    assert_near(cost(&s, 0), n / 1e12);
    slow.bf16 = slow.f32 / 2;
    s.rates = &slow;
    assert_near(cost(&s, 1), n / 1e12);
}

static void bytes_and_launches(void **state)
{
    const double bytes = 4.0 * 256 * 256;
    struct pst_rates r = {
        .f32 = 1e30, .f64 = 1e30, .bytes = 1e9, .launch = 0, .wire = 1e6};
    struct pst_cost_setup s = {.rates = &r};

    (void)state;
    assert_near(cost(&s, 0), 3 * bytes / 1e9);
    /* half of the size: fits the cache */
    assert_near(cost(&s, 1), 1.5 * bytes / 1e9 / PST_COST_CACHE_RATE);
    assert_near(cost(&s, 3), 2 * bytes / 1e9);
    s.threads = 4;
    assert_near(cost(&s, 3), .5 * bytes / 1e9);
    assert_near(pst_cost_of_memory(&s, 4e9), 1);
    assert_near(pst_cost_of_memory(&s, PST_COST_CACHE), PST_COST_CACHE / 4e9);
    assert_near(pst_cost_of_memory(&s, PST_COST_CACHE - 8),
                (PST_COST_CACHE - 8) / 4e9 / PST_COST_CACHE_RATE);
    assert_near(pst_cost_of_wire(&s, 2e6), 2);
    r.launch = 1;
    r.bytes = 1e30;
    assert_near(cost(&s, 3), 1);
    assert_true(cost(&s, 4) == 0); /* a view */
    assert_true(pst_node_is_work(graph->nodes.at[3]));
    assert_false(pst_node_is_work(graph->nodes.at[4]));
}

/* Without measured rates: those of a fixed reference machine. */
static void reference(void **state)
{
    const struct pst_cost_setup none = {0};
    const struct pst_cost_setup s = {.rates = &pst_rates_reference};

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        assert_true(cost(&none, i) == cost(&s, i) && cost(&s, i) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations),
        cmocka_unit_test(bytes_and_launches),
        cmocka_unit_test(reference),
    };

    return cmocka_run_group_tests_name("cost", tests, setup, teardown);
}
