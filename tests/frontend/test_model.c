// SPDX-License-Identifier: Apache-2.0
/* Tests PyTorch programs as graphs, and which of them are refused. */
#include "tests/test.h"

#include "stages/files/safetensors.h"
#include "stages/frontend/model.h"
#include "stages/ops/core/call.h"
#include "tests/files/repack.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "models/model.json"
#define WEIGHTS "data/weights/model_weights_config.json"

static char dir[] = "/tmp/pst-model-XXXXXX";
static struct pst_diag diag;

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return chdir("/") == 0 && pst_remove_tree(dir, NULL) == PST_OK ? 0 : -1;
}

static const struct pst_value *by_fqn(const struct pst_graph *g,
                                      const char *fqn)
{
    for (size_t i = 0; i < g->values.n; i++)
        if (g->values.at[i]->fqn != NULL &&
            strcmp(g->values.at[i]->fqn, fqn) == 0)
            return g->values.at[i];
    return NULL;
}

static const struct pst_node *first_node(const struct pst_graph *g,
                                         const char *op)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        if (strcmp(g->nodes.at[i]->schema->name, op) == 0)
            return g->nodes.at[i];
    return NULL;
}

static void structure_is_kept(void **state)
{
    static const char *const inputs[] = {"tokens", "extra.scale",
                                         "extra.pair.0", "labels"};
    static const char *const outputs[] = {"loss", "rest.0", "rest.1", "rest.2"};
    const struct pst_node *node;
    const struct pst_value *v;
    struct pst_model *m;
    struct pst_graph *g;

    (void)state;
    assert_ok(pst_model_open(golden("tiny.pt2"), &m, &diag), &diag);
    g = m->graph;
    assert_string_equal(m->name, "tiny");
    assert_false(m->decomposed);
    assert_int_equal(m->modules.n, 4); /* emb, fc, head and spare */
    assert_int_equal(g->inputs.n, PST_COUNT(inputs));
    for (size_t i = 0; i < g->inputs.n; i++)
        assert_string_equal(g->inputs.at[i]->name, inputs[i]);
    for (size_t i = 0; i < PST_COUNT(outputs); i++) {
        assert_int_equal(g->outputs.at[i].kind, PST_OUTPUT_USER);
        assert_string_equal(g->outputs.at[i].path, outputs[i]);
    }
    assert_int_equal(g->outputs.at[2].arg.kind, PST_ARG_NONE);
    assert_int_equal(g->outputs.n, PST_COUNT(outputs) + 1);
    assert_int_equal(g->outputs.at[4].kind, PST_OUTPUT_BUFFER_UPDATE);
    assert_string_equal(g->outputs.at[4].target->fqn, "steps");
    assert_true(g->outputs.at[4].target->persistent);

    /* Tied weights are one parameter; unused weights are kept. */
    assert_int_equal(g->params.n, 5);
    assert_int_equal(m->ties.n, 1);
    assert_int_equal(m->ties.at[0].n_aliases, 1);
    v = by_fqn(g, m->ties.at[0].fqn);
    assert_non_null(v);
    assert_true(v->requires_grad);
    assert_non_null(by_fqn(g, "spare.weight"));
    v = by_fqn(g, "shift");
    assert_non_null(v);
    assert_int_equal(v->kind, PST_VALUE_BUFFER);
    assert_false(v->persistent);

    assert_non_null(first_node(g, "pippy._pipe_split.default"));
    node = first_node(g, "aten.mean.default");
    assert_true(node->no_grad);
    node = first_node(g, "aten.linear.default");
    assert_false(node->no_grad);
    assert_string_equal(node->call->path, "fc");
    assert_int_equal(node->call->index, 0);
    assert_string_equal(node->source, "make_tiny.py:39");
    for (size_t i = 0; i < g->nodes.n; i++)
        if (strcmp(g->nodes.at[i]->schema->name, "aten.linear.default") == 0 &&
            strcmp(g->nodes.at[i]->call->path, "fc") == 0)
            node = g->nodes.at[i];
    assert_int_equal(node->call->index, 1); /* the module's second call */
    pst_model_close(m);
}

