// SPDX-License-Identifier: Apache-2.0
/* Tests joined plans, and what pst_verify compares. */
#include "tests/verify/net.h"

#include "stages/split/convert/join.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void count_gradients(void *ctx, const char *text)
{
    *(unsigned *)ctx += strncmp(text, "gradient", 8) == 0;
}

/* Long work is reported before it begins, gradient by gradient. */
static void reports_what_it_does(void **state)
{
    unsigned reported = 0;
    const struct pst_verify_watch watch = {count_gradients, &reported};
    struct pst_verify_report report = {0};
    struct pst_exec_options options = options_of(2);
    struct net_data data;
    struct net net;

    (void)state;
    net_init(&net, 2);
    data = net_data(&net);
    assert_ok(pst_verify(net.plan, &options, net_fill, &data, &watch, &report,
                         &net.diag),
              &net.diag);
    assert_true(reported >= 2);
    pst_verify_report_fini(&report);
    net_fini(&net);
}

static void joins_stages(void **state)
{
    (void)state;
    for (unsigned stages = 1; stages <= 4; stages++) {
        struct pst_plan *joined;
        struct net net, whole;
        size_t n = 0;

        net_init(&net, stages);
        net_init(&whole, 1);
        assert_ok(pst_plan_join(net.plan, &joined, &net.diag), &net.diag);
        assert_int_equal(joined->stages.n, 1);
        assert_int_equal(joined->edges.n, 0);
        assert_string_not_equal(joined->digest, net.plan->digest);
        assert_int_equal(joined->params.n, net.plan->params.n);
        for (size_t i = 0; i < joined->stages.at[0].graph->nodes.n; i++) {
            const struct pst_node *node =
                joined->stages.at[0].graph->nodes.at[i];
            const struct pst_node *match =
                whole.plan->stages.at[0].graph->nodes.at[n++];

            assert_int_equal(node->id, match->id);
            assert_string_equal(node->outs[0]->name, match->outs[0]->name);
            assert_string_equal(node->call->path, match->call->path);
        }
        assert_int_equal(n, whole.plan->stages.at[0].graph->nodes.n);
        pst_plan_free(joined);
        net_fini(&whole);
        net_fini(&net);
    }
}

static void finds_nothing_wrong(void **state)
{
    (void)state;
    for (unsigned stages = 1; stages <= 4; stages++) {
        struct pst_verify_report report;
        struct net net;

        net_init(&net, stages);
        assert_ok(verify(&net, stages, &report), &net.diag);
        assert_int_equal(report.different, 0);
        assert_string_equal(report.first, "");
        /* loss, losses, 2 outputs, 5 gradients, 6 parameters, 1 buffer; then
         * 4 gradients that are used, twice. */
        assert_int_equal(report.compared, 16 + 2 * 4);
        pst_verify_report_fini(&report);
        net_fini(&net);
    }
}

/* Data for which no loss is finite: no gradient is blamed. */
static void blames_the_data(void **state)
{
    struct pst_exec_options options = options_of(2);
    struct pst_verify_report report = {0};
    struct net_data data;
    struct net net;

    (void)state;
    net_init(&net, 2);
    data = net_data(&net);
    data.bad_step = data.bad_microbatch = 0;
    data.x = NAN;
    assert_int_equal(pst_verify(net.plan, &options, net_fill, &data, NULL,
                                &report, &net.diag),
                     PST_ERR_RANGE);
    assert_non_null(
        strstr(net.diag.text, "with these data the loss is not a number"));
    pst_verify_report_fini(&report);
    net_fini(&net);
}

/* If a loss depends on parameters through a region without gradient, the
 * derivative for fixed results of that region counts. */
