// SPDX-License-Identifier: Apache-2.0
/* Automatic cuts are as good as the best of all possible cuts. */
#include "tests/split/model.h"

#include "stages/base/str.h"
#include "stages/cost/cost.h"
#include "stages/split/assign/assign.h"

#include <math.h>
#include <stdio.h>

#define NODE " # - - F id=0\n"

static struct pst_diag diag;

static struct pst_plan *split(struct pst_model *model,
                              const struct pst_split_options *options)
{
    struct pst_plan *plan;

    assert_ok(pst_split(model, options, &plan, &diag), &diag);
    return plan;
}

static void expect_refusal(struct pst_model *model,
                           const struct pst_split_options *options,
                           enum pst_status status, const char *text)
{
    struct pst_plan *plan;

    assert_int_equal(pst_split(model, options, &plan, &diag), status);
    if (strstr(diag.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, diag.text);
}

/* --- random graphs ------------------------------------------------------ */

static unsigned draw(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (unsigned)(((uint64_t)(*seed >> 4) * n) >> 28);
}

/* Makes a chain of matmuls of different widths with skips, views and shared
 * parameters. */
static void random_text(struct pst_str *text, unsigned seed, unsigned n)
{
    static const unsigned wide[] = {8, 24, 40, 64};
    unsigned width[64], shape[64];

    pst_str_add(text, "graph next_id=1 {\n  input %v0: f32[16, 8]\n");
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 4; k++)
            pst_str_addf(text, "  param %%w%u%u \"w%u%u\" grad: f32[%u, %u]\n",
                         i, k, i, k, wide[i], wide[k]);
    width[0] = 0;
    shape[0] = 0;
    for (unsigned i = 1; i < n; i++) {
        const unsigned from = draw(&seed, 3) ? i - 1 : draw(&seed, i);
        unsigned other = draw(&seed, i);

        for (unsigned k = 0; k < i && shape[other] != shape[from]; k++)
            other = (other + 1) % i;
        shape[i] = shape[from];
        switch (draw(&seed, 4)) {
        case 0:
            pst_str_addf(text,
                         "  %%v%u: f32[16, %u] = aten.add.Tensor(%%v%u, "
                         "%%v%u)" NODE,
                         i, wide[shape[from]], from, other);
            break;
        case 1:
            pst_str_addf(text,
                         "  %%v%u: f32[16, %u] view of %%v%u + 0 = "
                         "aten.alias.default(%%v%u)" NODE,
                         i, wide[shape[from]], width[from], from);
            break;
        default:
            shape[i] = draw(&seed, 4);
            pst_str_addf(text,
                         "  %%v%u: f32[16, %u] = aten.mm.default(%%v%u, "
                         "%%w%u%u)" NODE,
                         i, wide[shape[i]], from, shape[from], shape[i]);
        }
        /* The value that owns the memory, also of a view of a view. */
        width[i] = strstr(text->text + text->len - 40, "alias") != NULL
                       ? width[from]
                       : i;
    }
    pst_str_addf(text, "  output user %%v%u \"0\"\n", n - 1);
    pst_str_addf(text, "  output user %%v%u \"1\"\n}\n", n / 2);
}

/* Returns the cost of the most expensive stage of a plan, and the bytes that
 * all stages send in *bytes. */
static double worst_of(const struct pst_plan *plan, bool memory, double *bytes)
{
    double worst = 0.0;

    *bytes = 0.0;
    for (unsigned s = 0; s < plan->stages.n; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;
        const struct pst_cost_setup setup = {0};
        double cost = 0.0;

        for (size_t i = 0; !memory && i < graph->nodes.n; i++)
            cost += 3.0 * pst_cost_of_node(&setup, graph->nodes.at[i]);
        for (size_t i = 0; i < plan->edges.n; i++) {
            const struct pst_edge *edge = &plan->edges.at[i];
            const double size = (double)pst_meta_bytes(&edge->meta);

            if (edge->to_stage != s)
                continue;
            *bytes += 2.0 * size;
            cost += memory ? size : 2.0 * size / pst_rates_reference.wire;
        }
        for (size_t i = 0; memory && i < graph->values.n; i++) {
            const struct pst_value *value = graph->values.at[i];
            const double size = (double)pst_meta_bytes(&value->meta);

            if (value->kind == PST_VALUE_PARAM)
                cost += 4.0 * size;
            else if (value->kind == PST_VALUE_NODE && value->base == NULL)
                cost += size;
        }
        for (size_t i = 0; memory && i < graph->inputs.n; i++)
            if (plan->stages.at[s].inputs[i].kind == PST_SOURCE_MODEL_INPUT)
                cost += (double)pst_meta_bytes(&graph->inputs.at[i]->meta);
        worst = fmax(worst, cost);
    }
    return worst;
}

