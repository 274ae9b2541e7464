// SPDX-License-Identifier: Apache-2.0
/*
 * Tests cases 1 to 19 of tests/conformance/README.md by number: what they
 * require beyond the splits and numbers of the goldens (test_golden.c,
 * test_golden_run.c). For cases 14 and 15 see tests/conformance/cases.py.
 */
#include "tests/split/golden/golden.h"

#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/ops/core/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct golden goldens[GOLDEN_MAX];
static size_t n_goldens;
static struct pst_diag diag;

/* --- what holds of every split ------------------------------------------ */

static bool reads(const struct pst_plan *plan, unsigned stage, const char *fqn)
{
    const int k = pst_plan_find_param(plan, fqn);

    for (unsigned i = 0; k >= 0 && i < plan->params.at[k].n_stages; i++)
        if (plan->params.at[k].stages[i] == stage)
            return true;
    return false;
}

static bool is_in(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0)
            return true;
    return false;
}

/* Checks that the names in each stage are the model's, that the plan has every
 * name of the model and no other, and that exactly the buffers that the golden
 * file lists are not persistent. */
static void check_names(const struct golden *golden,
                        const struct pst_model *model,
                        const struct pst_plan *plan)
{
    const json_t *transient = json_object_get(golden->file, "non_persistent");

    for (size_t s = 0; s < plan->stages.n; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;

        for (size_t i = 0; i < graph->values.n; i++)
            if (graph->values.at[i]->fqn != NULL)
                assert_non_null(
                    pst_model_weight(model, graph->values.at[i]->fqn));
    }
    for (size_t i = 0; i < model->weights.n; i++) {
        const char *fqn = model->weights.at[i].fqn;
        const int k = pst_plan_find_param(plan, fqn);

        if (k < 0)
            fail_msg("%s: \"%s\" of the model is lost", golden->name, fqn);
        if (plan->params.at[k].kind == PST_VALUE_BUFFER)
            assert_int_equal(plan->params.at[k].persistent,
                             !is_in(transient, fqn));
    }
    for (size_t i = 0; i < plan->params.n; i++)
        assert_non_null(pst_model_weight(model, plan->params.at[i].fqn));
}

static const struct pst_edge *find_edge(const struct pst_plan *plan,
                                        unsigned from, unsigned to)
{
    for (size_t i = 0; i < plan->edges.n; i++)
        if (plan->edges.at[i].from_stage == from &&
            plan->edges.at[i].to_stage == to)
            return &plan->edges.at[i];
    return NULL;
}

/* --- what single cases ask for ------------------------------------------ */

typedef void (*check_fn)(struct pst_model *model, struct pst_plan *plan);

static void skips_and_shares(struct pst_model *model, struct pst_plan *plan)
{
    (void)model;
    assert_int_equal(plan->stages.n, 4);
    assert_non_null(find_edge(plan, 0, 2));
    assert_true(reads(plan, 0, "w1") && reads(plan, 1, "w1"));
}

/* Checks that each block is in one stage, for any number of stages. */
static void keeps_blocks_whole(struct pst_model *model, struct pst_plan *plan)
{
    (void)model;
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];

        if (strstr(param->fqn, ".h.") != NULL ||
            strstr(param->fqn, ".layer.") != NULL ||
            pst_has_prefix(param->fqn, "layers."))
            assert_int_equal(param->n_stages, 1);
    }
}

static void names_the_nearest(struct pst_model *model, struct pst_plan *plan)
{
    static const char *const wrong[] = {"nope", "body.three", "body.one.no.x"};
    struct pst_split_options options = {.n_at = 1};
    struct pst_plan *none;

    (void)plan;
    for (size_t i = 0; i < PST_COUNT(wrong); i++) {
        options.at = &wrong[i];
        assert_int_equal(pst_split(model, &options, &none, &diag),
                         PST_ERR_INPUT);
        assert_non_null(strstr(diag.text, wrong[i]));
    }
    options.at = &wrong[2];
    assert_non_null(strstr(diag.text, "nearest name is \"body.one"));
}

static void keeps_the_buffer(struct pst_model *model, struct pst_plan *plan)
{
    const int k = pst_plan_find_param(plan, "scale");
    const struct pst_weight *weight = pst_model_weight(model, "scale");
    unsigned char data[4096], want[4096];

    assert_true(k >= 0 && plan->params.at[k].kind == PST_VALUE_BUFFER);
    assert_true(plan->params.at[k].persistent);
    assert_int_equal(plan->params.at[k].n_stages, 2);
    assert_true(pst_meta_bytes(&weight->meta) <= sizeof(data));
    assert_ok(pst_plan_read_param(plan, (unsigned)k, data, &diag), &diag);
    assert_ok(
        pst_model_read(model, weight, &plan->params.at[k].meta, want, &diag),
        &diag);
    assert_memory_equal(data, want, pst_meta_bytes(&weight->meta));
}