static void holds_what_has_no_gradient(void **state)
{
    struct pst_exec_options options = options_of(2);
    struct pst_split_options split = {.stages = 2};
    struct pst_verify_report report = {0};
    struct pst_model *model;
    struct pst_plan *plan;
    struct pst_diag diag;
    char path[1024];

    (void)state;
    assert_non_null(getenv("PST_GOLDEN"));
    snprintf(path, sizeof(path), "%s/tiny.pt2", getenv("PST_GOLDEN"));
    pst_diag_init(&diag);
    assert_ok(pst_model_open(path, &model, &diag), &diag);
    assert_ok(pst_split(model, &split, &plan, &diag), &diag);
    assert_ok(pst_verify(plan, &options, NULL, NULL, NULL, &report, &diag),
              &diag);
    assert_int_equal(report.different, 0);
    pst_verify_report_fini(&report);
    pst_plan_free(plan);
    pst_model_close(model);
}

static void makes_data_up(void **state)
{
    struct pst_exec_options options = options_of(2);
    struct pst_verify_report report;
    struct net net;

    (void)state;
    net_init(&net, 3);
    assert_ok(
        pst_verify(net.plan, &options, NULL, NULL, NULL, &report, &net.diag),
        &net.diag);
    assert_non_null(strstr(pst_str_text(&report.text), "made up"));
    pst_verify_report_fini(&report);
    net_fini(&net);
}

/* Verifies a cut after %h. Uncut, the gradient of %h comes through a transpose,
 * or expanded by a mean, and a bias is a sum of it; with the cut it arrives
 * contiguous. */
static void expect_same_bits(const char *nodes)
{
    static const char *const modules[] = {"a", "b"};
    struct pst_exec_options options = options_of(2);
    struct pst_verify_report report = {0};
    const char *at[] = {"b"};
    struct pst_split_options split = {.at = at, .n_at = 1, .loss = "0"};
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_diag diag;
    struct pst_str text = {0};
    enum pst_status status;

    pst_diag_init(&diag);
    pst_str_addf(&text,
                 "graph next_id=6 {\n"
                 "  input %%x: f32[4, 48, 20]\n"
                 "  param %%c \"a.bias\" grad: f32[48, 1]\n"
                 "  param %%w \"a.weight\" grad: f32[20, 20]\n"
                 "  param %%v \"b.weight\" grad: f32[8, 48]\n"
                 "  %%g: f32[4, 48, 20] = aten.matmul.default(%%x, %%w)"
                 "  # a - F id=0\n"
                 "  %%h: f32[4, 48, 20] = aten.add.Tensor(%%g, %%c)"
                 "  # a - F id=1\n"
                 "%s"
                 "  output user %%loss \"0\"\n"
                 "}\n",
                 nodes);
    model_init(&model, pst_str_text(&text), modules, 2);
    assert_ok(pst_split(&model, &split, &plan, &diag), &diag);
    assert_int_equal(plan->stages.n, 2);
    status = pst_verify(plan, &options, NULL, NULL, NULL, &report, &diag);
    assert_ok(status, &diag);
    pst_verify_report_fini(&report);
    pst_plan_free(plan);
    model_fini(&model);
    pst_str_fini(&text);
}

static void cuts_where_gradients_have_strides(void **state)
{
    (void)state;
    expect_same_bits(
        "  %t: f32[4, 20, 48]:(960, 1, 20) view of %h + 0 = "
        "aten.transpose.int(%h, 1, 2)"
        "  # b - F id=2\n"
        "  %y: f32[4, 20, 8] = aten.linear.default(%t, %v)  # b - F id=3\n"
        "  %z: f32[4, 20, 8] = aten.sin.default(%y)  # b - F id=4\n"
        "  %loss: f32[] = aten.mean.default(%z)  # b - F id=5\n");
    expect_same_bits("  %z: f32[4, 20] = aten.mean.dim(%h, [1])  # b - F id=2\n"
                     "  %y: f32[4, 20] = aten.sin.default(%z)  # b - F id=3\n"
                     "  %t: f32[4] = aten.mean.dim(%y, [1])  # b - F id=4\n"
                     "  %loss: f32[] = aten.mean.default(%t)  # b - F id=5\n");
}

/* A loss of one element trains, accumulates, is reported and dumped, whatever
 * its dimensions. */