/* State of an enumeration of all choices of cuts, by names of nodes. */
struct search {
    struct pst_model *model;
    unsigned n, n_stages;
    bool memory;
    char names[8][16];
    const char *at[8];
    double worst, bytes;
    /* Finds the fewest bytes among cuts up to this cost; HUGE_VAL: finds the
     * lowest cost. */
    double limit;
};

static void try_all(struct search *search, unsigned k, unsigned from)
{
    struct pst_split_options options = {.at = search->at, .n_at = k};
    struct pst_plan *plan;
    double worst, bytes;

    if (k + 1 < search->n_stages) {
        for (unsigned i = from; i < search->n; i++) {
            char name[16];

            snprintf(name, sizeof(name), "v%u", i);
            if (pst_graph_find(search->model->graph, name) == NULL)
                continue;
            strcpy(search->names[k], name);
            search->at[k] = search->names[k];
            try_all(search, k + 1, i + 1);
        }
        return;
    }
    if (pst_split(search->model, &options, &plan, &diag) != PST_OK)
        return; /* the node is dead */
    if (plan->stages.n == search->n_stages) {
        worst = worst_of(plan, search->memory, &bytes);
        search->worst = fmin(worst, search->worst);
        if (worst <= search->limit)
            search->bytes = fmin(bytes, search->bytes);
    }
    pst_plan_free(plan);
}

static void compare_search(unsigned seed, unsigned n_stages, bool memory)
{
    struct search search = {.n = 13, .n_stages = n_stages, .memory = memory};
    const struct pst_split_options options = {
        .stages = n_stages, .policy = memory ? "memory" : "flops"};
    const double slack = memory ? 0.0 : PST_SPLIT_SLACK;
    struct pst_str text = {0};
    struct pst_model model;
    struct pst_plan *plan;
    double worst, bytes;

    random_text(&text, seed, search.n);
    model_init(&model, text.text, NULL, 0);
    search.model = &model;
    search.worst = search.bytes = search.limit = HUGE_VAL;
    try_all(&search, 0, 1);
    search.bytes = HUGE_VAL;
    search.limit = search.worst * (1 + slack) * (1 - 1e-9);
    if (slack == 0.0)
        search.limit = search.worst * (1 + 1e-12);
    try_all(&search, 0, 1);
    if (search.worst < HUGE_VAL) {
        plan = split(&model, &options);
        assert_int_equal(plan->stages.n, n_stages);
        worst = worst_of(plan, memory, &bytes);
        if (!(worst <= search.worst * (1 + slack) * (1 + 1e-9)) ||
            bytes > search.bytes)
            fail_msg("seed %u, %u stages: %g s and %g bytes, the best is %g s "
                     "and %g bytes\n%s",
                     seed, n_stages, worst, bytes, search.worst, search.bytes,
                     text.text);
        pst_plan_free(plan);
    } else {
        expect_refusal(&model, &options, PST_ERR_INPUT, "at most");
    }
    model_fini(&model);
    pst_str_fini(&text);
}

static void is_as_good_as_any_cut(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 24; seed++)
        for (unsigned stages = 2; stages <= 4; stages++)
            compare_search(seed, stages, seed % 2);
}

/* --- by hand ------------------------------------------------------------ */

/* Expects the stage of each node of the whole graph, as digits; ignores notes.
 */
