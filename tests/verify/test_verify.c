// SPDX-License-Identifier: Apache-2.0
/* Tests joined plans, and that pst_verify finds planted errors. */
#include "tests/run/net.h"

#include "stages/ops/core/vjp.h"
#include "stages/split/convert/join.h"
#include "stages/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct pst_exec_options options_of(unsigned ranks)
{
    return net_options("1f1b", ranks, 3, "none");
}

static enum pst_status verify(struct net *net, unsigned ranks,
                              struct pst_verify_report *report)
{
    struct pst_exec_options options = options_of(ranks);
    struct net_data data = net_data(net);

    *report = (struct pst_verify_report){0};
    return pst_verify(net->plan, &options, net_fill, &data, NULL, report,
                      &net->diag);
}

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

/* Verifies a model whose loss is computed from %h, which is linear in a weight
 * of zeros; inputs are random. */
static void expect_of_zero(const char *nodes, const char *reported, bool right)
{
    static const char *const modules[] = {"a"};
    struct pst_exec_options options = options_of(1);
    struct pst_verify_report report = {0};
    struct pst_split_options split = {0};
    struct pst_model model;
    struct pst_plan *plan;
    struct pst_diag diag;
    struct pst_weight *weight;
    struct pst_str text = {0};
    enum pst_status status;

    pst_diag_init(&diag);
    pst_str_addf(&text,
                 "graph next_id=9 {\n"
                 "  input %%x: f32[4, 1]\n"
                 "  input %%m: i64[4, 3]\n"
                 "  param %%w \"a.weight\" grad: f32[3, 1]\n"
                 "  %%h: f32[4, 3] = aten.linear.default(%%x, %%w)"
                 "  # a - F id=0\n"
                 "%s"
                 "  %%loss: f32[] = aten.mean.default(%%z)  # - - F id=8\n"
                 "  output user %%loss \"0\"\n"
                 "}\n",
                 nodes);
    model_init(&model, pst_str_text(&text), modules, 1);
    weight = pst_map_get(&model.weights_by_fqn, "a.weight");
    free((void *)weight->data);
    weight->data = calloc(3, sizeof(float));
    assert_non_null(weight->data);
    assert_ok(pst_split(&model, &split, &plan, &diag), &diag);
    status = pst_verify(plan, &options, NULL, NULL, NULL, &report, &diag);
    if (right)
        assert_ok(status, &diag);
    assert_int_equal(status, right ? PST_OK : PST_ERR_DIFFERENT);
    if (strstr(pst_str_text(&report.text), reported) == NULL)
        fail_msg("%s", pst_str_text(&report.text));
    pst_verify_report_fini(&report);
    pst_plan_free(plan);
    model_fini(&model);
    pst_str_fini(&text);
}

static void expect_at_zero(const char *nodes, const char *reported)
{
    expect_of_zero(nodes, reported, true);
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

/* --- planted errors ------------------------------------------------------ */

/* Returns a wrong gradient: d tanh(x) = 1 - tanh(x)^2, here without the square.
 */
static enum pst_status wrong_tanh(struct pst_vjp *v)
{
    struct pst_value *y = pst_vjp_out(v, 0);
    struct pst_value *slope = pst_vjp_add_scalar(v, pst_vjp_neg(v, y), 1.0);

    return pst_vjp_set(v, 0, pst_vjp_mul(v, pst_vjp_grad(v, 0), slope));
}

/* Returns no gradient where there is one. */
static enum pst_status no_tanh_gradient(struct pst_vjp *v)
{
    return v->build.status;
}

/* Changes a row of the registry, which is in read-only memory. Returns the old
 * vjp. */
static pst_vjp_fn replace_vjp(const char *name, pst_vjp_fn vjp)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct pst_op *row = (struct pst_op *)pst_op_find(name);
    uintptr_t begin, end;
    pst_vjp_fn before;

    assert_non_null(row);
    begin = (uintptr_t)row & ~(page - 1);
    end = ((uintptr_t)(row + 1) + page - 1) & ~(page - 1);
    assert_int_equal(
        mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE), 0);
    before = row->vjp;
    row->vjp = vjp;
    return before;
}

static void expect(const char *first, const char * not )
{
    struct pst_verify_report report;
    enum pst_status status;
    struct net net;

    net_init(&net, 3);
    status = verify(&net, 2, &report);
    if (status != PST_ERR_DIFFERENT)
        fail_msg("%s: %s", pst_status_name(status), net.diag.text);
    assert_string_equal(report.first, first);
    assert_non_null(strstr(net.diag.text, first));
    assert_null(strstr(pst_str_text(&report.text), not ));
    assert_true(report.different > 0);
    pst_verify_report_fini(&report);
    net_fini(&net);
}