/* If a layout differs from the file's, the import begins again. What the first
 * attempt recorded about the arguments is then dropped. */
static void arguments_are_those_of_the_graph(void **state)
{
    struct pst_model *m;

    (void)state;
    assert_ok(pst_model_open(golden("layouts.pt2"), &m, &diag), &diag);
    assert_int_equal(m->arguments.n, m->graph->inputs.n);
    for (size_t i = 0; i < m->arguments.n; i++) {
        assert_int_equal(m->arguments.at[i].arg.kind, PST_ARG_VALUE);
        assert_ptr_equal(m->arguments.at[i].arg.value, m->graph->inputs.at[i]);
    }
    pst_model_close(m);
}

/* Sets every value that the graph needs from outside. */
static void set_inputs(struct pst_eval *eval, struct pst_model *m,
                       const struct pst_safetensors *data)
{
    const struct pst_graph *g = m->graph;

    for (size_t i = 0; i < g->values.n; i++) {
        struct pst_value *v = g->values.at[i];
        const void *bytes = NULL;
        char name[128];

        if (v->kind == PST_VALUE_INPUT) {
            const struct pst_safetensors_entry *e;

            snprintf(name, sizeof(name), "in.%s", v->name);
            e = pst_safetensors_find(data, name);
            assert_non_null(e);
            bytes = e->data;
        } else if (v->fqn != NULL) {
            const struct pst_weight *w = pst_model_weight(m, v->fqn);

            void *values =
                pst_arena_alloc(&m->arena, pst_meta_span(&v->meta) + 1);

            assert_non_null(w);
            assert_ok(pst_model_read(m, w, &v->meta, values, &diag), &diag);
            bytes = values;
        }
        if (bytes != NULL)
            assert_ok(pst_eval_set(eval, v, bytes, &diag), &diag);
    }
}

static void check_output(const struct pst_eval *eval,
                         const struct pst_value *value,
                         const struct pst_safetensors *data, const char *name)
{
    const struct pst_safetensors_entry *e = pst_safetensors_find(data, name);
    const void *got = pst_eval_get(eval, value);

    assert_non_null(e);
    assert_non_null(got);
    assert_true(pst_meta_same(&e->meta, &value->meta));
    for (int64_t i = 0; i < pst_meta_numel(&e->meta); i++) {
        const double a = pst_load_f64(e->meta.dtype, e->data, i);
        const double b = pst_load_f64(value->meta.dtype, got,
                                      pst_meta_offset(&value->meta, i));

        if (!(fabs(a - b) <= 1e-5 * (1 + fabs(a))))
            fail_msg("%s[%d]: %g, want %g", name, (int)i, b, a);
    }
}

static void results_are_pytorchs(void **state)
{
    struct pst_safetensors *data;
    struct pst_eval *eval;
    struct pst_model *m;

    (void)state;
    assert_ok(pst_model_open(golden("tiny.pt2"), &m, &diag), &diag);
    assert_ok(pst_safetensors_open(golden("tiny.safetensors"), &data, &diag),
              &diag);
    assert_ok(pst_safetensors_load(data, &diag), &diag);
    assert_ok(pst_eval_new(m->graph, &eval, &diag), &diag);
    set_inputs(eval, m, data);
    assert_ok(pst_eval_run(eval, true, NULL, &diag), &diag);
    check_output(eval, m->graph->outputs.at[0].arg.value, data, "out.loss");
    check_output(eval, m->graph->outputs.at[1].arg.value, data, "out.rest.0");
    check_output(eval, m->graph->outputs.at[3].arg.value, data, "out.rest.2");
    check_output(eval, m->graph->outputs.at[4].arg.value, data, "buffer.steps");
    pst_eval_free(eval);
    pst_safetensors_close(data);
    pst_model_close(m);
}

/* f32 norms inside a bf16 model: the file records a wrong dtype for statistics
 * that nothing reads. */
