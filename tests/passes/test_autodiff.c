// SPDX-License-Identifier: Apache-2.0
/* Tests gradients of small graphs: numbers, structure, phases, order of
 * sums. */
#include "stages/ops/core/call.h"
#include "stages/passes/autodiff.h"
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

#define MAX_WANTED 4
#define MAX_SEEDS  8

static struct pst_diag diag;

/* A parsed graph, differentiated from %loss (or %a, %b ...). */
struct fixture {
    struct pst_graph *graph;
    struct pst_value *wanted[MAX_WANTED];
    size_t n_wanted;
    struct pst_autodiff_result grads;
    struct pst_eval *eval;
    float memory[16][64]; /* data of GRAD values, by `extra` */
};

/* Parses and differentiates the text. wanted: names separated by spaces. seeds:
 * the values that have a seed, in order; the text names their SEED values
 * "s_<value>", then "_1". */
static void differentiate(struct fixture *f, const char *text,
                          const char *wanted, const char *seeds)
{
    struct pst_seed list[MAX_SEEDS];
    size_t n = 0;
    char word[64];
    int len;

    memset(f, 0, sizeof(*f));
    assert_ok(pst_graph_parse(text, &f->graph, &diag), &diag);
    for (; sscanf(wanted, "%63s%n", word, &len) == 1; wanted += len) {
        f->wanted[f->n_wanted] = pst_graph_find(f->graph, word);
        assert_non_null(f->wanted[f->n_wanted++]);
    }
    for (; sscanf(seeds, "%63s%n", word, &len) == 1; seeds += len, n++) {
        size_t before = 0;
        char seed[80];

        list[n].value = pst_graph_find(f->graph, word);
        for (size_t i = 0; i < n; i++)
            before += list[i].value == list[n].value;
        snprintf(seed, sizeof(seed), before > 0 ? "s_%s_%zu" : "s_%s", word,
                 before);
        list[n].seed = pst_graph_find(f->graph, seed);
        assert_non_null(list[n].value);
        assert_non_null(list[n].seed);
    }
    assert_ok(pst_autodiff(f->graph, list, n, f->wanted, f->n_wanted, &f->grads,
                           &diag),
              &diag);
    assert_ok(pst_graph_verify(f->graph, &diag), &diag);
}

static void fixture_fini(struct fixture *f)
{
    pst_eval_free(f->eval);
    pst_graph_free(f->graph);
}

static void eval_begin(struct fixture *f)
{
    memset(f->memory, 0, sizeof(f->memory));
    assert_ok(pst_eval_new(f->graph, &f->eval, &diag), &diag);
    for (size_t i = 0; i < f->graph->extras.n; i++)
        if (f->graph->extras.at[i]->kind == PST_VALUE_GRAD)
            assert_ok(pst_eval_set(f->eval, f->graph->extras.at[i],
                                   f->memory[i], &diag),
                      &diag);
}

static void set(struct fixture *f, const char *name, const void *data)
{
    struct pst_value *v = pst_graph_find(f->graph, name);

    assert_non_null(v);
    assert_ok(pst_eval_set(f->eval, v, data, &diag), &diag);
}

static void run(struct fixture *f)
{
    assert_ok(pst_eval_run(f->eval, true, NULL, &diag), &diag);
}

static void expect(const struct fixture *f, const struct pst_value *v,
                   const float *want)
{
    const float *data;

    assert_non_null(v);
    data = pst_eval_get(f->eval, v);
    assert_non_null(data);
    for (int64_t i = 0; i < pst_meta_numel(&v->meta); i++) {
        const float x = data[pst_meta_offset(&v->meta, i)];

        if (x != want[i])
            fail_msg("%%%s[%d] is %g, not %g", v->name, (int)i, x, want[i]);
    }
}

static void expect_text(const struct pst_graph *graph, const char *want)
{
    struct pst_str text = {0};

    pst_graph_print(graph, &text);
    assert_string_equal(pst_str_text(&text), want);
    pst_str_fini(&text);
}

/* --- two layers ----------------------------------------------------------- */

