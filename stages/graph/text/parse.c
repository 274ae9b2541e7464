// SPDX-License-Identifier: Apache-2.0
/* Parses the text that print.c writes. Infers every result again and compares
 * it with the text. */
#include "stages/graph/text/parse.h"
#include "stages/graph/calls.h"

#include <string.h>

static enum pst_status no_memory(const struct pst_parser *p)
{
    return pst_diag_nomem(p->scan.diag, 0);
}

/* Reads "%name" of a value that is being defined. */
static enum pst_status read_new_name(struct pst_parser *p, char **ret)
{
    enum pst_status status = pst_scan_expect(&p->scan, "%");

    if (status == PST_OK)
        status = pst_scan_word(&p->scan, "_.", ret);
    if (status == PST_OK && pst_map_has(&p->graph->names, *ret))
        status = pst_scan_fail(&p->scan, "%%%.100s is defined twice", *ret);
    return status;
}

/* --- nodes -------------------------------------------------------------- */

/* Reads the results: "%a: f32[2] view of %x + 0, %b: ... =". */
static enum pst_status read_outs(struct pst_parser *p)
{
    p->n_outs = 0;
    do {
        struct pst_stated *out = &p->outs[p->n_outs];
        enum pst_status status;
        char *name;

        if (p->n_outs == PST_MAX_OUTS)
            return pst_scan_fail(&p->scan, "more than %d results",
                                 PST_MAX_OUTS);
        memset(out, 0, sizeof(*out));
        status = read_new_name(p, &name);
        out->has_meta = status == PST_OK && pst_scan_accept(&p->scan, ":");
        if (out->has_meta)
            status = pst_scan_meta(&p->scan, &out->meta, &out->dims);
        if (status == PST_OK && out->has_meta &&
            pst_scan_accept(&p->scan, "view")) {
            status = pst_scan_expect(&p->scan, "of");
            if (status == PST_OK)
                status = pst_parse_value(p, &out->base);
            if (status == PST_OK)
                status = pst_scan_expect(&p->scan, "+");
            if (status == PST_OK)
                status = pst_scan_i64(&p->scan, &out->offset);
        }
        if (status == PST_OK && pst_scan_accept(&p->scan, "version")) {
            status = pst_scan_expect(&p->scan, "of");
            if (status == PST_OK)
                status = pst_parse_value(p, &out->version_of);
        }
        if (status != PST_OK)
            return status;
        out->name = p->names[p->n_outs++] = name;
    } while (pst_scan_accept(&p->scan, ","));
    return pst_scan_expect(&p->scan, "=");
}

static enum pst_status read_text_or_dash(struct pst_parser *p, const char **ret)
{
    char *word;
    enum pst_status status;

    if (pst_scan_is_next(&p->scan, "-") &&
        (p->scan.at[1] == ' ' || p->scan.at[1] == '\n')) {
        p->scan.at++;
        *ret = "";
        return PST_OK;
    }
    status = pst_scan_word(&p->scan, "_.-/:<>", &word);
    if (status == PST_OK)
        *ret = word;
    return status;
}

static enum pst_status read_unsigned(struct pst_parser *p, int64_t max,
                                     unsigned *ret)
{
    enum pst_status status;
    int64_t number;

    status = pst_scan_i64(&p->scan, &number);
    if (status != PST_OK)
        return status;
    if (number < 0 || number > max)
        return pst_scan_fail(&p->scan, "the number is out of range");
    *ret = (unsigned)number;
    return PST_OK;
}

/* Reads a call's name: "layers.0@1". */
static enum pst_status read_call_name(struct pst_parser *p,
                                      struct pst_module_call *ret)
{
    enum pst_status status;

    *ret = (struct pst_module_call){.identity = "", .type = ""};
    status = read_text_or_dash(p, &ret->path);
    if (status == PST_OK && *p->scan.at == '@') {
        p->scan.at++;
        status = read_unsigned(p, UINT32_MAX, &ret->index);
    }
    if (status == PST_OK && ret->path[0] == '\0' && ret->index > 0)
        return pst_scan_fail(&p->scan, "the model is called once");
    return status;
}

/* Reads the call's name in a node's line. A call without a line of its own is
 * added inside the root: hand-written texts leave these lines out. */
static enum pst_status read_call(struct pst_parser *p,
                                 const struct pst_module_call **ret)
{
    struct pst_module_call like, *call = NULL;
    enum pst_status status = read_call_name(p, &like);

    if (status == PST_OK)
        status = pst_graph_add_call(p->graph, &like, &call, p->scan.diag);
    *ret = call;
    return status;
}

