// SPDX-License-Identifier: Apache-2.0
/* Tests parameters, buffers and constants of stages: names, readers, modes. */
#include "tests/split/model.h"

#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/modules/freeze.h"

#include <stdio.h>

#define NODE " # - - F id=0\n"

static struct pst_diag diag;

/* w is read by stages 0 and 2, p and the constant by 0 and 1, u by none. */
static const char text[] =
    "graph next_id=1 {\n"
    "  input %x: f32[2, 3]\n"
    "  param %w \"m.w\" grad: f32[2, 3]\n"
    "  param %v \"m.v\" grad: f32[2, 3]\n"
    "  param %u \"m.u\" grad: f32[5]\n"
    "  buffer %p \"m.p\" persistent: f32[2, 3]\n"
    "  buffer %q \"m.q\": f32[2, 3]\n"
    "  const %c \"c\": f32[]\n"
    "  %a: f32[2, 3] = aten.mul.Tensor(%x, %w)" NODE
    "  %b: f32[2, 3] = aten.mul.Tensor(%a, %p)" NODE
    "  %d: f32[2, 3] = aten.mul.Tensor(%b, %c)" NODE
    "  pippy._pipe_split.default()" NODE
    "  %e: f32[2, 3] = aten.mul.Tensor(%d, %p)" NODE
    "  %f: f32[2, 3] = aten.mul.Tensor(%e, %c)" NODE
    "  %g: f32[2, 3] = aten.mul.Tensor(%f, %v)" NODE
    "  pippy._pipe_split.default()" NODE
    "  %h: f32[2, 3] = aten.mul.Tensor(%g, %w)" NODE
    "  %i: f32[2, 3] = aten.mul.Tensor(%h, %q)" NODE "  output user %i \"0\"\n"
    "}\n";

/* Frozen values, some of which are read through a view, or twice. */
static const char frozen[] =
    "graph next_id=4 {\n"
    "  input %x: bf16[3, 2]\n"
    "  param %w \"w\": bf16[2, 3]\n"
    "  %t: bf16[3, 2]:(1, 3) view of %w + 0 = aten.t.default(%w) # - - F id=0\n"
    "  %s: bf16[2]:(3) view of %w + 1 = aten.select.int(%t, 0, 1)"
    " # - - F id=1\n"
    "  %y: bf16[3, 2] = aten.mul.Tensor(%x, %t) # - - F id=2\n"
    "  %z: bf16[3, 2] = aten.mul.Tensor(%y, %s) # - - F id=3\n"
    "  output user %z \"0\"\n"
    "}\n";

struct fixture {
    struct pst_model model;
    struct pst_plan *plan;
    char root[64], dir[80];
};

static struct pst_plan_param *param_of(struct pst_plan *plan, const char *fqn)
{
    const int i = pst_plan_find_param(plan, fqn);

    assert_true(i >= 0);
    return &plan->params.at[i];
}

static int setup(void **state)
{
    static struct fixture f;
    static const char *aliases[] = {"m.tied"};
    struct pst_tie tie = {"m.w", aliases, 1};

    memset(&f, 0, sizeof(f));
    pst_diag_init(&diag);
    strcpy(f.root, "/tmp/pst-state-XXXXXX");
    if (mkdtemp(f.root) == NULL)
        return -1;
    snprintf(f.dir, sizeof(f.dir), "%s/plan", f.root);
    model_init(&f.model, text, NULL, 0);
    *state = &f;
    return pst_vec_push(PST_TAG_TEST, &f.model.ties, tie) ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    pst_plan_free(f->plan);
    pst_vec_fini(&f->model.ties);
    model_fini(&f->model);
    return pst_remove_tree(f->root, &diag) == PST_OK ? 0 : -1;
}

static void lists_readers(void **state)
{
    static const struct pst_split_options options = {0};
    struct fixture *f = *state;
    const struct pst_plan_param *p;

    assert_ok(pst_split(&f->model, &options, &f->plan, &diag), &diag);
    p = param_of(f->plan, "m.tied");
    assert_string_equal(p->fqn, "m.w");
    assert_int_equal(p->n_stages, 2);
    assert_int_equal(p->stages[0], 0);
    assert_int_equal(p->stages[1], 2);
    assert_int_equal(p->owner_stage, 0);
    assert_false(p->transmit);
    assert_int_equal(param_of(f->plan, "m.u")->n_stages, 0);
    p = param_of(f->plan, "m.p");
    assert_int_equal(p->n_stages, 2);
    assert_int_equal(p->stages[1], 1);
    assert_true(p->persistent);
    p = param_of(f->plan, "m.q");
    assert_int_equal(p->owner_stage, 2);
    assert_false(p->persistent);
    assert_int_equal(param_of(f->plan, "c")->n_stages, 2);
}

/* Replication is the default, so --replicate only checks its names; a name may
 * occur once. */
