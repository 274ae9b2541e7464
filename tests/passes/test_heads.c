// SPDX-License-Identifier: Apache-2.0
/* Tests which losses are heads of language models, and what folding makes of
 * them. */
#include "stages/ops/core/op.h"
#include "stages/passes/heads.h"
#include "tests/test.h"

#include <stdio.h>
#include <string.h>

static struct pst_diag diag;

#define INPUTS                                                                 \
    "graph next_id=20 {\n"                                                     \
    "  input %h: f32[2, 5, 3]\n"                                               \
    "  input %t: i64[10]\n"                                                    \
    "  input %short: i64[8]\n"                                                 \
    "  input %q: f32[10, 1024]\n"                                              \
    "  param %w \"w\" grad: f32[1024, 3]\n"                                    \
    "  param %b \"b\" grad: f32[1024]\n"                                       \
    "  param %few \"few\" grad: f32[1023, 3]\n"                                \
    "  param %wide \"wide\" grad: f32[2048, 3]\n"                              \
    "  param %across \"across\" grad: f32[3, 1024]\n"                          \
    "  param %c \"c\": f32[1024]\n"
#define LINEAR "  %y: f32[2, 5, 1024] = aten.linear.default(%h, %w, %b)\n"
#define VIEW                                                                   \
    "  %v: f32[10, 1024] view of %y + 0 = aten.view.default(%y, [-1, 1024])\n"
/* the transposed weight, and rows to multiply with it */
#define TRANSPOSED                                                             \
    "  %x: f32[10, 3] view of %h + 0 = aten.view.default(%h, [10, 3])\n"       \
    "  %tw: f32[3, 1024]:(1, 3) view of %w + 0 = aten.t.default(%w)\n"
#define Z    "  %z: f32[2, 5] = aten.logsumexp.default(%y, [-1])\n"
#define LOSS "  %loss: f32[] = aten.cross_entropy_loss.default(%v, %t)\n"
#define END  "  output user %loss \"0\"\n}\n"

/* under autocast: a layer in bf16, and casts of what it reads */
#define CAST(to, of, shape)                                                    \
    "  " to ": bf16[" shape "] = aten._to_copy.default(" of ", dtype=bf16)\n"
#define LOW_LAYER                                                              \
    "  %yl: bf16[2, 5, 1024] = aten.linear.default(%hl, %wl, %bl)\n"
#define LOW_LINEAR                                                             \
    CAST("%hl", "%h", "2, 5, 3")                                               \
    CAST("%wl", "%w", "1024, 3")                                               \
    CAST("%bl", "%b", "1024") LOW_LAYER
#define UPCAST   "  %y: f32[2, 5, 1024] = aten._to_copy.default(%yl, dtype=f32)\n"
#define LOW_ARGS "1, -100, 0.0, 0, low=bf16)"

/* Nodes between the inputs and the first output; the operator that the head
 * becomes, or NULL. */