/* Reads "call layers.0@1 in layers type Block key L__self__layers.0". */
static enum pst_status read_call_line(struct pst_parser *p)
{
    struct pst_module_call like, outer, *call;
    enum pst_status status = read_call_name(p, &like);
    const size_t n = p->graph->calls.n;

    if (status == PST_OK && pst_scan_accept(&p->scan, "in")) {
        status = read_call_name(p, &outer);
        if (status != PST_OK)
            return status;
        like.parent = pst_graph_find_call(p->graph, outer.path, outer.index);
        if (like.parent == NULL)
            return pst_scan_fail(&p->scan, "module %.100s stands in none",
                                 like.path);
    }
    if (status == PST_OK && pst_scan_accept(&p->scan, "type"))
        status = read_text_or_dash(p, &like.type);
    if (status == PST_OK && pst_scan_accept(&p->scan, "key"))
        status = read_text_or_dash(p, &like.identity);
    if (status == PST_OK)
        status = pst_graph_add_call(p->graph, &like, &call, p->scan.diag);
    if (status == PST_OK && like.path[0] != '\0' && p->graph->calls.n == n)
        return pst_scan_fail(&p->scan, "call %.100s@%u is there twice",
                             like.path, like.index);
    return status;
}

/* Reads "in "x" %a out "0" %b". */
static enum pst_status read_signature(struct pst_parser *p)
{
    struct PST_VEC(struct pst_call_leaf) in = {0}, out = {0};
    struct pst_module_call like, *call = NULL;
    enum pst_status status = read_call_name(p, &like);

    if (status == PST_OK) {
        call = pst_graph_find_call(p->graph, like.path, like.index);
        if (call == NULL || call->signature != NULL)
            status = pst_scan_fail(&p->scan, "a signature of no call");
    }
    while (status == PST_OK && !pst_scan_is_next(&p->scan, "\n")) {
        const bool is_out = pst_scan_accept(&p->scan, "out");
        struct pst_call_leaf leaf;
        char *path;

        if (!is_out)
            status = pst_scan_expect(&p->scan, "in");
        if (status == PST_OK)
            status = pst_scan_quoted(&p->scan, &path);
        if (status == PST_OK)
            status = pst_parse_arg(p, &leaf.arg);
        if (status != PST_OK)
            break;
        leaf.path = path;
        if (!(is_out ? pst_vec_push(PST_TAG_GRAPH, &out, leaf)
                     : pst_vec_push(PST_TAG_GRAPH, &in, leaf)))
            status = no_memory(p);
    }
    if (status == PST_OK)
        status = pst_graph_sign_call(
            p->graph, call,
            &(struct pst_call_signature){.inputs = in.at,
                                         .n_inputs = (unsigned)in.n,
                                         .outputs = out.at,
                                         .n_outputs = (unsigned)out.n},
            p->scan.diag);
    pst_vec_fini(&in);
    pst_vec_fini(&out);
    return status;
}

/* Reads "# module@1 file.py:12 F id=3 stage=2 no_grad region=0.1 function
 * of=aten.normal_", which a hand-written line may leave out. */
static enum pst_status read_place(struct pst_parser *p, unsigned *ret_stage)
{
    static const char *const letters[PST_N_PHASES] = {"F", "I", "W"};
    struct pst_build *build = &p->build;
    enum pst_status status = PST_OK;
    unsigned phase = 0;

    build->call = NULL;
    build->source = "";
    build->phase = PST_PHASE_F;
    build->node_id = UINT32_MAX;
    build->no_grad = build->is_function = false;
    build->region = build->origin = NULL;
    *ret_stage = UINT32_MAX;
    if (!pst_scan_accept(&p->scan, "#"))
        return PST_OK;
    status = read_call(p, &build->call);
    if (status == PST_OK)
        status = read_text_or_dash(p, &build->source);
    while (status == PST_OK && !pst_scan_accept(&p->scan, letters[phase]))
        if (++phase == PST_N_PHASES)
            return pst_scan_fail(&p->scan, "the phase is missing");
    build->phase = (enum pst_phase)phase;
    if (status == PST_OK)
        status = pst_scan_expect(&p->scan, "id=");
    if (status == PST_OK) /* id + 1 must stay below UINT32_MAX */
        status = read_unsigned(p, UINT32_MAX - 2, &build->node_id);
    if (status == PST_OK && pst_scan_accept(&p->scan, "stage="))
        status = read_unsigned(p, INT32_MAX, ret_stage);
    build->no_grad = pst_scan_accept(&p->scan, "no_grad");
    if (status == PST_OK && pst_scan_accept(&p->scan, "region="))
        status = read_text_or_dash(p, &build->region);
    build->is_function = pst_scan_accept(&p->scan, "function");
    if (status == PST_OK && pst_scan_accept(&p->scan, "of="))
        status = read_text_or_dash(p, &build->origin);
    return status;
}

