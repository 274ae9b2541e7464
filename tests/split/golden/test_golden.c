// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the splitter's goldens (tests/data): models with PyTorch's graphs and
 * the expected split. One case per way of cutting.
 */
#include "tests/split/golden/golden.h"

#include "stages/base/str.h"
#include "stages/ops/core/op.h"

#include <stdio.h>
#include <string.h>

static struct golden goldens[GOLDEN_MAX];
static size_t n_goldens;
static struct pst_diag diag;

static long number_of(const json_t *object, const char *key)
{
    return (long)json_integer_value(json_object_get(object, key));
}

/* --- comparison --------------------------------------------------------- */

/* Compares names of one kind in a stage with the expected ones by identity: any
 * name of a tensor is accepted. */
static void compare_state(const struct pst_plan *plan, unsigned stage,
                          enum pst_value_kind kind, const json_t *want)
{
    const struct pst_graph *graph = plan->stages.at[stage].graph;
    size_t n = 0;

    for (size_t i = 0; i < graph->values.n; i++)
        n += graph->values.at[i]->kind == kind;
    assert_int_equal(n, json_array_size(want));
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(want, i));
        const int k = pst_plan_find_param(plan, name);
        bool listed = false;

        if (k < 0)
            fail_msg("\"%s\" is not in the plan", name);
        for (unsigned s = 0; s < plan->params.at[k].n_stages; s++)
            listed = listed || plan->params.at[k].stages[s] == stage;
        if (!listed)
            fail_msg("stage %u does not read \"%s\"", stage, name);
    }
}

/* True if both name the same input, as "pair.0" and "pair_0" do. */
static bool same_input(const char *a, const char *b)
{
    size_t i = 0;

    while (a[i] != '\0' && (a[i] == b[i] || (a[i] == '.' && b[i] == '_')))
        i++;
    return a[i] == b[i];
}

static void compare_inputs(const struct pst_plan *plan, unsigned s,
                           const json_t *want)
{
    const struct pst_stage *stage = &plan->stages.at[s];

    assert_int_equal(stage->graph->inputs.n, json_array_size(want));
    for (size_t i = 0; i < stage->graph->inputs.n; i++) {
        const json_t *item = json_array_get(want, i);
        const char *input = golden_text(item, "input");
        const struct pst_edge *edge;

        if (stage->inputs[i].kind == PST_SOURCE_MODEL_INPUT) {
            const char *name = plan->inputs.at[stage->inputs[i].index].name;

            if (!same_input(name, input))
                fail_msg("input %zu of stage %u is %s, not %s", i, s, name,
                         input);
            continue;
        }
        assert_string_equal(input, "");
        edge = &plan->edges.at[stage->inputs[i].index];
        assert_int_equal(edge->from_stage, number_of(item, "stage"));
        assert_int_equal(edge->from_output, number_of(item, "index"));
        /* Results of inlined sub-graphs keep their inner names. */
        if (!pst_has_prefix(golden_text(item, "value"), "getitem"))
            assert_string_equal(edge->value, golden_text(item, "value"));
    }
}

/* Compares sizes, symbolic ones as expressions: "2*s77". */
static void compare_shape(const struct pst_value *value, const json_t *want)
{
    assert_int_equal(value->meta.rank, json_array_size(want));
    for (unsigned d = 0; d < value->meta.rank; d++) {
        const json_t *size = json_array_get(want, d);

        if (!json_is_string(size)) {
            assert_int_equal(value->meta.size[d], json_integer_value(size));
            continue;
        }
        assert_non_null(value->dims);
        assert_non_null(value->dims[d]);
        assert_string_equal(value->dims[d], json_string_value(size));
    }
}

static void compare_output(const struct pst_plan *plan, unsigned stage,
                           unsigned index, const json_t *want)
{
    const json_t *to = json_object_get(want, "to");
    const json_t *model = json_object_get(want, "model_outputs");
    size_t n_to = 0, n_model = 0;

    compare_shape(plan->stages.at[stage].graph->outputs.at[index].arg.value,
                  json_object_get(want, "shape"));
    for (size_t i = 0; i < plan->edges.n; i++) {
        const struct pst_edge *edge = &plan->edges.at[i];

        if (edge->from_stage != stage || edge->from_output != index)
            continue;
        assert_int_equal(edge->to_stage,
                         json_integer_value(json_array_get(to, n_to++)));
    }
    assert_int_equal(n_to, json_array_size(to));
    for (size_t i = 0; i < plan->outputs.n; i++) {
        const struct pst_plan_output *output = &plan->outputs.at[i];

        if (!output->is_tensor || output->stage != (int)stage ||
            output->output != index)
            continue;
        assert_int_equal(i,
                         json_integer_value(json_array_get(model, n_model++)));
    }
    assert_int_equal(n_model, json_array_size(model));
}