static void unused_results_may_be_wrong(void **state)
{
    struct pst_safetensors *data;
    struct pst_eval *eval;
    struct pst_model *m;

    (void)state;
    assert_ok(pst_model_open(golden("mixed.pt2"), &m, &diag), &diag);
    assert_ok(pst_safetensors_open(golden("mixed.safetensors"), &data, &diag),
              &diag);
    assert_ok(pst_safetensors_load(data, &diag), &diag);
    assert_ok(pst_eval_new(m->graph, &eval, &diag), &diag);
    set_inputs(eval, m, data);
    assert_ok(pst_eval_run(eval, true, NULL, &diag), &diag);
    for (size_t i = 0; i < m->graph->outputs.n; i++) {
        const struct pst_output *out = &m->graph->outputs.at[i];
        char name[32];

        snprintf(name, sizeof(name), "out.%s", out->path);
        if (out->kind == PST_OUTPUT_USER)
            check_output(eval, out->arg.value, data, name);
    }
    pst_eval_free(eval);
    pst_safetensors_close(data);
    pst_model_close(m);
}

static void digest_is_of_the_content(void **state)
{
    const struct repack_edit other = {PROGRAM, "make_tiny.py", "make_zoo.py"};
    struct pst_model *a, *b;

    (void)state;
    assert_ok(pst_model_open(golden("tiny.pt2"), &a, &diag), &diag);
    repack(golden("tiny.pt2"), "b.pt2", NULL, 1, NULL, 0);
    assert_ok(pst_model_open("b.pt2", &b, &diag), &diag);
    assert_string_equal(a->digest, b->digest);
    assert_int_equal(strlen(a->digest), 32);
    pst_model_close(b);
    repack(golden("tiny.pt2"), "b.pt2", NULL, 1, &other, 1);
    assert_ok(pst_model_open("b.pt2", &b, &diag), &diag);
    assert_string_not_equal(a->digest, b->digest);
    pst_model_close(b);
    pst_model_close(a);
}

static void expect_refusal(enum pst_status want, const char *why,
                           const struct repack_edit *edits, size_t n)
{
    struct pst_model *m = NULL;
    enum pst_status status;

    repack(golden("tiny.pt2"), "x.pt2", NULL, 0, edits, n);
    status = pst_model_open("x.pt2", &m, &diag);
    if (status != want || strncmp(diag.text, "x.pt2: ", 7) != 0 ||
        strstr(diag.text, why) == NULL)
        fail_msg("%s: \"%s\"; want %s with \"%s\"", pst_status_name(status),
                 status == PST_OK ? "" : diag.text, pst_status_name(want), why);
}

struct bad {
    enum pst_status status;
    const char *why, *entry, *find, *replace;
};

static void refuse_all(const struct bad *bad, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct repack_edit e = {bad[i].entry, bad[i].find,
                                      bad[i].replace};

        expect_refusal(bad[i].status, bad[i].why, &e, 1);
    }
}