static pst_vjp_fn right_linear;
static double too_large = 1.001;

/* Returns gradients that are right for the input and the bias, and slightly too
 * large for the weight. */
static enum pst_status wrong_linear(struct pst_vjp *v)
{
    enum pst_status status = right_linear(v);

    if (status != PST_OK)
        return status;
    return pst_vjp_set(v, 1, pst_vjp_mul_scalar(v, v->ret[1], too_large));
}

static void finds_wrong_gradients(void **state)
{
    pst_vjp_fn right;

    (void)state;
    assert_ok(pst_registry_init(NULL), &(struct pst_diag){0});
    right = replace_vjp("aten.tanh.default", wrong_tanh);
    expect("grad.a.weight", "grad.b.weight");
    (void)replace_vjp("aten.tanh.default", right);

    right_linear = replace_vjp("aten.linear.default", NULL);
    (void)replace_vjp("aten.linear.default", wrong_linear);
    expect("grad.a.weight", "grad.a.bias");
    (void)replace_vjp("aten.linear.default", right_linear);

    right = replace_vjp("aten.matmul.default", no_tanh_gradient);
    expect("grad.a.weight", "grad.e.bias");
    (void)replace_vjp("aten.matmul.default", right);
}

#define AT_A_KINK                                                              \
    "  %y: f32[4, 3] = aten.relu.default(%h)  # - - F id=1\n"                  \
    "  %z: f32[4, 3] = aten.exp.default(%y)  # - - F id=2\n"

/* Returns a gradient that is too large to lie between the one-sided
 * derivatives. */
static enum pst_status wrong_relu(struct pst_vjp *v)
{
    return pst_vjp_set(v, 0, pst_vjp_mul_scalar(v, pst_vjp_grad(v, 0), 30.0));
}

static pst_vjp_fn right_relu;

/* Returns twice the gradient: 0 at the kink, as it should be, but wrong beside
 * it. */
static enum pst_status twice_relu(struct pst_vjp *v)
{
    enum pst_status status = right_relu(v);

    if (status != PST_OK)
        return status;
    return pst_vjp_set(v, 0, pst_vjp_mul_scalar(v, v->ret[0], 2.0));
}

/* At a kink the one-sided derivatives differ for any step size. A gradient
 * between them may be right or wrong, so it is compared beside the kink. */
static void knows_kinks(void **state)
{
    pst_vjp_fn right;

    (void)state;
    expect_at_zero(
        AT_A_KINK,
        "checked against finite differences in f64 beside a kink or a "
        "jump, along");
    right = replace_vjp("aten.relu.default", wrong_relu);
    expect_of_zero(AT_A_KINK,
                   "grad.a.weight differs from the finite difference", false);
    right_relu = right;
    (void)replace_vjp("aten.relu.default", twice_relu);
    expect_of_zero(AT_A_KINK,
                   "grad.a.weight differs from the finite difference", false);
    (void)replace_vjp("aten.relu.default", right);
}

/* A loss with a kink at any parameters: its gradient is listed and counted. */
static void names_what_slopes_leave_open(void **state)
{
    (void)state;
    expect_at_zero("  %d: f32[4, 3] = aten.mul.Scalar(%h, 1.0)"
                   "  # - - F id=1 no_grad\n"
                   "  %u: f32[4, 3] = aten.sub.Tensor(%h, %d)  # - - F id=2\n"
                   "  %z: f32[4, 3] = aten.relu.default(%u)  # - - F id=3\n",
                   "not checked: 1 gradient, at a kink or a jump of the loss, "
                   "and beside it at another: grad.a.weight\n");
}

/* --- what a comparison is worth ------------------------------------------- */

/* Verifies a model with a norm over two numbers, which gives -1 and 1 except
 * for rounding: nearly all of the gradients before it cancels. */
static enum pst_status verify_cancelling(pst_fill_fn fill, void *ctx,
                                         struct pst_verify_report *report,
                                         struct pst_diag *diag)
{
    static const char *const modules[] = {"a"};
    struct pst_exec_options options = options_of(1);
    struct pst_split_options split = {.loss = "0"};
    struct pst_model model;
    struct pst_plan *plan;
    enum pst_status status;

