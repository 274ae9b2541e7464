// SPDX-License-Identifier: Apache-2.0
/* The identity of a model covers everything that it computes, but not the order
 * of nodes, the mode, what is trained, or the cut. */
#include "tests/split/model.h"

#include "stages/frontend/identity.h"

static struct pst_diag diag;

#define HEAD                                                                   \
    "graph next_id=9 {\n"                                                      \
    "  input %x: f32[2, 4]\n"
#define STATE                                                                  \
    "  param %w \"w\" grad: f32[4]\n"                                          \
    "  const %c \"c\": f32[4]\n"
#define MUL "  %a: f32[2, 4] = aten.mul.Tensor(%x, %w) # - - F id=0\n"
#define ADD "  %b: f32[2, 4] = aten.add.Tensor(%x, %c) # - - F id=1\n"
#define DROP                                                                   \
    "  %d: f32[2, 4] = aten.dropout.default(%a, 0.5, True) # - - F id=2\n"
#define END                                                                    \
    "  %y: f32[2, 4] = aten.sub.Tensor(%d, %b) # - - F id=3\n"                 \
    "  output user %y \"0\"\n"                                                 \
    "}\n"

static const char plain[] = HEAD STATE MUL ADD DROP END;

static void identify(const char *text, double c, char ret[33])
{
    struct pst_model model;

    model_init(&model, text, NULL, 0);
    for (size_t i = 0; i < model.graph->consts.n; i++) {
        const struct pst_weight *w =
            pst_map_get(&model.weights_by_fqn, model.graph->consts.at[i]->fqn);

        for (int k = 0; k < 4; k++)
            ((float *)w->data)[k] = (float)c;
    }
    assert_ok(pst_model_identity(&model, ret, &diag), &diag);
    model_fini(&model);
}

static void is_same(void **state)
{
    static const char *const same[] = {
        HEAD STATE ADD MUL DROP END,
        HEAD STATE MUL ADD
        "  %d: f32[2, 4] view of %a + 0 = aten.dropout.default(%a, "
        "0.5, False) # - - F id=2\n" END,
        HEAD STATE MUL ADD
        "  %y: f32[2, 4] = aten.sub.Tensor(%a, %b) # h.0 f.py:3 F id=7\n"
        "  output user %y \"0\"\n}\n",
        HEAD STATE MUL ADD DROP
        "  %unread: f32[2, 4] = aten.neg.default(%a) # - - F id=8\n" END,
        HEAD
        "  param %w \"w\": f32[4]\n  const %k \"other\": f32[4]\n" MUL
        "  %b: f32[2, 4] = aten.add.Tensor(%x, %k) # - - F id=1\n" DROP END,
    };
    char first[33], other[33];

    (void)state;
    identify(plain, 1, first);
    for (size_t i = 0; i < PST_COUNT(same); i++) {
        identify(same[i], 1, other);
        if (strcmp(first, other) != 0)
            fail_msg("%s", same[i]);
    }
}

static void is_another(void **state)
{
    static const char *const others[] = {
        HEAD STATE MUL ADD DROP
        "  %y: f32[2, 4] = aten.sub.Tensor(%b, %d) # - - F id=3\n"
        "  output user %y \"0\"\n}\n",
        HEAD STATE MUL ADD DROP
        "  %y: f32[2, 4] = aten.sub.Tensor(%d, %b, alpha=2) # - - F id=3\n"
        "  output user %y \"0\"\n}\n",
        HEAD STATE MUL ADD DROP
        "  %z: f32[2, 4] = aten.sub.Tensor(%d, %b) # - - F id=3\n"
        "  %y: f32[2, 4] = aten.tanh.default(%z) # - - F id=4\n"
        "  output user %y \"0\"\n}\n",
        HEAD STATE MUL ADD DROP
        "  %y: f32[2, 4] = aten.sub.Tensor(%d, %b) # - - F id=3\n"
        "  output user %y \"0\"\n  output user %b \"1\"\n}\n",
        HEAD "  param %w \"v\" grad: f32[4]\n  const %c \"c\": f32[4]\n" MUL ADD
            DROP END,
    };
    char first[33], other[33];

    (void)state;
    identify(plain, 1, first);
    for (size_t i = 0; i < PST_COUNT(others); i++) {
        identify(others[i], 1, other);
        if (strcmp(first, other) == 0)
            fail_msg("%s", others[i]);
    }
    identify(plain, 2, other); /* another constant */
    assert_string_not_equal(first, other);
}

#define FREE(rows, all)                                                        \
    "graph next_id=1 {\n  input %x: f32[" rows "{s0}, 4]\n  %y: f32[" all      \
    "{4*s0}] view of %x + 0 = "                                                \
    "aten.reshape.default(%x, [" all "{4*s0}]) # - - F id=0\n"                 \
    "  output user %y \"0\"\n}\n"

/* Exports of one model at other sizes have the same identity. */
static void sizes_that_are_free(void **state)
{
    char first[33], other[33];

    (void)state;
    identify(FREE("2", "8"), 1, first);
    identify(FREE("3", "12"), 1, other);
    assert_string_equal(first, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_same),
        cmocka_unit_test(is_another),
        cmocka_unit_test(sizes_that_are_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