static void bad_containers_are_named(void **state)
{
    static const struct bad bad[] = {
        {PST_ERR_INPUT, "no .pt2 archive", "archive_format", NULL, NULL},
        {PST_ERR_INPUT, "no .pt2 archive", "archive_format", "pt2", "pt3"},
        {PST_ERR_VERSION, "archive version \"1\"", "archive_version", "0", "1"},
        {PST_ERR_VERSION, "container version \"99\"", ".data/version", "6",
         "99"},
        {PST_ERR_UNSUPPORTED, "byte order \"big\"", "byteorder", "little",
         "big"},
        {PST_ERR_INPUT, "no model", PROGRAM, NULL, NULL},
        {PST_ERR_UNSUPPORTED, "several models", "models/second.json", NULL,
         "{}"},
        {PST_ERR_INPUT, "no weights", WEIGHTS, NULL, NULL},
        {PST_ERR_UNSUPPORTED, "torch >= 2.9", "data/weights/model.pt", NULL,
         "PK"},
        {PST_ERR_INPUT, "\"data/weights/weight_0\" is not in the archive",
         "data/weights/weight_0", NULL, NULL},
        {PST_ERR_INPUT, "of 7 bytes does not fit", "data/weights/weight_0",
         NULL, "1234567"},
        {PST_ERR_UNSUPPORTED, "pickle", WEIGHTS, "\"use_pickle\": false",
         "\"use_pickle\": true"},
        {PST_ERR_INPUT, "not a name of a record", WEIGHTS, "\"weight_0\"",
         "\"../weight_0\""},
        {PST_ERR_INPUT, "not a name of a record", WEIGHTS, "\"weight_0\"",
         "\"weight_0/x\""},
        {PST_ERR_INPUT, "not in the archive", WEIGHTS, "\"weight_0\"",
         "\"weight_99\""},
        {PST_ERR_INPUT, "does not fit", WEIGHTS,
         "\"storage_offset\": {\"as_int\": 0}",
         "\"storage_offset\": {\"as_int\": 1}"},
        {PST_ERR_INPUT, "not valid JSON", WEIGHTS, "{", "["},
        {PST_ERR_INPUT, "not valid JSON", PROGRAM, "\"guards_code\"", "x"},
    };

    (void)state;
    refuse_all(bad, PST_COUNT(bad));
}

