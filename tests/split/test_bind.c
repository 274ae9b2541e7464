// SPDX-License-Identifier: Apache-2.0
/* Tests plans for microbatches of other sizes. tests/run/shard/test_rows.c
 * compares their results with PyTorch. */
#include "tests/test.h"

#include "stages/base/host/fs.h"
#include "stages/split/bind/bind.h"
#include "stages/split/convert/join.h"
#include "stages/split/store/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pst_diag diag;

static struct pst_model *open_model(const char *name)
{
    struct pst_model *model;
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", getenv("PST_GOLDEN"),
             name); // NOLINT(concurrency-mt-unsafe)
    assert_ok(pst_model_open(path, &model, &diag), &diag);
    return model;
}

static struct pst_plan *split_model(struct pst_model *model)
{
    const struct pst_split_options options = {0};
    struct pst_plan *plan;

    assert_ok(pst_split(model, &options, &plan, &diag), &diag);
    return plan;
}

static char *stage_text(const struct pst_plan *plan, unsigned stage)
{
    struct pst_str text = {0};

    pst_graph_print(plan->stages.at[stage].graph, &text);
    return text.text;
}

static void assert_same_plan(const struct pst_plan *a, const struct pst_plan *b)
{
    assert_int_equal(a->stages.n, b->stages.n);
    for (unsigned s = 0; s < a->stages.n; s++) {
        char *x = stage_text(a, s), *y = stage_text(b, s);

        assert_string_equal(x, y);
        pst_free(x);
        pst_free(y);
    }
    assert_int_equal(a->edges.n, b->edges.n);
    for (size_t i = 0; i < a->edges.n; i++) {
        assert_true(pst_meta_same(&a->edges.at[i].meta, &b->edges.at[i].meta));
        assert_int_equal(a->edges.at[i].grad_parts, b->edges.at[i].grad_parts);
    }
    assert_int_equal(a->outputs.n, b->outputs.n);
    for (size_t i = 0; i < a->outputs.n; i++)
        assert_true(
            pst_meta_same(&a->outputs.at[i].meta, &b->outputs.at[i].meta));
    for (size_t i = 0; i < a->inputs.n; i++)
        assert_true(
            pst_meta_same(&a->inputs.at[i].meta, &b->inputs.at[i].meta));
}

/* A plan that is bound to 7 rows and back is unchanged; a plan read from disk
 * is bound in the same way. */
