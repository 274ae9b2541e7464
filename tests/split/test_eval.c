// SPDX-License-Identifier: Apache-2.0
/* Tests several stages joined to one, in training and evaluation mode. */
#include "tests/split/model.h"

#include "stages/files/safetensors.h"
#include "stages/ops/core/call.h"
#include "stages/ops/core/mode.h"
#include "stages/split/convert/evaluate.h"
#include "stages/split/convert/join.h"

#include <stdio.h>
#include <string.h>

static struct pst_diag diag;

static const char *golden(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/%s", getenv("PST_GOLDEN"), name);
    return path;
}

static const char text[] =
    "graph next_id=7 {\n"
    "  input %x: f32[2, 4]\n"
    "  param %w \"w\" grad: f32[2, 4]\n"
    "  buffer %run \"run\" persistent: f32[4]\n"
    "  %a: f32[2, 4] = aten.mul.Tensor(%x, %w) # - - F id=0\n"
    "  %d: f32[2, 4] = aten.dropout.default(%a, 0.5, True) # - - F id=1\n"
    "  pippy._pipe_split.default() # - - F id=2\n"
    "  %n: f32[2, 4], %m: bool[2, 4] = aten.native_dropout.default(%d, 0.5, "
    "True) # - - F id=3\n"
    "  %now: f32[1, 4] = aten.mean.dim(%n, [0], True) # - - F id=4\n"
    "  %mode: f32[1, 4] view of %now + 0 = penstock.norm_mode.default(%now, "
    "%run, None, True) "
    "# - - F id=5\n"
    "  %y: f32[2, 4] = aten.sub.Tensor(%n, %mode) # - - F id=6\n"
    "  output user %y \"0\"\n"
    "}\n";

static const struct pst_node *find_node(const struct pst_plan *plan,
                                        const char *name)
{
    const struct pst_value *value =
        pst_graph_find(plan->stages.at[0].graph, name);

    assert_non_null(value);
    return value->def;
}

static void evaluates(void **state)
{
    const struct pst_split_options options = {0};
    struct pst_plan *plan, *whole, *eval;
    struct pst_model model;

    (void)state;
    model_init(&model, text, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_int_equal(plan->stages.n, 2);
    assert_ok(pst_plan_join(plan, &whole, &diag), &diag);
    assert_ok(pst_plan_eval(plan, NULL, &eval, &diag), &diag);
    assert_int_equal(whole->stages.n, 1);
    assert_true(find_node(whole, "d")->args[2].b);
    assert_true(find_node(whole, "n")->args[2].b);
    assert_non_null(find_node(whole, "mode")->outs[0]->base);
    assert_false(find_node(eval, "d")->args[2].b);
    /* Its result is a view of its operand: no dropout runs. */
    assert_non_null(find_node(eval, "d")->outs[0]->base);
    assert_false(find_node(eval, "n")->args[2].b);
    assert_null(find_node(eval, "mode")->outs[0]->base);
    assert_int_equal(find_node(eval, "y")->id, find_node(whole, "y")->id);
    pst_plan_free(eval);
    pst_plan_free(whole);
    pst_plan_free(plan);
    model_fini(&model);
}

/* --- chance ----------------------------------------------------------------
 */

static const char noisy[] =
    "graph next_id=7 {\n"
    "  input %x: f32[2, 4]\n"
    "  %d: f32[2, 4] = aten.dropout.default(%x, 0.5, True) # a.drop - F id=0\n"
    "  %f: f32[2, 4] = aten.dropout.default(%d, 0.5, True) # a m.py:3 F id=1 "
    "function of=aten.dropout_.default\n"
    "  %n: f32[2, 4] = aten.randn_like.default(%f) # a.noise m.py:7 F id=2 "
    "function of=aten.normal_.default\n"
    "  %t: f32[2, 4] = aten.add.Tensor(%f, %n) # a.noise m.py:8 F id=3\n"
    "  %m: f32[2, 4] view of %t + 0 = penstock.by_mode.default(%t, %f, True) "
    "# b - F id=4\n"
    "  %s: f32[2, 4] = aten.scaled_dot_product_attention.default(%m, %m, %m, "
    "None, 0.5) # b - F id=5\n"
    "  output user %s \"0\"\n"
    "  output user %t \"1\"\n"
    "}\n";

/* Makes an evaluation of the plan with these options; *ret is NULL after a
 * failure. */
static enum pst_status eval_noisy(struct pst_plan *plan, const char *keep,
                                  struct pst_plan **ret)
{
    const struct pst_eval_options options = {.keep = &keep, .n_keep = 1};

    *ret = NULL;
    pst_diag_init(&diag);
    return pst_plan_eval(plan, keep != NULL ? &options : NULL, ret, &diag);
}

static unsigned count_draws(const struct pst_plan *plan)
{
    const struct pst_graph *graph = plan->stages.at[0].graph;
    unsigned n = 0;

    for (size_t i = 0; i < graph->nodes.n; i++)
        n += pst_mode_is_random(graph->nodes.at[i]);
    return n;
}

static void chance_is_refused_by_name(void **state)
{
    const struct pst_split_options options = {0};
    struct pst_plan *plan, *eval;
    struct pst_model model;

    (void)state;
    model_init(&model, noisy, NULL, 0);
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_int_equal(eval_noisy(plan, NULL, &eval), PST_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(diag.text, "aten.normal_.default in a.noise at m.py:7"));
    assert_non_null(strstr(diag.text, "--keep-random"));
    assert_int_equal(eval_noisy(plan, "c*", &eval), PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "\"c*\""));

    assert_ok(eval_noisy(plan, "a.noi*", &eval), &diag);
    assert_int_equal(count_draws(eval), 1);
    assert_int_equal(eval->notes.n, 1);
    assert_non_null(
        strstr(eval->notes.at[0], "aten.dropout_.default in a at m.py:3;"));
    pst_plan_free(eval);

    /* Random operators in module a, and in its submodules, stay. */
    assert_ok(eval_noisy(plan, "a", &eval), &diag);
    assert_int_equal(count_draws(eval), 3);
    assert_int_equal(eval->notes.n, 0);
    assert_float_equal(find_node(eval, "s")->args[4].f, 0.0, 0.0);
    pst_plan_free(eval);

    assert_ok(eval_noisy(plan, "*", &eval), &diag);
    assert_int_equal(count_draws(eval), 4);
    assert_true(find_node(eval, "m")->args[2].b);
    pst_plan_free(eval);
    pst_plan_free(plan);
    model_fini(&model);
}