static const char two_layers[] =
    "graph next_id=9 {\n"
    "  input %x: f32[2, 2]\n"
    "  param %w1 \"one.weight\" grad: f32[2, 2]\n"
    "  param %w2 \"two.weight\" grad: f32[1, 2]\n"
    "  param %frozen \"frozen\": f32[2, 1]\n"
    "  seed %s_loss: f32[]\n"
    "  %h: f32[2, 2] = aten.linear.default(%x, %w1, None)  # one m.py:1 F "
    "id=3\n"
    "  %y: f32[2, 1] = aten.linear.default(%h, %w2, None)  # two m.py:2 F "
    "id=5\n"
    "  %z: f32[2, 1] = aten.mul.Tensor(%y, %frozen)  # - m.py:3 F id=7\n"
    "  %loss: f32[] = aten.sum.default(%z)  # - m.py:4 F id=8\n"
    "  output user %loss \"0\"\n"
    "}\n";

static const float x_data[] = {1, 2, 3, 4};
static const float w1_data[] = {1, -1, 2, 0.5f};
static const float w2_data[] = {3, -2};
static const float frozen_data[] = {1, 10};
static const float one = 1;

static void set_two_layers(struct fixture *f)
{
    eval_begin(f);
    set(f, "x", x_data);
    set(f, "w1", w1_data);
    set(f, "w2", w2_data);
    set(f, "frozen", frozen_data);
    set(f, "s_loss", &one);
}

/* dz = [1, 10]; dh = dz w2; dw2 = dz^T h; dw1 = dh^T x; dx = dh w1. */
static void numbers_are_right(void **state)
{
    static const float dx[] = {-1, -4, -10, -40};
    static const float dw1[] = {93, 126, -62, -84};
    static const float dw2[] = {-11, 83};
    struct fixture f;

    (void)state;
    differentiate(&f, two_layers, "x", "loss");
    set_two_layers(&f);
    run(&f);
    expect(&f, f.grads.wanted[0], dx);
    expect(&f, f.grads.grads[0], dw1);
    expect(&f, f.grads.grads[1], dw2);
    assert_null(f.grads.grads[2]);
    assert_string_equal(f.grads.grads[0]->fqn, "one.weight");
    assert_int_equal(f.grads.grads[0]->kind, PST_VALUE_GRAD);
    run(&f); /* adds to the gradients, like a second microbatch */
    expect(&f, f.grads.grads[1], (const float[]){-22, 166});
    fixture_fini(&f);
}

static unsigned count_phase(const struct pst_graph *graph, enum pst_phase phase)
{
    unsigned n = 0;

    for (size_t i = 0; i < graph->nodes.n; i++)
        n += graph->nodes.at[i]->phase == phase;
    return n;
}

/* Runs F, then all of I, then all of W, as a zero-bubble schedule does. */
static void input_gradients_need_no_w_node(void **state)
{
    static const float dx[] = {-1, -4, -10, -40};
    struct pst_node *w[64];
    struct fixture f;
    size_t kept = 0, n_w = 0;

    (void)state;
    differentiate(&f, two_layers, "x", "loss");
    assert_int_equal(count_phase(f.graph, PST_PHASE_F), 4);
    for (size_t i = 0; i < f.graph->nodes.n; i++) {
        struct pst_node *node = f.graph->nodes.at[i];

        if (node->phase == PST_PHASE_W)
            w[n_w++] = node;
        else
            f.graph->nodes.at[kept++] = node;
    }
    assert_true(n_w >= 4); /* two matmuls, two sums */
    f.graph->nodes.n = kept;
    set_two_layers(&f);
    run(&f);
    expect(&f, f.grads.wanted[0], dx);
    expect(&f, f.grads.grads[0], (const float[]){0, 0, 0, 0});
    memcpy(f.graph->nodes.at, w, n_w * sizeof(*w));
    f.graph->nodes.n = n_w;
    run(&f);
    expect(&f, f.grads.grads[0], (const float[]){93, 126, -62, -84});
    expect(&f, f.grads.grads[1], (const float[]){-11, 83});
    fixture_fini(&f);
}

/* Without a wanted value no node is in phase I, and dx is not computed. */
static void nothing_superfluous_is_computed(void **state)
{
    struct fixture with, without;

    (void)state;
    differentiate(&with, two_layers, "x", "loss");
    differentiate(&without, two_layers, "", "loss");
    assert_int_equal(count_phase(without.graph, PST_PHASE_I), 0);
    assert_true(without.graph->nodes.n < with.graph->nodes.n);
    fixture_fini(&with);
    fixture_fini(&without);
}

