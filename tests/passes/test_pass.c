// SPDX-License-Identifier: Apache-2.0
/* Tests the driver of passes, with a table of its own and with the
 * compiler's. */
#include "stages/compile/program.h"
#include "stages/frontend/model.h"
#include "stages/ops/core/op.h"
#include "stages/passes/pass.h"
#include "tests/test.h"

#include <string.h>

enum { MADE = 1, MARKED = 2, LOWERED = 4 };
static const char *const facts[] = {"made", "marked", "lowered"};
static struct pst_diag diag;

struct subject {
    struct pst_graph *graph;
    char ran[64];
};

static enum pst_status make(void *subject, struct pst_diag *d)
{
    struct subject *s = subject;

    strcat(s->ran, "m");
    return pst_graph_parse("graph next_id=1 {\n"
                           "  input %x: f32[2]\n"
                           "  %y: f32[2] = aten.neg.default(%x) # - - F id=0\n"
                           "  output user %y \"0\"\n}\n",
                           &s->graph, d);
}

static enum pst_status mark(void *subject, struct pst_diag *d)
{
    (void)d;
    strcat(((struct subject *)subject)->ran, "k");
    return PST_OK;
}

/* Sets a meta that inference would not give. */
static enum pst_status widen(void *subject, struct pst_diag *d)
{
    struct subject *s = subject;

    (void)d;
    strcat(s->ran, "w");
    s->graph->nodes.at[0]->outs[0]->meta.dtype = PST_F64;
    return PST_OK;
}

/* Makes a node use a value before its definition. */
static enum pst_status tear(void *subject, struct pst_diag *d)
{
    struct subject *s = subject;

    (void)d;
    s->graph->nodes.at[0]->args[0].value = s->graph->nodes.at[0]->outs[0];
    return PST_OK;
}

static const struct pst_graph *graph_of(void *subject)
{
    return ((struct subject *)subject)->graph;
}

static const struct pst_pass rows[] = {
    {"make", "", 0, MADE, 0, PST_EDITS_ANYTHING, make},
    {"mark", "", MADE, MARKED, 0, PST_EDITS_NOTHING, mark},
    {"lower", "", MARKED, LOWERED, MARKED, PST_EDITS_ANYTHING, widen},
    {"mark-2", "", MADE, MARKED, 0, PST_EDITS_NOTHING, mark},
};

static struct pst_pass_table table_of(const struct pst_pass *passes, size_t n)
{
    return (struct pst_pass_table){.name = "test",
                                   .passes = passes,
                                   .n = n,
                                   .facts = facts,
                                   .n_facts = PST_COUNT(facts),
                                   .lowered = LOWERED,
                                   .graph = graph_of};
}

static void runs_in_order_and_stops(void **state)
{
    const struct pst_pass_table table = table_of(rows, PST_COUNT(rows));
    struct pst_pass_state at = {0};
    struct subject s = {0};

    (void)state;
    assert_true(pst_passes_have(&table, "lower"));
    assert_false(pst_passes_have(&table, "low"));
    assert_ok(pst_passes_run(&table, &at, &s, "mark", &diag), &diag);
    assert_string_equal(s.ran, "mk");
    assert_int_equal(at.facts, MADE | MARKED);
    assert_ok(pst_passes_run(&table, &at, &s, "lower", &diag), &diag);
    assert_int_equal(at.facts, MADE | LOWERED);
    assert_ok(pst_passes_run(&table, &at, &s, NULL, &diag), &diag);
    assert_string_equal(s.ran, "mkwk");
    assert_int_equal(at.next, PST_COUNT(rows));
    pst_graph_free(s.graph);
}

static enum pst_status check(void *subject, unsigned holds, struct pst_diag *d)
{
    strcat(((struct subject *)subject)->ran, "c");
    return holds & LOWERED ? pst_diag_set(d, PST_E_INTERNAL_BUG, "planted")
                           : PST_OK;
}

/* If requested, the check of the table tests the facts after each pass. */
static void checks_what_it_is_told_to(void **state)
{
    struct pst_pass_table table = table_of(rows, PST_COUNT(rows));
    struct pst_pass_state at = {.verify = true};
    struct subject s = {0};

    (void)state;
    table.check = check;
    assert_int_equal(pst_passes_run(&table, &at, &s, NULL, &diag),
                     PST_ERR_INTERNAL);
    assert_string_equal(diag.text, "test, after pass 'lower': planted");
    assert_string_equal(s.ran, "mckcwc");
    assert_int_equal(at.next, 2);
    pst_graph_free(s.graph);
    at = (struct pst_pass_state){0};
    s = (struct subject){0};
    assert_int_equal(pst_passes_run(&table, &at, &s, NULL, &diag),
                     PST_DEBUG ? PST_ERR_INTERNAL : PST_OK);
    assert_string_equal(s.ran, PST_DEBUG ? "mckcwc" : "mkwk");
    pst_graph_free(s.graph);
}

