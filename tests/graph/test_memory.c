// SPDX-License-Identifier: Apache-2.0
/* Every allocation fails once while graphs are built, copied, printed and
 * parsed. */
#include "tests/test.h"

#include "stages/graph/build.h"
#include "stages/ops/core/op.h"

#include <string.h>

static struct pst_diag diag;

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

static enum pst_status build(struct pst_graph *graph)
{
    const int64_t sizes[] = {4, 6};
    const struct pst_meta meta = pst_meta_make(PST_F32, 2, sizes);
    struct pst_output output = {.kind = PST_OUTPUT_USER, .path = "0"};
    struct pst_build b;
    struct pst_value *x, *y;

    x = pst_graph_add_value(graph, PST_VALUE_INPUT, "x", NULL, &meta);
    y = pst_graph_add_value(graph, PST_VALUE_PARAM, "x", "w", &meta);
    if (x == NULL || y == NULL)
        return PST_ERR_NOMEM;
    pst_build_init(&b, graph, &diag);
    for (int i = 0; i < 40; i++)
        y = pst_emit(&b, pst_op_find("aten.add.Tensor"),
                     PST_ARGS(pst_v(x), pst_v(y)));
    (void)pst_emit_node(&b, pst_op_find("aten.split.Tensor"),
                        PST_ARGS(pst_v(y), pst_i(1), pst_i(0)));
    if (b.status != PST_OK)
        return b.status;
    output.arg = pst_v(y);
    return pst_graph_add_output(graph, &output, &diag);
}

static enum pst_status build_and_parse(void)
{
    struct pst_graph *one = NULL, *two = NULL, *three = NULL;
    struct pst_str text = {0};
    enum pst_status status = pst_graph_new(&one, &diag);

    if (status == PST_OK)
        status = build(one);
    if (status == PST_OK)
        status = pst_graph_copy(one, &two, &diag);
    if (status == PST_OK) {
        pst_graph_dce(two, true);
        pst_graph_print(two, &text);
        status = text.failed ? PST_ERR_NOMEM : PST_OK;
    }
    if (status == PST_OK)
        status = pst_graph_parse(text.text, &three, &diag);
    pst_str_fini(&text);
    pst_graph_free(one);
    pst_graph_free(two);
    pst_graph_free(three);
    return status;
}

static void survives_every_failure(void **state)
{
    const uint64_t live = pst_alloc_live(PST_TAG_GRAPH);
    enum pst_status status = PST_ERR_NOMEM;
    uint64_t n = 0;

    (void)state;
    while (status != PST_OK) {
        pst_alloc_fail_at(++n);
        status = build_and_parse();
        pst_alloc_fail_at(0);
        if (status != PST_OK)
            assert_int_equal(status, PST_ERR_NOMEM);
        assert_int_equal(pst_alloc_live(PST_TAG_GRAPH), live);
    }
    assert_true(n > 50); /* everything() allocates more than 50 times */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_every_failure),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
