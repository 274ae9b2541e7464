// SPDX-License-Identifier: Apache-2.0
/*
 * The splitter's goldens (shared/splitter): models with PyTorch's graphs and
 * the split that is right. One case per way of cutting. Skipped as a whole if
 * the folder is not beside the checkout.
 */
#include "tests/test.h"

#include "stages/base/str.h"
#include "stages/ops/op.h"
#include "stages/split/plan.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CASES 200

/* What we refuse by name today: dynamic shapes, updates of running statistics
 * by batch_norm, a buffer that two stages change, convolutions. */
static const char *const may_refuse[] = {
    "04-nested-markers", "t06-size-crosses", "t07-modes-are-traced",
    "t12-mutated-buffer"};

struct golden {
    char name[128], path[512];
    json_t *file, *split;
};

static struct golden goldens[MAX_CASES];
static size_t n_goldens;
static struct pst_diag diag;

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text == NULL ? "" : text;
}

static long number_of(const json_t *object, const char *key)
{
    return (long)json_integer_value(json_object_get(object, key));
}

/* --- comparison --------------------------------------------------------- */

/* Names of one kind in a stage against the wanted ones, by identity: a tensor
 * may go by any of its names. */
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

/* "pair.0" and "pair_0" are one input. */
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
        const char *input = text_of(item, "input");
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
        if (!pst_has_prefix(text_of(item, "value"), "getitem"))
            assert_string_equal(edge->value, text_of(item, "value"));
    }
}

static void compare_shape(const struct pst_meta *meta, const json_t *want)
{
    assert_int_equal(meta->rank, json_array_size(want));
    for (unsigned d = 0; d < meta->rank; d++)
        assert_int_equal(meta->size[d],
                         json_integer_value(json_array_get(want, d)));
}

static void compare_output(const struct pst_plan *plan, unsigned stage,
                           unsigned index, const json_t *want)
{
    const json_t *to = json_object_get(want, "to");
    const json_t *model = json_object_get(want, "model_outputs");
    size_t n_to = 0, n_model = 0;

    compare_shape(
        &plan->stages.at[stage].graph->outputs.at[index].arg.value->meta,
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

static void compare(const struct pst_plan *plan, const json_t *want)
{
    const json_t *stages = json_object_get(want, "stages");

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

/* {"fqn": "BEGINNING"} as "fqn:begin"; returns how many. */
static size_t read_at(json_t *at, char specs[16][256], const char *ret[16])
{
    const char *key;
    json_t *value;
    size_t n = 0;

    if (!json_is_object(at))
        return 0;
    json_object_foreach(at, key, value)
    {
        assert_true(n < 16);
        snprintf(specs[n], sizeof(specs[n]), "%s:%s", key,
                 strcmp(json_string_value(value), "END") ? "begin" : "end");
        ret[n] = specs[n];
        n++;
    }
    return n;
}

static bool is_refusal(const struct golden *golden, enum pst_status status)
{
    for (size_t i = 0; i < PST_COUNT(may_refuse); i++)
        if (pst_has_prefix(golden->name, may_refuse[i]))
            return status == PST_ERR_UNSUPPORTED;
    return false;
}

static void splits_right(void **state)
{
    const struct golden *golden = *state;
    const char *loss = text_of(golden->file, "loss"), *at[16];
    const json_t *want = json_object_get(golden->split, "want");
    struct pst_split_options options = {.at = at, .loss = "none"};
    struct pst_model *model = NULL;
    struct pst_plan *plan = NULL;
    char specs[16][256];
    enum pst_status status;

    options.n_at = read_at(json_object_get(golden->split, "at"), specs, at);
    if (pst_has_prefix(loss, "output:"))
        options.loss = loss + strlen("output:");
    status = pst_model_open(golden->path, &model, &diag);
    if (status == PST_OK)
        status = pst_split(model, &options, &plan, &diag);
    if (!is_refusal(golden, status)) {
        assert_ok(status, &diag);
        if (json_is_object(want))
            compare(plan, want);
    }
    pst_plan_free(plan);
    pst_model_close(model);
}

static void add_cases(const char *dir, const char *file)
{
    char path[512];
    json_error_t error;
    json_t *root, *splits;

    assert_non_null(file);
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    root = json_load_file(path, 0, &error);
    splits = json_object_get(root, "splits");
    for (size_t i = 0; i < json_array_size(splits); i++) {
        struct golden *golden = &goldens[n_goldens];

        if (n_goldens == MAX_CASES)
            return;
        snprintf(golden->name, sizeof(golden->name), "%.*s #%zu",
                 (int)(strlen(file) - 5), file, i);
        snprintf(golden->path, sizeof(golden->path), "%s/%.*s.pt2", dir,
                 (int)(strlen(file) - 5), file);
        golden->file = json_incref(root);
        golden->split = json_array_get(splits, i);
        n_goldens++;
    }
    json_decref(root);
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[MAX_CASES];
    struct dirent **names;
    int n, failed;

    pst_diag_init(&diag);
    n = argc < 2 ? -1 : scandir(argv[1], &names, NULL, alphasort);
    if (n < 0 || pst_registry_init(&diag) != PST_OK) {
        printf("skipped: no goldens of the splitter at %s\n",
               argc < 2 ? "(none)" : argv[1]);
        return 77;
    }
    for (int i = 0; i < n; i++) {
        if (pst_has_suffix(names[i]->d_name, ".json"))
            add_cases(argv[1], names[i]->d_name);
        free(names[i]);
    }
    free(names);
    for (size_t i = 0; i < n_goldens; i++)
        tests[i] = (struct CMUnitTest){.name = goldens[i].name,
                                       .test_func = splits_right,
                                       .initial_state = &goldens[i]};
    failed = _cmocka_run_group_tests("goldens", tests, n_goldens, NULL, NULL);
    for (size_t i = 0; i < n_goldens; i++)
        json_decref(goldens[i].file);
    return failed;
}