static const struct {
    const char *text, *folded;
} rows[] = {
    {LINEAR VIEW LOSS,
     "(%reshape, %w, %b, %t, None, 1.0, 0.0, 1, -100, 0.0, 0)"},
    {"  %y: f32[2, 5, 1024] = aten.linear.default(%h, %w)\n" VIEW
     "  %loss: f32[] = aten.cross_entropy_loss.default(%v, %t, None, 2, 7, "
     "0.25)\n",
     "(%reshape, %w, None, %t, None, 1.0, 0.0, 2, 7, 0.25, 0)"},
    /* a soft cap, which may come after the view, and a temperature */
    {LINEAR "  %d: f32[2, 5, 1024] = aten.div.Scalar(%y, 4.0)\n"
            "  %a: f32[2, 5, 1024] = aten.tanh.default(%d)\n"
            "  %v: f32[10, 1024] view of %a + 0 = aten.view.default(%a, [-1, "
            "1024])\n"
            "  %m: f32[10, 1024] = aten.mul.Scalar(%v, 4.0)\n"
            "  %loss: f32[] = aten.cross_entropy_loss.default(%m, %t)\n",
     "(%reshape, %w, %b, %t, None, 1.0, 4.0, 1, -100, 0.0, 0)"},
    {LINEAR VIEW "  %m: f32[10, 1024] = aten.div.Scalar(%v, 2)\n"
                 "  %loss: f32[] = aten.cross_entropy_loss.default(%m, %t)\n",
     "(%reshape, %w, %b, %t, None, 0.5, 0.0, 1, -100, 0.0, 0)"},
    /* the last position of each row is not used */
    {LINEAR "  %s: f32[2, 4, 1024]:(5120, 1024, 1) view of %y + 0 = "
            "aten.slice.Tensor(%y, 1, 0, -1)\n"
            "  %v: f32[8, 1024] = aten.reshape.default(%s, [-1, 1024])\n"
            "  %loss: f32[] = aten.cross_entropy_loss.default(%v, %short)\n",
     "(%reshape, %w, %b, %short, None, 1.0, 0.0, 1, -100, 0.0, 0)"},
    /* decomposed */
    {LINEAR VIEW
     "  %p: f32[10, 1024] = aten._log_softmax.default(%v, 1, False)\n"
     "  %loss: f32[], %n: f32[] = aten.nll_loss_forward.default(%p, %t, None, "
     "1, 3)\n",
     "(%reshape, %w, %b, %t, None, 1.0, 0.0, 1, 3, 0.0, 0)"},
    {LINEAR VIEW "  %p: f32[10, 1024] = aten.log_softmax.int(%v, -1)\n"
                 "  %loss: f32[] = aten.nll_loss_nd.default(%p, %t, None, 2)\n",
     "(%reshape, %w, %b, %t, None, 1.0, 0.0, 2, -100, 0.0, 0)"},

    /* a z-loss: after the loss, of other views of the logits; before it, with a
     * mask, and a reader before the loss */
    {LINEAR VIEW LOSS Z "  %sq: f32[2, 5] = aten.pow.Tensor_Scalar(%z, 2)\n"
                        "  %m: f32[] = aten.mean.default(%sq)\n"
                        "  output user %m \"1\"\n",
     "(%reshape, %w, %b, %t, None, 1.0, 0.0, 1, -100, 0.0, 1)"},
    {LINEAR VIEW "  %z: f32[10] = aten.logsumexp.default(%v, [1])\n"
                 "  %sq: f32[10] = aten.mul.Tensor(%z, %z)\n"
                 "  %ne: bool[10] = aten.ne.Scalar(%t, 3)\n"
                 "  %f: f32[10] = aten._to_copy.default(%ne, dtype=f32)\n"
                 "  %p: f32[10] = aten.mul.Tensor(%sq, %f)\n"
                 "  %s: f32[] = aten.sum.default(%p)\n"
                 "  %r: f32[] = aten.mul.Scalar(%s, 0.5)\n" LOSS
                 "  output user %r \"1\"\n",
     "(%reshape, %w, %b, %t, %f, 1.0, 0.0, 1, -100, 0.0, 2)"},

    /* products with a transposed weight */
    {"  %tw: f32[3, 1024]:(1, 3) view of %w + 0 = aten.t.default(%w)\n"
     "  %x: f32[10, 3] view of %h + 0 = aten.view.default(%h, [10, 3])\n"
     "  %y: f32[10, 1024] = aten.addmm.default(%b, %x, %tw)\n"
     "  %loss: f32[] = aten.cross_entropy_loss.default(%y, %t)\n",
     "(%x, %w, %b, %t, None, 1.0, 0.0, 1, -100, 0.0, 0)"},
    {"  %tw: f32[3, 1024]:(1, 3) view of %w + 0 = "
     "aten.permute.default(%w, [1, 0])\n"
     "  %y: f32[2, 5, 1024] = aten.matmul.default(%h, %tw)\n" VIEW LOSS,
     "(%reshape, %w, None, %t, None, 1.0, 0.0, 1, -100, 0.0, 0)"},

    /* under autocast; with a soft cap before the cast */
    {LOW_LINEAR UPCAST VIEW LOSS,
     "(%_to_copy, %w, %b, %t, None, 1.0, 0.0, " LOW_ARGS},
    {LOW_LINEAR
     "  %d: bf16[2, 5, 1024] = aten.div.Scalar(%yl, 4.0)\n"
     "  %a: bf16[2, 5, 1024] = aten.tanh.default(%d)\n"
     "  %yl2: bf16[2, 5, 1024] = aten.mul.Scalar(%a, 4.0)\n"
     "  %y: f32[2, 5, 1024] = aten._to_copy.default(%yl2, dtype=f32)\n" VIEW
         LOSS,
     "(%_to_copy, %w, %b, %t, None, 1.0, 4.0, " LOW_ARGS},
    /* log_softmax casts; a z-loss of a cast of its own */
    {LOW_LINEAR
     "  %v: bf16[10, 1024] view of %yl + 0 = aten.view.default(%yl, [-1, "
     "1024])\n"
     "  %p: f32[10, 1024] = aten.log_softmax.int(%v, -1, f32)\n"
     "  %loss: f32[] = aten.nll_loss_nd.default(%p, %t)\n",
     "(%_to_copy, %w, %b, %t, None, 1.0, 0.0, " LOW_ARGS},
    {LOW_LINEAR UPCAST VIEW LOSS
     "  %yz: f32[2, 5, 1024] = aten._to_copy.default(%yl, dtype=f32)\n"
     "  %z: f32[2, 5] = aten.logsumexp.default(%yz, [-1])\n"
     "  %sq: f32[2, 5] = aten.pow.Tensor_Scalar(%z, 2)\n"
     "  %m: f32[] = aten.mean.default(%sq)\n"
     "  output user %m \"1\"\n",
     "(%_to_copy, %w, %b, %t, None, 1.0, 0.0, 1, -100, 0.0, 1, low=bf16)"},
    /* a transposed weight, cast before and after */
    {CAST("%wl", "%w", "1024, 3")
         CAST("%hl", "%h",
              "2, 5, 3") "  %tw: bf16[3, 1024]:(1, 3) view of %wl + 0 = "
                         "aten.t.default(%wl)\n"
                         "  %yl: bf16[2, 5, 1024] = aten.matmul.default(%hl, "
                         "%tw)\n" UPCAST VIEW LOSS,
     "(%_to_copy, %w, None, %t, None, 1.0, 0.0, " LOW_ARGS},
    {"  %tw: f32[3, 1024]:(1, 3) view of %w + 0 = aten.t.default(%w)\n" CAST(
         "%hl", "%h",
         "2, 5, 3") "  %wl: bf16[3, 1024] = aten._to_copy.default(%tw, "
                    "dtype=bf16)\n"
                    "  %yl: bf16[2, 5, 1024] = aten.matmul.default(%hl, "
                    "%wl)\n" UPCAST VIEW LOSS,
     "(%_to_copy, %w, None, %t, None, 1.0, 0.0, " LOW_ARGS},

    /* a weight cast long before the layer; one that something else reads; bf16
     * losses; logits rounded a second time */
    {CAST("%wl", "%w", "1024, 3") CAST(
         "%bl", "%b",
         "1024") "  %g: f32[2, 5, 3] = aten.tanh.default(%h)\n" CAST("%hl",
                                                                     "%g",
                                                                     "2, 5, 3")
         LOW_LAYER UPCAST VIEW LOSS,
     NULL},
    {LOW_LINEAR UPCAST VIEW
     "  %l: f32[] = aten.cross_entropy_loss.default(%v, %t)\n"
     "  %s: bf16[] = aten.sum.default(%wl)\n"
     "  %loss: f32[] = aten.add.Tensor(%l, %s)\n",
     NULL},
    {LOW_LINEAR
     "  %v: bf16[10, 1024] view of %yl + 0 = aten.view.default(%yl, [-1, "
     "1024])\n"
     "  %loss: bf16[] = aten.cross_entropy_loss.default(%v, %t)\n",
     NULL},
    {LINEAR CAST("%yl", "%y",
                 "2, 5, 1024") "  %yu: f32[2, 5, 1024] = "
                               "aten._to_copy.default(%yl, dtype=f32)\n"
                               "  %v: f32[10, 1024] view of %yu + 0 = "
                               "aten.view.default(%yu, [-1, "
                               "1024])\n" LOSS,
     NULL},

    /* a weight that is not transposed; half of one; one transposed long before;
     * a scaled product */
    {"  %y: f32[2, 5, 1024] = aten.matmul.default(%h, %across)\n" VIEW LOSS,
     NULL},
    {"  %tw: f32[3, 1024]:(1, 3) view of %wide + 0 = "
     "aten.as_strided.default(%wide, [3, 1024], [1, 3], 0)\n"
     "  %y: f32[2, 5, 1024] = aten.matmul.default(%h, %tw)\n" VIEW LOSS,
     NULL},
    {"  %tw: f32[3, 1024]:(1, 3) view of %w + 0 = aten.t.default(%w)\n"
     "  %g: f32[2, 5, 3] = aten.tanh.default(%h)\n"
     "  %y: f32[2, 5, 1024] = aten.matmul.default(%g, %tw)\n" VIEW LOSS,
     NULL},
    {"  %tw: f32[3, 1024]:(1, 3) view of %w + 0 = aten.t.default(%w)\n"
     "  %x: f32[10, 3] view of %h + 0 = aten.view.default(%h, [10, 3])\n"
     "  %y: f32[10, 1024] = aten.addmm.default(%b, %x, %tw, beta=2)\n"
     "  %loss: f32[] = aten.cross_entropy_loss.default(%y, %t)\n",
     NULL},
    /* a transposed weight that something else reads, too: a penalty; the head
     * of other rows */
    {TRANSPOSED "  %y: f32[10, 1024] = aten.matmul.default(%x, %tw)\n"
                "  %l: f32[] = aten.cross_entropy_loss.default(%y, %t)\n"
                "  %m: f32[3, 1024] = aten.mul.Tensor(%tw, %tw)\n"
                "  %s: f32[] = aten.sum.default(%m)\n"
                "  %loss: f32[] = aten.add.Tensor(%l, %s)\n",
     NULL},
    {TRANSPOSED "  %y: f32[10, 1024] = aten.addmm.default(%b, %x, %tw)\n"
                "  %l: f32[] = aten.cross_entropy_loss.default(%y, %t)\n"
                "  %r: f32[10, 3] = aten.tanh.default(%x)\n"
                "  %z: f32[10, 1024] = aten.mm.default(%r, %tw)\n"
                "  %m: f32[] = aten.cross_entropy_loss.default(%z, %t)\n"
                "  %loss: f32[] = aten.add.Tensor(%l, %m)\n",
     NULL},
    /* no gradient goes through the view */
    {"  %tw: f32[3, 1024]:(1, 3) view of %w + 0 = aten.t.default(%w) # - - F "
     "id=3 no_grad\n"
     "  %y: f32[2, 5, 1024] = aten.matmul.default(%h, %tw)\n" VIEW LOSS,
     NULL},
    /* few classes */
    {"  %y: f32[2, 5, 1023] = aten.linear.default(%h, %few)\n"
     "  %v: f32[10, 1023] view of %y + 0 = aten.view.default(%y, [-1, "
     "1023])\n" LOSS,
     NULL},
    /* weights of classes; no reduction; probabilities */
    {LINEAR VIEW
     "  %loss: f32[] = aten.cross_entropy_loss.default(%v, %t, %c)\n",
     NULL},
    {LINEAR VIEW
     "  %l: f32[10] = aten.cross_entropy_loss.default(%v, %t, None, 0)\n"
     "  %loss: f32[] = aten.sum.default(%l)\n",
     NULL},
    {LINEAR VIEW "  %loss: f32[] = aten.cross_entropy_loss.default(%v, %q)\n",
     NULL},
    /* another node reads the logits, or the log-probabilities, or the sum of
     * weights */
    {LINEAR VIEW LOSS "  %z: f32[2, 5] = aten.logsumexp.default(%y, [-1])\n"
                      "  output user %z \"1\"\n",
     NULL},
    /* these are no z-losses: a cube; a mask with a gradient; one over rows; of
     * logits before their cap; a square that something else reads; a loss
     * computed from it */
    {LINEAR VIEW LOSS Z "  %sq: f32[2, 5] = aten.pow.Tensor_Scalar(%z, 3)\n"
                        "  %m: f32[] = aten.mean.default(%sq)\n"
                        "  output user %m \"1\"\n",
     NULL},
    {LINEAR VIEW LOSS
     "  %z: f32[10] = aten.logsumexp.default(%v, [1])\n"
     "  %sq: f32[10] = aten.mul.Tensor(%z, %z)\n"
     "  %c0: f32[10]:(1024) view of %q + 0 = aten.select.int(%q, 1, 0)\n"
     "  %p: f32[10] = aten.mul.Tensor(%sq, %c0)\n"
     "  %m: f32[] = aten.mean.default(%p)\n"
     "  output user %m \"1\"\n",
     NULL},
    {LINEAR VIEW LOSS "  %z: f32[1024] = aten.logsumexp.default(%v, [0])\n"
                      "  %sq: f32[1024] = aten.pow.Tensor_Scalar(%z, 2)\n"
                      "  %m: f32[] = aten.mean.default(%sq)\n"
                      "  output user %m \"1\"\n",
     NULL},
    {LINEAR VIEW "  %d: f32[10, 1024] = aten.tanh.default(%v)\n"
                 "  %loss: f32[] = aten.cross_entropy_loss.default(%d, %t)\n" Z
                 "  %sq: f32[2, 5] = aten.pow.Tensor_Scalar(%z, 2)\n"
                 "  %m: f32[] = aten.mean.default(%sq)\n"
                 "  output user %m \"1\"\n",
     NULL},
    {LINEAR VIEW LOSS Z "  %sq: f32[2, 5] = aten.pow.Tensor_Scalar(%z, 2)\n"
                        "  %m: f32[] = aten.mean.default(%sq)\n"
                        "  %n: f32[] = aten.sum.default(%sq)\n"
                        "  output user %m \"1\"\n"
                        "  output user %n \"2\"\n",
     NULL},

    {LINEAR VIEW "  %p: f32[10, 1024] = aten.log_softmax.int(%v, -1)\n"
                 "  %loss: f32[] = aten.nll_loss_nd.default(%p, %t)\n"
                 "  %z: f32[] = aten.sum.default(%p)\n"
                 "  output user %z \"1\"\n",
     NULL},
    {LINEAR VIEW
     "  %p: f32[10, 1024] = aten._log_softmax.default(%v, 1, False)\n"
     "  %loss: f32[], %n: f32[] = aten.nll_loss_forward.default(%p, %t, None, "
     "1, 3)\n"
     "  %z: f32[] = aten.sqrt.default(%n)\n"
     "  output user %z \"1\"\n",
     NULL},
    /* a softmax over rows; rows that are not those of the layer; a slice of
     * classes */
    {LINEAR VIEW "  %p: f32[10, 1024] = aten.log_softmax.int(%v, 0)\n"
                 "  %loss: f32[] = aten.nll_loss_nd.default(%p, %t)\n",
     NULL},
    {"  %y: f32[2, 5, 2048] = aten.linear.default(%h, %wide)\n"
     "  %s: f32[2, 5, 1024]:(10240, 2048, 1) view of %y + 0 = "
     "aten.slice.Tensor(%y, -1, 0, 1024)\n"
     "  %v: f32[10, 1024]:(2048, 1) view of %y + 0 = "
     "aten.reshape.default(%s, [-1, 1024])\n" LOSS,
     NULL},
    {"  %y: f32[2, 5, 1024] = aten.linear.default(%h, %w, %b)\n"
     "  %r: f32[2, 1024, 5]:(5120, 1, 1024) view of %y + 0 = "
     "aten.transpose.int(%y, 1, 2)\n"
     "  %v: f32[10, 1024] = aten.reshape.default(%r, [10, 1024])\n" LOSS,
     NULL},
    /* two caps; a negative one; no layer; without a gradient */
    {LINEAR VIEW "  %d: f32[10, 1024] = aten.tanh.default(%v)\n"
                 "  %m: f32[10, 1024] = aten.tanh.default(%d)\n"
                 "  %loss: f32[] = aten.cross_entropy_loss.default(%m, %t)\n",
     NULL},
    {LINEAR VIEW "  %d: f32[10, 1024] = aten.tanh.default(%v)\n"
                 "  %m: f32[10, 1024] = aten.mul.Scalar(%d, -2.0)\n"
                 "  %loss: f32[] = aten.cross_entropy_loss.default(%m, %t)\n",
     NULL},
    {"  %loss: f32[] = aten.cross_entropy_loss.default(%q, %t)\n", NULL},
    {LINEAR VIEW "  %loss: f32[] = aten.cross_entropy_loss.default(%v, %t) # - "
                 "- F id=3 no_grad\n",
     NULL},
};

