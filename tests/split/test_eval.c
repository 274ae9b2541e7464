// SPDX-License-Identifier: Apache-2.0
/* Many stages as one, in the modes of training and of evaluation. */
#include "tests/split/model.h"

#include "stages/split/join.h"

static struct pst_diag diag;

static const char text[] =
    "graph next_id=7 {\n"
    "  input %x: f32[2, 4]\n"
    "  param %w \"w\" grad: f32[2, 4]\n"
    "  buffer %run \"run\" persistent: f32[4]\n"
    "  %a: f32[2, 4] = aten.mul.Tensor(%x, %w) # - - F id=0\n"
    "  %d: f32[2, 4] = aten.dropout.default(%a, 0.5, True) # - - F id=1\n"
    "  pippy._pipe_split.default() # - - F id=2\n"
    "  %n: f32[2, 4], %m: bool[2, 4] = aten.native_dropout.default(%d, 0.5, "
    "True) # - - F id=3\n"
    "  %now: f32[1, 4] = aten.mean.dim(%n, [0], True) # - - F id=4\n"
    "  %mode: f32[1, 4] view of %now + 0 = penstock.norm_mode.default(%now, "
    "%run, None, True) "
    "# - - F id=5\n"
    "  %y: f32[2, 4] = aten.sub.Tensor(%n, %mode) # - - F id=6\n"
    "  output user %y \"0\"\n"
    "}\n";

static const struct pst_node *find(const struct pst_plan *plan,
                                   const char *name)
{
    const struct pst_value *value =
        pst_graph_find(plan->stages.at[0].graph, name);

    assert_non_null(value);
    return value->def;
}

static void evaluates(void **state)
{
    const struct pst_split_options options = {0};
    struct pst_plan *plan, *whole, *eval;
    struct pst_model model;

    (void)state;
    model_init(&model, text, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_int_equal(plan->stages.n, 2);
    assert_ok(pst_plan_join(plan, &whole, &diag), &diag);
    assert_ok(pst_plan_eval(plan, &eval, &diag), &diag);
    assert_int_equal(whole->stages.n, 1);
    assert_true(find(whole, "d")->args[2].b);
    assert_true(find(whole, "n")->args[2].b);
    assert_non_null(find(whole, "mode")->outs[0]->base);
    assert_false(find(eval, "d")->args[2].b);
    assert_non_null(find(eval, "d")->outs[0]->base); /* nothing runs */
    assert_false(find(eval, "n")->args[2].b);
    assert_null(find(eval, "mode")->outs[0]->base);
    assert_int_equal(find(eval, "y")->id, find(whole, "y")->id);
    pst_plan_free(eval);
    pst_plan_free(whole);
    pst_plan_free(plan);
    model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluates),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