/* Backward nodes have the source location and the random key of their forward
 * node. */
static void places_are_kept(void **state)
{
    struct fixture f;
    bool seen = false;

    (void)state;
    differentiate(&f, two_layers, "x", "loss");
    for (size_t i = 4; i < f.graph->nodes.n; i++) {
        const struct pst_node *node = f.graph->nodes.at[i];

        assert_true(node->phase != PST_PHASE_F);
        assert_true(node->id == 3 || node->id == 5 || node->id == 7 ||
                    node->id == 8);
        if (node->id == 3) {
            assert_string_equal(node->call->path, "one");
            assert_string_equal(node->source, "m.py:1");
            seen = true;
        }
    }
    assert_true(seen);
    fixture_fini(&f);
}

/* --- results that only backward reads ------------------------------------- */

static const char attentions[] =
    "graph next_id=4 {\n"
    "  input %x: f32[2, 2]\n"
    "  param %w \"w\" grad: f32[2, 2]\n"
    "  seed %s_loss: f32[]\n"
    "  %a: f32[2, 2] = aten.scaled_dot_product_attention.default(%x, %x, %x)  "
    "# - - F id=0\n"
    "  %b: f32[2, 2] = aten.scaled_dot_product_attention.default(%a, %w, %w)  "
    "# - m.py:7 F id=1\n"
    "  %c: f32[2, 2] = aten.scaled_dot_product_attention.default(%b, %w, %w)  "
    "# - - F id=2 no_grad\n"
    "  %loss: f32[] = aten.sum.default(%b)  # - - F id=3\n"
    "  output user %c \"0\"\n"
    "  output user %loss \"1\"\n"
    "}\n";

/* Only the attention that is differentiated gives its sums, and its backward
 * reads them. All else about the node stays. */
static void attention_saves_its_sums(void **state)
{
    const struct pst_node *node, *last = NULL;
    struct fixture f;

    (void)state;
    differentiate(&f, attentions, "", "loss");
    node = f.graph->nodes.at[1];
    assert_string_equal(node->schema->name, "penstock.sdpa_with_sums.default");
    assert_string_equal(pst_node_origin(node),
                        "aten.scaled_dot_product_attention.default");
    assert_string_equal(node->source, "m.py:7");
    assert_int_equal(node->id, 1);
    assert_int_equal(node->n_outs, 2);
    assert_ptr_equal(node->outs[0], pst_graph_find(f.graph, "b"));
    assert_int_equal(node->outs[1]->meta.size[1], 2);
    for (unsigned i = 0; i < 4; i += 2)
        assert_string_equal(f.graph->nodes.at[i]->schema->name,
                            "aten.scaled_dot_product_attention.default");
    for (size_t i = 0; i < f.graph->nodes.n; i++)
        if (strcmp(f.graph->nodes.at[i]->schema->name,
                   "penstock.sdpa_backward.default") == 0)
            last = f.graph->nodes.at[i];
    assert_non_null(last);
    assert_ptr_equal(last->args[1].value, node->outs[0]);
    assert_ptr_equal(last->args[2].value, node->outs[1]);
    fixture_fini(&f);
}

/* --- order of sums -------------------------------------------------------- */

/* h has two seeds and three uses, two of them in one node. */
static const char many_uses[] =
    "graph next_id=5 {\n"
    "  input %h: f32[1]\n"
    "  const %c \"c\": f32[1]\n"
    "  const %d \"d\": f32[1]\n"
    "  seed %s_h: f32[1]\n"
    "  seed %s_h_1: f32[1]\n"
    "  seed %s_p: f32[1]\n"
    "  seed %s_q: f32[1]\n"
    "  seed %s_r: f32[1]\n"
    "  %p: f32[1] = aten.mul.Tensor(%h, %c)  # - - F id=1\n"
    "  %q: f32[1] = aten.mul.Tensor(%h, %h)  # - - F id=2\n"
    "  %r: f32[1] = aten.mul.Tensor(%d, %h)  # - - F id=3\n"
    "}\n";