/* Nodes that only the training branch reads are gone. */
static void dead_chance_is_none(void **state)
{
    const struct pst_split_options options = {0};
    struct pst_plan *plan, *eval;
    struct pst_model model;

    (void)state;
    model_init(&model, noisy, NULL, 0);
    model.graph->outputs.n--;
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_ok(eval_noisy(plan, NULL, &eval), &diag);
    assert_int_equal(count_draws(eval), 0);
    assert_ptr_equal(find_node(eval, "m")->outs[0]->base,
                     eval->stages.at[0].graph->inputs.at[0]);
    pst_plan_free(eval);
    pst_plan_free(plan);
    model_fini(&model);
}

static void a_file_in_eval_mode_says_all(void **state)
{
    const struct pst_split_options options = {0};
    struct pst_plan *plan, *eval;
    struct pst_model model;

    (void)state;
    model_init(&model, noisy, NULL, 0);
    model.evaluates = true;
    assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
    assert_ok(eval_noisy(plan, NULL, &eval), &diag);
    assert_int_equal(count_draws(eval), 1);
    assert_non_null(
        strstr(eval->notes.at[0], "aten.normal_.default in a.noise"));
    pst_plan_free(eval);
    pst_plan_free(plan);
    model_fini(&model);
}

/* Every dropout that a decomposed file contains as arithmetic is switched off,
 * as by PyTorch's model.eval(). */