static void checks_what_is_replicated(void **state)
{
    static const char *const names[] = {"m.tied", "m.v"};
    static const char *const unknown = "m.ww", *const buffer = "m.p",
                             *const same = "m.w";
    struct pst_split_options options = {.replicate = names,
                                        .n_replicate = PST_COUNT(names)};
    struct fixture *f = *state;

    assert_ok(pst_split(&f->model, &options, &f->plan, &diag), &diag);
    assert_false(param_of(f->plan, "m.w")->transmit);
    assert_int_equal(f->plan->notes.n, 2); /* the other note: m.u is not read */
    assert_non_null(strstr(f->plan->notes.at[0], "nothing to replicate"));
    pst_plan_free(f->plan);
    options.n_replicate = 1;
    options.replicate = &unknown;
    assert_int_equal(pst_split(&f->model, &options, &f->plan, &diag),
                     PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "the nearest name is \"m.w\""));
    options.replicate = &buffer;
    assert_int_equal(pst_split(&f->model, &options, &f->plan, &diag),
                     PST_ERR_INPUT);
    options.replicate = &same;
    options.transmit = names;
    options.n_transmit = 1;
    assert_int_equal(pst_split(&f->model, &options, &f->plan, &diag),
                     PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "name it once"));
    f->plan = NULL;
}

/* A parameter can be marked by any of its names; the mark is saved and shown.
 */
static void marks_what_is_transmitted(void **state)
{
    static const char *const names[] = {"m.tied", "m.v", "m.u"};
    const struct pst_split_options options = {.transmit = names,
                                              .n_transmit = PST_COUNT(names)};
    struct fixture *f = *state;
    struct pst_plan *loaded;
    struct pst_str out = {0};

    assert_ok(pst_split(&f->model, &options, &f->plan, &diag), &diag);
    assert_true(param_of(f->plan, "m.w")->transmit);
    assert_false(param_of(f->plan, "m.v")->transmit);
    assert_int_equal(f->plan->notes.n, 3);
    assert_non_null(strstr(f->plan->notes.at[0], "\"m.v\" is read by one"));
    assert_non_null(strstr(f->plan->notes.at[1], "\"m.u\" is read by no"));
    assert_non_null(strstr(f->plan->notes.at[2],
                           "no operator reads the trainable parameters "
                           "\"m.u\""));
    assert_ok(pst_plan_save(f->plan, f->dir, &diag), &diag);
    assert_ok(pst_plan_load(f->dir, &loaded, &diag), &diag);
    assert_true(param_of(loaded, "m.w")->transmit);
    assert_false(param_of(loaded, "m.p")->transmit);
    pst_plan_print(loaded, &out);
    assert_non_null(strstr(out.text, "\"m.w\" is in stages 0, 2; stage 0 "
                                     "transmits it, gradients are summed"));
    pst_str_fini(&out);
    pst_plan_print_json(loaded, &out);
    assert_non_null(strstr(out.text, "{\"name\": \"m.w\", \"stages\": [0, 2], "
                                     "\"mode\": \"transmit\", "
                                     "\"owners\": [0]}"));
    pst_str_fini(&out);
    pst_plan_free(loaded);
}

static void refuses_wrong_names(void **state)
{
    static const char *const cases[][2] = {
        {"m.tie", "nearest name is \"m.tied\""},
        {"m.p", "is not a parameter"},
        {"c", "is not a parameter"},
        {"", "no parameter \"\""},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        const struct pst_split_options options = {.transmit = &cases[i][0],
                                                  .n_transmit = 1};

        assert_int_equal(pst_split(&f->model, &options, &f->plan, &diag),
                         PST_ERR_INPUT);
        if (strstr(diag.text, cases[i][1]) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", cases[i][1], diag.text);
    }
}

/* A 16-bit value that training keeps in f32 is read as before, also by views of
 * it. */
static void unfreezes_16_bits(void **state)
{
    const struct pst_split_options options = {0};
    const struct pst_value *w, *t, *s;
    struct pst_plan *plan;
    struct pst_model model;
    unsigned n;

    (void)state;
    model_init(&model, frozen, NULL, 0);
    assert_ok(pst_model_freeze(&model, "w", true, &n, &diag), &diag);
    assert_int_equal(n, 0);
    assert_ok(pst_model_freeze(&model, "w", false, &n, &diag), &diag);
    assert_int_equal(n, 1);
    w = pst_graph_find(model.graph, "w");
    t = pst_graph_find(model.graph, "t");
    s = pst_graph_find(model.graph, "s");
    assert_int_equal(w->meta.dtype, PST_F32);
    assert_true(t->base != w && t->base->meta.dtype == PST_BF16);
    assert_ptr_equal(s->base, t->base);
    assert_int_equal(s->offset, 1);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_true(param_of(plan, "w")->rounded);
    assert_int_equal(param_of(plan, "w")->rounds, PST_BF16);
    pst_plan_free(plan);
    model_fini(&model);
    /* Outputs of the model keep their dtype. */
    model_init(&model,
               "graph next_id=1 {\n"
               "  input %x: bf16[3]\n"
               "  param %w \"w\": bf16[3]\n"
               "  %y: bf16[3] = aten.mul.Tensor(%x, %w) # - - F id=0\n"
               "  output user %y \"0\"\n"
               "  output user %w \"1\"\n"
               "}\n",
               NULL, 0);
    assert_int_equal(pst_model_freeze(&model, "w", false, &n, &diag),
                     PST_ERR_UNSUPPORTED);
    assert_non_null(strstr(diag.text, "the model returns it"));
    model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lists_readers, setup, teardown),
        cmocka_unit_test_setup_teardown(checks_what_is_replicated, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(marks_what_is_transmitted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(refuses_wrong_names, setup, teardown),
        cmocka_unit_test(unfreezes_16_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