static void expect(struct pst_model *model,
                   const struct pst_split_options *options, const char *want)
{
    struct pst_plan *plan = split(model, options);
    char got[64] = "";

    for (unsigned s = 0; s < plan->stages.n; s++)
        for (size_t i = 0; i < plan->stages.at[s].graph->nodes.n; i++)
            sprintf(got + strlen(got), "%u", s);
    assert_string_equal(got, want);
    pst_plan_free(plan);
}

/* The first node costs more than all others together, so the other cut may be
 * anywhere: it is where the value is smallest. */
static void sends_the_fewest_bytes(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[64, 64]\n"
        "  param %w \"w\" grad: f32[64, 64]\n"
        "  param %s \"s\" grad: f32[64]\n"
        "  %a: f32[64, 64] = aten.mm.default(%x, %w)" NODE
        "  %b: f32[64, 64] = aten.exp.default(%a)" NODE
        "  %c: f32[64] = aten.sum.dim_IntList(%b, [1])" NODE
        "  %d: f32[] = aten.sum.default(%c)" NODE
        "  %e: f32[64] = aten.mul.Tensor(%s, %d)" NODE
        "  %f: f32[64] = aten.exp.default(%e)" NODE "  output user %f \"0\"\n"
        "}\n";
    static const struct pst_split_options two = {.stages = 2,
                                                 .policy = "flops"},
                                          three = {.stages = 3,
                                                   .policy = "flops"};
    struct pst_model model;

    (void)state;
    model_init(&model, text, NULL, 0);
    expect(&model, &two, "011111");
    expect(&model, &three, "011122");
    model_fini(&model);
}

/* A head of a language model stays in one stage: a cut inside it is moved
 * before it, with a note, and no policy chooses one. Logits that are no head's
 * may be sent. */
static void keeps_heads_whole(void **state)
{
    static const char text[] =
        "graph next_id=9 {\n"
        "  input %%x: f32[8, 4]\n"
        "  input %%t: i64[8]\n"
        "  param %%v \"v\" grad: f32[%u, 4]\n"
        "  %%h: f32[8, 4] = aten.tanh.default(%%x) # a - F id=0\n"
        "  %%y: f32[8, %u] = aten.linear.default(%%h, %%v) # o - F id=1\n"
        "  %%loss: f32[] = aten.cross_entropy_loss.default(%%y, %%t) # l - F "
        "id=2\n"
        "  output user %%loss \"0\"\n"
        "}\n";
    static const char *const modules[] = {"a", "o", "l"};
    static const char *const at[] = {"o:end"};
    static const struct pst_split_options named = {.at = at, .n_at = 1},
                                          two = {.stages = 2,
                                                 .policy = "flops",
                                                 .bandwidth = 1e15};

    (void)state;
    for (unsigned classes = 1023; classes <= 1024; classes++) {
        const bool is_head = classes == 1024;
        struct pst_model model;
        struct pst_plan *plan;
        char graph[800];

        (void)snprintf(graph, sizeof(graph), text, classes, classes);
        model_init(&model, graph, modules, PST_COUNT(modules));
        expect(&model, &named, is_head ? "011" : "001");
        expect(&model, &two, is_head ? "011" : "001");
        plan = split(&model, &named);
        assert_int_equal(plan->notes.n, is_head);
        if (is_head)
            assert_non_null(strstr(plan->notes.at[0],
                                   "\"o:end\" is moved before the linear "
                                   "layer in module \"o\""));
        pst_plan_free(plan);
        model_fini(&model);
    }
}

/* No cut comes between a weight's conversion and its matmul, not even one that
 * leaves a stage nothing else. */
#define CONVERTED(WEIGHT, BIAS)                                                \
    "graph next_id=9 {\n"                                                      \
    "  input %x: f32[8, 4]\n"                                                  \
    "  param %v \"v\" grad: f32[4, 4]\n"                                       \
    "  param %b \"b\" grad: f32[4]\n"                                          \
    "  %h: f32[8, 4] = aten.tanh.default(%x) # a - F id=0\n"                   \
    "  %l: bf16[8, 4] = aten._to_copy.default(%h, dtype=bf16) # b - F "        \
    "id=1\n"                                                                   \
    "  %w: bf16[4, 4] = aten." WEIGHT " # c - F id=2\n"                        \
    "  %c: bf16[4] = aten." BIAS " # d - F id=3\n"                             \
    "  %y: bf16[8, 4] = aten.linear.default(%l, %w, %c) # o - F id=4\n"        \
    "  %loss: bf16[] = aten.sum.default(%y) # s - F id=5\n"                    \
    "  output user %loss \"0\"\n"                                              \
    "}\n"

