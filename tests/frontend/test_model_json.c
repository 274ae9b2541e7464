// SPDX-License-Identifier: Apache-2.0
/* JSON of .pt2 files: caps, exactness, tensor descriptions. */
#include "tests/test.h"

#include "stages/frontend/import/import.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct pst_diag diag;

static enum pst_status parse(const char *text, json_t **ret)
{
    diag.text[0] = '\0';
    return pst_json_parse("the text", text, strlen(text), ret, &diag);
}

static void refused(const char *text, enum pst_status status, const char *why)
{
    json_t *json;

    assert_int_equal(parse(text, &json), status);
    assert_true(strncmp(diag.text, "the text: ", 10) == 0);
    if (strstr(diag.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, why);
}

static void numbers_are_exact(void **state)
{
    json_t *json;
    double x;

    (void)state;
    assert_ok(parse("[9223372036854775807, -9223372036854775808, -0.0, "
                    "\"Infinity\", \"-Infinity\", \"NaN\", 3, \"nan\"]",
                    &json),
              &diag);
    assert_true(json_integer_value(json_array_get(json, 0)) == INT64_MAX);
    assert_true(json_integer_value(json_array_get(json, 1)) == INT64_MIN);
    assert_true(pst_json_double(json_array_get(json, 2), &x) && signbit(x));
    assert_true(pst_json_double(json_array_get(json, 3), &x) && x == INFINITY);
    assert_true(pst_json_double(json_array_get(json, 4), &x) && x == -INFINITY);
    assert_true(pst_json_double(json_array_get(json, 5), &x) && isnan(x));
    assert_true(pst_json_double(json_array_get(json, 6), &x) && x == 3);
    assert_false(pst_json_double(json_array_get(json, 7), &x));
    json_decref(json);
    refused("{\"nodes\": [{\"target\": \"torch.ops.aten.add.Tensor\", \"x\": "
            "9223372036854775808}]}",
            PST_ERR_UNSUPPORTED,
            "does not fit 64 bits, in a node of torch.ops.aten.add.Tensor");
}

static void damage_is_refused(void **state)
{
    char deep[400];

    (void)state;
    refused("{\"a\": 1, \"a\": 2}", PST_ERR_INPUT, "duplicate");
    refused("[1] 2", PST_ERR_INPUT, "byte 5");
    refused("[1", PST_ERR_INPUT, "not valid JSON");
    refused("[\"\\ud800\"]", PST_ERR_INPUT, "not valid JSON");
    refused("[\"\xff\"]", PST_ERR_INPUT, "not valid JSON");
    refused("[\"a\\u0000b\"]", PST_ERR_INPUT, "not valid JSON");
    refused("[NaN]", PST_ERR_INPUT, "not valid JSON");
    memset(deep, '[', 65);
    deep[65] = '\0';
    refused(deep, PST_ERR_INPUT, "more than 64 levels");
    /* Brackets in a text do not count; 64 levels are fine. */
    memset(deep, '[', 64);
    memset(deep + 64, ']', 64);
    deep[128] = '\0';
    json_t *json;

    assert_ok(parse(deep, &json), &diag);
    json_decref(json);
    strcpy(deep, "[\"\\\"");
    memset(deep + 4, '[', 100);
    strcpy(deep + 104, "\"]");
    assert_ok(parse(deep, &json), &diag);
    json_decref(json);
}

#define TENSOR(dtype, sizes, strides, offset)                                  \
    "{\"dtype\": " dtype ", \"sizes\": [" sizes "], \"requires_grad\": true, " \
    "\"strides\": [" strides "], \"storage_offset\": {\"as_int\": " offset     \
    "}, \"layout\": 7}"
#define I(n) "{\"as_int\": " n "}"

static struct pst_arena arena;

static enum pst_status tensor(const char *text, struct pst_json_tensor *ret)
{
    enum pst_status status;
    json_t *json;

    assert_ok(parse(text, &json), &diag);
    diag.text[0] = '\0';
    status = pst_json_tensor(json, "x", NULL, &arena, ret, &diag);
    json_decref(json);
    return status;
}

static void tensors_are_checked(void **state)
{
    static const struct {
        const char *text, *why;
        enum pst_status status;
    } bad[] = {
        {TENSOR("9", "", "", "0"), "complex32", PST_ERR_UNSUPPORTED},
        {TENSOR("10", I("2"), I("1"), "9223372036854775807"), "complex tensors",
         PST_ERR_UNSUPPORTED},
        {TENSOR("77", "", "", "0"), "unknown", PST_ERR_UNSUPPORTED},
        {TENSOR("7", I("-1"), I("1"), "0"), "sizes[0]", PST_ERR_INPUT},
        {TENSOR("7", I("2"), I("-1"), "0"), "strides[0]", PST_ERR_INPUT},
        {TENSOR("7", I("2"), I("1"), "-1"), "storage_offset", PST_ERR_INPUT},
        {TENSOR("7", I("2"), "", "0"), "1 sizes but 0 strides", PST_ERR_INPUT},
        {TENSOR("7", I("3000000000") "," I("3000000000"), I("1") "," I("1"),
                "0"),
         "x: ", PST_ERR_SHAPE},
        {TENSOR("7", I("2"), I("1"), "9223372036854775807"), "out of range",
         PST_ERR_INPUT},
        {TENSOR("7", "{\"as_expr\": {}}", I("1"), "0"), "\"expr_str\"",
         PST_ERR_INPUT},
        {TENSOR("7", "{\"as_expr\": {\"expr_str\": \"Symbol('s0')\"}}", I("1"),
                "0"),
         "nothing says what s0", PST_ERR_UNSUPPORTED},
        {TENSOR("7", "{\"as_expr\": {\"expr_str\": \"Integer(-3)\"}}", I("1"),
                "0"),
         "sizes[0]", PST_ERR_INPUT},
        {TENSOR("7", "true", I("1"), "0"), "sizes[0]", PST_ERR_INPUT},
        {"{\"dtype\": 7}", "\"sizes\" is missing", PST_ERR_INPUT},
    };
    struct pst_json_tensor t;

    (void)state;
    pst_arena_init(&arena, PST_TAG_TEST);
    assert_ok(
        tensor(TENSOR("13", I("2") "," I("3"), I("1") "," I("2"), "5"), &t),
        &diag);
    assert_int_equal(t.meta.dtype, PST_BF16);
    assert_int_equal(t.meta.rank, 2);
    assert_int_equal(t.meta.size[1], 3);
    assert_int_equal(t.meta.stride[1], 2);
    assert_int_equal(t.offset, 5);
    assert_true(t.requires_grad);
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        assert_int_equal(tensor(bad[i].text, &t), bad[i].status);
        if (strstr(diag.text, bad[i].why) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", diag.text, bad[i].why);
    }
    pst_arena_fini(&arena);
}

#define LEAF "{\"type\": null, \"context\": null, \"children_spec\": []}"
#define NODE(type, context, children)                                          \
    "{\"type\": \"" type "\", \"context\": " context                           \
    ", \"children_spec\": [" children "]}"

static void leaves_have_paths(void **state)
{
    static const char args[] = "[1, " NODE(
        "builtins.tuple", "\"null\"",
        NODE(
            "builtins.tuple", "\"null\"",
            LEAF "," NODE(
                "builtins.dict", "\"[\\\"b\\\", 7]\"",
                NODE("collections.namedtuple", "\"m.Pair\"",
                     LEAF
                     "," LEAF) "," NODE("collections.defaultdict",
                                        "{\"dict_context\": [\"k\"]}",
                                        LEAF))) "," NODE("builtins.dict",
                                                         "\"[\\\"z\\\"]\"",
                                                         NODE("m.Data",
                                                              "\"[[\\\"f\\\"], "
                                                              "[]]\"",
                                                              NODE("m.Unknown",
                                                                   "\"what\"",
                                                                   LEAF)))) "]";
    static const char *const want[] = {"x", "d.b.left", "d.b.right", "d.7.k",
                                       "z.f.0"};
    struct pst_paths paths;
    struct pst_arena arena;
    json_t *names, *fields;

    (void)state;
    pst_arena_init(&arena, PST_TAG_TEST);
    assert_ok(parse("[\"x\", \"d\", \"z\"]", &names), &diag);
    assert_ok(parse("{\"m.Pair\": {\"field_names\": [\"left\", \"right\"]}}",
                    &fields),
              &diag);
    assert_ok(
        pst_pytree_paths(args, true, names, fields, &arena, &paths, &diag),
        &diag);
    assert_int_equal(paths.n, PST_COUNT(want));
    for (size_t i = 0; i < paths.n; i++)
        assert_string_equal(paths.at[i], want[i]);
    assert_ok(pst_pytree_paths("[1, " LEAF "]", false, NULL, NULL, &arena,
                               &paths, &diag),
              &diag);
    assert_string_equal(paths.at[0], "0");
    assert_int_equal(pst_pytree_paths("[2, " LEAF "]", false, NULL, NULL,
                                      &arena, &paths, &diag),
                     PST_ERR_VERSION);
    assert_int_equal(
        pst_pytree_paths("[1, 5]", false, NULL, NULL, &arena, &paths, &diag),
        PST_ERR_INPUT);
    json_decref(names);
    json_decref(fields);
    pst_arena_fini(&arena);
}

static void place(struct pst_import *import, const char *stack,
                  const char *trace, const char *module, unsigned call,
                  const char *source)
{
    json_t *node = json_pack("{s:{s:s*, s:s*}}", "metadata", "nn_module_stack",
                             stack, "stack_trace", trace);

    assert_non_null(node);
    assert_ok(pst_import_place(import, node), &diag);
    assert_string_equal(import->place.module, module);
    assert_int_equal(import->place.call, call);
    assert_string_equal(import->place.source, source);
    json_decref(node);
}

/* Names may hold the separators of the texts that they stand in. */
static void places_are_found(void **state)
{
    struct pst_model model = {0};
    struct pst_import import = {.model = &model, .diag = &diag};

    (void)state;
    pst_arena_init(&model.arena, PST_TAG_TEST);
    pst_map_init(&import.fqns, PST_TAG_TEST);
    assert_true(pst_map_put(&import.fqns, "a,b;c@1", &model));
    assert_true(pst_map_put(&import.fqns, "a", &model));
    import.place = (struct pst_place){.module = "", .source = ""};
    place(&import, "L__self__,,m.Net", "", "", 0, "");
    place(&import,
          "L__self__,,m.Net;L__self__h.0,h.0,m.B;L__self__h.0.w@12,"
          "h.0.w,m.L",
          "  File \"/x/y/net.py\", line 12, in forward\n    x\n"
          "  File \"/lib/torch/nn/linear.py\", line 5, in forward\n    y",
          "h.0.w", 12, "net.py:12");
    place(&import, NULL, NULL, "h.0.w", 12, "net.py:12");
    place(&import, "L__self__,,m.Net;L__self__a,b;c@1,a,b;c@1,m.L;",
          "File \"torch/only.py\", line 1, in f", "a,b;c@1", 0, "only.py:1");
    place(&import, "L__self__,,m.Net;L__self__a,b;c@1@2,a,b;c@1,m.L",
          "no trace", "a,b;c@1", 2, "");
    place(&import, "140042659517776,,m.N;140042659517777@3,a.x,m.L", NULL,
          "a.x", 3, "");
    /* c called from b: not below it, the stack ends there. */
    place(&import, "L__self__,,m.N;L__self__b,b,m.B;L__self__bc,bc,m.C", NULL,
          "b", 0, "");
    place(&import, "L__self__,,m.N;L__self__b,c,m.B", NULL, "", 0, "");
    place(&import, ";;,,@", "File \"", "", 0, "");
    pst_map_fini(&import.fqns);
    pst_arena_fini(&model.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(tensors_are_checked),
        cmocka_unit_test(leaves_have_paths),
        cmocka_unit_test(places_are_found),
    };

    return cmocka_run_group_tests_name("model_json", tests, NULL, NULL);
}
