// SPDX-License-Identifier: Apache-2.0
/* Tests loops, and regions of vmap and jvp
 * (tests/golden/make/frontend/make_refused.py): the graph of unrolled loops,
 * and refusals, which name operator and source line. */
#include "tests/test.h"

#include "stages/base/alloc.h"
#include "stages/frontend/model.h"
#include "stages/graph/oprow.h"
#include "stages/ops/core/op.h"
#include "tests/files/repack.h"

#include <string.h>

static struct pst_diag diag;

static int setup(void **state)
{
    (void)state;
    pst_diag_init(&diag);
    return pst_registry_init(&diag) == PST_OK ? 0 : -1;
}

static unsigned count(const struct pst_graph *g, const char *name)
{
    unsigned n = 0;

    for (size_t i = 0; i < g->nodes.n; i++)
        n += strcmp(g->nodes.at[i]->schema->name, name) == 0;
    return n;
}

/* Each trip of a loop has nodes of its own: three trips with a slice, two with
 * a sine. The loop condition is gone. The source of every node is a line of a
 * file. */
static void trips_have_nodes_of_their_own(void **state)
{
    struct pst_model *m;

    (void)state;
    assert_ok(pst_model_open(golden("loops.pt2"), &m, &diag), &diag);
    assert_int_equal(count(m->graph, "aten.select.int"), 3);
    assert_int_equal(count(m->graph, "aten.stack.default"), 1);
    assert_int_equal(count(m->graph, "aten.sin.default"), 2);
    assert_int_equal(count(m->graph, "aten.lt.Scalar"), 0);
    assert_int_equal(count(m->graph, "aten.gt.Scalar"), 1);
    for (size_t i = 0; i < m->graph->nodes.n; i++)
        assert_ptr_equal(
            strstr(m->graph->nodes.at[i]->source, "make_refused.py:"),
            m->graph->nodes.at[i]->source);
    pst_model_close(m);
}

static void what_is_refused_is_named(void **state)
{
    static const struct {
        const char *file, *why;
    } bad[] = {
        {"masked.pt2", "sizes and numbers that depend on data: "
                       "aten.index.Tensor with a mask (in the outermost module "
                       "at make_refused.py:35)"},
        {"endless.pt2", "at make_refused.py:40: not supported: a while_loop "
                        "whose number of trips depends on data"},
        {"left.pt2", "at make_refused.py:52: %mul, f32[3, 2] at 0, cannot be "
                     "read: it shares memory with a detached name"},
        {"tangent.pt2", "not supported: \"_unwrap_for_grad_1\" is a "
                        "forward-mode derivative (jvp)"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        struct pst_model *m;

        pst_diag_init(&diag);
        assert_true(pst_model_open(golden(bad[i].file), &m, &diag) < 0);
        if (strstr(diag.text, bad[i].why) == NULL)
            fail_msg("%s: \"%s\", not \"%s\"", bad[i].file, diag.text,
                     bad[i].why);
    }
}

static void allocation_failures_are_survived(void **state)
{
    struct pst_model *m;
    enum pst_status status = PST_ERR_NOMEM;

    (void)state;
    for (uint64_t n = 1; status != PST_OK; n++) {
        pst_diag_init(&diag);
        pst_alloc_fail_at(n);
        m = NULL;
        status = pst_model_open(golden("loops.pt2"), &m, &diag);
        pst_alloc_fail_at(0);
        if (status == PST_OK)
            pst_model_close(m);
        else
            assert_int_equal(status, PST_ERR_NOMEM);
        assert_int_equal(pst_alloc_live(PST_TAG_ARCHIVE), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trips_have_nodes_of_their_own),
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(allocation_failures_are_survived),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