static void sums_are_left_folds_from_the_end(void **state)
{
    static const char want[] =
        "  %grad_r: f32[1] = aten.mul.Tensor(%s_r, %d)  # - - I id=3\n"
        "  %grad_r_1: f32[1] = aten.add.Tensor(%grad_seed, %grad_r)  # - - I "
        "id=3\n"
        "  %grad_q: f32[1] = aten.mul.Tensor(%s_q, %h)  # - - I id=2\n"
        "  %grad_q_1: f32[1] = aten.mul.Tensor(%s_q, %h)  # - - I id=2\n"
        "  %grad_q_2: f32[1] = aten.add.Tensor(%grad_r_1, %grad_q)  # - - I "
        "id=2\n"
        "  %grad_q_3: f32[1] = aten.add.Tensor(%grad_q_2, %grad_q_1)  # - - I "
        "id=2\n"
        "  %grad_p: f32[1] = aten.mul.Tensor(%s_p, %c)  # - - I id=1\n"
        "  %grad_p_1: f32[1] = aten.add.Tensor(%grad_q_3, %grad_p)  # - - I "
        "id=1\n";
    /* Only this order gives 3: ((((1e8 - 1e8) + 1) + 1) + 1) + 1e-9. */
    static const float h = 1, c = 1e-9f, big = 1e8f, small = -1e8f;
    struct pst_str text = {0};
    struct fixture f;

    (void)state;
    differentiate(&f, many_uses, "h", "h h p q r");
    pst_graph_print(f.graph, &text);
    if (strstr(pst_str_text(&text), want) == NULL)
        fail_msg("%s", pst_str_text(&text));
    pst_str_fini(&text);
    eval_begin(&f);
    set(&f, "h", &h);
    set(&f, "c", &c);
    set(&f, "d", &one);
    set(&f, "s_h", &big);
    set(&f, "s_h_1", &small);
    set(&f, "s_p", &one);
    set(&f, "s_q", &one);
    set(&f, "s_r", &one);
    run(&f);
    expect(&f, f.grads.wanted[0], (const float[]){3});
    fixture_fini(&f);
}

/* --- where gradients end -------------------------------------------------- */

static const char ends[] =
    "graph next_id=9 {\n"
    "  input %x: f32[2]\n"
    "  input %k: i64[2]\n"
    "  input %alone: f32[2]\n"
    "  param %w \"w\" grad: f32[2]\n"
    "  param %unused \"unused\" grad: f32[2]\n"
    "  param %cut \"cut\" grad: f32[2]\n"
    "  param %counts \"counts\": i64[2]\n"
    "  seed %s_loss: f32[]\n"
    "  %a: f32[2] = aten.mul.Tensor(%x, %cut)  # - - F id=1 no_grad\n"
    "  %d: f32[2] view of %w + 0 = aten.detach.default(%w)  # - - F id=2\n"
    "  %m: f32[2] = aten.mul.Tensor(%d, %w)  # - - F id=3\n"
    "  %n: f32[2] = aten.mul.Tensor(%m, %k)  # - - F id=4\n"
    "  %o: f32[2] = aten.add.Tensor(%n, %a)  # - - F id=5\n"
    "  %p: bool[2] = aten.gt.Scalar(%o, 0)  # - - F id=6\n"
    "  %loss: f32[] = aten.sum.default(%o)  # - - F id=7\n"
    "}\n";

static void gradients_end_where_they_should(void **state)
{
    static const float x[] = {1, 2}, w[] = {3, 5}, cut[] = {7, 7};
    static const int64_t k[] = {2, -1};
    struct fixture f;

    (void)state;
    differentiate(&f, ends, "x k alone", "loss");
    /* The loss depends on it only through no_grad. */
    assert_null(f.grads.wanted[0]);
    assert_null(f.grads.wanted[1]); /* an integer */
    assert_null(f.grads.wanted[2]);
    assert_non_null(f.grads.grads[0]);
    assert_null(f.grads.grads[1]);
    assert_null(f.grads.grads[2]);
    assert_null(f.grads.grads[3]);
    eval_begin(&f);
    set(&f, "x", x);
    set(&f, "k", k);
    set(&f, "w", w);
    set(&f, "cut", cut);
    set(&f, "s_loss", &one);
    run(&f);
    expect(&f, f.grads.grads[0], (const float[]){6, -5});
    fixture_fini(&f);
}

