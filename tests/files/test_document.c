// SPDX-License-Identifier: Apache-2.0
/* Tests how documents of .pt2 files are read into records: limits, exactness,
 * variants. */
#include "tests/test.h"

#include "stages/base/rng.h"
#include "stages/files/pt2/reader.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pst_diag diag;
static struct pst_arena texts; /* texts of the last parse() */

static enum pst_status parse(const char *text, const struct pst_json **ret)
{
    diag.text[0] = '\0';
    return pst_json_parse("the text", text, strlen(text), &texts, ret, &diag);
}

static void expect_refusal(const char *text, enum pst_status status,
                           const char *why)
{
    const struct pst_json *json;

    assert_int_equal(parse(text, &json), status);
    assert_true(strncmp(diag.text, "the text: ", 10) == 0);
    if (strstr(diag.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diag.text, why);
}

static void numbers_are_exact(void **state)
{
    const struct pst_json *json;
    double x;

    (void)state;
    assert_ok(parse("[9223372036854775807, -9223372036854775808, -0.0, "
                    "\"Infinity\", \"-Infinity\", \"NaN\", 3, \"nan\"]",
                    &json),
              &diag);
    assert_true(pst_json_integer(pst_json_at(json, 0)) == INT64_MAX);
    assert_true(pst_json_integer(pst_json_at(json, 1)) == INT64_MIN);
    assert_true(pst_json_double(pst_json_at(json, 2), &x) && signbit(x));
    assert_true(pst_json_double(pst_json_at(json, 3), &x) && x == INFINITY);
    assert_true(pst_json_double(pst_json_at(json, 4), &x) && x == -INFINITY);
    assert_true(pst_json_double(pst_json_at(json, 5), &x) && isnan(x));
    assert_true(pst_json_double(pst_json_at(json, 6), &x) && x == 3);
    assert_false(pst_json_double(pst_json_at(json, 7), &x));
    expect_refusal(
        "{\"nodes\": [{\"target\": \"torch.ops.aten.add.Tensor\", \"x\": "
        "9223372036854775808}]}",
        PST_ERR_UNSUPPORTED,
        "does not fit 64 bits, in a node of torch.ops.aten.add.Tensor");
}

static void damage_is_refused(void **state)
{
    char deep[400];

    (void)state;
    expect_refusal("{\"a\": 1, \"a\": 2}", PST_ERR_INPUT, "duplicate");
    expect_refusal("{\"a\": 1, \"\\u0061\": 2}", PST_ERR_INPUT, "duplicate");
    expect_refusal("[1] 2", PST_ERR_INPUT, "byte 4");
    expect_refusal("[1", PST_ERR_INPUT, "not valid JSON");
    expect_refusal("[\"\\ud800\"]", PST_ERR_INPUT, "not valid JSON");
    expect_refusal("[\"\xff\"]", PST_ERR_INPUT, "not valid JSON");
    expect_refusal("[\"a\\u0000b\"]", PST_ERR_INPUT, "not valid JSON");
    expect_refusal("[NaN]", PST_ERR_INPUT, "not valid JSON");
    memset(deep, '[', 65);
    deep[65] = '\0';
    expect_refusal(deep, PST_ERR_INPUT, "more than 64 levels");
    /* Brackets in a string do not count; 64 levels are accepted. */
    memset(deep, '[', 64);
    memset(deep + 64, ']', 64);
    deep[128] = '\0';
    const struct pst_json *json;

    assert_ok(parse(deep, &json), &diag);
    strcpy(deep, "[\"\\\"");
    memset(deep + 4, '[', 100);
    strcpy(deep + 104, "\"]");
    assert_ok(parse(deep, &json), &diag);
}

#define TENSOR(dtype, sizes, strides, offset)                                  \
    "{\"dtype\": " dtype ", \"sizes\": [" sizes "], \"requires_grad\": true, " \
    "\"strides\": [" strides "], \"storage_offset\": {\"as_int\": " offset     \
    "}, \"layout\": 7}"
#define I(n) "{\"as_int\": " n "}"

static struct pst_arena arena;

static enum pst_status tensor(const char *text, struct pst_doc_meta *ret)
{
    struct pst_doc_tensor t;
    enum pst_status status;
    struct pst_reader r;
    const struct pst_json *json;

    assert_ok(parse(text, &json), &diag);
    diag.text[0] = '\0';
    pst_reader_init(&r, NULL, &arena, &diag);
    status = pst_read_tensor(&r, json, "x", &t);
    if (status == PST_OK)
        status = pst_doc_meta(&t, NULL, ret, &diag);
    pst_reader_fini(&r);
    return status;
}

static void tensors_are_checked(void **state)
{
    static const struct {
        const char *text, *why;
        enum pst_status status;
    } bad[] = {
        {TENSOR("9", "", "", "0"), "complex32", PST_ERR_UNSUPPORTED},
        {TENSOR("10", I("2"), I("1"), "9223372036854775807"), "complex tensors",
         PST_ERR_UNSUPPORTED},
        {TENSOR("77", "", "", "0"), "unknown", PST_ERR_UNSUPPORTED},
        {TENSOR("7", I("-1"), I("1"), "0"), "sizes[0]", PST_ERR_INPUT},
        {TENSOR("7", I("2"), I("-1"), "0"), "strides[0]", PST_ERR_INPUT},
        {TENSOR("7", I("2"), I("1"), "-1"), "storage_offset", PST_ERR_INPUT},
        {TENSOR("7", I("2"), "", "0"), "1 sizes but 0 strides", PST_ERR_INPUT},
        {TENSOR("7", I("3000000000") "," I("3000000000"), I("1") "," I("1"),
                "0"),
         "x: ", PST_ERR_SHAPE},
        {TENSOR("7", I("2"), I("1"), "9223372036854775807"), "out of range",
         PST_ERR_INPUT},
        {TENSOR("7", "{\"as_expr\": {}}", I("1"), "0"), "\"expr_str\"",
         PST_ERR_INPUT},
        {TENSOR("7", "{\"as_expr\": {\"expr_str\": \"Symbol('s0')\"}}", I("1"),
                "0"),
         "nothing says what s0", PST_ERR_UNSUPPORTED},
        {TENSOR("7", "{\"as_expr\": {\"expr_str\": \"Integer(-3)\"}}", I("1"),
                "0"),
         "sizes[0]", PST_ERR_INPUT},
        {TENSOR("7", "true", I("1"), "0"), "sizes[0]", PST_ERR_INPUT},
        {"{\"dtype\": 7}", "\"sizes\" is missing", PST_ERR_INPUT},
    };
    struct pst_doc_meta t;

    (void)state;
    pst_arena_init(&arena, PST_TAG_TEST);
    assert_ok(
        tensor(TENSOR("13", I("2") "," I("3"), I("1") "," I("2"), "5"), &t),
        &diag);
    assert_int_equal(t.meta.dtype, PST_BF16);
    assert_int_equal(t.meta.rank, 2);
    assert_int_equal(t.meta.size[1], 3);
    assert_int_equal(t.meta.stride[1], 2);
    assert_int_equal(t.offset, 5);
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        assert_int_equal(tensor(bad[i].text, &t), bad[i].status);
        if (strstr(diag.text, bad[i].why) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", diag.text, bad[i].why);
    }
    pst_arena_fini(&arena);
}

static void expect_place(struct pst_reader *r, const char *stack,
                         const char *trace, const char *module, unsigned call,
                         const char *source)
{
    const struct pst_json members[] = {
        {.kind = PST_JSON_STRING, .key = "nn_module_stack", .text = stack},
        {.kind = PST_JSON_STRING, .key = "stack_trace", .text = trace},
    };
    const struct pst_json metadata = {
        .kind = PST_JSON_OBJECT,
        .n = stack == NULL   ? 0
             : trace == NULL ? 1
                             : 2,
        .at = members,
    };

    assert_ok(pst_read_place(r, &metadata), &diag);
    assert_string_equal(r->place->module, module);
    assert_int_equal(r->place->call, call);
    assert_string_equal(r->place->source, source);
}

/* Names may contain the characters that separate names in the file's texts. */
static void places_are_found(void **state)
{
    const struct pst_doc_stack *stack;
    struct pst_reader r;

    (void)state;
    pst_arena_init(&arena, PST_TAG_TEST);
    pst_reader_init(&r, NULL, &arena, &diag);
    assert_true(pst_map_put(&r.fqns, "a,b;c@1", &r));
    assert_true(pst_map_put(&r.fqns, "a", &r));
    expect_place(&r, "L__self__,,m.Net", "", "", 0, "");
    expect_place(
        &r,
        "L__self__,,m.Net;L__self__h.0,h.0,m.B;L__self__h.0.w@12,"
        "h.0.w,m.L",
        "  File \"/x/y/net.py\", line 12, in forward\n    x\n"
        "  File \"/lib/torch/nn/linear.py\", line 5, in forward\n    y",
        "h.0.w", 12, "net.py:12");
    stack = r.place->stack;
    assert_int_equal(stack->n, 3);
    assert_int_equal(stack->n_nested, 3);
    assert_string_equal(stack->frames[1].key, "L__self__h.0");
    assert_string_equal(stack->frames[1].path, "h.0");
    assert_string_equal(stack->frames[1].type, "m.B");
    assert_string_equal(stack->frames[2].key, "L__self__h.0.w@12");
    assert_int_equal(stack->frames[2].call, 12);
    assert_false(r.place->library);
    expect_place(&r, NULL, NULL, "h.0.w", 12, "net.py:12");
    expect_place(&r, "L__self__,,m.Net;L__self__a,b;c@1,a,b;c@1,m.L;",
                 "File \"torch/only.py\", line 1, in f", "a,b;c@1", 0,
                 "only.py:1");
    expect_place(&r, "L__self__,,m.Net;L__self__a,b;c@1@2,a,b;c@1,m.L",
                 "no trace", "a,b;c@1", 2, "");
    expect_place(&r, "140042659517776,,m.N;140042659517777@3,a.x,m.L", NULL,
                 "a.x", 3, "");
    /* c is called from b but not inside it; the stack ends there. */
    expect_place(&r, "L__self__,,m.N;L__self__b,b,m.B;L__self__bc,bc,m.C", NULL,
                 "b", 0, "");
    assert_int_equal(r.place->stack->n, 3);
    assert_int_equal(r.place->stack->n_nested, 2);
    expect_place(&r,
                 "L__self__,,m.N;L__self__d,d,torch.nn.modules.dropout.Dropout",
                 NULL, "d", 0, "");
    assert_true(r.place->library && r.place->dropout);
    expect_place(&r, "L__self__,,m.N;L__self__b,c,m.B", NULL, "", 0, "");
    expect_place(&r, ";;,,@", "File \"", "", 0, "");
    pst_reader_fini(&r);
    pst_arena_fini(&arena);
}

/* --- beside another parser ------------------------------------------------ */

static bool same(const struct pst_json *have, const json_t *want)
{
    const json_t *member;
    size_t i = 0;

    switch (json_typeof(want)) {
    case JSON_OBJECT:
        if (pst_json_members(have) != json_object_size(want) ||
            have->kind != PST_JSON_OBJECT)
            return false;
        for (const struct pst_json *m = NULL;
             (m = pst_json_next(have, m)) != NULL; i++) {
            member = json_object_get(want, m->key);
            if (member == NULL || !same(m, member) ||
                pst_json_get(have, m->key) != m)
                return false;
        }
        return i == have->n && pst_json_get(have, "no such key") == NULL;
    case JSON_ARRAY:
        if (!pst_json_is(have, PST_JSON_ARRAY) ||
            have->n != json_array_size(want))
            return false;
        while (i < have->n &&
               same(pst_json_at(have, i), json_array_get(want, i)))
            i++;
        return i == have->n && pst_json_at(have, i) == NULL;
    case JSON_STRING:
        return pst_json_is(have, PST_JSON_STRING) &&
               strcmp(pst_json_string(have), json_string_value(want)) == 0;
    case JSON_INTEGER:
        return pst_json_is(have, PST_JSON_INTEGER) &&
               pst_json_integer(have) == json_integer_value(want);
    case JSON_REAL: {
        const double x = json_real_value(want);

        return pst_json_is(have, PST_JSON_REAL) &&
               memcmp(&have->real, &x, sizeof(x)) == 0;
    }
    case JSON_NULL:
        return pst_json_is(have, PST_JSON_NULL);
    default:
        return pst_json_is(have, PST_JSON_BOOL) &&
               pst_json_true(have) == json_is_true(want) &&
               pst_json_false(have) == json_is_false(want);
    }
}

static void compare(const char *from)
{
    char *text = strdup(from); /* sanitizers detect reads beyond it */
    json_t *want = json_loadb(text, strlen(text), JSON_REJECT_DUPLICATES, NULL);
    const struct pst_json *have;
    const enum pst_status status = parse(text, &have);

    if ((status == PST_OK) != (want != NULL))
        fail_msg("%s: %s, %s", text, pst_status_name(status), diag.text);
    if (want != NULL && !same(have, want))
        fail_msg("%s: another value", text);
    json_decref(want);
    free(text);
    pst_arena_fini(&texts);
}

/* Compares with another parser, on texts with all features of JSON, some of
 * them damaged. */
static void as_another_parser_reads_it(void **state)
{
    static const char *const seeds[] = {
        " {\"a\": [1, -2.5e-3, 0, -0, 10E+2, 0.25], \"b\" :{} , \"\": [ ]} ",
        "[true, false, null, \"\", \"x\\n\\u00e9\\ud83d\\ude00\\\\\\\"\\/\"]",
        "{\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6, \"g\": "
        "7, \"h\": 8, \"i\": 9, \"j\": {\"k\": [9223372036854775807]}}",
        "[\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\", [[\"u\"], {\"1\": "
        "1e308}]]",
        "[\"stack: self_attention.out_proj, forward in line 1234\", "
        "\"~~~~~~~~~~~~~~~~~~~~~~~~\", \"                \"]",
        /* The same string again: raw, with other escapes, as a key. */
        "{\"ab\": \"x\\ny\", \"cd\": [\"x\\ny\", \"ab\", \"x\\ny\", "
        "\"\\u0061b\", \"x\\u000ay\"], \"ef\": {\"ab\": \"cd\", \"cd\": \"\"}}",
        "[\"a\\\\\", \"a\\\\\", \"\\\"\", \"\\\"\", \"a\\\\\\\"b\", "
        "\"\\\\\\\\\"]",
    };
    static const char bytes[] = "\"\\{}[],: \n\t-+.eE0123456789abcdefhijtrulsn/"
                                "\x01\x7f\x80\xbf\xc3\xe2\xed\xf0\xf4\xff";
    const struct pst_rng_key key = {.seed = 1};
    uint64_t drawn = 0;
    char text[256];

    (void)state;
    for (size_t i = 0; i < 60000; i++) {
        const char *seed = seeds[i % PST_COUNT(seeds)];
        const unsigned n = (unsigned)(4 * pst_rng_f32(&key, drawn++));
        size_t len = strlen(seed);

        memcpy(text, seed, len + 1);
        for (unsigned k = 0; k < n && len > 1; k++) {
            const size_t at = (size_t)(pst_rng_f64(&key, drawn++) * len);
            const char c = bytes[(size_t)(pst_rng_f64(&key, drawn++) *
                                          (sizeof(bytes) - 1))];
            const float what = pst_rng_f32(&key, drawn++);

            if (what < .5F) {
                text[at] = c;
            } else if (what < .75F) {
                memmove(text + at, text + at + 1, len - at);
                len--;
            } else {
                memmove(text + at + 1, text + at, len - at + 1);
                text[at] = c;
                len++;
            }
        }
        compare(text);
    }
}

/* --- whole documents ------------------------------------------------------ */

#define PROGRAM(inputs, outputs, values, specs)                                \
    "{\"graph_module\": {\"graph\": {\"inputs\": [{\"as_tensor\": {\"name\": " \
    "\"x\"}}], \"outputs\": [{\"as_tensor\": {\"name\": \"y\"}}], \"nodes\": " \
    "[{\"target\": \"torch.ops.aten.foo.default\", \"name\": \"y\", "          \
    "\"inputs\": [" inputs "], \"outputs\": [" outputs "], \"metadata\": "     \
    "{\"nn_module_stack\": \"L__self__,,m.N;L__self__a@1,a,m.A\", "            \
    "\"stack_trace\": \"File \\\"n.py\\\", line 7, in f\"}}], "                \
    "\"tensor_values\": {\"x\": " TENSOR(                                      \
        "7", I("2"), I("1"),                                                   \
        "0") "}, "                                                             \
             "\"sym_int_values\": {" values                                    \
             "}}, \"signature\": {\"input_specs\": "                           \
             "[" specs "], \"output_specs\": []}, \"module_call_graph\": ["    \
             "{\"fqn\": \"\", \"signature\": null}, "                          \
             "{\"fqn\": \"a\", \"signature\": null}, "                         \
             "{\"fqn\": \"b@1\", \"signature\": null}, "                       \
             "{\"fqn\": \"a@1\", \"signature\": {\"inputs\": "                 \
             "[{\"as_tensor\": "                                               \
             "{\"name\": \"x\"}}, {\"as_int\": 3}], \"outputs\": [], "         \
             "\"in_spec\": "                                                   \
             "\"[1, {\\\"type\\\": null, \\\"context\\\": null, "              \
             "\\\"children_spec\\\": []}]\", \"forward_arg_names\": [\"x\", "  \
             "5, "                                                             \
             "null]}}]}, \"schema_version\": {\"major\": 8, \"minor\": 20}, "  \
             "\"range_constraints\": {\"2*s0\": {\"min_val\": 4, "             \
             "\"max_val\": null}}}"
#define ARG(name, arg) "{\"name\": \"" name "\", \"arg\": " arg "}"
#define EXPR(text)                                                             \
    "{\"as_expr\": {\"expr_str\": \"" text "\", \"hint\": {\"as_int\": 6}}}"

static enum pst_status read_document(const char *text,
                                     struct pst_document **ret)
{
    diag.text[0] = '\0';
    return pst_document_parse("p.json", text, strlen(text), ret, &diag);
}

static void arguments_are_records(const struct pst_doc_node *n)
{
    const struct pst_doc_arg *arg;

    assert_int_equal(n->n_inputs, 9);
    assert_string_equal(pst_doc_arg(n, "a", PST_DOC_TENSOR)->name, "x");
    assert_null(pst_doc_arg(n, "a", PST_DOC_TENSORS));
    assert_null(pst_doc_arg(n, "z", PST_DOC_TENSOR));
    arg = pst_doc_arg(n, "b", PST_DOC_OPTIONAL_TENSORS);
    assert_int_equal(arg->n, 2);
    assert_null(arg->names[0]);
    assert_string_equal(arg->names[1], "x");
    arg = pst_doc_arg(n, "c", PST_DOC_SYM_INTS);
    assert_int_equal(arg->numbers[0].kind, PST_DOC_NUMBER_INT);
    assert_int_equal(arg->numbers[0].i, -1);
    assert_int_equal(arg->numbers[1].kind, PST_DOC_NUMBER_NAME);
    assert_string_equal(arg->numbers[1].name, "s");
    assert_int_equal(arg->numbers[2].i, 9);
    assert_true(pst_doc_arg(n, "d", PST_DOC_FLOAT)->number.f == -INFINITY);
    arg = pst_doc_arg(n, "e", PST_DOC_SYM_INT);
    assert_string_equal(pst_doc_number_name(arg), "s");
    assert_int_equal(pst_doc_arg(n, "f", PST_DOC_SCALAR_TYPE)->code, 7);
    /* Arguments of unsupported kinds keep their tag. */
    assert_string_equal(pst_doc_arg(n, "g", PST_DOC_OTHER)->tag,
                        "as_int_lists");
    assert_true(pst_doc_arg(n, "h", PST_DOC_BOOLS)->numbers[1].b);
    arg = pst_doc_arg(n, "i", PST_DOC_SYM_FLOAT);
    assert_null(pst_doc_number_name(arg));
    assert_true(arg->number.f == 0.5);
}

#define ARGS                                                                   \
    "{\"name\": \"a\", \"arg\": {\"as_tensor\": {\"name\": \"x\"}}}, "         \
    "{\"name\": \"b\", \"arg\": {\"as_optional_tensors\": "                    \
    "[{\"as_none\": true}, {\"as_tensor\": {\"name\": \"x\"}}]}}, "            \
    "{\"name\": \"c\", \"arg\": {\"as_sym_ints\": [-1, {\"as_name\": "         \
    "\"s\"}, {\"as_int\": 9}]}}, {\"name\": \"d\", \"arg\": "                  \
    "{\"as_float\": \"-Infinity\"}}, {\"name\": \"e\", \"arg\": "              \
    "{\"as_sym_int\": {\"as_name\": \"s\"}}}, {\"name\": \"f\", "              \
    "\"arg\": {\"as_scalar_type\": 7}}, {\"name\": \"g\", \"arg\": "           \
    "{\"as_int_lists\": [[1]]}}, {\"name\": \"h\", \"arg\": "                  \
    "{\"as_bools\": [false, true]}}, {\"name\": \"i\", \"arg\": "              \
    "{\"as_sym_float\": {\"as_float\": 0.5}}}"
#define OUTPUT "{\"as_tensor\": {\"name\": \"y\"}}"
#define VALUES                                                                 \
    "\"s\": " EXPR("Mul(Integer(2), Symbol('s0'))") ", \"t\": " EXPR(          \
        "2*s0") ", \"u\": {\"as_int\": 4}"
#define SPECS                                                                  \
    "{\"buffer\": {\"arg\": {\"name\": \"x\"}, \"buffer_name\": \"b.c\", "     \
    "\"persistent\": true}}, {\"later\": 1}"

static void documents_are_records(void **state)
{
    static const char text[] = PROGRAM(ARGS, OUTPUT, VALUES, SPECS);
    const struct pst_doc_call_signature *signature;
    const struct pst_doc_number *s, *t;
    const struct pst_doc_node *n;
    struct pst_document *doc;

    (void)state;
    assert_ok(read_document(text, &doc), &diag);
    n = &doc->graph->nodes[0];
    assert_string_equal(n->target, "aten.foo.default");
    assert_string_equal(n->place->module, "a");
    assert_int_equal(n->place->call, 1);
    arguments_are_records(n);
    s = pst_doc_number(doc->graph, "s");
    t = pst_doc_number(doc->graph, "t");
    assert_true(s->expr == t->expr); /* equal expressions share a record */
    assert_string_equal(s->expr->text, "2*s0");
    assert_true(s->expr->has_hint && s->expr->hint == 6);
    assert_null(s->expr->symbol);
    assert_true(doc->ranges[0].expr == s->expr);
    assert_true(doc->ranges[0].min == 4 && doc->ranges[0].max == INT64_MAX);
    assert_int_equal(pst_doc_number(doc->graph, "u")->i, 4);
    assert_int_equal(doc->n_inputs, 2);
    assert_int_equal(doc->inputs[0].kind, PST_DOC_SPEC_BUFFER);
    assert_string_equal(doc->inputs[0].target, "b.c");
    assert_true(doc->inputs[0].persistent);
    assert_int_equal(doc->inputs[1].kind, PST_DOC_SPEC_OTHER);
    assert_string_equal(doc->inputs[1].tag, "later");
    assert_int_equal(doc->n_calls, 4);
    /* "@1" belongs to the module's name. */
    assert_string_equal(doc->calls[2].fqn, "b@1");
    assert_string_equal(doc->calls[3].fqn, "a");
    assert_int_equal(doc->calls[3].index, 1);
    signature = doc->calls[3].signature;
    assert_int_equal(signature->n_inputs, 2);
    assert_string_equal(signature->inputs[0].name, "x");
    assert_int_equal(signature->inputs[1].number.i, 3);
    assert_null(signature->in_tree->type);
    assert_string_equal(signature->arg_names[0], "x");
    assert_string_equal(signature->arg_names[1], "5");
    assert_null(signature->arg_names[2]);
    pst_document_free(doc);
}

/* Each message names the node, its module and its line. */
static void damaged_documents_are_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {PROGRAM(ARG("a", "{\"as_int\": 1.5}"), "", "", ""),
         "node \"y\" (aten.foo.default) in a@1 at n.py:7: argument \"a\": "
         "\"as_int\" holds something else than it says"},
        {PROGRAM(ARG("a", "{\"as_tensor\": {\"nam\": \"x\"}}"), "", "", ""),
         "\"as_tensor\" holds"},
        {PROGRAM(ARG("a", "{\"as_tensors\": [\"x\"]}"), "", "", ""),
         "\"as_tensors\" holds"},
        {PROGRAM(ARG("a", "{\"as_ints\": [1, true]}"), "", "", ""),
         "\"as_ints\" holds"},
        {PROGRAM(ARG("a", "{\"as_bools\": [1]}"), "", "", ""),
         "\"as_bools\" holds"},
        {PROGRAM(ARG("a", "{\"as_floats\": [\"x\"]}"), "", "", ""),
         "\"as_floats\" holds"},
        {PROGRAM(ARG("a", "{\"as_sym_int\": {\"as_text\": 1}}"), "", "", ""),
         "\"as_sym_int\" holds"},
        {PROGRAM(ARG("a", "{\"as_graph\": {\"name\": \"g\"}}"), "", "", ""),
         "a graph: \"nodes\" is missing"},
        {PROGRAM(ARG("a", "{\"as_int\": 1, \"as_none\": 1}"), "", "", ""),
         "in a@1 at n.py:7: aten.foo.default: expected an object with exactly "
         "one key"},
        {PROGRAM("{\"arg\": {\"as_int\": 1}}", "", "", ""),
         "in a@1 at n.py:7: aten.foo.default: \"name\" is missing"},
        {PROGRAM("", "{\"as_tensor\": 1}", "", ""),
         "in a@1 at n.py:7: aten.foo.default: \"as_tensor\" holds"},
        {PROGRAM("", "", "\"s\": {\"as_expr\": {\"expr_str\": \"2*\"}}", ""),
         "s: "},
        {PROGRAM("", "", "\"s\": {\"as_int\": true}", ""),
         "\"s\" is not a number"},
        {PROGRAM("", "", "", "{\"parameter\": {\"arg\": {\"name\": \"x\"}}}"),
         "parameter: \"parameter_name\" is missing"},
        {PROGRAM("", "", "", "{\"buffer\": {\"buffer_name\": \"b\"}}"),
         "buffer: \"name\" is missing"},
        {"{\"schema_version\": {\"major\": 8}}", "\"graph_module\" is missing"},
        {"{}", "no \"schema_version\""},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        struct pst_document *doc;

        assert_int_equal(read_document(bad[i].text, &doc), PST_ERR_INPUT);
        if (strstr(diag.text, bad[i].why) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", diag.text, bad[i].why);
    }
}

static int make(void **state)
{
    (void)state;
    pst_arena_init(&texts, PST_TAG_TEST);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    pst_arena_fini(&texts);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(as_another_parser_reads_it),
        cmocka_unit_test(tensors_are_checked),
        cmocka_unit_test(places_are_found),
        cmocka_unit_test(documents_are_records),
        cmocka_unit_test(damaged_documents_are_refused),
    };

    return cmocka_run_group_tests_name("document", tests, make, clean);
}
