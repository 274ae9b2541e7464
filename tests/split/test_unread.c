// SPDX-License-Identifier: Apache-2.0
/* Tests the notes of a plan: on state and inputs that training leaves
 * unchanged, on backwards that the file has lost, and on numbers beyond the
 * vocabulary. */
#include "tests/split/model.h"

#include "stages/split/convert/join.h"

#include <stdio.h>

#define NODE " # - - F id=0\n"

static struct pst_diag diag;

static struct pst_plan *split_file(const char *name, const char *loss,
                                   struct pst_model **model)
{
    const struct pst_split_options options = {.loss = loss};
    struct pst_plan *plan;
    char path[512];

    pst_diag_init(&diag);
    (void)snprintf(path, sizeof(path), "%s/%s.pt2",
                   getenv("PST_GOLDEN"), // NOLINT(concurrency-mt-unsafe)
                   name);
    assert_ok(pst_model_open(path, model, &diag), &diag);
    assert_ok(pst_split(*model, &options, &plan, &diag), &diag);
    return plan;
}

static void has_notes(const struct pst_plan *plan, const char *const *notes,
                      size_t n)
{
    for (size_t i = 0; i < plan->notes.n && i < n; i++)
        if (strstr(plan->notes.at[i], notes[i]) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", notes[i], plan->notes.at[i]);
    if (plan->notes.n > n)
        fail_msg("%zu notes, the last: %s", plan->notes.n,
                 plan->notes.at[plan->notes.n - 1]);
    assert_int_equal(plan->notes.n, n);
}

/* Not reported are "shift", whose bytes equal those of "ones" and of many other
 * tensors, and "bias" and "ones", which are read. */
static void names_what_the_export_took(void **state)
{
    static const char *const notes[] = {
        "constant \"lifted_tensor_0\" has the bytes of parameter \"first\" and "
        "is not trained: torch.export makes constants of what a plain Python "
        "list",
        "constant \"lifted_tensor_1\" has the bytes of parameter \"second\"",
        "these constants of the file want a gradient and are not trained: "
        "\"raw\"",
        "operators have constants for their weights, which are not trained: "
        "\"lifted_tensor_2\"",
        "no operator reads the trainable parameters \"first\", \"second\"",
        "the loss does not depend on the trainable parameters "
        "\"aside.weight\", \"aside.bias\": their gradients are 0",
        "If torch.export was given the tensor of \"",
        "no operator reads the inputs \"mask\": their data are ignored",
    };
    struct pst_model *model;
    struct pst_plan *plan = split_file("unread", NULL, &model);

    (void)state;
    has_notes(plan, notes, PST_COUNT(notes));
    pst_plan_free(plan);
    pst_model_close(model);
    /* Without a loss no parameter has a gradient: there is nothing to report.
     */
    plan = split_file("unread", "none", &model);
    assert_int_equal(plan->notes.n, PST_COUNT(notes) - 1);
    pst_plan_free(plan);
    pst_model_close(model);
}

static void names_lost_backwards(void **state)
{
    static const struct {
        const char *file, *lost;
        const char *notes[3];
        size_t n;
    } cases[] = {
        {"functions",
         "module \"parts.0\" at make_unread.py:44",
         {"the backward of the torch.autograd.Function in module \"parts.0\" "
          "at make_unread.py:44 is not in the file",
          "a forward that is none of the model's modules is called in module "
          "\"parts.1\" at make_unread.py:44"},
         2},
        {"functions-core",
         "module \"parts.0\" at make_unread.py:44",
         {"a decomposed program", "the backward of the torch.autograd"},
         2},
        {"functions-strict",
         "module \"parts.0\" at make_unread.py:44",
         {"the backward of the torch.autograd.Function",
          "the loss depends on no parameter that can be trained"},
         2},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pst_model *model;
        struct pst_plan *plan = split_file(cases[i].file, NULL, &model), *again,
                        *joined;
        char dir[] = "/tmp/pst-unread-XXXXXX", path[64];

        has_notes(plan, cases[i].notes, cases[i].n);
        assert_string_equal(plan->lost, cases[i].lost);
        assert_ok(pst_plan_join(plan, &joined, &diag), &diag);
        assert_string_equal(joined->lost, cases[i].lost);
        pst_plan_free(joined);
        assert_non_null(mkdtemp(dir));
        (void)snprintf(path, sizeof(path), "%s/plan", dir);
        assert_ok(pst_plan_save(plan, path, &diag), &diag);
        assert_ok(pst_plan_load(path, &again, &diag), &diag);
        assert_string_equal(again->lost, cases[i].lost);
        pst_plan_free(again);
        pst_plan_free(plan);
        pst_model_close(model);
        assert_ok(pst_remove_tree(dir, &diag), &diag);
    }
}

/* Not reported are regions without gradients, methods of a base class, and
 * PyTorch modules that are no attribute. */
static void has_no_false_alarms(void **state)
{
    static const char *const files[] = {"regions", "parts", "tiny", "norm",
                                        "empty"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(files); i++) {
        struct pst_model *model;
        char path[512];

        (void)snprintf(path, sizeof(path), "%s/%s.pt2",
                       getenv("PST_GOLDEN"), // NOLINT(concurrency-mt-unsafe)
                       files[i]);
        assert_ok(pst_model_open(path, &model, &diag), &diag);
        assert_null(model->lost);
        for (size_t k = 0; k < model->notes.n; k++)
            assert_null(strstr(model->notes.at[k], "autograd"));
        pst_model_close(model);
    }
}

static void finds_vocabularies(void **state)
{
    static const char text[] =
        "graph next_id=9 {\n"
        "  input %ids: i64[2, 3]\n"
        "  input %labels: i64[2, 3]\n"
        "  input %sometimes: i64[2, 3]\n"
        "  input %x: f32[6]\n"
        "  param %w \"w\" grad: f32[50, 7]\n"
        "  param %v \"v\" grad: f32[20, 7]\n"
        "  %a: i64[6] view of %ids + 0 = aten.view.default(%ids, [6])" NODE
        "  pippy._pipe_split.default()" NODE
        "  %e: f32[6, 7] = aten.embedding.default(%w, %a) # - m.py:4 F id=0\n"
        "  %f: f32[2, 3, 7] = aten.embedding.default(%v, %ids)" NODE
        "  %i: f32[2, 3, 7] = aten.embedding.default(%w, %labels)" NODE
        "  %s: i64[2, 2]:(3, 1) view of %sometimes + 1 = "
        "aten.slice.Tensor(%sometimes, 1, 1, 3, 1)" NODE
        "  %g: f32[2, 2, 7] = aten.embedding.default(%w, %s)" NODE
        "  %t: i64[6] view of %labels + 0 = aten.view.default(%labels, "
        "[6])" NODE
        "  %c: f32[] = aten.cross_entropy_loss.default(%e, %t, None, 1, -100, "
        "0.0)" NODE "  output user %c \"0\"\n"
        "  output user %f \"1\"\n"
        "  output user %g \"2\"\n"
        "  output user %i \"3\"\n"
        "}\n";
    static const int64_t below[] = {20, 7, 0, 0};
    static const struct pst_split_options options = {0};
    struct pst_data_bound bound;
    struct pst_model model;
    struct pst_plan *plan;

    (void)state;
    model_init(&model, text, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    for (unsigned i = 0; i < PST_COUNT(below); i++) {
        assert_ok(pst_plan_bound(plan, i, &bound, &diag), &diag);
        assert_int_equal(bound.below, below[i]);
        /* The table, which the labels index, too, ignores no index. */
        assert_false(bound.ignores);
    }
    pst_plan_free(plan);
    model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_what_the_export_took),
        cmocka_unit_test(names_lost_backwards),
        cmocka_unit_test(has_no_false_alarms),
        cmocka_unit_test(finds_vocabularies),
    };

    return cmocka_run_group_tests_name("unread", tests, NULL, NULL);
}