static void bad_programs_are_named(void **state)
{
    static const struct bad bad[] = {
        {PST_ERR_VERSION, "save the model again", PROGRAM, "\"major\": 8",
         "\"major\": 7"},
        {PST_ERR_INPUT, "aten.relu.default has no argument \"other\"", PROGRAM,
         "\"name\": \"self\", \"arg\": {\"as_tensor\": {\"name\": \"linear\"}}",
         "\"name\": \"other\", \"arg\": {\"as_tensor\": {\"name\": "
         "\"linear\"}}"},
        {PST_ERR_INPUT, "there is no value \"lineal\"", PROGRAM,
         "\"arg\": {\"as_tensor\": {\"name\": \"linear\"}}",
         "\"arg\": {\"as_tensor\": {\"name\": \"lineal\"}}"},
        {PST_ERR_INPUT, "defined twice", PROGRAM,
         "\"outputs\": [{\"as_tensor\": {\"name\": \"relu\"}}]",
         "\"outputs\": [{\"as_tensor\": {\"name\": \"linear\"}}]"},
        {PST_ERR_SHAPE, "by its operator, but the file says f32[2, 3, 9]",
         PROGRAM,
         "\"relu\": {\"dtype\": 7, \"sizes\": [{\"as_int\": 2}, {\"as_int\": "
         "3}, {\"as_int\": 8}]",
         "\"relu\": {\"dtype\": 7, \"sizes\": [{\"as_int\": 2}, {\"as_int\": "
         "3}, {\"as_int\": 9}]"},
        {PST_ERR_SHAPE,
         "node \"relu\" (aten.relu.default) in the outermost "
         "module at make_tiny.py:39",
         PROGRAM, "\"relu\": {\"dtype\": 7,", "\"relu\": {\"dtype\": 8,"},
        {PST_ERR_SHAPE, "spare.weight: the graph expects f64[2, 2], stored",
         PROGRAM, "\"p_spare_weight\": {\"dtype\": 7",
         "\"p_spare_weight\": {\"dtype\": 8"},
        {PST_ERR_UNSUPPORTED, "dtypes: complex32 (\"relu\")", PROGRAM,
         "\"relu\": {\"dtype\": 7,", "\"relu\": {\"dtype\": 9,"},
        {PST_ERR_UNSUPPORTED, "complex numbers: aten.relu.default", PROGRAM,
         "\"relu\": {\"dtype\": 7,", "\"relu\": {\"dtype\": 10,"},
        {PST_ERR_UNSUPPORTED, "sizes and numbers that depend on data", PROGRAM,
         "\"labels\": {\"dtype\": 5, \"sizes\": [{\"as_int\": 2}",
         "\"labels\": {\"dtype\": 5, \"sizes\": [{\"as_expr\": "
         "{\"expr_str\": \"s0\", \"hint\": null}}"},
        {PST_ERR_UNSUPPORTED,
         "depend on data: aten.relu.default (in the outermost module at "
         "make_tiny.py:39)",
         PROGRAM, "\"relu\": {\"dtype\": 7, \"sizes\": [{\"as_int\": 2}",
         "\"relu\": {\"dtype\": 7, \"sizes\": [{\"as_expr\": "
         "{\"expr_str\": \"u0\", \"hint\": null}}"},
        {PST_ERR_UNSUPPORTED, "writes its parameter \"fc.bias\"", PROGRAM,
         "{\"user_output\": {\"arg\": {\"as_none\": true}}}",
         "{\"parameter_mutation\": {\"arg\": {\"name\": \"linear\"}, "
         "\"parameter_name\": \"fc.bias\"}}"},
        {PST_ERR_UNSUPPORTED, "\"loss_output\"", PROGRAM,
         "{\"user_output\": {\"arg\": {\"as_none\": true}}}",
         "{\"loss_output\": {\"arg\": {\"name\": \"linear\"}}}"},
        {PST_ERR_INPUT, "parameter \"no.bias\" has no data", PROGRAM,
         "\"parameter_name\": \"fc.bias\"", "\"parameter_name\": \"no.bias\""},
        {PST_ERR_INPUT,
         "node \"linear\" (aten.linear.default) in fc at make_tiny.py:39: "
         "aten.linear.default: expected an object with exactly one key",
         PROGRAM, "{\"as_tensor\": {\"name\": \"linear\"}}",
         "{\"as_tensor\": {\"name\": \"linear\"}, \"as_none\": true}"},
        {PST_ERR_UNSUPPORTED, "export without autocast", PROGRAM,
         "torch.ops.higher_order.wrap_with_set_grad_enabled",
         "torch.ops.higher_order.wrap_with_autocast"},
        {PST_ERR_INPUT, "its sub-graph has 1 results, not 0", PROGRAM,
         "\"outputs\": [{\"as_tensor\": {\"name\": \"getitem_5\"}}]",
         "\"outputs\": []"},
        {PST_ERR_INPUT, "its sub-graph takes 0 values, not 1", PROGRAM,
         "\"graph\": {\"inputs\": [{\"as_tensor\": {\"name\": \"add\"}}]",
         "\"graph\": {\"inputs\": []"},
        {PST_ERR_INPUT, "the graph has 4 outputs, its signature 3", PROGRAM,
         ", {\"user_output\": {\"arg\": {\"as_none\": true}}}", ""},
    };

    (void)state;
    refuse_all(bad, PST_COUNT(bad));
}

/* A None in a list of tensors is refused also if the result is complex, where
 * the pass for complex pairs looks at the first tensor of the list. */
static void holes_among_complex_operands_are_refused(void **state)
{
    const struct repack_edit edits[] = {
        {PROGRAM, "torch.ops.aten.relu.default", "torch.ops.aten.cat.default"},
        {PROGRAM,
         "\"name\": \"self\", \"arg\": {\"as_tensor\": {\"name\": "
         "\"linear\"}}",
         "\"name\": \"tensors\", \"arg\": {\"as_optional_tensors\": "
         "[{\"as_none\": true}]}"},
        {PROGRAM, "\"relu\": {\"dtype\": 7,", "\"relu\": {\"dtype\": 10,"},
    };

    (void)state;
    expect_refusal(PST_ERR_INPUT, "aten.cat.default", edits, PST_COUNT(edits));
}

/* A complex number in the file needs both parts, is allowed where a tensor is,
 * and cannot be written to a real tensor. */