static void plans_are_bound(void **state)
{
    struct pst_model *model = open_model("dynamic.pt2");
    struct pst_plan *plan = split_model(model), *bound, *back, *loaded, *other;
    char dir[] = "/tmp/pst-bind-XXXXXX", path[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/plan", dir);
    assert_int_equal(pst_plan_rows(plan), 4);
    assert_true(pst_plan_is_free(plan));
    assert_int_equal(plan->stages.n, 3);
    assert_ok(pst_plan_bind(plan, 7, &bound, &diag), &diag);
    assert_int_equal(pst_plan_rows(bound), 7);
    assert_int_equal(bound->inputs.at[1].meta.size[0], 7);
    assert_int_equal(bound->edges.at[0].meta.size[0], 7);
    assert_int_equal(bound->outputs.at[1].meta.size[0], 7);
    assert_int_equal(bound->outputs.at[3].literal.i, 13);
    assert_string_not_equal(plan->digest, bound->digest);
    assert_ok(pst_plan_bind(bound, 4, &back, &diag), &diag);
    assert_same_plan(plan, back);
    pst_plan_free(back);

    assert_ok(pst_plan_save(plan, path, &diag), &diag);
    assert_ok(pst_plan_load(path, &loaded, &diag), &diag);
    assert_same_plan(plan, loaded);
    assert_ok(pst_plan_bind(loaded, 7, &other, &diag), &diag);
    assert_same_plan(bound, other);
    pst_plan_free(other);
    pst_plan_free(loaded);
    assert_ok(pst_remove_tree(dir, &diag), &diag);

    assert_ok(pst_plan_join(bound, &other, &diag), &diag);
    assert_int_equal(other->outputs.at[1].meta.size[0], 7);
    pst_plan_free(other);
    pst_plan_free(bound);
    pst_plan_free(plan);
    pst_model_close(model);
}

static void expect_refusal(struct pst_plan *plan, int64_t rows,
                           enum pst_status status, const char *why)
{
    struct pst_plan *bound;

    pst_diag_init(&diag);
    assert_int_equal(pst_plan_bind(plan, rows, &bound, &diag), status);
    if (strstr(diag.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, why);
}

static void wrong_sizes_are_refused_by_name(void **state)
{
    struct pst_model *model = open_model("dynamic.pt2");
    struct pst_plan *plan = split_model(model);
    struct pst_batch batch;

    (void)state;
    expect_refusal(
        plan, 1, PST_ERR_INPUT,
        "microbatches of 1 rows (input \"tokens\"): s48 = 1 is out of the "
        "range that the model was exported for, 2 to 64");
    expect_refusal(plan, 65, PST_ERR_INPUT, "2 to 64");
    expect_refusal(plan, 0, PST_ERR_USAGE, "at least one row");
    assert_ok(pst_plan_chunk(plan, "scale=replicate", &diag), &diag);
    expect_refusal(plan, 1, PST_ERR_INPUT, "2 to 64");
    assert_ok(pst_plan_chunk(plan, "target=1", &diag), &diag);
    expect_refusal(
        plan, 5, PST_ERR_INPUT,
        "input \"target\" was exported with 5 rows, which is not free: "
        "--chunk target=replicate");
    plan->fixed = "for a test";
    assert_false(pst_plan_is_free(plan));
    expect_refusal(plan, 5, PST_ERR_UNSUPPORTED, "with 4 only: for a test");
    assert_int_equal(pst_batch_init(plan, 0, 10, 4, &batch, &diag),
                     PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "for a test"));
    pst_plan_free(plan);
    pst_model_close(model);

    model = open_model("tiny.pt2");
    plan = split_model(model);
    assert_false(pst_plan_is_free(plan));
    expect_refusal(plan, 3, PST_ERR_INPUT, "export with a torch.export.Dim");
    pst_plan_free(plan);
    pst_model_close(model);

    /* The file allows 1 to 64 rows; F.group_norm requires more. */
    model = open_model("square.pt2");
    plan = split_model(model);
    expect_refusal(plan, 1, PST_ERR_SHAPE,
                   "groups need more than one value in all samples");
    pst_plan_free(plan);
    pst_model_close(model);
}

static void chunks_are_checked(void **state)
{
    static const struct {
        const char *spec, *why;
    } bad[] = {
        {"tokens", "expected NAME=DIMENSION or NAME=replicate"},
        {"tokens=x", "expected NAME=DIMENSION or NAME=replicate"},
        {"tokens=-1", "expected NAME=DIMENSION or NAME=replicate"},
        {"tokens=2", "the input has 2 dimensions"},
        {"tokens=1=x", "expected NAME=DIMENSION or NAME=replicate"},
        {"token=0", "no input \"token\"; it has tokens, scale, target"},
    };
    struct pst_model *model = open_model("dynamic.pt2");
    struct pst_plan *plan = split_model(model);

    (void)state;
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        pst_diag_init(&diag);
        assert_int_equal(pst_plan_chunk(plan, bad[i].spec, &diag),
                         PST_ERR_USAGE);
        if (strstr(diag.text, bad[i].why) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", diag.text, bad[i].why);
    }
    pst_plan_free(plan);
    pst_model_close(model);
}

static void divide(struct pst_plan *plan, int64_t rows, unsigned m,
                   int64_t larger, unsigned n_tail)
{
    struct pst_batch batch;

    assert_ok(pst_batch_init(plan, 0, rows, m, &batch, &diag), &diag);
    assert_int_equal(pst_plan_rows(batch.plan), larger);
    assert_int_equal(batch.n_tail, n_tail);
    assert_int_equal(batch.tail != NULL, n_tail > 0);
    if (n_tail > 0)
        assert_int_equal(pst_plan_rows(batch.tail), larger - 1);
    assert_int_equal(pst_batch_rows(&batch), rows);
    pst_batch_fini(&batch);
}

/* Conformance 23 and 24: too few rows, and rows that do not divide. */
static void batches_are_divided(void **state)
{
    struct pst_model *model = open_model("dynamic.pt2");
    struct pst_plan *plan = split_model(model);
    struct pst_batch batch;

    (void)state;
    divide(plan, 10, 4, 3, 2);
    divide(plan, 13, 4, 4, 3);
    divide(plan, 12, 4, 3, 0);
    divide(plan, 16, 4, 4, 0);
    assert_int_equal(pst_batch_init(plan, 0, 3, 4, &batch, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "Expecting 4 arg_mbs but got 3"));
    assert_int_equal(pst_batch_init(plan, 3, 12, 4, &batch, &diag),
                     PST_ERR_USAGE);
    assert_int_equal(pst_batch_init(plan, 0, 5, 4, &batch, &diag),
                     /* 2, 1, 1, 1: a single row is out of range */
                     PST_ERR_INPUT);
    pst_plan_free(plan);
    pst_model_close(model);

    model = open_model("tiny.pt2");
    plan = split_model(model);
    divide(plan, 8, 4, 2, 0);
    pst_diag_init(&diag);
    assert_int_equal(pst_batch_init(plan, 0, 9, 4, &batch, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "is not divisible by 4 microbatches"));
    pst_plan_free(plan);
    pst_model_close(model);
}

/* Numbers in a plan that do not follow from its symbols are found. */
static void damaged_sizes_are_found(void **state)
{
    struct pst_model *model = open_model("dynamic.pt2");
    struct pst_plan *plan = split_model(model);

    (void)state;
    assert_ok(pst_plan_check(plan, &diag), &diag);
    pst_symbols_find(&plan->symbols, "s48")->value = 5;
    assert_int_equal(pst_plan_check(plan, &diag), PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "is another number"));
    pst_symbols_find(&plan->symbols, "s48")->value = 65;
    assert_int_equal(pst_plan_check(plan, &diag), PST_ERR_INPUT);
    pst_plan_free(plan);
    pst_model_close(model);
}