static void reads_back(struct pst_model *model, struct pst_plan *plan)
{
    char dir[] = "/tmp/pst-conf-XXXXXX", path[64];
    struct pst_plan *loaded;

    (void)model;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/plan", dir);
    assert_ok(pst_plan_save(plan, path, &diag), &diag);
    assert_ok(pst_plan_load(path, &loaded, &diag), &diag);
    for (unsigned s = 0; s < plan->stages.n; s++) {
        struct pst_str a = {0}, b = {0};

        pst_plan_print_stage(plan, s, &a);
        pst_plan_print_stage(loaded, s, &b);
        assert_string_equal(pst_str_text(&a), pst_str_text(&b));
        pst_str_fini(&a);
        pst_str_fini(&b);
    }
    pst_plan_free(loaded);
    assert_ok(pst_remove_tree(dir, &diag), &diag);
}

static void has_two_users(struct pst_model *model, struct pst_plan *plan)
{
    (void)model;
    assert_non_null(find_edge(plan, 0, 1));
    assert_non_null(find_edge(plan, 0, 2));
    assert_string_equal(find_edge(plan, 0, 1)->value,
                        find_edge(plan, 0, 2)->value);
}

static void has_notes(struct pst_model *model, struct pst_plan *plan)
{
    (void)model;
    assert_int_equal(plan->notes.n, 1);
    assert_non_null(strstr(plan->notes.at[0], "is ignored: nothing that"));
}

static void drops_with_a_warning(struct pst_model *model, struct pst_plan *plan)
{
    (void)model;
    assert_int_equal(plan->stages.n, 3);
    assert_non_null(strstr(plan->notes.at[0],
                           "is ignored: nothing that is used is computed "
                           "between it and the cut before"));
}

static const struct {
    const char *title, *prefix;
    check_fn check;
} cases[] = {
    {"1 skip, shared parameter", "01-", skips_and_shares},
    {"2 a model input used by the last stage", "02-", NULL},
    {"3 aliases of parameters and modules", "03-", NULL},
    {"4 nested blocks, convolution, in-place on an input", "04-", NULL},
    {"5 layers by name", "05-", keeps_blocks_whole},
    {"6 GPT-2, 2 and 4 stages", "06-", keeps_blocks_whole},
    {"7 BERT, 2 and 4 stages", "07-", keeps_blocks_whole},
    {"8 keyword with a default tensor", "08-", NULL},
    {"9 keyword inputs", "09-", NULL},
    {"10 a module in two stages, shallow and deep", "10", NULL},
    {"11 begin and end of modules, names that are not there", "11-",
     names_the_nearest},
    {"12 a buffer in two stages", "12-", keeps_the_buffer},
    {"13 keywords only, any keywords", "13", NULL},
    {"14 the loss among the outputs", "14-", NULL},
    {"15 wrappers that return the loss", "15", NULL},
    {"16 a value used by two later stages", "16-fan-out", has_two_users},
    {"18 a thousand operators are saved and loaded", "18-", reads_back},
    {"19 consecutive markers", "19a-", has_notes},
    {"19 a leading marker", "19b-leading", has_notes},
    {"19 a trailing marker", "19c-", has_notes},
    {"19 independent towers", "19d-", NULL},
    {"19 an output made early", "19e-", NULL},
    {"19 integers, bool and 0-dim cross", "19f-", NULL},
    {"19 a stage that nobody uses", "19g-", drops_with_a_warning},
    {"19 a buffer that is not persistent", "19h-", NULL},
    {"19 constants in submodules", "19i-", NULL},
    {"19b sizes, modes, order, regions, ties, strides ...", "t", NULL},
};

static void goldens_hold(void **state)
{
    const size_t c = *(const size_t *)*state;
    unsigned n = 0;

    for (size_t i = 0; i < n_goldens; i++) {
        struct pst_split_options options = golden_options(&goldens[i]);
        struct pst_model *model = NULL;
        struct pst_plan *plan = NULL;

        if (!pst_has_prefix(goldens[i].name, cases[c].prefix))
            continue;
        options.loss = "none";
        assert_ok(pst_model_open(goldens[i].model, &model, &diag), &diag);
        assert_ok(pst_split(model, &options, &plan, &diag), &diag);
        check_names(&goldens[i], model, plan);
        if (cases[c].check != NULL)
            cases[c].check(model, plan);
        pst_plan_free(plan);
        pst_model_close(model);
        n++;
    }
    assert_true(n > 0);
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[PST_COUNT(cases)];
    static size_t numbers[PST_COUNT(cases)];
    int failed;

    pst_diag_init(&diag);
    n_goldens = argc < 2 ? 0 : golden_load(argv[1], goldens);
    if (n_goldens == 0 || pst_registry_init(&diag) != PST_OK) {
        print_error("no goldens of the splitter at %s\n",
                    argc < 2 ? "(none)" : argv[1]);
        return 1;
    }
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        numbers[i] = i;
        tests[i] = (struct CMUnitTest){.name = cases[i].title,
                                       .test_func = goldens_hold,
                                       .initial_state = &numbers[i]};
    }
    failed = _cmocka_run_group_tests("conformance", tests, PST_COUNT(cases),
                                     NULL, NULL);
    golden_clear(goldens, n_goldens);
    return failed;
}