static enum pst_status compare_outs(struct pst_parser *p,
                                    const struct pst_node *node)
{
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (node->n_outs != p->n_outs)
        return pst_scan_fail(&p->scan, "%s has %u results, not %u",
                             node->schema->name, node->n_outs, p->n_outs);
    for (unsigned k = 0; k < p->n_outs; k++) {
        const struct pst_stated *want = &p->outs[k];
        struct pst_value *have = node->outs[k];
        enum pst_status status;

        if (strcmp(have->name, want->name) != 0)
            return pst_scan_fail(&p->scan, "%%%.100s is defined twice",
                                 want->name);
        have->version_of = want->version_of;
        if (!want->has_meta)
            continue;
        if (!pst_meta_same(&have->meta, &want->meta) ||
            memcmp(have->meta.stride, want->meta.stride,
                   have->meta.rank * sizeof(have->meta.stride[0])) != 0)
            return pst_scan_fail(&p->scan, "%%%.100s is %s, not %s", want->name,
                                 pst_meta_text(&have->meta, a),
                                 pst_meta_text(&want->meta, b));
        if (have->base != want->base || have->offset != want->offset)
            return pst_scan_fail(
                &p->scan, "%%%.100s is another view than stated", want->name);
        status = pst_exprs_copy(&p->graph->arena, want->dims, have->meta.rank,
                                &have->dims, p->scan.diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static enum pst_status read_node(struct pst_parser *p)
{
    struct pst_arg args[PST_PARSE_ARGS];
    const struct pst_schema *schema;
    const struct pst_op *op;
    struct pst_node *node;
    enum pst_status status = PST_OK;
    unsigned stage;
    char *name;

    p->n_outs = 0;
    if (pst_scan_is_next(&p->scan, "%"))
        status = read_outs(p);
    if (status == PST_OK)
        status = pst_scan_word(&p->scan, "_.", &name);
    if (status != PST_OK)
        return status;
    op = pst_op_find(name);
    if (op == NULL)
        return pst_scan_fail(&p->scan, "there is no operator %.100s", name);
    schema = pst_op_schema(op);
    if (schema->n_args > PST_PARSE_ARGS)
        return pst_scan_fail(&p->scan, "%s has too many arguments", name);
    status = pst_parse_args(p, schema, args);
    if (status == PST_OK)
        status = read_place(p, &stage);
    if (status != PST_OK)
        return status;
    p->build.names = p->names;
    p->build.n_names = p->n_outs;
    p->build.hint = p->n_outs > 0 && p->outs[0].has_meta ? p->outs[0].meta.dtype
                                                         : PST_N_DTYPES;
    node = pst_emit_node(&p->build, op, args, schema->n_args);
    if (node == NULL) {
        pst_diag_prefix(p->scan.diag, "graph text, line %u", p->scan.line);
        return p->build.status;
    }
    node->stage = stage == UINT32_MAX ? -1 : (int)stage;
    return compare_outs(p, node);
}

/* --- values and outputs ------------------------------------------------- */

static const struct {
    const char *word;
    enum pst_value_kind kind;
} kinds[] = {
    {"input", PST_VALUE_INPUT},   {"param", PST_VALUE_PARAM},
    {"buffer", PST_VALUE_BUFFER}, {"const", PST_VALUE_CONST},
    {"seed", PST_VALUE_SEED},     {"gradient", PST_VALUE_GRAD},
};

static enum pst_status read_given(struct pst_parser *p,
                                  enum pst_value_kind kind)
{
    const bool needs_fqn = kind != PST_VALUE_INPUT && kind != PST_VALUE_SEED;
    const char *const *dims = NULL;
    struct pst_value *value;
    struct pst_meta meta;
    bool grad, persistent, before, after;
    char *name, *fqn = NULL;
    enum pst_status status = read_new_name(p, &name);

    if (status == PST_OK && pst_scan_is_next(&p->scan, "\""))
        status = pst_scan_quoted(&p->scan, &fqn);
    if (status != PST_OK)
        return status;
    if (needs_fqn != (fqn != NULL))
        return pst_scan_fail(&p->scan, "a name of the state is %s",
                             needs_fqn ? "missing" : "too much");
    grad = pst_scan_accept(&p->scan, "grad");
    persistent = pst_scan_accept(&p->scan, "persistent");
    before = pst_scan_accept(&p->scan, "empty_before");
    after = pst_scan_accept(&p->scan, "empty_after");
    status = pst_scan_expect(&p->scan, ":");
    if (status == PST_OK)
        status = pst_scan_meta(&p->scan, &meta, &dims);
    if (status != PST_OK)
        return status;
    value = pst_graph_add_value(p->graph, kind, name, fqn, &meta);
    if (value == NULL)
        return no_memory(p);
    value->requires_grad = grad;
    value->persistent = persistent;
    value->empty_before = before;
    value->empty_after = after;
    return pst_exprs_copy(&p->graph->arena, dims, meta.rank, &value->dims,
                          p->scan.diag);
}

static enum pst_status read_output(struct pst_parser *p)
{
    struct pst_output output = {.kind = PST_OUTPUT_USER};
    enum pst_status status;
    char *path;

    if (pst_scan_accept(&p->scan, "buffer"))
        output.kind = PST_OUTPUT_BUFFER_UPDATE;
    else if (pst_scan_accept(&p->scan, "input"))
        output.kind = PST_OUTPUT_INPUT_UPDATE;
    else if (!pst_scan_accept(&p->scan, "user"))
        return pst_scan_fail(&p->scan, "the kind of the output is missing");
    status = pst_parse_arg(p, &output.arg);
    if (status == PST_OK && pst_scan_accept(&p->scan, "->"))
        status = pst_parse_value(p, &output.target);
    if (status == PST_OK)
        status = pst_scan_quoted(&p->scan, &path);
    if (status != PST_OK)
        return status;
    output.path = path;
    return pst_graph_add_output(p->graph, &output, p->scan.diag);
}

static enum pst_status read_line(struct pst_parser *p)
{
    if (pst_scan_accept(&p->scan, "output"))
        return read_output(p);
    if (pst_scan_accept(&p->scan, "call"))
        return read_call_line(p);
    if (pst_scan_accept(&p->scan, "signature"))
        return read_signature(p);
    for (size_t i = 0; i < PST_COUNT(kinds); i++)
        if (pst_scan_accept(&p->scan, kinds[i].word))
            return read_given(p, kinds[i].kind);
    return read_node(p);
}

static enum pst_status read_graph(struct pst_parser *p)
{
    unsigned next_id = 0;
    enum pst_status status;

    pst_scan_lines(&p->scan);
    status = pst_scan_expect(&p->scan, "graph");
    if (status == PST_OK)
        status = pst_scan_expect(&p->scan, "next_id=");
    if (status == PST_OK)
        status = read_unsigned(p, UINT32_MAX - 1, &next_id);
    if (status == PST_OK)
        status = pst_scan_expect(&p->scan, "{");
    while (status == PST_OK) {
        if (!pst_scan_is_next(&p->scan, "\n"))
            return pst_scan_fail(&p->scan, "more than one thing in a line");
        pst_scan_lines(&p->scan);
        if (pst_scan_accept(&p->scan, "}"))
            break;
        status = read_line(p);
    }
    if (status != PST_OK)
        return status;
    pst_scan_lines(&p->scan);
    if (*p->scan.at != '\0')
        return pst_scan_fail(&p->scan, "text after the end");
    p->graph->next_node_id = PST_MAX(p->graph->next_node_id, next_id);
    return PST_OK;
}

/* Verifies the graph. Errors are reported as PST_ERR_INPUT: the text is wrong,
 * not this program. */
static enum pst_status check_whole(const struct pst_parser *p)
{
    struct pst_diag why;
    enum pst_status status;

    pst_diag_init(&why);
    status = pst_graph_verify(p->graph, &why);
    if (status == PST_ERR_INTERNAL)
        return pst_diag_set(p->scan.diag, PST_E_GRAPH_TEXT, "%s", why.text);
    return status == PST_OK ? PST_OK
                            : pst_diag_pass(p->scan.diag, &why, "%s", why.text);
}

enum pst_status pst_graph_parse(const char *text, struct pst_graph **ret,
                                struct pst_diag *diag)
{
    struct pst_parser p = {.scan = {.at = text, .line = 1, .diag = diag}};
    enum pst_status status = pst_graph_new(&p.graph, diag);

    if (status != PST_OK)
        return status;
    pst_arena_init(&p.arena, PST_TAG_GRAPH);
    p.scan.arena = &p.arena;
    pst_build_init(&p.build, p.graph, diag);
    status = read_graph(&p);
    if (status == PST_OK)
        status = check_whole(&p);
    pst_arena_fini(&p.arena);
    if (status != PST_OK) {
        pst_graph_free(p.graph);
        return status;
    }
    *ret = p.graph;
    return PST_OK;
}