/* Allocations fail one at a time (from the 100th on every 11th), from opening
 * the file to binding plans. */
static void allocation_failures_are_survived(void **state)
{
    const struct pst_split_options options = {0};
    enum pst_status status = PST_ERR_NOMEM;
    char path[512];

    (void)state;
    snprintf(path, sizeof(path), "%s/rows.pt2",
             getenv("PST_GOLDEN")); // NOLINT(concurrency-mt-unsafe)
    for (uint64_t n = 1; status != PST_OK; n += n < 100 ? 1 : 11) {
        struct pst_model *model = NULL;
        struct pst_plan *plan = NULL;
        struct pst_batch batch = {0};

        pst_diag_init(&diag);
        pst_alloc_fail_at(n);
        status = pst_model_open(path, &model, &diag);
        if (status == PST_OK)
            status = pst_split(model, &options, &plan, &diag);
        if (status == PST_OK)
            status = pst_batch_init(plan, 0, 10, 4, &batch, &diag);
        pst_alloc_fail_at(0);
        if (status != PST_OK && status != PST_ERR_NOMEM)
            fail_msg("allocation %llu: %s", (unsigned long long)n, diag.text);
        pst_batch_fini(&batch);
        pst_plan_free(plan);
        pst_model_close(model);
        assert_int_equal(pst_alloc_live(PST_TAG_ARCHIVE), 0);
        assert_int_equal(pst_alloc_live(PST_TAG_GRAPH), 0);
        assert_int_equal(pst_alloc_live(PST_TAG_PLAN), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_bound),
        cmocka_unit_test(wrong_sizes_are_refused_by_name),
        cmocka_unit_test(chunks_are_checked),
        cmocka_unit_test(batches_are_divided),
        cmocka_unit_test(allocation_failures_are_survived),
        cmocka_unit_test(damaged_sizes_are_found),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests_name("bind", tests, NULL, NULL);
}