static void decomposed_dropout_is_off(void **state)
{
    const struct pst_split_options options = {.stages = 2};
    const struct pst_safetensors_entry *want;
    struct pst_safetensors *data;
    struct pst_plan *plan, *eval;
    struct pst_model *model;
    struct pst_eval *run;
    const struct pst_graph *graph;
    const struct pst_value *y;
    const float *got;

    (void)state;
    assert_ok(pst_model_open(golden("drops.pt2"), &model, &diag), &diag);
    assert_false(model->evaluates);
    assert_ok(pst_split(model, &options, &plan, &diag), &diag);
    assert_ok(eval_noisy(plan, NULL, &eval), &diag);
    assert_int_equal(count_draws(eval), 0);
    assert_int_equal(eval->notes.n, 1); /* a note about the function */
    assert_non_null(
        strstr(eval->notes.at[0],
               "aten.bernoulli.p in the outermost module at make_drops.py"));
    assert_ok(pst_safetensors_open(golden("drops.safetensors"), &data, &diag),
              &diag);
    assert_ok(pst_safetensors_load(data, &diag), &diag);
    graph = eval->stages.at[0].graph;
    assert_ok(pst_eval_new(graph, &run, &diag), &diag);
    assert_ok(pst_eval_set(run, graph->inputs.at[0],
                           pst_safetensors_find(data, "x")->data, &diag),
              &diag);
    for (size_t i = 0; i < graph->params.n; i++) {
        struct pst_value *w = graph->params.at[i];
        void *values = pst_arena_alloc(&model->arena, pst_meta_bytes(&w->meta));
        const int index = pst_plan_find_param(eval, w->fqn);

        assert_non_null(values);
        assert_ok(pst_plan_read_param(eval, (unsigned)index, values, &diag),
                  &diag);
        assert_ok(pst_eval_set(run, w, values, &diag), &diag);
    }
    assert_ok(pst_eval_run(run, true, NULL, &diag), &diag);
    want = pst_safetensors_find(data, "y");
    y = graph->outputs.at[0].arg.value;
    got = pst_eval_get(run, y);
    assert_true(pst_meta_same(&y->meta, &want->meta));
    for (int64_t i = 0; i < pst_meta_numel(&y->meta); i++)
        assert_float_equal(got[pst_meta_offset(&y->meta, i)],
                           pst_load_f64(PST_F32, want->data, i), 1e-5);
    pst_eval_free(run);
    pst_safetensors_close(data);
    pst_plan_free(eval);
    pst_plan_free(plan);
    pst_model_close(model);
}

/* --- buffers that the model writes ------------------------------------------
 */

/* Writes a buffer that the output depends on, through a node (%book) and after
 * its last read (%last), statistics of a norm, and a counter. */
static const char writer[] =
    "graph next_id=9 {\n"
    "  input %x: f32[2, 4]\n"
    "  buffer %book \"book\" persistent: f32[2, 4]\n"
    "  buffer %last \"last\" persistent: f32[2, 4]\n"
    "  buffer %run \"run\" persistent: f32[4]\n"
    "  buffer %count \"count\" persistent: f32[2, 4]\n"
    "  %b: f32[2, 4] = aten.add.Tensor(%book, %x) # - - F id=0\n"
    "  %y: f32[2, 4] = aten.mul.Tensor(%b, %last) # - - F id=1\n"
    "  %l: f32[2, 4] = aten.mul.Tensor(%last, %x) # - - F id=2\n"
    "  %c: f32[2, 4] = aten.add.Tensor(%count, %x) # - - F id=3\n"
    "  %now: f32[4] = aten.mean.dim(%x, [0], False) # - - F id=4\n"
    "  %new: f32[4] = aten.add.Tensor(%now, %run) # - - F id=5\n"
    "  %mode: f32[4] view of %new + 0 = penstock.norm_mode.default(%new, "
    "%run, None, True) # - - F id=6\n"
    "  %r: f32[4] = aten.clone.default(%mode) # - - F id=7\n"
    "  %z: f32[2, 4] = aten.add.Tensor(%y, %run) # - - F id=8\n"
    "  output user %z \"0\"\n"
    "  output buffer %b -> %book \"\"\n"
    "  output buffer %l -> %last \"\"\n"
    "  output buffer %r -> %run \"\"\n"
    "  output buffer %c -> %count \"\"\n"
    "}\n";

/* A file does not tell whether model.eval() turns such writes off. */
static void buffers_that_are_written_are_named(void **state)
{
    const struct pst_eval_options cache = {.has_cache = true};
    const struct pst_split_options options = {0};
    struct pst_plan *plan, *eval;
    struct pst_model model;

    (void)state;
    for (unsigned k = 0; k < 3; k++) {
        model_init(&model, writer, NULL, 0);
        model.evaluates = k == 1;
        assert_ok(pst_split(&model, &options, &plan, &diag), &diag);
        assert_ok(pst_plan_eval(plan, k == 2 ? &cache : NULL, &eval, &diag),
                  &diag);
        assert_int_equal(eval->notes.n, k == 0);
        if (k == 0)
            assert_non_null(
                strstr(eval->notes.at[0], "depend on: \"book\", \"last\". "));
        pst_plan_free(eval);
        pst_plan_free(plan);
        model_fini(&model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluates),
        cmocka_unit_test(chance_is_refused_by_name),
        cmocka_unit_test(dead_chance_is_none),
        cmocka_unit_test(a_file_in_eval_mode_says_all),
        cmocka_unit_test(decomposed_dropout_is_off),
        cmocka_unit_test(buffers_that_are_written_are_named),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
