// SPDX-License-Identifier: Apache-2.0
/* Compares two ways to get a graph for other sizes: evaluating its size
 * expressions, and importing the file again with other values of the symbols.
 *
 *     test-frontend-sizes [FILE.pt2...] */
#include "stages/base/str.h"
#include "stages/frontend/front.h"
#include "stages/graph/schema.h"
#include "stages/ops/core/op.h"
#include "tests/files/repack.h"
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

static struct pst_diag diag;

/* An import that is stopped after the pass "symbols" to set their values. */
struct resized {
    struct pst_front front;
    struct pst_pass_state state;
};

static void resized_begin(struct resized *t, const char *path)
{
    struct pst_model *m = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*m));

    assert_non_null(m);
    *t = (struct resized){.front = {.path = path, .model = m}};
    pst_arena_init(&m->arena, PST_TAG_ARCHIVE);
    pst_map_init(&m->weights_by_fqn, PST_TAG_ARCHIVE);
    pst_symbols_init(&m->symbols);
    assert_ok(pst_zip_open(path, &t->front.zip, &diag), &diag);
    m->file = t->front.zip;
    assert_ok(pst_passes_run(&pst_frontend_passes, &t->state, &t->front,
                             "symbols", &diag),
              &diag);
}

/* Completes the import and frees everything but the model. */
static enum pst_status resized_import(struct resized *t)
{
    const enum pst_status status =
        pst_passes_run(&pst_frontend_passes, &t->state, &t->front, NULL, &diag);

    pst_import_fini(&t->front.import);
    pst_document_free(t->front.doc);
    pst_str_fini(&t->front.digests);
    return status;
}

static void check_number(const struct pst_node *node,
                         const struct pst_symbols *symbols, const char *expr,
                         double here, double there)
{
    struct pst_number x = {.kind = PST_NUMBER_FLOAT, .f = here};

    if (expr != NULL)
        assert_ok(pst_symbols_eval(symbols, expr, &x, &diag), &diag);
    if (x.kind != PST_NUMBER_FLOAT)
        x.f = (double)x.n / (double)x.d;
    if (!(x.f == there) && !(x.f != x.f && there != there))
        fail_msg("%%%s = %s: a number is %g there, by %s it is %g",
                 node->outs[0]->name, node->schema->name, there,
                 expr != NULL ? expr : "itself", x.f);
}

static double number(const struct pst_arg *arg, unsigned k)
{
    switch (arg->kind) {
    case PST_ARG_INT:
        return (double)arg->i;
    case PST_ARG_INTS:
        return (double)arg->ints[k];
    case PST_ARG_FLOAT:
        return arg->f;
    case PST_ARG_FLOATS:
        return arg->floats[k];
    default:
        return arg->b;
    }
}

static void check_arg(const struct pst_node *node, const struct pst_arg *a,
                      const struct pst_arg *b,
                      const struct pst_symbols *symbols)
{
    const bool list = a->kind == PST_ARG_INTS || a->kind == PST_ARG_FLOATS;
    const unsigned n = list ? a->n : 1;

    assert_int_equal(a->kind, b->kind);
    if (!list && a->kind != PST_ARG_INT && a->kind != PST_ARG_FLOAT &&
        a->kind != PST_ARG_BOOL)
        return;
    if (list)
        assert_int_equal(a->n, b->n);
    for (unsigned k = 0; k < n; k++)
        check_number(node, symbols, a->exprs != NULL ? a->exprs[k] : NULL,
                     number(a, k), number(b, k));
}

/* Asserts that the values of a, evaluated with the symbols of b, equal the
 * values of b. */
static void check_values(const struct pst_graph *a, const struct pst_graph *b,
                         const struct pst_symbols *symbols)
{
    assert_int_equal(a->values.n, b->values.n);
    for (size_t i = 0; i < a->values.n; i++) {
        const struct pst_value *v = a->values.at[i], *w = b->values.at[i];

        for (unsigned d = 0; v->dims != NULL && d < v->meta.rank; d++)
            if (v->def != NULL)
                check_number(v->def, symbols, v->dims[d],
                             (double)v->meta.size[d], (double)w->meta.size[d]);
    }
}

static void check_graph(const struct pst_graph *a, const struct pst_graph *b,
                        const struct pst_symbols *symbols)
{
    assert_int_equal(a->nodes.n, b->nodes.n);
    for (size_t i = 0; i < a->nodes.n; i++) {
        const struct pst_node *x = a->nodes.at[i], *y = b->nodes.at[i];

        assert_ptr_equal(x->op, y->op);
        for (unsigned k = 0; k < x->schema->n_args; k++)
            check_arg(x, &x->args[k], &y->args[k], symbols);
    }
    check_values(a, b, symbols);
}

/* Gives all symbolic sizes other values: `times` as large plus `more`. Returns
 * false if nothing can be compared: `why` has the reason. */