/* The gradient of a wanted intermediate value is complete, and no gradient of a
 * value before it is computed. */
static void propagation_stops_at_wanted_values(void **state)
{
    struct fixture f;

    (void)state;
    differentiate(&f, two_layers, "h x", "loss");
    assert_null(f.grads.wanted[1]);
    assert_null(f.grads.grads[0]);
    set_two_layers(&f);
    run(&f);
    expect(&f, f.grads.wanted[0], (const float[]){3, -2, 30, -20});
    fixture_fini(&f);
}

/* --- equal gradients, parameters used twice ------------------------------- */

static void contributions_are_added_one_by_one(void **state)
{
    static const char text[] =
        "graph next_id=5 {\n"
        "  input %x: f32[2]\n"
        "  input %y: f32[2]\n"
        "  param %w \"w\" grad: f32[2]\n"
        "  seed %s_c: f32[2]\n"
        "  seed %s_w: f32[2]\n"
        "  %a: f32[2] = aten.add.Tensor(%x, %y)  # - - F id=1\n"
        "  %b: f32[2] = aten.add.Tensor(%w, %a)  # - - F id=2\n"
        "  %c: f32[2] = aten.add.Tensor(%b, %w)  # - - F id=3\n"
        "}\n";
    static const char want[] =
        "graph next_id=6 {\n"
        "  input %x: f32[2]\n"
        "  input %y: f32[2]\n"
        "  param %w \"w\" grad: f32[2]\n"
        "  seed %s_c: f32[2]\n"
        "  seed %s_w: f32[2]\n"
        "  gradient %grad_w \"w\": f32[2]\n"
        "  %a: f32[2] = aten.add.Tensor(%x, %y)  # - - F id=1\n"
        "  %b: f32[2] = aten.add.Tensor(%w, %a)  # - - F id=2\n"
        "  %c: f32[2] = aten.add.Tensor(%b, %w)  # - - F id=3\n"
        "  penstock.accumulate_grad.default(%grad_w, %s_w)  # - - W id=5\n"
        "  penstock.accumulate_grad.default(%grad_w, %s_c)  # - - W id=3\n"
        "  penstock.accumulate_grad.default(%grad_w, %s_c)  # - - W id=2\n"
        "}\n";
    struct fixture f;

    (void)state;
    differentiate(&f, text, "x y", "w c");
    assert_ptr_equal(f.grads.wanted[0], pst_graph_find(f.graph, "s_c"));
    assert_ptr_equal(f.grads.wanted[1], f.grads.wanted[0]);
    expect_text(f.graph, want);
    fixture_fini(&f);
}

static void seeds_of_another_shape_are_refused(void **state)
{
    static const char text[] = "graph next_id=5 {\n"
                               "  input %x: f32[2]\n"
                               "  seed %s: f32[3]\n"
                               "}\n";
    struct pst_autodiff_result result;
    struct pst_graph *graph;
    struct pst_seed seed;
    struct pst_value *x;

    (void)state;
    assert_ok(pst_graph_parse(text, &graph, &diag), &diag);
    x = pst_graph_find(graph, "x");
    seed = (struct pst_seed){x, pst_graph_find(graph, "s")};
    assert_int_equal(pst_autodiff(graph, &seed, 1, &x, 1, &result, &diag),
                     PST_ERR_INTERNAL);
    pst_graph_free(graph);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_right),
        cmocka_unit_test(input_gradients_need_no_w_node),
        cmocka_unit_test(nothing_superfluous_is_computed),
        cmocka_unit_test(places_are_kept),
        cmocka_unit_test(attention_saves_its_sums),
        cmocka_unit_test(sums_are_left_folds_from_the_end),
        cmocka_unit_test(gradients_end_where_they_should),
        cmocka_unit_test(propagation_stops_at_wanted_values),
        cmocka_unit_test(contributions_are_added_one_by_one),
        cmocka_unit_test(seeds_of_another_shape_are_refused),
    };

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK) {
        fprintf(stderr, "%s\n", diag.text);
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
