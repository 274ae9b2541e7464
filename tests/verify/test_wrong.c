// SPDX-License-Identifier: Apache-2.0
/* Tests that pst_verify finds planted errors, and no others. */
#include "tests/verify/net.h"

#include "stages/ops/core/vjp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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
static void lists_gradients_at_kinks(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_wrong_gradients),
        cmocka_unit_test(knows_kinks),
        cmocka_unit_test(lists_gradients_at_kinks),
        cmocka_unit_test(cries_no_wolf),
        cmocka_unit_test(finds_wrong_cuts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
