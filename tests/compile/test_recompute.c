// SPDX-License-Identifier: Apache-2.0
/* Tests --recompute: which nodes are in a segment, and which values are
 * refused. tests/split/test_random.c shows that no bit changes. */
#include "stages/base/str.h"
#include "stages/compile/recompute.h"
#include "tests/split/model.h"

static struct pst_diag diag;

/* Two blocks with attention, one of which is called twice, and a head. */
static const char text[] =
    "graph next_id=20 {\n"
    "  call h.0 in -\n"
    "  call h.0.attn in h.0\n"
    "  call h.1 in -\n"
    "  call h.1.attn in h.1\n"
    "  call h.1@1 in -\n"
    "  call h.1.attn@1 in h.1@1\n"
    "  call head in -\n"
    "  input %x: f32[1, 2, 4, 4]\n"
    "  param %w \"w\" grad: f32[4, 4]\n"
    "  %q0 = aten.linear.default(%x, %w) # h.0.attn - F id=0\n"
    "  %s0 = aten.scaled_dot_product_attention.default(%q0, %q0, %q0) "
    "# h.0.attn - F id=1\n"
    "  %p0 = aten.linear.default(%s0, %w) # h.0.attn - F id=2\n"
    "  %a0 = aten.gelu.default(%p0) # h.0 - F id=3\n"
    "  %q1 = aten.linear.default(%a0, %w) # h.1.attn - F id=4\n"
    "  %m1 = aten.matmul.default(%q1, %q1) # h.1.attn - F id=5\n"
    "  %f1 = aten.softmax.int(%m1, -1) # h.1.attn - F id=6\n"
    "  %s1 = aten.matmul.default(%f1, %q1) # h.1.attn - F id=7\n"
    "  %a1 = aten.gelu.default(%s1) # h.1 - F id=8\n"
    "  %q2 = aten.linear.default(%a1, %w) # h.1.attn@1 - F id=9\n"
    "  %a2 = aten.gelu.default(%q2) # h.1@1 - F id=10\n"
    "  %y = aten.gelu.default(%a2) # head - F id=11\n"
    "  %loss = aten.mean.default(%y) # - - F id=12\n"
    "  output user %loss \"0\"\n"
    "}\n";

/* Expects "0:0,1,2 1:1": level and nodes of each segment of both stages. */
static void expect(const struct pst_plan *plan, const char *what,
                   const char *want)
{
    struct pst_str got = {0};

    assert_ok(pst_recompute_check(plan, what, &diag), &diag);
    for (unsigned s = 0; s < plan->stages.n; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;
        struct pst_segments found;

        assert_ok(pst_segments_find(plan, s, what, graph, &found, &diag),
                  &diag);
        for (size_t i = 0; i < found.list.n; i++) {
            const struct pst_segment *segment = &found.list.at[i];

            pst_str_addf(&got, "%s%u%s:", got.len > 0 ? " " : "",
                         segment->level, segment->results ? "r" : "");
            for (unsigned k = 0; k < segment->n; k++)
                pst_str_addf(&got, "%s%u", k > 0 ? "," : "",
                             graph->nodes.at[segment->nodes[k]]->id);
        }
        pst_segments_fini(&found);
    }
    assert_string_equal(pst_str_text(&got), want);
    pst_str_fini(&got);
}