static void keeps_conversions_at_readers(void **state)
{
    static const char *const texts[] = {
        CONVERTED("_to_copy.default(%v, dtype=bf16)",
                  "_to_copy.default(%b, dtype=bf16)"),
        /* as a model writes them itself */
        CONVERTED("to.dtype(%v, bf16)", "to.dtype_layout(%b, dtype=bf16)"),
        CONVERTED("type_as.default(%v, %l)", "to.other(%b, %l)"),
    };
    static const char *const modules[] = {"a", "b", "c", "d", "o", "s"};
    static const char *const at[] = {"c", "o"}, *const late[] = {"d", "s"};
    static const struct pst_split_options named = {.at = at, .n_at = 2},
                                          third = {.at = late, .n_at = 2},
                                          four = {.stages = 4,
                                                  .policy = "flops",
                                                  .bandwidth = 1e15};

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(texts); i++) {
        struct pst_model model;

        model_init(&model, texts[i], modules, PST_COUNT(modules));
        expect(&model, &named, "001111");
        expect(&model, &third, "001112");
        expect(&model, &four, "012223");
        model_fini(&model);
    }
}

/* Heads that overlap: a cut in the second one is moved before the first one,
 * with one note. Cuts that are moved to the same place are one, and a note says
 * so. */
static void keeps_overlapping_heads_whole(void **state)
{
    static const char text[] =
        "graph next_id=9 {\n"
        "  input %x: f32[8, 4]\n"
        "  input %t: i64[8]\n"
        "  param %v \"v\" grad: f32[1024, 4]\n"
        "  param %w \"w\" grad: f32[1024, 4]\n"
        "  %h: f32[8, 4] = aten.tanh.default(%x) # a - F id=0\n"
        "  %y: f32[8, 1024] = aten.linear.default(%h, %v) # o - F id=1\n"
        "  %z: f32[8, 1024] = aten.linear.default(%h, %w) # p - F id=2\n"
        "  %l: f32[] = aten.cross_entropy_loss.default(%y, %t) # l - F id=3\n"
        "  %m: f32[] = aten.cross_entropy_loss.default(%z, %t) # m - F id=4\n"
        "  %loss: f32[] = aten.add.Tensor(%l, %m) # s - F id=5\n"
        "  output user %loss \"0\"\n"
        "}\n";
    static const char *const modules[] = {"a", "o", "p", "l", "m", "s"};
    static const struct {
        const char *at[3], *want;
        size_t n, notes;
    } rows[] = {
        {{"m"}, "011111", 1, 1},      {{"l"}, "011111", 1, 1},
        {{"p"}, "011111", 1, 1},      {{"o"}, "011111", 1, 0},
        {{"m", "s"}, "011112", 2, 1}, {{"p", "m"}, "011111", 2, 3},
        {{"o", "m"}, "011111", 2, 2}, {{"m", "l", "s"}, "011112", 3, 3},
    };
    struct pst_split_options options = {0};
    struct pst_model model;

    (void)state;
    model_init(&model, text, modules, PST_COUNT(modules));
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        struct pst_plan *plan;

        options.at = rows[i].at;
        options.n_at = rows[i].n;
        expect(&model, &options, rows[i].want);
        plan = split(&model, &options);
        assert_int_equal(plan->notes.n, rows[i].notes);
        if (rows[i].notes > 0)
            assert_non_null(strstr(plan->notes.at[0],
                                   "is moved before the linear layer in module "
                                   "\"o\""));
        if (rows[i].notes > rows[i].n)
            assert_non_null(strstr(plan->notes.at[rows[i].notes - 1],
                                   "is ignored: nothing that is used is "
                                   "computed between it and the cut before"));
        pst_plan_free(plan);
    }
    options = (struct pst_split_options){
        .at = rows[5].at, .n_at = rows[5].n, .stages = 3};
    expect_refusal(&model, &options, PST_ERR_INPUT,
                   "these names make 2 stages, not 3");
    model_fini(&model);
}