static void complex_numbers_stand_where_tensors_may(void **state)
{
#define LINEAR  "\"arg\": {\"as_tensor\": {\"name\": \"linear\"}}"
#define NEXT    ", \"kind\": 1}, {\"name\": "
#define COMPLEX "\"arg\": {\"as_complex\": {\"real\": 1.0, \"imag\": 2.0}}"
    static const struct {
        enum pst_status status;
        const char *text, *target, *inputs;
    } bad[] = {
        {PST_ERR_INPUT, "as_complex", "torch.ops.aten.mul.Tensor",
         "\"name\": \"self\", " LINEAR NEXT
         "\"other\", \"arg\": {\"as_complex\": {\"real\": 1.0}}"},
        {PST_ERR_UNSUPPORTED,
         "complex numbers among the arguments (give them in a buffer): "
         "aten.add.Tensor",
         "torch.ops.aten.add.Tensor",
         "\"name\": \"self\", " LINEAR NEXT "\"other\", " LINEAR NEXT
         "\"alpha\", " COMPLEX},
        {PST_ERR_UNSUPPORTED, "tier 2, complex numbers: aten.mul_.Tensor",
         "torch.ops.aten.mul_.Tensor",
         "\"name\": \"self\", " LINEAR NEXT "\"other\", " COMPLEX},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        const struct repack_edit edits[] = {
            {PROGRAM, "torch.ops.aten.relu.default", bad[i].target},
            {PROGRAM, "\"name\": \"self\", " LINEAR, bad[i].inputs},
            {PROGRAM, "\"relu\": {\"dtype\": 7,", "\"relu\": {\"dtype\": 10,"},
        };

        expect_refusal(bad[i].status, bad[i].text, edits, PST_COUNT(edits));
    }
#undef LINEAR
#undef NEXT
#undef COMPLEX
}

/* If a view is written, its offset at export may be another function of the
 * rows, or a plain number. The import computes the offset and does not read it
 * from the file. */
static void windows_follow_their_views(void **state)
{
#define SYMBOL "Symbol('s77', positive=True, integer=True)"
    static const char *const of[] = {"Mul(Integer(16), " SYMBOL ")",
                                     "Integer(64)"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(of); i++) {
        const struct repack_edit edit = {
            "models/model.json", "Mul(Integer(4), Pow(" SYMBOL ", Integer(2)))",
            of[i]};
        struct pst_str text = {0};
        struct pst_model *m;

        repack(golden("cube.pt2"), "x.pt2", NULL, 0, &edit, 1);
        assert_ok(pst_model_open("x.pt2", &m, &diag), &diag);
        assert_null(m->fixed);
        pst_graph_print(m->graph, &text);
        assert_non_null(
            strstr(pst_str_text(&text), "[16{4*s77}, 4, 1], 64{4*s77*s77})"));
        pst_str_fini(&text);
        pst_model_close(m);
    }
#undef SYMBOL
}

/* One message names all unsupported operators, each with module, source and
 * reason. */
static void unsupported_operators_are_named(void **state)
{
    const struct repack_edit edits[] = {
        {PROGRAM, "torch.ops.aten.linear.default", "torch.ops.aten.foo.bar"},
        {PROGRAM, "torch.ops.aten.relu.default", "torch.ops.mine.relu.default"},
        {PROGRAM, "torch.ops.aten.embedding.default",
         "torch.ops.aten.item.default"},
        {PROGRAM, "torch.ops.aten.mean.default",
         "torch.ops.penstock.accumulate_grad.default"},
    };

    (void)state;
    expect_refusal(
        PST_ERR_UNSUPPORTED,
        "in no tier, unknown operators: penstock.accumulate_grad.default "
        "(in the outermost module at make_tiny.py:37), aten.foo.bar (3 "
        "times, first in fc at make_tiny.py:39), mine.relu.default (in the "
        "outermost "
        "module at make_tiny.py:39)",
        edits, PST_COUNT(edits));
    assert_non_null(strstr(
        diag.text, "tier 3, result is read on the host (data-dependent): "
                   "aten.item.default (in emb at make_tiny.py:35)"));
}

/* A changed byte of a stored record, or a file that is truncated while the
 * model is open, gives an error. */
