// SPDX-License-Identifier: Apache-2.0
/* Tests every overload of PyTorch (tests/data/schemas.json). The importer knows
 * those of tiers 1 and 2, with exactly the arguments and results of PyTorch's
 * schema. It refuses those of tier 3, with their reason. */
#include "tests/test.h"

#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pst_diag diag;
static json_t *schemas;
static struct pst_arena arena;

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    pst_arena_init(&arena, PST_TAG_TEST);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    pst_arena_fini(&arena);
    json_decref(schemas);
    return 0;
}

static struct pst_target target_of(const char *name)
{
    /* The importer judges an autocast region by its arguments. */
    struct pst_doc_input inputs[] = {
        {"device_type", {.kind = PST_DOC_STRING, .name = "cpu"}},
        {"dtype", {.kind = PST_DOC_SCALAR_TYPE, .code = 13}},
        {"enabled", {.kind = PST_DOC_BOOL, .number = {.b = true}}},
    };
    const struct pst_doc_node node = {
        .target = name, .inputs = inputs, .n_inputs = PST_COUNT(inputs)};

    return pst_import_target(&node, NULL);
}

static bool same_default(const struct pst_arg *a, const struct pst_arg *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case PST_ARG_INT:
    case PST_ARG_DTYPE:
        return a->i == b->i;
    case PST_ARG_FLOAT:
        return memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
    case PST_ARG_BOOL:
        return a->b == b->b;
    case PST_ARG_STRING:
        return strcmp(a->s, b->s) == 0;
    case PST_ARG_INTS:
        return a->n == b->n &&
               (a->n == 0 ||
                memcmp(a->ints, b->ints, a->n * sizeof(*a->ints)) == 0);
    case PST_ARG_BOOLS:
        return a->n == b->n && (a->n == 0 || memcmp(a->bools, b->bools,
                                                    a->n * sizeof(bool)) == 0);
    default:
        return true;
    }
}

static bool same_param(const struct pst_param *a, const struct pst_param *b)
{
    return a->type == b->type && a->optional == b->optional &&
           a->fixed == b->fixed && a->has_default == b->has_default &&
           (!a->has_default || same_default(&a->def, &b->def));
}

/* Counts arguments and results of the overload that differ from our schema.
 * Results of an in-place operator are not compared: its functional variant
 * returns each tensor that the operator writes. */
static unsigned differences(const char *name, const char *text,
                            const struct pst_target *t)
{
    const struct pst_schema *ours = pst_op_schema(t->op);
    struct pst_schema theirs;
    unsigned n = 0;

    assert_ok(pst_schema_parse(text, &arena, &theirs, &diag), &diag);
    for (unsigned i = 0; i < PST_MAX(theirs.n_args, ours->n_args); i++)
        if (i >= theirs.n_args || i >= ours->n_args ||
            pst_import_find_arg(ours, theirs.args[i].name) != (int)i ||
            !same_param(&theirs.args[i], &ours->args[i])) {
            print_error("%s: argument %u differs from %s\n", name, i,
                        ours->name);
            n++;
        }
    if (t->kind != PST_TARGET_INPLACE &&
        (theirs.n_returns != ours->n_returns ||
         theirs.list_return != ours->list_return)) {
        print_error("%s: %s has other results\n", name, ours->name);
        n++;
    }
    return n;
}

static void tiers_1_and_2_are_whole(void **state)
{
    unsigned n = 0, wrong = 0;
    json_t *row;
    size_t i;

    (void)state;
    json_array_foreach(schemas, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *text = json_string_value(json_object_get(row, "schema"));
        struct pst_target t;

        if (json_integer_value(json_object_get(row, "tier")) > 2)
            continue;
        t = target_of(name);
        n++;
        if (t.kind == PST_TARGET_NONE) {
            print_error("%s: %s\n", name, t.reason);
            wrong++;
        } else if (t.op != NULL) {
            wrong += differences(name, text, &t);
        }
    }
    assert_true(n >= 1000);
    assert_int_equal(wrong, 0);
}

/* Overloads of tier 3 are refused, except those that have rows because dynamic
 * sizes, gradients or models need them. */
static void tier_3_is_refused(void **state)
{
    unsigned n = 0, wrong = 0;
    json_t *row;
    size_t i;

    (void)state;
    json_array_foreach(schemas, i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const char *why = json_string_value(json_object_get(row, "reason"));
        struct pst_target t;

        if (json_integer_value(json_object_get(row, "tier")) != 3)
            continue;
        t = target_of(name);
        n++;
        if (t.kind != PST_TARGET_NONE) {
            if (t.op != NULL)
                wrong += differences(
                    name, json_string_value(json_object_get(row, "schema")),
                    &t);
        } else if (t.tier != 3 || strcmp(t.reason, why) != 0) {
            print_error("%s: \"%s\", not \"%s\"\n", name, t.reason, why);
            wrong++;
        }
    }
    assert_true(n >= 1000);
    assert_int_equal(wrong, 0);
}

static void others_are_unknown(void **state)
{
    const char *const names[] = {"aten.foo.default", "mine.relu.default",
                                 "aten.add.Tensors", "higher_order.mine"};
    (void)state;
    for (size_t i = 0; i < PST_COUNT(names); i++) {
        const struct pst_target t = target_of(names[i]);

        assert_int_equal(t.kind, PST_TARGET_NONE);
        assert_int_equal(t.tier, 0);
        assert_string_equal(t.reason, "unknown operators");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiers_1_and_2_are_whole),
        cmocka_unit_test(tier_3_is_refused),
        cmocka_unit_test(others_are_unknown),
    };

    schemas = json_load_file(argc > 1 ? argv[1] : "", 0, NULL);
    if (schemas == NULL) {
        print_error("usage: test-frontend-targets SCHEMAS.json\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