/* A marker in a head is moved even if a dead node reads the head's logits, or
 * if a dead node comes with the marker between the view of the weight and the
 * layer. */
static void keeps_heads_whole_beside_dead_nodes(void **state)
{
    static const char text[] =
        "graph next_id=9 {\n"
        "  input %x: f32[8, 4]\n"
        "  input %t: i64[8]\n"
        "  param %v \"v\" grad: f32[1024, 4]\n"
        "  %h: f32[8, 4] = aten.tanh.default(%x) # a - F id=0\n";
    static const char *const rests[] = {
        "  %y: f32[8, 1024] = aten.linear.default(%h, %v) # o - F id=1\n"
        "  %z: f32[8, 1024] = aten.tanh.default(%y) # o - F id=2\n"
        "  pippy._pipe_split.default() # - - F id=3\n",
        "  %w: f32[4, 1024]:(1, 4) view of %v + 0 = aten.t.default(%v) # o - "
        "F id=1\n"
        "  %z: f32[8, 4] = aten.exp.default(%h) # o - F id=2\n"
        "  pippy._pipe_split.default() # - - F id=3\n"
        "  %y: f32[8, 1024] = aten.mm.default(%h, %w) # o - F id=4\n"};
    static const char *const modules[] = {"a", "o", "l"}, *const want[] = {
                                                              "011", "0111"};
    const struct pst_split_options options = {0};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(rests); i++) {
        struct pst_model model;
        char graph[1000];

        (void)snprintf(graph, sizeof(graph),
                       "%s%s"
                       "  %%loss: f32[] = aten.cross_entropy_loss.default(%%y, "
                       "%%t) # l - F id=5\n"
                       "  output user %%loss \"0\"\n"
                       "}\n",
                       text, rests[i]);
        model_init(&model, graph, modules, PST_COUNT(modules));
        expect(&model, &options, want[i]);
        model_fini(&model);
    }
}

/* Matmuls on one side, elementwise operators on the other: the balanced cut
 * depends on the machine, and the plan names the machine. */
static void cuts_by_the_rates_given(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[256, 256]\n"
        "  param %w \"w\" grad: f32[256, 256]\n"
        "  %a: f32[256, 256] = aten.mm.default(%x, %w)" NODE
        "  %b: f32[256, 256] = aten.mm.default(%a, %w)" NODE
        "  %c: f32[256, 256] = aten.exp.default(%b)" NODE
        "  %d: f32[256, 256] = aten.exp.default(%c)" NODE
        "  output user %d \"0\"\n"
        "}\n";
    struct pst_rates slow = pst_rates_reference;
    struct pst_split_options options = {
        .stages = 2, .policy = "flops", .bandwidth = 1e15};
    struct pst_model model;
    struct pst_plan *plan;

    (void)state;
    slow.bytes /= 100;
    slow.measured = true;
    model_init(&model, text, NULL, 0);
    expect(&model, &options, "0111");
    options.rates = &slow;
    expect(&model, &options, "0011");
    plan = split(&model, &options);
    assert_non_null(strstr(plan->cut_by, "memory 0.1 GB/s a core (measured)"));
    pst_plan_free(plan);
    options.policy = "memory";
    plan = split(&model, &options);
    assert_null(plan->cut_by);
    pst_plan_free(plan);
    model_fini(&model);
}

static const char layers[] =
    "graph next_id=1 {\n"
    "  input %x: f32[4, 4]\n"
    "  param %w \"w\" grad: f32[4, 4]\n"
    "  %a: f32[4, 4] = aten.mm.default(%x, %w) # emb - F id=0\n"
    "  %b: f32[4, 4] = aten.mm.default(%a, %w) # enc.0.fc.0 - F id=0\n"
    "  %c: f32[4, 4] = aten.mm.default(%b, %w) # enc.0.fc.1 - F id=0\n"
    "  %d: f32[4, 4] = aten.mm.default(%c, %w) # enc.1.fc.0 - F id=0\n"
    "  %e: f32[4, 4] = aten.exp.default(%d) # - - F id=0\n"
    "  %f: f32[4, 4] = aten.mm.default(%e, %w) # dec.only.0 - F id=0\n"
    "  %g: f32[4, 4] = aten.mm.default(%f, %w) # enc.2 - F id=0\n"
    "  %h: f32[4, 4] = aten.mm.default(%g, %w) # head - F id=0\n"
    "  output user %h \"0\"\n"
    "}\n";
