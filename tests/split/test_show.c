// SPDX-License-Identifier: Apache-2.0
/* Tests how plans are shown to users and programs. */
#include "tests/split/model.h"

#include "stages/base/str.h"

#include <jansson.h>

static struct pst_diag diag;
static struct pst_model model;
static struct pst_plan *plan;

static const char text[] =
    "graph next_id=9 {\n"
    "  input %x: f32[2, 3]\n"
    "  param %w \"m.w\" grad: f32[2, 3]\n"
    "  param %f \"m.f\": f32[3]\n"
    "  buffer %p \"m.<p>\": f32[2, 3]\n"
    "  %a: f32[2, 3] = aten.mul.Tensor(%x, %w) # m z.py:1 F id=0\n"
    "  %i: bool[2, 3] = aten.gt.Scalar(%a, 0) # m - F id=1\n"
    "  pippy._pipe_split.default() # - - F id=2\n"
    "  %b: f32[2, 3] = aten.mul.Tensor(%a, %p) # - - F id=3\n"
    "  pippy._pipe_split.default() # - - F id=4\n"
    "  %c: f32[2, 3] = aten.where.self(%i, %b, %w) # n - F id=5\n"
    "  %d: f32[2, 3] = aten.mul.Tensor(%c, %f) # n - F id=6\n"
    "  %loss: f32[] = aten.mse_loss.default(%d, %p) # - - F id=7\n"
    "  output user %loss \"loss\"\n"
    "  output user %b \"mid\"\n"
    "  output user None \"none\"\n"
    "  output user 3 \"three\"\n"
    "}\n";

static int setup(void **state)
{
    static const char *const transmit = "m.w";
    const struct pst_split_options options = {.transmit = &transmit,
                                              .n_transmit = 1};

    (void)state;
    pst_diag_init(&diag);
    model_init(&model, text, NULL, 0);
    return pst_split(&model, &options, &plan, &diag) == PST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    pst_plan_free(plan);
    model_fini(&model);
    return 0;
}

static void expect_text(struct pst_str *got, const char *want)
{
    assert_false(got->failed);
    assert_string_equal(pst_str_text(got), want);
    pst_str_fini(got);
}

static void reports_a_stage(void **state)
{
    struct pst_str out = {0};

    (void)state;
    pst_plan_describe_stage(plan, 2, &out);
    expect_text(
        &out,
        "stage 2 of 3: 3 operators, modules n\n"
        "inputs\n"
        "  %i: bool[2, 3]  from stage 0 (edge 1), no gradient back\n"
        "  %b: f32[2, 3]  from stage 1 (edge 2), gradient back in 1 part\n"
        "parameters\n"
        "  \"m.w\": f32[2, 3]  transmitted, in stages 0, 2\n"
        "  \"m.f\": f32[3]  frozen\n"
        "buffers\n"
        "  \"m.<p>\": f32[2, 3]  not persistent  copied, in stages 1, 2\n"
        "calls of modules\n"
        "  call n in -\n"
        "operators\n"
        "  %c: f32[2, 3] = aten.where.self(%i, %b, %w)  # n - F id=5 stage=2\n"
        "  %d: f32[2, 3] = aten.mul.Tensor(%c, %f)  # n - F id=6 stage=2\n"
        "  %loss: f32[] = aten.mse_loss.default(%d, %p)  # - - F id=7 "
        "stage=2\n"
        "outputs\n"
        "  %loss: f32[]  output \"loss\" of the model, the loss\n");
    pst_plan_describe_stage(plan, 1, &out);
    assert_null(strstr(out.text, "  %x"));
    assert_non_null(strstr(out.text, "%b: f32[2, 3]  to stage 2, output "
                                     "\"mid\" of the model\n"));
    pst_str_fini(&out);
}