static void compare_outputs(const struct pst_plan *plan, unsigned stage,
                            const json_t *want)
{
    const struct pst_graph *graph = plan->stages.at[stage].graph;
    size_t n = 0;

    for (size_t i = 0; i < graph->outputs.n; i++)
        n += graph->outputs.at[i].kind == PST_OUTPUT_USER;
    assert_int_equal(n, json_array_size(want));
    for (unsigned i = 0; i < n; i++)
        compare_output(plan, stage, i, json_array_get(want, i));
}

/* Compares the model's own outputs: names of values or inputs, None, or
 * numbers. */
static void compare_model_outputs(const struct pst_plan *plan,
                                  const json_t *want)
{
    assert_int_equal(plan->outputs.n, json_array_size(want));
    for (size_t i = 0; i < plan->outputs.n; i++) {
        const struct pst_plan_output *output = &plan->outputs.at[i];
        const json_t *item = json_array_get(want, i);

        assert_int_equal(output->is_tensor, json_is_string(item));
        if (json_is_null(item))
            assert_int_equal(output->literal.kind, PST_ARG_NONE);
        if (json_is_integer(item))
            assert_int_equal(output->literal.i, json_integer_value(item));
        if (output->is_tensor && output->stage < 0 &&
            !same_input(plan->inputs.at[output->output].name,
                        json_string_value(item)))
            fail_msg("output %zu is not %s", i, json_string_value(item));
    }
}

/* Compares parameters of several stages, each with its owners. */
static void compare_replicated(const struct pst_plan *plan, const json_t *want,
                               enum pst_value_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < plan->params.n; i++)
        n += plan->params.at[i].kind == kind && plan->params.at[i].n_stages > 1;
    assert_int_equal(n, json_array_size(want));
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(want, i);
        const json_t *stages = json_object_get(item, "stages");
        const int k = pst_plan_find_param(plan, golden_text(item, "name"));

        assert_true(k >= 0);
        assert_int_equal(plan->params.at[k].n_stages, json_array_size(stages));
        for (unsigned s = 0; s < plan->params.at[k].n_stages; s++)
            assert_int_equal(plan->params.at[k].stages[s],
                             json_integer_value(json_array_get(stages, s)));
    }
}

static void compare(const struct pst_plan *plan, const json_t *want)
{
    const json_t *stages = json_object_get(want, "stages");

    compare_model_outputs(plan, json_object_get(want, "model_outputs"));
    compare_replicated(plan, json_object_get(want, "replicated"),
                       PST_VALUE_PARAM);
    compare_replicated(plan, json_object_get(want, "buffers_in_several_stages"),
                       PST_VALUE_BUFFER);
    assert_int_equal(plan->stages.n, json_array_size(stages));
    for (unsigned s = 0; s < plan->stages.n; s++) {
        const json_t *stage = json_array_get(stages, s);

        compare_state(plan, s, PST_VALUE_PARAM,
                      json_object_get(stage, "parameters"));
        compare_state(plan, s, PST_VALUE_BUFFER,
                      json_object_get(stage, "buffers"));
        compare_state(plan, s, PST_VALUE_CONST,
                      json_object_get(stage, "constants"));
        compare_inputs(plan, s, json_object_get(stage, "inputs"));
        compare_outputs(plan, s, json_object_get(stage, "outputs"));
    }
}

/* --- cases -------------------------------------------------------------- */

static void splits_right(void **state)
{
    const struct golden *golden = *state;
    const char *loss = golden_text(golden->file, "loss");
    const json_t *want = json_object_get(golden->split, "want");
    struct pst_split_options options = golden_options(golden);
    struct pst_model *model = NULL;
    struct pst_plan *plan = NULL;
    enum pst_status status;

    options.loss = "none";
    if (pst_has_prefix(loss, "output:"))
        options.loss = loss + strlen("output:");
    status = pst_model_open(golden->model, &model, &diag);
    if (status == PST_OK)
        status = pst_split(model, &options, &plan, &diag);
    assert_ok(status, &diag);
    if (json_is_object(want))
        compare(plan, want);
    pst_plan_free(plan);
    pst_model_close(model);
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[GOLDEN_MAX];
    int failed;

    pst_diag_init(&diag);
    n_goldens = argc < 2 ? 0 : golden_load(argv[1], goldens);
    if (n_goldens == 0 || pst_registry_init(&diag) != PST_OK) {
        print_error("no goldens of the splitter at %s\n",
                    argc < 2 ? "(none)" : argv[1]);
        return 1;
    }
    for (size_t i = 0; i < n_goldens; i++)
        tests[i] = (struct CMUnitTest){.name = goldens[i].name,
                                       .test_func = splits_right,
                                       .initial_state = &goldens[i]};
    failed = _cmocka_run_group_tests("goldens", tests, n_goldens, NULL, NULL);
    golden_clear(goldens, n_goldens);
    return failed;
}