static const char *const modules[] = {
    "emb",      "enc",        "enc.0",      "enc.1",      "enc.2",
    "enc.0.fc", "enc.0.fc.0", "enc.0.fc.1", "dec.only.0", "head"};

static void cuts_at_layers(void **state)
{
    struct pst_split_options options = {.policy = "layers", .bandwidth = 1e15};
    struct pst_model model;

    (void)state;
    model_init(&model, layers, modules, PST_COUNT(modules));
    expect(&model, &options, "00011122");
    options.stages = 2;
    expect(&model, &options, "00011111");
    options.stages = 4;
    expect_refusal(&model, &options, PST_ERR_INPUT, "at most 3, by layers");
    model_fini(&model);
    model_init(&model,
               "graph next_id=1 {\n  input %x: f32[3]\n"
               "  %a: f32[3] = aten.exp.default(%x) # one.0 - F id=0\n"
               "  output user %a \"0\"\n}\n",
               NULL, 0);
    expect_refusal(&model, &options, PST_ERR_INPUT, "no list of layers");
    model_fini(&model);
}

static void cuts_at_nodes(void **state)
{
    static const char *const at[] = {"d", "g:end", "enc.2"};
    static const char *const wrong = "dd2";
    struct pst_split_options options = {.at = at, .n_at = 3};
    struct pst_model model;

    (void)state;
    model_init(&model, layers, modules, PST_COUNT(modules));
    expect(&model, &options, "00011123");
    options.stages = 5;
    expect_refusal(&model, &options, PST_ERR_INPUT,
                   "these names make 4 stages, not 5");
    options = (struct pst_split_options){.at = &wrong, .n_at = 1};
    expect_refusal(&model, &options, PST_ERR_INPUT,
                   "no module and no node of that name");
    model_fini(&model);
}

static void obeys_measured_times(void **state)
{
    static const struct pst_split_cost slow[] = {
        {"emb", 1.0}, {"enc.0.fc.0", 9.0}, {"enc.0.fc.1", 0.1},
        {"d", 0.1},   {"dec.only.0", 0.1}, {"enc.2", 0.1}};
    /* An operator without a measurement takes three times its estimate, like
     * these two. */
    static const struct pst_split_cost two[] = {{"h", 5.0}, {"b", 1.0}};
    static const struct pst_split_cost none[] = {{"enc.0.fc.1x", 1.0}};
    static const struct pst_split_cost bad[] = {{"emb", -1.0}};
    struct pst_split_options options = {
        .policy = "flops", .stages = 3, .costs = slow, .n_costs = 6};
    struct pst_model model;

    (void)state;
    model_init(&model, layers, modules, PST_COUNT(modules));
    expect(&model, &options, "01222222");
    options.costs = two;
    options.n_costs = 2;
    expect(&model, &options, "00011122");
    options.costs = none;
    options.n_costs = 1;
    expect_refusal(&model, &options, PST_ERR_INPUT,
                   "nearest name is \"enc.0.fc.1\"");
    options.costs = bad;
    expect_refusal(&model, &options, PST_ERR_INPUT, "not a time in seconds");
    options.costs = slow;
    options.policy = "memory";
    expect_refusal(&model, &options, PST_ERR_USAGE, "measured costs");
    model_fini(&model);
}