static void damaged_weights_are_refused(void **state)
{
    const struct pst_weight *w;
    unsigned char *file, values[4096];
    struct pst_model *m;
    size_t size;
    int fd;

    (void)state;
    file = slurp(golden("tiny.pt2"), &size);
    spill("x.pt2", file, size);
    assert_ok(pst_model_open("x.pt2", &m, &diag), &diag);
    w = pst_model_weight(m, "fc.weight");
    assert_true(w->stored && pst_meta_span(&w->meta) <= sizeof(values));
    assert_ok(pst_model_read(m, w, &w->meta, values, &diag), &diag);
    pst_model_close(m);

    /* Changes the second number of the record. */
    for (size_t i = 0; i + 16 < size; i++)
        if (memcmp(file + i, values, 16) == 0)
            file[i + 5] ^= 4;
    spill("x.pt2", file, size);
    assert_ok(pst_model_open("x.pt2", &m, &diag), &diag);
    w = pst_model_weight(m, "fc.weight");
    for (int i = 0; i < 2; i++)
        assert_int_equal(pst_model_read(m, w, &w->meta, values, &diag),
                         PST_ERR_INPUT);
    assert_non_null(strstr(diag.text, "x.pt2: fc.weight: \"data/weights/"));
    assert_non_null(strstr(diag.text, "is damaged (wrong checksum)"));
    fd = open("x.pt2", O_WRONLY | O_TRUNC);
    assert_true(fd >= 0 && close(fd) == 0);
    assert_int_equal(pst_model_read(m, w, &w->meta, values, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "x.pt2 has become shorter"));
    pst_model_close(m);
    free(file);
}

static void absent_weights_are_marked(void **state)
{
    const struct repack_edit edits[] = {{"data/weights/weight_0", NULL, ""}};
    struct pst_model *m;

    (void)state;
    repack(golden("tiny.pt2"), "x.pt2", NULL, 0, edits, 1);
    assert_ok(pst_model_open("x.pt2", &m, &diag), &diag);
    assert_true(pst_model_weight(m, "emb.weight")->absent);
    assert_false(pst_model_weight(m, "emb.weight")->stored);
    assert_false(pst_model_weight(m, "fc.weight")->absent);
    /* Empty records do not prove that weights are tied, but the graph reads
     * only one of the names. */
    assert_int_equal(m->ties.n, 1);
    assert_non_null(strstr(m->notes.at[m->notes.n - 1], "another name of"));
    pst_model_close(m);
}

/* Every allocation fails once. */
static void allocation_failures_are_survived(void **state)
{
    struct pst_model *m;
    enum pst_status status = PST_ERR_NOMEM;

    (void)state;
    for (uint64_t n = 1; status != PST_OK; n++) {
        pst_alloc_fail_at(n);
        m = NULL;
        status = pst_model_open(golden("tiny.pt2"), &m, &diag);
        pst_alloc_fail_at(0);
        if (status == PST_OK)
            pst_model_close(m);
        assert_int_equal(pst_alloc_live(PST_TAG_ARCHIVE), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structure_is_kept),
        cmocka_unit_test(arguments_are_those_of_the_graph),
        cmocka_unit_test(results_are_pytorchs),
        cmocka_unit_test(unused_results_may_be_wrong),
        cmocka_unit_test(digest_is_of_the_content),
        cmocka_unit_test(bad_containers_are_named),
        cmocka_unit_test(bad_programs_are_named),
        cmocka_unit_test(windows_follow_their_views),
        cmocka_unit_test(holes_among_complex_operands_are_refused),
        cmocka_unit_test(complex_numbers_stand_where_tensors_may),
        cmocka_unit_test(unsupported_operators_are_named),
        cmocka_unit_test(damaged_weights_are_refused),
        cmocka_unit_test(absent_weights_are_marked),
        cmocka_unit_test(allocation_failures_are_survived),
    };

    return cmocka_run_group_tests_name("model", tests, setup, teardown);
}