static void finds_a_wrong_order(void **state)
{
    const struct pst_pass wrong[] = {rows[0], rows[2], rows[1]};
    const struct pst_pass_table table = table_of(wrong, PST_COUNT(wrong));
    struct pst_pass_state at = {0};
    struct subject s = {0};

    (void)state;
    assert_int_equal(pst_passes_run(&table, &at, &s, NULL, &diag),
                     PST_ERR_INTERNAL);
    assert_non_null(strstr(diag.text, "pass 'lower' needs 'marked'"));
    assert_string_equal(s.ran, "m");
    assert_int_equal(at.next, 1);
    pst_graph_free(s.graph);
}

/* Does what tear does, and adds a value. */
static enum pst_status tear_and_add(void *subject, struct pst_diag *d)
{
    struct pst_graph *graph = ((struct subject *)subject)->graph;
    enum pst_status status = tear(subject, d);

    if (pst_graph_add_value(graph, PST_VALUE_INPUT, "more", NULL,
                            &graph->values.at[0]->meta) == NULL)
        status = PST_ERR_NOMEM;
    return status;
}

/* Does what tear does, and removes a node. */
static enum pst_status tear_and_take(void *subject, struct pst_diag *d)
{
    enum pst_status status = tear(subject, d);

    ((struct subject *)subject)->graph->nodes.n--;
    return status;
}

static void verifies_what_was_edited(void **state)
{
    static const struct {
        struct pst_pass pass;
        bool seen;
    } cases[] = {
        {{"tear", "", MADE, 0, 0, PST_EDITS_NOTHING, tear}, false},
        {{"tear", "", MADE, 0, 0, PST_EDITS_BY_COUNT, tear}, false},
        {{"tear", "", MADE, 0, 0, PST_EDITS_BY_COUNT, tear_and_add}, true},
        {{"tear", "", MADE, 0, 0, PST_EDITS_BY_COUNT, tear_and_take}, true},
        {{"tear", "", MADE, 0, 0, PST_EDITS_ANYTHING, tear}, true},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct pst_pass passes[] = {rows[0], cases[i].pass};
        const struct pst_pass_table table = table_of(passes, 2);
        struct pst_pass_state at = {0};
        struct subject s = {0};

        assert_int_equal(pst_passes_run(&table, &at, &s, NULL, &diag),
                         cases[i].seen ? PST_ERR_INTERNAL : PST_OK);
        pst_graph_free(s.graph);
    }
}

static void finds_a_broken_graph(void **state)
{
    const struct pst_pass torn[] = {
        rows[0], {"tear", "", MADE, 0, 0, PST_EDITS_ANYTHING, tear}};
    const struct pst_pass early[] = {
        rows[0], {"wide", "", MADE, 0, 0, PST_EDITS_ANYTHING, widen}};
    const struct pst_pass_table tables[] = {table_of(torn, 2),
                                            table_of(early, 2)};
    static const char *const messages[] = {"after pass 'tear'",
                                           "after pass 'wide': graph, node %y"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct pst_pass_state at = {0};
        struct subject s = {0};

        assert_int_equal(pst_passes_run(&tables[i], &at, &s, NULL, &diag),
                         PST_ERR_INTERNAL);
        assert_non_null(strstr(diag.text, messages[i]));
        assert_int_equal(at.next, 1);
        pst_graph_free(s.graph);
    }
}

/* Checks that every row of a table comes after the rows that give what it
 * needs, and that all facts hold at the end. */
static void check_order(const struct pst_pass_table *t)
{
    unsigned given = 0;

    for (size_t i = 0; i < t->n; i++) {
        assert_int_equal(t->passes[i].needs & ~given, 0);
        given = (given & ~t->passes[i].drops) | t->passes[i].gives;
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(t->passes[i].name, t->passes[k].name);
    }
    assert_int_equal(given, (1u << t->n_facts) - 1);
}

static void orders_the_tables(void **state)
{
    const struct pst_pass_table *front = &pst_frontend_passes;

    (void)state;
    check_order(front);
    check_order(&pst_compile_passes);
    /* --after takes names of both tables, which must differ. */
    for (size_t i = 0; i < front->n; i++)
        assert_false(
            pst_passes_have(&pst_compile_passes, front->passes[i].name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_in_order_and_stops),
        cmocka_unit_test(checks_what_it_is_told_to),
        cmocka_unit_test(finds_a_wrong_order),
        cmocka_unit_test(verifies_what_was_edited),
        cmocka_unit_test(finds_a_broken_graph),
        cmocka_unit_test(orders_the_tables),
    };

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