static void trains_on_one_element(void **state)
{
    (void)state;
    expect_same_bits("  %y: f32[4, 8, 20] = aten.matmul.default(%v, %h)"
                     "  # b - F id=2\n"
                     "  %loss: f32[1, 1, 1] = aten.mean.dim(%y, [0, 1, 2], "
                     "True)  # b - F id=3\n");
    expect_same_bits("  %y: f32[4, 8, 20] = aten.matmul.default(%v, %h)"
                     "  # b - F id=2\n"
                     "  %m: f32[] = aten.mean.default(%y)  # b - F id=3\n"
                     "  %loss: f32[1] view of %m + 0 = "
                     "aten.reshape.default(%m, [1])  # b - F id=4\n");
}

/* The f64 model draws the same random numbers as in f32. */
static void draws_the_same_numbers(void **state)
{
    static const char *const draws[] = {
        "aten.rand_like.default(%h, dtype=None, layout=None, device=None, "
        "pin_memory=None, memory_format=None)",
        "aten.rand.default([4, 48, 20], dtype=None, layout=None, device=None, "
        "pin_memory=None)"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(draws); i++) {
        char nodes[1024];

        (void)snprintf(nodes, sizeof(nodes),
                       "  %%r: f32[4, 48, 20] = %s  # b - F id=2\n"
                       "  %%y: f32[4, 48, 20] = aten.mul.Tensor(%%h, %%r)"
                       "  # b - F id=3\n"
                       "  %%z: f32[4, 48, 20] = aten.sin.default(%%y)"
                       "  # b - F id=4\n"
                       "  %%loss: f32[] = aten.mean.default(%%z)"
                       "  # b - F id=5\n",
                       draws[i]);
        expect_same_bits(nodes);
    }
}

/* The loss rises from -1 to 1 if the weight changes by 1e-10: less than any
 * step that does not depend on the loss. */
static void follows_steep_losses(void **state)
{
    (void)state;
    expect_at_zero("  %y: f32[4, 3] = aten.mul.Scalar(%h, 1e+10)"
                   "  # - - F id=1\n"
                   "  %t: f32[4, 3] = aten.tanh.default(%y)  # - - F id=2\n"
                   "  %z: f32[4, 3] = aten.add.Scalar(%t, 2.0)"
                   "  # - - F id=3\n",
                   "checked against finite differences in f64, along");
}

/* %m is a mask. If it is drawn as larger numbers, f32 overflows, and 0 and 1
 * are drawn instead. */
static void makes_masks_up(void **state)
{
    (void)state;
    expect_at_zero("  %k: f32[4, 3] = aten.rsub.Scalar(%m, 1.0)"
                   "  # - - F id=1\n"
                   "  %q: f32[4, 3] = aten.mul.Scalar(%k, -3e+38)"
                   "  # - - F id=2\n"
                   "  %t: f32[4, 3] = aten.add.Tensor(%h, %q)  # - - F id=3\n"
                   "  %s: f32[4, 3] = aten.softmax.int(%t, 1)  # - - F id=4\n"
                   "  %z: f32[4, 3] = aten.mul.Tensor(%s, %s)  # - - F id=5\n",
                   "on 1 microbatch compared with f64, 0 differ");
}

/* The loss has a jump at a weight of zeros. */
static void reports_jumps(void **state)
{
    (void)state;
    expect_at_zero("  %y: bool[4, 3] = aten.gt.Scalar(%h, 0.0)"
                   "  # - - F id=1\n"
                   "  %t: f32[4, 3] = aten.where.self(%y, %h, %x)"
                   "  # - - F id=2\n"
                   "  %z: f32[4, 3] = aten.add.Scalar(%t, 2.0)"
                   "  # - - F id=3\n",
                   "gradients of 1 parameter (3 elements) checked against "
                   "finite differences in f64 beside a kink or a jump");
}

/* Verifies a model with parameters of this dtype; inputs are random. */
static enum pst_status verify_typed(const char *dtype, struct pst_diag *diag)
{
    static const char *const modules[] = {"a"};
    struct pst_exec_options options = options_of(1);
    struct pst_verify_report report = {0};
    struct pst_split_options split = {0};
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_weight *weight;
    struct pst_str text = {0};
    enum pst_status status;
    void *data;