static struct pst_graph *parse(const char *nodes)
{
    struct pst_graph *graph;
    char text[4096];

    assert_true(snprintf(text, sizeof(text), "%s%s%s", INPUTS, nodes, END) <
                (int)sizeof(text));
    if (pst_graph_parse(text, &graph, &diag) != PST_OK)
        fail_msg("%s: %s", nodes, diag.text);
    return graph;
}

static void finds_and_folds(void **state)
{
    (void)state;
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        struct pst_graph *graph = parse(rows[i].text);
        struct pst_str out = {0};
        struct pst_heads heads;
        const char *at;

        assert_ok(pst_heads_find(graph, NULL, &heads, &diag), &diag);
        if (heads.list.n != (rows[i].folded != NULL))
            fail_msg("%s: %zu heads", rows[i].text, heads.list.n);
        assert_ok(pst_heads_fold(graph, &heads, &diag), &diag);
        assert_ok(pst_graph_verify(graph, &diag), &diag);
        pst_graph_dce(graph, false);
        assert_ok(pst_graph_verify(graph, &diag), &diag);
        pst_graph_print(graph, &out);
        at = strstr(pst_str_text(&out), "penstock.linear_cross_entropy");
        if ((at != NULL) != (rows[i].folded != NULL) ||
            (at != NULL && strncmp(strchr(at, '('), rows[i].folded,
                                   strlen(rows[i].folded)) != 0))
            fail_msg("%s becomes\n%s", rows[i].text, pst_str_text(&out));
        /* nothing else reads the layer */
        if (at != NULL && strstr(pst_str_text(&out), "aten.linear") != NULL)
            fail_msg("%s: the layer stays\n%s", rows[i].text,
                     pst_str_text(&out));
        pst_str_fini(&out);
        pst_heads_fini(&heads);
        pst_graph_free(graph);
    }
}