/* A slow link moves the cut from the large value %b to the small value %c. */
static void counts_what_crosses(void **state)
{
    static const char text[] =
        "graph next_id=1 {\n"
        "  input %x: f32[8, 8]\n"
        "  param %w \"w\" grad: f32[8, 512]\n"
        "  param %v \"v\" grad: f32[512, 8]\n"
        "  %a: f32[8, 512] = aten.mm.default(%x, %w)" NODE
        "  %b: f32[8, 512] = aten.exp.default(%a)" NODE
        "  %c: f32[8, 8] = aten.mm.default(%b, %v)" NODE
        "  %d: f32[8, 8] = aten.exp.default(%c)" NODE "  output user %d \"0\"\n"
        "}\n";
    struct pst_split_options options = {.policy = "flops", .stages = 2};
    struct pst_model model;

    (void)state;
    model_init(&model, text, NULL, 0);
    options.bandwidth = 1e15;
    expect(&model, &options, "0011");
    options.bandwidth = 1e9;
    expect(&model, &options, "0001");
    model_fini(&model);
}

/* There is no cut between reader and writer of a buffer. */
static void keeps_buffers_whole(void **state)
{
    static const char text[] = "graph next_id=1 {\n"
                               "  input %x: f32[8, 8]\n"
                               "  param %w \"w\" grad: f32[8, 8]\n"
                               "  buffer %n \"n\" persistent: f32[8, 8]\n"
                               "  %a: f32[8, 8] = aten.mm.default(%x, %w)" NODE
                               "  %b: f32[8, 8] = aten.add.Tensor(%a, %n)" NODE
                               "  %c: f32[8, 8] = aten.mm.default(%b, %w)" NODE
                               "  %d: f32[8, 8] = aten.mm.default(%c, %w)" NODE
                               "  %e: f32[8, 8] = aten.mul.Tensor(%d, %n)" NODE
                               "  %f: f32[8, 8] = aten.mm.default(%e, %w)" NODE
                               "  output user %f \"0\"\n"
                               "  output buffer %b -> %n \"\"\n"
                               "}\n";
    struct pst_split_options options = {.policy = "flops", .stages = 3};
    struct pst_model model;

    (void)state;
    model_init(&model, text, NULL, 0);
    expect(&model, &options, "011112");
    options.policy = "memory";
    expect(&model, &options, "011112");
    options.stages = 4;
    expect_refusal(&model, &options, PST_ERR_INPUT, "at most 3");
    model_fini(&model);
}

static void survives_lack_of_memory(void **state)
{
    static const char *const at[] = {"d", "enc.0.fc:end"}, *const wrong = "dx";
    static const struct pst_split_options ways[] = {
        {.policy = "layers"},
        {.policy = "layers", .stages = 2},
        {.at = at, .n_at = 2},
        {.at = &wrong, .n_at = 1},
    };
    struct pst_model model;

    (void)state;
    model_init(&model, layers, modules, PST_COUNT(modules));
    for (size_t i = 0; i < PST_COUNT(ways); i++) {
        enum pst_status status = PST_ERR_NOMEM;

        for (unsigned n = 1; status == PST_ERR_NOMEM; n++) {
            const uint64_t live = pst_alloc_live(PST_TAG_PLAN);
            struct pst_plan *plan = NULL;

            pst_alloc_fail_at(n);
            status = pst_split(&model, &ways[i], &plan, &diag);
            pst_alloc_fail_at(0);
            pst_plan_free(plan);
            assert_int_equal(pst_alloc_live(PST_TAG_PLAN), live);
        }
        assert_int_equal(status, i < 3 ? PST_OK : PST_ERR_INPUT);
    }
    model_fini(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_as_good_as_any_cut),
        cmocka_unit_test(sends_the_fewest_bytes),
        cmocka_unit_test(cuts_by_the_rates_given),
        cmocka_unit_test(cuts_at_layers),
        cmocka_unit_test(cuts_at_nodes),
        cmocka_unit_test(obeys_measured_times),
        cmocka_unit_test(counts_what_crosses),
        cmocka_unit_test(keeps_buffers_whole),
        cmocka_unit_test(keeps_heads_whole),
        cmocka_unit_test(keeps_conversions_at_readers),
        cmocka_unit_test(keeps_overlapping_heads_whole),
        cmocka_unit_test(keeps_heads_whole_beside_dead_nodes),
        cmocka_unit_test(survives_lack_of_memory),
    };

    pst_diag_init(&diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