static bool compare_path(const char *path, int64_t more, int64_t times,
                         char why[300])
{
    struct pst_model *here;
    struct resized t;
    bool fits;

    assert_ok(pst_model_open(path, &here, &diag), &diag);
    resized_begin(&t, path);
    for (size_t i = 0; i < t.front.model->symbols.at.n; i++) {
        struct pst_symbol *s = &t.front.model->symbols.at.at[i];

        s->value = s->value * times + more;
    }
    fits = pst_symbols_check(&t.front.model->symbols, &diag) == PST_OK;
    fits = resized_import(&t) == PST_OK && fits;
    /* Decisions made for the exported sizes have to hold too. */
    for (size_t i = 0; i < here->symbols.ranges.n; i++) {
        const struct pst_range *r = &here->symbols.ranges.at[i];

        assert_ok(pst_symbols_limit(&t.front.model->symbols, r->expr, r->min,
                                    r->max, &diag),
                  &diag);
    }
    fits = fits && pst_symbols_check(&t.front.model->symbols, &diag) == PST_OK;
    snprintf(why, 300, "%.290s", here->fixed != NULL ? here->fixed : diag.text);
    fits = fits && here->fixed == NULL;
    if (fits)
        check_graph(here->graph, t.front.model->graph, &t.front.model->symbols);
    pst_diag_init(&diag);
    pst_model_close(t.front.model);
    pst_model_close(here);
    return fits;
}

static void compare(const char *file, int64_t more, int64_t times)
{
    char why[300];

    if (!compare_path(golden(file), more, times, why))
        fail_msg("%s: %s", file, why);
}

static void expressions_are_what_an_import_gives(void **state)
{
    static const char *const files[] = {
        "dynamic.pt2", "odd.pt2",    "cube.pt2",     "norm.pt2",
        "rows.pt2",    "square.pt2", "constants.pt2"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(files); i++) {
        compare(files[i], 1, 1);
        compare(files[i], -1, 2);
    }
    compare("sizes.pt2", 0, 2);
    compare("sizes.pt2", 2, 1);
    compare("parts.pt2", 3, 1);
    compare("parts.pt2", 0, 2);
    compare("parts.pt2", -3, 3);
}

/* If a number in a node depends on sizes in an unknown way, the sizes of the
 * model are fixed. */
static void unknown_numbers_fix_the_sizes(void **state)
{
    static const char text[] =
        "graph next_id=2 {\n"
        "  input %x: f32[2{s0}, 3]\n"
        "  %y: f32[2{s0}, 3] = aten.mul.Scalar(%x, 2{s0})  # - - F id=0\n"
        "  %z: f32[2{s0}, 3] = aten.mul.Scalar(%y, 2{s0})  # - - F id=1\n"
        "  output user %z \"0\"\n"
        "}\n";
    struct pst_model m = {.name = "m"};
    struct pst_import import = {.model = &m, .diag = &diag};
    static const char *const unknown[] = {pst_expr_unknown, NULL};

    (void)state;
    pst_arena_init(&m.arena, PST_TAG_ARCHIVE);
    assert_ok(pst_graph_parse(text, &m.graph, &diag), &diag);
    m.graph->nodes.at[0]->args[1].exprs = unknown;
    m.graph->nodes.at[0]->outs[0]->dims = unknown;
    assert_ok(pst_import_sizes(&import), &diag);
    assert_string_equal(m.fixed, "a number in it depends on sizes in a way "
                                 "that is not known: aten.mul.Scalar");
    assert_null(m.graph->nodes.at[0]->args[1].exprs);
    assert_null(m.graph->nodes.at[0]->outs[0]->dims);
    assert_non_null(m.graph->nodes.at[1]->args[1].exprs);
    assert_non_null(m.graph->nodes.at[1]->outs[0]->dims);
    pst_graph_free(m.graph);
    pst_arena_fini(&m.arena);
}

/* Python's guards on sizes limit other sizes, too. good, bad: numbers of rows
 * other than the export's 4. */
static void guards_are_limits(void **state)
{
    static const struct {
        const char *guard;
        int64_t good, bad;
    } cases[] = {
        {"(L['x'].size()[0] % 2) == 0", 6, 5},
        {"L['x'].size()[0]*L['x'].size()[1] <= 16", 3, 5},
        {"max(1, L['x'].size()[0] // 2) == 2", 5, 6},
        {"4 > (-1) + L['x'].size()[0] // 1", 3, 5},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        char text[100];
        const struct repack_edit edit = {"models/model.json",
                                         "\"guards_code\": []", text};
        struct pst_model *m;

        snprintf(text, sizeof(text), "\"guards_code\": [\"%s\"]",
                 cases[i].guard);
        repack(golden("odd.pt2"), "guards.pt2", NULL, 0, &edit, 1);
        assert_ok(pst_model_open("guards.pt2", &m, &diag), &diag);
        assert_int_equal(m->notes.n, 0);
        m->symbols.at.at[0].value = cases[i].good;
        assert_ok(pst_symbols_check(&m->symbols, &diag), &diag);
        m->symbols.at.at[0].value = cases[i].bad;
        assert_int_equal(pst_symbols_check(&m->symbols, &diag), PST_ERR_INPUT);
        pst_diag_init(&diag);
        pst_model_close(m);
    }
}