static void expect_refusal(const struct pst_plan *plan, const char *what,
                           const char *message)
{
    assert_int_equal(pst_recompute_check(plan, what, &diag), PST_ERR_USAGE);
    if (strstr(diag.text, message) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", what, diag.text, message);
    pst_diag_init(&diag);
}

struct split {
    struct pst_model model;
    struct pst_plan *plan;
};

static void open_split(struct split *s, const char *graph, const char *at)
{
    const struct pst_split_options options = {
        .at = &at, .n_at = at != NULL, .stages = at == NULL ? 1 : 0};

    model_init(&s->model, graph, NULL, 0);
    assert_ok(pst_split(&s->model, &options, &s->plan, &diag), &diag);
}

static void close_split(struct split *s)
{
    pst_plan_free(s->plan);
    model_fini(&s->model);
}

static void words(void **state)
{
    struct split s;

    (void)state;
    open_split(&s, text, NULL);
    expect(s.plan, NULL, "");
    expect(s.plan, "none", "");
    expect(s.plan, "full", "0:0,1,2,3,4,5,6,7,8,9,10,11,12");
    expect(s.plan, "block", "0:0,1,2,3 0:4,5,6,7,8 0:9,10");
    expect(s.plan, "attention", "0r:1 0r:5,6,7");
    expect(s.plan, "h.1", "0:4,5,6,7,8 0:9,10");
    expect(s.plan, "h.1@1,head", "0:9,10 0:11");
    expect(s.plan, "*.attn", "0:0,1,2 0:4,5,6,7 0:9");
    close_split(&s);
}

static void segments_in_segments(void **state)
{
    struct split s;

    (void)state;
    open_split(&s, text, NULL);
    expect(s.plan, "attention,block",
           "0:0,1,2,3 0:4,5,6,7,8 0:9,10 1r:1 1r:5,6,7");
    expect(s.plan, "h.1.attn,h.0,full",
           "0:0,1,2,3,4,5,6,7,8,9,10,11,12 1:4,5,6,7 1:9 1:0,1,2,3");
    expect(s.plan, "block,h.?", "0:0,1,2,3 0:4,5,6,7,8 0:9,10");
    close_split(&s);
}

/* Regions marked by the model's author: nested ones, ones that a cut divides,
 * with names in any order. */
static void marked(void **state)
{
    static const char regions[] =
        "graph next_id=9 {\n"
        "  input %x: f32[2]\n"
        "  param %w \"w\" grad: f32[2]\n"
        "  %a = aten.mul.Tensor(%x, %w) # - - F id=0 region=7\n"
        "  %b = aten.sin.default(%a) # - - F id=1 region=7.8\n"
        "  %c = aten.cos.default(%b) # - - F id=2 region=7.8.9\n"
        "  %d = aten.tanh.default(%c) # - - F id=3 region=7.10\n"
        "  %e = aten.sin.default(%d) # - - F id=4\n"
        "  %f = aten.cos.default(%e) # - - F id=5 region=70\n"
        "  %l = aten.mean.default(%f) # - - F id=6\n"
        "  output user %l \"0\"\n"
        "}\n";
    struct split s;

    (void)state;
    open_split(&s, regions, NULL);
    assert_string_equal(pst_recompute_default(s.plan), "marked");
    expect(s.plan, "marked", "0:0,1,2,3 0:5 1:1,2 1:3 2:2");
    expect(s.plan, "marked,full",
           "0:0,1,2,3,4,5,6 1:0,1,2,3 1:5 2:1,2 2:3 3:2");
    close_split(&s);
    open_split(&s, regions, "c");
    expect(s.plan, "marked", "0:0,1 1:1 0:2,3 0:5 1:2 1:3");
    expect(s.plan, "1=marked", "0:2,3 0:5 1:2 1:3");
    close_split(&s);
}

/* The keyword `block` works in a stage that has only one layer of a list.
 * Keywords for a single stage replace all others in that stage. */
static void stages(void **state)
{
    struct split s;

    (void)state;
    open_split(&s, text, "q1");
    expect(s.plan, "block", "0:0,1,2,3 0:4,5,6,7,8 0:9,10");
    expect(s.plan, "0=block", "0:0,1,2,3");
    expect(s.plan, "block,0=none", "0:4,5,6,7,8 0:9,10");
    expect(s.plan, "full,0=h.0.attn", "0:0,1,2 0:4,5,6,7,8,9,10,11,12");
    expect_refusal(s.plan, "2=full", "no stage \"2\", the plan has 2");
    expect_refusal(s.plan, "x=full", "no stage \"x\"");
    expect_refusal(s.plan, "1=h.0",
                   "1=h.0: that is in stage 0, and not in stage 1");
    expect_refusal(s.plan, "h.0,0=full",
                   "h.0: that is in stage 0, which has words");
    expect_refusal(s.plan, "block,0=none,1=none", "say 0=block");
    close_split(&s);
}

static void what_fits_nothing(void **state)
{
    static const char plain[] = "graph next_id=5 {\n"
                                "  param %w \"w\" grad: f32[2]\n"
                                "  %l = aten.mean.default(%w) # head - F id=0\n"
                                "  output user %l \"0\"\n"
                                "}\n";
    struct split s;

    (void)state;
    open_split(&s, text, NULL);
    assert_null(pst_recompute_default(s.plan));
    expect_refusal(s.plan, "marked", "no region of torch.utils.checkpoint");
    expect_refusal(s.plan, "blok", "did you mean \"block\"?");
    expect_refusal(s.plan, "h.0.atn", "did you mean \"h.0.attn\"?");
    expect_refusal(s.plan, "full,", "with commas between");
    expect_refusal(s.plan, "", "with commas between");
    close_split(&s);
    open_split(&s, plain, NULL);
    expect_refusal(s.plan, "block", "has no list of layers");
    expect_refusal(s.plan, "attention", "holds an attention");
    close_split(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(segments_in_segments),
        cmocka_unit_test(marked),
        cmocka_unit_test(stages),
        cmocka_unit_test(what_fits_nothing),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