static void draws_dot(void **state)
{
    struct pst_str out = {0};

    (void)state;
    pst_plan_draw_dot(plan, &out);
    expect_text(
        &out,
        "digraph plan {\n  rankdir=LR;\n  node [shape=box];\n"
        "  s0 [label=\"stage 0\\nm\\n12 FLOP, 24 B\\nreads x\"];\n"
        "  s1 [label=\"stage 1\\n-\\n6 FLOP, 0 B\\ngives mid\"];\n"
        "  s2 [label=\"stage 2\\nn\\n13 FLOP, 36 B\\ngives loss (loss)\"];\n"
        "  subgraph cluster_2 {\n    s2;\n"
        "    m2_0 [label=\"n\\n2 operators, 12 FLOP\"];\n"
        "    m2_1 [label=\"(model)\\n1 operator, 1 FLOP\"];\n"
        "    s2 -> m2_0 -> m2_1 [style=dotted];\n  }\n"
        "  s0 -> s1 [label=\"a\\n24 B\"];\n"
        "  s0 -> s2 [label=\"i\\n6 B\"];\n"
        "  s1 -> s2 [label=\"b\\n24 B\"];\n"
        "  s0 -> s2 [style=dashed, dir=forward, label=\"m.w "
        "(transmitted)\"];\n"
        "  s1 -> s2 [style=dashed, dir=none, label=\"m.<p> (copied)\"];\n"
        "}\n");
}

/* Names are escaped; every stage, edge and shared parameter is drawn. */
static void draws_svg(void **state)
{
    static const char *const parts[] = {">stage 0<",
                                        ">stage 2<",
                                        ">a<",
                                        ">i<",
                                        ">24 B<",
                                        "m.w (transmitted)",
                                        "m.&#60;p&#62; (copied)"};
    struct pst_str out = {0};
    unsigned opened = 0;

    (void)state;
    pst_plan_draw_svg(plan, &out);
    assert_false(out.failed);
    for (size_t i = 0; i < PST_COUNT(parts); i++)
        if (strstr(out.text, parts[i]) == NULL)
            fail_msg("\"%s\" is not in %s", parts[i], out.text);
    for (const char *c = out.text; (c = strstr(c, "<g ")) != NULL; c++)
        opened++;
    assert_int_equal(opened, 3 + 3 + 2);
    for (const char *c = out.text; (c = strstr(c, "</g>")) != NULL; c++)
        opened--;
    assert_int_equal(opened, 0);
    assert_null(strstr(out.text, "m.<p>"));
    pst_str_fini(&out);
}

static long number_of(const json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return (long)json_integer_value(json_object_get(object, key));
}

static void reports_everything_to_programs(void **state)
{
    struct pst_str out = {0};
    const json_t *list, *item;
    json_error_t error;
    json_t *root;

    (void)state;
    pst_plan_print_json(plan, &out);
    root = json_loads(pst_str_text(&out), 0, &error);
    if (root == NULL)
        fail_msg("%s in %s", error.text, out.text);
    assert_int_equal(number_of(root, "stage_count"), 3);
    assert_true(json_is_true(json_object_get(root, "has_loss")));
    assert_true(json_is_true(json_object_get(root, "has_backward")));
    list = json_object_get(root, "edges");
    assert_int_equal(json_array_size(list), plan->edges.n);
    item = json_array_get(list, 1);
    assert_int_equal(number_of(item, "bytes"), 6);
    assert_int_equal(number_of(item, "gradients"), 0);
    list = json_object_get(root, "parameters");
    assert_int_equal(json_array_size(list), 3);
    item = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(item, "name")),
                        "m.w");
    assert_true(json_is_true(json_object_get(item, "transmit")));
    assert_int_equal(json_array_size(json_object_get(item, "stages")), 2);
    assert_true(
        json_is_false(json_object_get(json_array_get(list, 2), "persistent")));
    list = json_object_get(root, "outputs");
    assert_true(
        json_is_null(json_object_get(json_array_get(list, 2), "literal")));
    assert_int_equal(number_of(json_array_get(list, 3), "literal"), 3);
    list = json_object_get(root, "inputs");
    assert_int_equal(json_array_size(list), 1);
    assert_int_equal(json_array_size(json_object_get(root, "shared")), 2);
    json_decref(root);
    pst_str_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_a_stage),
        cmocka_unit_test(draws_dot),
        cmocka_unit_test(draws_svg),
        cmocka_unit_test(reports_everything_to_programs),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
