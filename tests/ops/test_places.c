// SPDX-License-Identifier: Apache-2.0
/* Indices out of range give a fault that names them, from the reference and
 * from the fast kernels, and no memory out of bounds is accessed (sanitizers).
 */
#include "tests/ops/samples/sample.h"

#include <string.h>

static struct pst_diag diag;

/* Indices %i7 are 0 to 6 (sample.h); a dimension that they select from has 3
 * elements. */
static const char *const wrong[] = {
    "input %x: F[3, 70]; input %i7: i64[5, 70]; "
    "%r = aten.gather.default(%x, 0, %i7)",
    "input %x: F[70, 3]; input %i7: i32[70, 300]; "
    "%r = aten.gather.default(%x, 1, %i7)",
    "input %x: F[3, 70]; input %i7: i64[5, 70]; input %y: F[5, 70]; "
    "%r = aten.scatter_add.default(%x, 0, %i7, %y)",
    "input %x: F[3, 70]; input %i7: i64[5, 70]; "
    "%r = aten.scatter.value(%x, 0, %i7, 1)",
    "input %x: F[3, 70]; input %i7: i64[90]; "
    "%r = aten.index_select.default(%x, 0, %i7)",
    "input %x: F[70, 3]; input %i7: i64[90]; "
    "%r = aten.index.Tensor(%x, [None, %i7])",
    "input %x: F[3, 7, 4]; input %i7: i64[90]; "
    "%r = aten.index.Tensor(%x, [%i7, %i7])",
    "input %x: F[3, 70]; input %i7: i64[90]; input %y: F[90, 70]; "
    "%r = aten.index_put.default(%x, [%i7], %y, True)",
    "input %x: F[3, 70]; input %i7: i64[90]; "
    "%r = aten.embedding.default(%x, %i7)",
    "input %x: F[30, 3]; input %i7: i64[30, 3]; input %y: F[30, 2]; "
    "%r = aten.searchsorted.Tensor(%x, %y, sorter=%i7)",
};

static void run(const char *text, bool reference)
{
    const struct sample sample = {text, 0};
    const struct pst_rng_key key = {0};
    struct pst_graph *graph;
    struct pst_eval *eval;
    void *data[4] = {NULL};
    unsigned n = 0;

    assert_ok(sample_parse(&sample, PST_F32, &graph, &diag), &diag);
    assert_ok(pst_eval_new(graph, &eval, &diag), &diag);
    for (size_t i = 0; i < graph->values.n; i++) {
        struct pst_value *v = graph->values.at[i];

        if (v->kind != PST_VALUE_INPUT)
            continue;
        data[n] = sample_fill(v);
        assert_non_null(data[n]);
        assert_ok(pst_eval_set(eval, v, data[n++], &diag), &diag);
    }
    assert_int_not_equal(pst_eval_run(eval, reference, &key, &diag), PST_OK);
    if (strstr(diag.text, "is out of range [0, 3)") == NULL)
        fail_msg("%s: %s", text, diag.text);
    pst_eval_free(eval);
    while (n > 0)
        pst_free(data[--n]);
    pst_graph_free(graph);
    pst_diag_init(&diag);
}

static void wrong_places_are_faults(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    assert_ok(pst_registry_init(&diag), &diag);
    for (size_t i = 0; i < PST_COUNT(wrong); i++) {
        run(wrong[i], true);
        run(wrong[i], false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_places_are_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