    pst_diag_init(diag);
    pst_str_addf(&text,
                 "graph next_id=4 {\n"
                 "  input %%x: %s[4, 1]\n"
                 "  param %%w \"a.weight\" grad: %s[3, 1]\n"
                 "  %%h: %s[4, 3] = aten.linear.default(%%x, %%w)"
                 "  # a - F id=0\n"
                 "  %%t: %s[4, 3] = aten.tanh.default(%%h)  # - - F id=1\n"
                 "  %%loss: %s[] = aten.mean.default(%%t)  # - - F id=2\n"
                 "  output user %%loss \"0\"\n"
                 "}\n",
                 dtype, dtype, dtype, dtype, dtype);
    model_init(&model, pst_str_text(&text), modules, 1);
    weight = pst_map_get(&model.weights_by_fqn, "a.weight");
    free((void *)weight->data);
    data = calloc(3, sizeof(double));
    assert_non_null(data);
    for (int64_t i = 0; i < 3; i++)
        pst_store_f64(weight->meta.dtype, data, i, 0.25 * (double)(i + 1));
    weight->data = data;
    assert_ok(pst_split(&model, &split, &plan, diag), diag);
    status = pst_verify(plan, &options, NULL, NULL, NULL, &report, diag);
    if (status == PST_OK)
        assert_non_null(
            strstr(pst_str_text(&report.text),
                   "gradients of 1 parameter (3 elements) checked"));
    pst_verify_report_fini(&report);
    pst_plan_free(plan);
    model_fini(&model);
    pst_str_fini(&text);
    return status;
}

static void refuses_narrow_gradients(void **state)
{
    struct pst_diag diag;

    (void)state;
    assert_ok(verify_typed("f64", &diag), &diag);
    assert_ok(verify_typed("f32", &diag), &diag);
    assert_int_equal(verify_typed("bf16", &diag), PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "a.weight is bf16"));
    assert_int_equal(verify_typed("f16", &diag), PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "a.weight is f16"));
}

/* Allocations fail one after the other (every seventh, to save time). */
static void survives_lack_of_memory(void **state)
{
    enum pst_status status = PST_ERR_NOMEM;
    struct pst_verify_report report;
    struct net net;

    (void)state;
    net_init(&net, 2);
    pst_joint_free_cached(net.plan); /* the split has cached it */
    for (unsigned n = 1; status != PST_OK; n += 7) {
        const uint64_t exec = pst_alloc_live(PST_TAG_EXEC);
        const uint64_t plan = pst_alloc_live(PST_TAG_PLAN);
        const uint64_t graph = pst_alloc_live(PST_TAG_GRAPH);

        pst_alloc_fail_at(n);
        status = verify(&net, 2, &report);
        pst_alloc_fail_at(0);
        if (status == PST_OK)
            pst_verify_report_fini(&report);
        else
            assert_int_equal(status, PST_ERR_NOMEM);
        assert_int_equal(pst_alloc_live(PST_TAG_EXEC), exec);
        assert_int_equal(pst_alloc_live(PST_TAG_PLAN), plan);
        assert_int_equal(pst_alloc_live(PST_TAG_GRAPH), graph);
    }
    net_fini(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_what_it_does),
        cmocka_unit_test(joins_stages),
        cmocka_unit_test(finds_nothing_wrong),
        cmocka_unit_test(blames_the_data),
        cmocka_unit_test(holds_what_has_no_gradient),
        cmocka_unit_test(makes_data_up),
        cmocka_unit_test(cuts_where_gradients_have_strides),
        cmocka_unit_test(trains_on_one_element),
        cmocka_unit_test(draws_the_same_numbers),
        cmocka_unit_test(follows_steep_losses),
        cmocka_unit_test(makes_masks_up),
        cmocka_unit_test(reports_jumps),
        cmocka_unit_test(refuses_narrow_gradients),
        cmocka_unit_test(survives_lack_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
