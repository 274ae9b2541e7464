// SPDX-License-Identifier: Apache-2.0
/* Tests the names of arguments and results that are in containers. */
#include "tests/test.h"

#include "stages/files/pt2/reader.h"
#include "stages/frontend/import/import.h"

#include <string.h>

static struct pst_diag diag;

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
    static const char *const names[] = {"x", "d", "z"};
    const struct pst_doc_tree *tree;
    struct pst_paths paths;
    struct pst_arena arena;
    struct pst_reader r;
    static const char fields[] =
        "{\"m.Pair\": {\"field_names\": [\"left\", \"right\"]}}";

    (void)state;
    pst_arena_init(&arena, PST_TAG_TEST);
    pst_reader_init(&r, NULL, &arena, &diag);
    assert_ok(pst_json_parse("fields", fields, strlen(fields), &arena,
                             &r.fields, &diag),
              &diag);
    assert_ok(pst_read_tree(&r, args, &tree), &diag);
    assert_ok(pst_pytree_arguments(tree, names, 3, &arena, &paths, &diag),
              &diag);
    assert_int_equal(paths.n, PST_COUNT(want));
    for (size_t i = 0; i < paths.n; i++)
        assert_string_equal(paths.at[i], want[i]);
    assert_ok(pst_read_tree(&r, "[1, " LEAF "]", &tree), &diag);
    assert_ok(pst_pytree_results(tree, &arena, &paths, &diag), &diag);
    assert_string_equal(paths.at[0], "0");
    /* A leaf is not a pair of arguments and keywords. */
    assert_int_equal(
        pst_pytree_arguments(tree, names, 3, &arena, &paths, &diag),
        PST_ERR_INPUT);
    assert_int_equal(pst_read_tree(&r, "[2, " LEAF "]", &tree),
                     PST_ERR_VERSION);
    assert_int_equal(pst_read_tree(&r, "[1, 5]", &tree), PST_ERR_INPUT);
    assert_int_equal(pst_read_tree(&r, "[1, ", &tree), PST_ERR_INPUT);
    pst_reader_fini(&r);
    pst_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_have_paths),
    };

    return cmocka_run_group_tests_name("pytree", tests, NULL, NULL);
}