    pst_diag_init(diag);
    *report = (struct pst_verify_report){0};
    model_init(&model,
               "graph next_id=10 {\n"
               "  input %x: f32[2, 6]\n"
               "  param %w \"a.weight\" grad: f32[8, 6]\n"
               "  param %c \"a.bias\" grad: f32[8]\n"
               "  %h: f32[2, 8] = aten.linear.default(%x, %w, %c)"
               "  # a - F id=0\n"
               "  %m: f32[1, 8] = aten.mean.dim(%h, [0], True)  # - - F id=1\n"
               "  %d: f32[2, 8] = aten.sub.Tensor(%h, %m)  # - - F id=2\n"
               "  %q: f32[2, 8] = aten.mul.Tensor(%d, %d)  # - - F id=3\n"
               "  %v: f32[1, 8] = aten.mean.dim(%q, [0], True)  # - - F id=4\n"
               "  %e: f32[1, 8] = aten.add.Scalar(%v, 1e-06)  # - - F id=5\n"
               "  %r: f32[1, 8] = aten.rsqrt.default(%e)  # - - F id=6\n"
               "  %n: f32[2, 8] = aten.mul.Tensor(%d, %r)  # - - F id=7\n"
               "  %t: f32[2, 8] = aten.exp.default(%n)  # - - F id=8\n"
               "  %loss: f32[] = aten.mean.default(%t)  # - - F id=9\n"
               "  output user %loss \"0\"\n"
               "}\n",
               modules, 1);
    assert_ok(pst_split(&model, &split, &plan, diag), diag);
    status = pst_verify(plan, &options, fill, ctx, NULL, report, diag);
    pst_plan_free(plan);
    model_fini(&model);
    return status;
}

/* Fills with different numbers for f32 and f64, which differ by as much as the
 * error of a wrong kernel. */
static enum pst_status fill_apart(void *ctx, uint64_t step, unsigned microbatch,
                                  unsigned input, void *dst,
                                  struct pst_diag *diag)
{
    unsigned *calls = ctx, seed = 7 + microbatch;
    float *x = dst;

    (void)step;
    (void)input;
    (void)diag;
    *calls += microbatch == 0;
    for (unsigned i = 0; i < 12; i++)
        x[i] = model_number(&seed) * (*calls > 3 && i == 4 ? 1.5f : 1.0f);
    return PST_OK;
}

static void cries_no_wolf(void **state)
{
    struct pst_verify_report report;
    struct pst_diag diag;
    pst_vjp_fn right;
    unsigned calls = 0;

    (void)state;
    assert_ok(verify_cancelling(NULL, NULL, &report, &diag), &diag);
    assert_int_equal(report.different, 0);
    pst_verify_report_fini(&report);

    right_linear = replace_vjp("aten.linear.default", NULL);
    (void)replace_vjp("aten.linear.default", wrong_linear);
    too_large = 1.5;
    assert_int_equal(verify_cancelling(NULL, NULL, &report, &diag),
                     PST_ERR_DIFFERENT);
    (void)replace_vjp("aten.linear.default", right_linear);
    assert_string_equal(report.first, "grad.a.weight");
    pst_verify_report_fini(&report);

    right = replace_vjp("aten.exp.default", wrong_tanh);
    assert_int_equal(verify_cancelling(NULL, NULL, &report, &diag),
                     PST_ERR_DIFFERENT);
    (void)replace_vjp("aten.exp.default", right);
    pst_verify_report_fini(&report);

    assert_int_equal(verify_cancelling(fill_apart, &calls, &report, &diag),
                     PST_ERR_DIFFERENT);
    assert_non_null(strstr(diag.text, "differs from its value in f64"));
    pst_verify_report_fini(&report);
}

/* A value that is received in place of another: only the cut model is wrong. */
static void finds_wrong_cuts(void **state)
{
    struct pst_edge *h1 = NULL, *h3 = NULL;
    struct pst_verify_report report;
    struct net net;
    unsigned input;

    (void)state;
    net_init(&net, 2);
    for (size_t i = 0; i < net.plan->edges.n; i++) {
        struct pst_edge *edge = &net.plan->edges.at[i];

        h1 = strcmp(edge->value, "h1") == 0 ? edge : h1;
        h3 = strcmp(edge->value, "h3") == 0 ? edge : h3;
    }
    assert_true(h1 != NULL && h3 != NULL);
    input = h1->to_input;
    h1->to_input = h3->to_input;
    h3->to_input = input;
    assert_int_equal(verify(&net, 2, &report), PST_ERR_DIFFERENT);
    assert_string_equal(report.first, "loss");
    assert_non_null(strstr(net.diag.text, "2 stages on 2 ranks"));
    pst_verify_report_fini(&report);
    net_fini(&net);
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
        cmocka_unit_test(finds_wrong_gradients),
        cmocka_unit_test(knows_kinks),
        cmocka_unit_test(names_what_slopes_leave_open),
        cmocka_unit_test(cries_no_wolf),
        cmocka_unit_test(finds_wrong_cuts),
        cmocka_unit_test(survives_lack_of_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