/* Guards that cannot be parsed, or do not hold as exported, are notes. */
static void other_guards_are_notes(void **state)
{
    static const char *const guards[] = {
        "L['y'].size()[0] == 4",
        "L['x'].size()[0] != 3",
        "L['x'].stride()[0] == 4",
        "L['x'].size()[7] == 4",
        "L['x'].size()[0] > 2 or L['x'].size()[1] > 2",
        "(L['x'].size()[0] % 2) == 1",
        "1 < L['x'].size()[0] < 9",
        "L['x'].size()[0]",
        "L['x",
        "L['x'].size()[",
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(guards); i++) {
        char text[100];
        const struct repack_edit edit = {"models/model.json",
                                         "\"guards_code\": []", text};
        struct pst_model *m;

        snprintf(text, sizeof(text), "\"guards_code\": [\"%s\"]", guards[i]);
        repack(golden("odd.pt2"), "guards.pt2", NULL, 0, &edit, 1);
        assert_ok(pst_model_open("guards.pt2", &m, &diag), &diag);
        assert_int_equal(m->notes.n, 1);
        assert_non_null(strstr(m->notes.at[0], guards[i]));
        pst_model_close(m);
    }
}

/* Numbers that the model reads from constants of the file are no free sizes. */
static void constants_have_values(void **state)
{
    struct pst_model *m;
    struct pst_str text = {0};

    (void)state;
    assert_ok(pst_model_open(golden("constants.pt2"), &m, &diag), &diag);
    assert_null(m->fixed);
    assert_int_equal(m->symbols.at.n, 1);
    assert_string_equal(m->symbols.at.at[0].name, "s77");
    pst_graph_print(m->graph, &text);
    assert_non_null(strstr(pst_str_text(&text), "arange: f32[2] ="));
    assert_non_null(strstr(pst_str_text(&text), "arange_1: f32[3] ="));
    assert_non_null(strstr(pst_str_text(&text), "view: f32[30{s77*2*3}, 4]"));
    pst_str_fini(&text);
    pst_model_close(m);
}

/* Files whose constants contradict their own limits, and numbers that do not
 * follow from constants, are refused. */
static void other_constants_are_refused(void **state)
{
#define GE "GreaterThan(Symbol('u0', integer=True), Integer("
    static const struct {
        const char *find, *replace, *text;
    } cases[] = {
        {"\"u0\": {\"min_val\": 0,", "\"u0\": {\"min_val\": 3,",
         "make u0 2, which is out of its range"},
        {GE "0))", GE "3))", "do not meet the condition"},
        {"aten.lift_fresh_copy.default", "aten.bernoulli.default",
         "aten.item.default"},
        {"\"as_tensor\": {\"name\": \"select_1\"}}, \"kind\": 1}], "
         "\"outputs\": [{\"as_sym_int\"",
         "\"as_tensor\": {\"name\": \"x\"}}, \"kind\": 1}], "
         "\"outputs\": [{\"as_sym_int\"",
         "aten.item.default"},
    };
#undef GE

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct repack_edit edit = {"models/model.json", cases[i].find,
                                         cases[i].replace};
        struct pst_model *m;

        repack(golden("constants.pt2"), "constants.pt2", NULL, 0, &edit, 1);
        assert_int_not_equal(pst_model_open("constants.pt2", &m, &diag),
                             PST_OK);
        if (strstr(diag.text, cases[i].text) == NULL)
            fail_msg("\"%s\" instead of \"%s\"", diag.text, cases[i].text);
        pst_diag_init(&diag);
    }
}

/* Compares the files on the command line. */
static void files_are_compared(void **state)
{
    char why[300];

    for (char **path = *state; *path != NULL; path++)
        for (int64_t more = 0; more < 4; more++) {
            printf("%s, %lld more\n", *path, (long long)more);
            if (!compare_path(*path, more, more == 0 ? 2 : 1, why))
                printf("not compared: %s\n", why);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_are_what_an_import_gives),
        cmocka_unit_test(unknown_numbers_fix_the_sizes),
        cmocka_unit_test(guards_are_limits),
        cmocka_unit_test(other_guards_are_notes),
        cmocka_unit_test(constants_have_values),
        cmocka_unit_test(other_constants_are_refused),
    };
    const struct CMUnitTest given[] = {
        cmocka_unit_test_prestate(files_are_compared, argv + 1),
    };

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK)
        return 1;
    if (argc > 1)
        return cmocka_run_group_tests(given, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