/* Outputs may be logits, but another stage may not read them. */
static void readers_outside(void **state)
{
    struct pst_graph *graph =
        parse(LINEAR VIEW LOSS "  output user %y \"1\"\n");
    bool read[32] = {false};
    struct pst_heads heads;

    (void)state;
    assert_true(graph->values.n < PST_COUNT(read));
    assert_ok(pst_heads_find(graph, read, &heads, &diag), &diag);
    assert_int_equal(heads.list.n, 1);
    assert_int_equal(heads.list.at[0].first, 0);
    assert_int_equal(heads.list.at[0].linear, 0);
    assert_int_equal(heads.list.at[0].loss, 2);
    assert_int_equal(heads.list.at[0].last, 2);
    pst_heads_mark(graph, &heads.list.at[0], read);
    assert_true(read[pst_graph_find(graph, "y")->id]);
    assert_true(read[pst_graph_find(graph, "v")->id]);
    assert_false(read[pst_graph_find(graph, "loss")->id]);
    assert_false(read[pst_graph_find(graph, "h")->id]);
    pst_heads_fini(&heads);
    read[pst_graph_find(graph, "v")->id] = false;
    assert_ok(pst_heads_find(graph, read, &heads, &diag), &diag);
    assert_int_equal(heads.list.n, 0);
    pst_heads_fini(&heads);
    pst_graph_free(graph);
}

/* Another stage may not read the transposed weight: the operator for heads does
 * not compute it. */
static void weights_read_outside(void **state)
{
    struct pst_graph *graph =
        parse(TRANSPOSED
              "  %y: f32[10, 1024] = aten.addmm.default(%b, %x, %tw)\n"
              "  %loss: f32[] = aten.cross_entropy_loss.default(%y, %t)\n");
    bool read[32] = {false};

    (void)state;
    assert_true(graph->values.n < PST_COUNT(read));
    for (unsigned i = 0; i < 2; i++) {
        struct pst_heads heads;

        read[pst_graph_find(graph, "tw")->id] = i == 1;
        assert_ok(pst_heads_find(graph, read, &heads, &diag), &diag);
        assert_int_equal(heads.list.n, i == 0);
        pst_heads_fini(&heads);
    }
    pst_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_and_folds),
        cmocka_unit_test(readers_outside),
        cmocka_unit_test(weights_read_outside),
    };

    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
