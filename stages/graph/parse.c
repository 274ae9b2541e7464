// SPDX-License-Identifier: Apache-2.0
/* Reads what print.c writes; every result is inferred again and compared. */
#include "stages/graph/build.h"
#include "stages/graph/oprow.h"
#include "stages/graph/scan.h"

#include <string.h>

#define MAX_ARGS 64
#define MAX_LIST 65536

/* One result as the text states it; without a meta it is taken as inferred. */
struct stated {
    const char *name;
    bool has_meta;
    struct pst_meta meta;
    const char *const *dims;
    struct pst_value *base; /* NULL: no view */
    int64_t offset;
};

struct parser {
    struct pst_scan scan;
    struct pst_arena arena; /* of what is not needed behind the parse */
    struct pst_graph *graph;
    struct pst_build build;
    struct stated outs[PST_MAX_OUTS];
    const char *names[PST_MAX_OUTS];
    unsigned n_outs;
};

static enum pst_status no_memory(const struct parser *p)
{
    return pst_diag_nomem(p->scan.diag, 0);
}

/* "%name" of a value that is there. */
static enum pst_status take_value(struct parser *p, struct pst_value **ret)
{
    enum pst_status status = pst_scan_expect(&p->scan, "%");
    char *name;

    if (status == PST_OK)
        status = pst_scan_word(&p->scan, "_.", &name);
    if (status != PST_OK)
        return status;
    *ret = pst_graph_find(p->graph, name);
    if (*ret == NULL)
        return pst_scan_fail(&p->scan, "there is no value %%%.100s", name);
    return PST_OK;
}

/* "%name" of a value that comes into being. */
static enum pst_status take_new_name(struct parser *p, char **ret)
{
    enum pst_status status = pst_scan_expect(&p->scan, "%");

    if (status == PST_OK)
        status = pst_scan_word(&p->scan, "_.", ret);
    if (status == PST_OK && pst_map_has(&p->graph->names, *ret))
        status = pst_scan_fail(&p->scan, "%%%.100s is defined twice", *ret);
    return status;
}

/* --- arguments ---------------------------------------------------------- */

struct items {
    struct PST_VEC(struct pst_arg) args;
    bool values, floats, bools;
};

static enum pst_status take_scalar(struct parser *p, struct pst_arg *ret);

static enum pst_status take_items(struct parser *p, struct items *items)
{
    while (!pst_scan_take(&p->scan, "]")) {
        enum pst_status status = PST_OK;
        struct pst_arg arg;

        if (items->args.n == MAX_LIST)
            return pst_scan_fail(&p->scan, "the list is too long");
        if (items->args.n > 0)
            status = pst_scan_expect(&p->scan, ",");
        if (status == PST_OK)
            status = take_scalar(p, &arg);
        if (status != PST_OK)
            return status;
        items->values = items->values || arg.kind == PST_ARG_VALUE ||
                        arg.kind == PST_ARG_NONE;
        items->floats = items->floats || arg.kind == PST_ARG_FLOAT;
        items->bools = items->bools || arg.kind == PST_ARG_BOOL;
        if (!pst_vec_push(PST_TAG_GRAPH, &items->args, arg))
            return no_memory(p);
    }
    return PST_OK;
}

static bool fits_list(enum pst_arg_kind item, enum pst_arg_kind list)
{
    switch (list) {
    case PST_ARG_VALUES:
        return item == PST_ARG_VALUE || item == PST_ARG_NONE;
    case PST_ARG_BOOLS:
        return item == PST_ARG_BOOL;
    case PST_ARG_FLOATS:
        return item == PST_ARG_FLOAT;
    default:
        return item == PST_ARG_INT;
    }
}

static void put_item(struct pst_arg *list, void *data, unsigned k,
                     const struct pst_arg *item)
{
    switch (list->kind) {
    case PST_ARG_VALUES:
        ((struct pst_value **)data)[k] =
            item->kind == PST_ARG_VALUE ? item->value : NULL;
        break;
    case PST_ARG_BOOLS:
        ((bool *)data)[k] = item->b;
        break;
    case PST_ARG_FLOATS:
        ((double *)data)[k] = item->f;
        break;
    default:
        ((int64_t *)data)[k] = item->i;
        break;
    }
}

/* The expressions of the items, if there are any. */
static enum pst_status put_exprs(struct parser *p, const struct items *items,
                                 struct pst_arg *ret)
{
    const char **exprs;
    bool any = false;

    for (size_t k = 0; k < items->args.n; k++)
        any = any || items->args.at[k].exprs != NULL;
    if (!any)
        return PST_OK;
    exprs = pst_arena_calloc(&p->arena, items->args.n, sizeof(*exprs));
    if (exprs == NULL)
        return no_memory(p);
    for (size_t k = 0; k < items->args.n; k++)
        if (items->args.at[k].exprs != NULL)
            exprs[k] = items->args.at[k].exprs[0];
    ret->exprs = exprs;
    return PST_OK;
}

static enum pst_status take_list(struct parser *p, struct pst_arg *ret)
{
    struct items items = {0};
    enum pst_status status = take_items(p, &items);
    void *data = NULL;

    memset(ret, 0, sizeof(*ret));
    ret->n = (unsigned)items.args.n;
    ret->kind = items.values   ? PST_ARG_VALUES
                : items.bools  ? PST_ARG_BOOLS
                : items.floats ? PST_ARG_FLOATS
                               : PST_ARG_INTS;
    if (status == PST_OK) {
        data = pst_arena_calloc(&p->arena, ret->n + 1, sizeof(int64_t));
        status = data == NULL ? no_memory(p) : PST_OK;
    }
    for (unsigned k = 0; status == PST_OK && data != NULL && k < ret->n; k++) {
        if (fits_list(items.args.at[k].kind, ret->kind))
            put_item(ret, data, k, &items.args.at[k]);
        else
            status = pst_scan_fail(&p->scan, "a list of mixed types");
    }
    ret->ints = data;
    if (status == PST_OK)
        status = put_exprs(p, &items, ret);
    pst_vec_fini(&items.args);
    return status;
}

static enum pst_status take_dtype(struct parser *p, struct pst_arg *ret)
{
    enum pst_dtype dtype = PST_F32;
    char *word;
    enum pst_status status = pst_scan_word(&p->scan, "", &word);

    if (status != PST_OK)
        return status;
    if (!pst_dtype_from_name(word, &dtype))
        return pst_scan_fail(&p->scan, "\"%.100s\" is no argument", word);
    *ret = pst_dtype_arg(dtype);
    return PST_OK;
}

/* "{s}" behind a number. */
static enum pst_status take_expr(struct parser *p, struct pst_arg *ret)
{
    const char *expr;
    enum pst_status status = pst_scan_expr(&p->scan, &expr);

    if (status != PST_OK || expr == NULL)
        return status;
    return pst_exprs_copy(&p->arena, &expr, 1, &ret->exprs, p->scan.diag);
}

/* Anything but a list. */
static enum pst_status take_scalar(struct parser *p, struct pst_arg *ret)
{
    struct pst_scan *s = &p->scan;
    enum pst_status status;

    memset(ret, 0, sizeof(*ret));
    if (pst_scan_sees(s, "%")) {
        ret->kind = PST_ARG_VALUE;
        return take_value(p, &ret->value);
    }
    if (pst_scan_take(s, "None")) {
        ret->kind = PST_ARG_NONE;
        return PST_OK;
    }
    if (pst_scan_sees(s, "True") || pst_scan_sees(s, "False")) {
        ret->kind = PST_ARG_BOOL;
        ret->b = pst_scan_take(s, "True");
        status = ret->b ? PST_OK : pst_scan_expect(s, "False");
        return status == PST_OK ? take_expr(p, ret) : status;
    }
    if (pst_scan_take(s, "_")) {
        ret->kind = PST_ARG_IGNORED;
        return PST_OK;
    }
    if (pst_scan_sees(s, "\"")) {
        char *text;

        status = pst_scan_quoted(s, &text);
        ret->kind = PST_ARG_STRING;
        ret->s = status == PST_OK ? text : NULL;
        return status;
    }
    if ((*s->at >= '0' && *s->at <= '9') || *s->at == '-' ||
        pst_scan_sees(s, "inf") || pst_scan_sees(s, "nan")) {
        status = pst_scan_number(s, ret);
        return status == PST_OK ? take_expr(p, ret) : status;
    }
    return take_dtype(p, ret);
}

static enum pst_status take_arg(struct parser *p, struct pst_arg *ret)
{
    return pst_scan_take(&p->scan, "[") ? take_list(p, ret)
                                        : take_scalar(p, ret);
}

/* "name=" sets *ret to its index; otherwise *ret stays. */
static enum pst_status take_keyword(struct parser *p,
                                    const struct pst_schema *schema, int *ret)
{
    const char *equal = p->scan.at + strspn(p->scan.at, " ");
    size_t n = 0;
    char *name;

    while (equal[n] == '_' || (equal[n] >= '0' && equal[n] <= '9') ||
           (equal[n] >= 'a' && equal[n] <= 'z') ||
           (equal[n] >= 'A' && equal[n] <= 'Z'))
        n++;
    if (n == 0 || equal[n] != '=')
        return PST_OK;
    name = pst_arena_strndup(&p->arena, equal, n);
    if (name == NULL)
        return no_memory(p);
    p->scan.at = equal + n + 1;
    *ret = pst_schema_arg(schema, name);
    if (*ret < 0)
        return pst_scan_fail(&p->scan, "%s has no argument \"%.100s\"",
                             schema->name, name);
    return PST_OK;
}

/* "(%a, 1, dim=2)" into args, all n_args of them. */
static enum pst_status take_args(struct parser *p,
                                 const struct pst_schema *schema,
                                 struct pst_arg args[MAX_ARGS])
{
    bool given[MAX_ARGS] = {false};
    enum pst_status status = pst_scan_expect(&p->scan, "(");
    int next = 0;

    for (bool first = true; status == PST_OK && !pst_scan_take(&p->scan, ")");
         first = false) {
        int i = next;

        if (!first)
            status = pst_scan_expect(&p->scan, ",");
        if (status == PST_OK)
            status = take_keyword(p, schema, &i);
        if (status != PST_OK)
            return status;
        next = i == next ? next + 1 : (int)schema->n_args;
        if (i >= (int)schema->n_args || given[i])
            return pst_scan_fail(&p->scan, "%s has too many arguments",
                                 schema->name);
        given[i] = true;
        status = take_arg(p, &args[i]);
    }
    for (unsigned i = 0; status == PST_OK && i < schema->n_args; i++) {
        if (given[i])
            continue;
        args[i] = schema->args[i].def;
        if (!schema->args[i].has_default)
            status = pst_scan_fail(&p->scan, "argument \"%s\" is missing",
                                   schema->args[i].name);
    }
    return status;
}

/* --- nodes -------------------------------------------------------------- */

/* "%a: f32[2] view of %x + 0, %b: ... =" */
static enum pst_status take_outs(struct parser *p)
{
    p->n_outs = 0;
    do {
        struct stated *out = &p->outs[p->n_outs];
        enum pst_status status;
        char *name;

        if (p->n_outs == PST_MAX_OUTS)
            return pst_scan_fail(&p->scan, "more than %d results",
                                 PST_MAX_OUTS);
        memset(out, 0, sizeof(*out));
        status = take_new_name(p, &name);
        out->has_meta = status == PST_OK && pst_scan_take(&p->scan, ":");
        if (out->has_meta)
            status = pst_scan_meta(&p->scan, &out->meta, &out->dims);
        if (status == PST_OK && out->has_meta &&
            pst_scan_take(&p->scan, "view")) {
            status = pst_scan_expect(&p->scan, "of");
            if (status == PST_OK)
                status = take_value(p, &out->base);
            if (status == PST_OK)
                status = pst_scan_expect(&p->scan, "+");
            if (status == PST_OK)
                status = pst_scan_i64(&p->scan, &out->offset);
        }
        if (status != PST_OK)
            return status;
        out->name = p->names[p->n_outs++] = name;
    } while (pst_scan_take(&p->scan, ","));
    return pst_scan_expect(&p->scan, "=");
}

static enum pst_status take_text_or_dash(struct parser *p, const char **ret)
{
    char *word;
    enum pst_status status;

    if (pst_scan_take(&p->scan, "- ")) {
        *ret = "";
        return PST_OK;
    }
    status = pst_scan_word(&p->scan, "_.-/:<>", &word);
    if (status == PST_OK)
        *ret = word;
    return status;
}

static enum pst_status take_unsigned(struct parser *p, int64_t max,
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

/* "# module@1 file.py:12 F id=3 stage=2 no_grad"; a hand-written line may
 * leave it out. */
static enum pst_status take_place(struct parser *p, unsigned *ret_stage)
{
    static const char *const letters[PST_N_PHASES] = {"F", "I", "W"};
    struct pst_build *build = &p->build;
    enum pst_status status = PST_OK;
    unsigned phase = 0;

    build->module = build->source = "";
    build->call = 0;
    build->phase = PST_PHASE_F;
    build->node_id = UINT32_MAX;
    build->no_grad = false;
    *ret_stage = UINT32_MAX;
    if (!pst_scan_take(&p->scan, "#"))
        return PST_OK;
    if (status == PST_OK)
        status = take_text_or_dash(p, &build->module);
    if (status == PST_OK && *p->scan.at == '@') {
        p->scan.at++;
        status = take_unsigned(p, UINT32_MAX, &build->call);
    }
    if (status == PST_OK)
        status = take_text_or_dash(p, &build->source);
    while (status == PST_OK && !pst_scan_take(&p->scan, letters[phase]))
        if (++phase == PST_N_PHASES)
            return pst_scan_fail(&p->scan, "the phase is missing");
    build->phase = (enum pst_phase)phase;
    if (status == PST_OK)
        status = pst_scan_expect(&p->scan, "id=");
    if (status == PST_OK) /* the next free id must stay a number */
        status = take_unsigned(p, UINT32_MAX - 2, &build->node_id);
    if (status == PST_OK && pst_scan_take(&p->scan, "stage="))
        status = take_unsigned(p, INT32_MAX, ret_stage);
    build->no_grad = pst_scan_take(&p->scan, "no_grad");
    return status;
}

static enum pst_status compare_outs(struct parser *p,
                                    const struct pst_node *node)
{
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (node->n_outs != p->n_outs)
        return pst_scan_fail(&p->scan, "%s has %u results, not %u",
                             node->schema->name, node->n_outs, p->n_outs);
    for (unsigned k = 0; k < p->n_outs; k++) {
        const struct stated *want = &p->outs[k];
        struct pst_value *have = node->outs[k];
        enum pst_status status;

        if (strcmp(have->name, want->name) != 0)
            return pst_scan_fail(&p->scan, "%%%.100s is defined twice",
                                 want->name);
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

static enum pst_status take_node(struct parser *p)
{
    struct pst_arg args[MAX_ARGS];
    const struct pst_schema *schema;
    const struct pst_op *op;
    struct pst_node *node;
    enum pst_status status = PST_OK;
    unsigned stage;
    char *name;

    p->n_outs = 0;
    if (pst_scan_sees(&p->scan, "%"))
        status = take_outs(p);
    if (status == PST_OK)
        status = pst_scan_word(&p->scan, "_.", &name);
    if (status != PST_OK)
        return status;
    op = pst_op_find(name);
    if (op == NULL)
        return pst_scan_fail(&p->scan, "there is no operator %.100s", name);
    schema = pst_op_schema(op);
    if (schema->n_args > MAX_ARGS)
        return pst_scan_fail(&p->scan, "%s has too many arguments", name);
    status = take_args(p, schema, args);
    if (status == PST_OK)
        status = take_place(p, &stage);
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

static enum pst_status take_given(struct parser *p, enum pst_value_kind kind)
{
    const bool needs_fqn = kind != PST_VALUE_INPUT && kind != PST_VALUE_SEED;
    const char *const *dims = NULL;
    struct pst_value *value;
    struct pst_meta meta;
    bool grad, persistent;
    char *name, *fqn = NULL;
    enum pst_status status = take_new_name(p, &name);

    if (status == PST_OK && pst_scan_sees(&p->scan, "\""))
        status = pst_scan_quoted(&p->scan, &fqn);
    if (status != PST_OK)
        return status;
    if (needs_fqn != (fqn != NULL))
        return pst_scan_fail(&p->scan, "a name of the state is %s",
                             needs_fqn ? "missing" : "too much");
    grad = pst_scan_take(&p->scan, "grad");
    persistent = pst_scan_take(&p->scan, "persistent");
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
    return pst_exprs_copy(&p->graph->arena, dims, meta.rank, &value->dims,
                          p->scan.diag);
}

static enum pst_status take_output(struct parser *p)
{
    struct pst_output output = {.kind = PST_OUTPUT_USER};
    enum pst_status status;
    char *path;

    if (pst_scan_take(&p->scan, "buffer"))
        output.kind = PST_OUTPUT_BUFFER_UPDATE;
    else if (pst_scan_take(&p->scan, "input"))
        output.kind = PST_OUTPUT_INPUT_UPDATE;
    else if (!pst_scan_take(&p->scan, "user"))
        return pst_scan_fail(&p->scan, "the kind of the output is missing");
    status = take_arg(p, &output.arg);
    if (status == PST_OK && pst_scan_take(&p->scan, "->"))
        status = take_value(p, &output.target);
    if (status == PST_OK)
        status = pst_scan_quoted(&p->scan, &path);
    if (status != PST_OK)
        return status;
    output.path = path;
    return pst_graph_add_output(p->graph, &output, p->scan.diag);
}

static enum pst_status take_line(struct parser *p)
{
    if (pst_scan_take(&p->scan, "output"))
        return take_output(p);
    for (size_t i = 0; i < PST_COUNT(kinds); i++)
        if (pst_scan_take(&p->scan, kinds[i].word))
            return take_given(p, kinds[i].kind);
    return take_node(p);
}

static enum pst_status take_graph(struct parser *p)
{
    unsigned next_id = 0;
    enum pst_status status;

    pst_scan_lines(&p->scan);
    status = pst_scan_expect(&p->scan, "graph");
    if (status == PST_OK)
        status = pst_scan_expect(&p->scan, "next_id=");
    if (status == PST_OK)
        status = take_unsigned(p, UINT32_MAX - 1, &next_id);
    if (status == PST_OK)
        status = pst_scan_expect(&p->scan, "{");
    while (status == PST_OK) {
        if (!pst_scan_sees(&p->scan, "\n"))
            return pst_scan_fail(&p->scan, "more than one thing in a line");
        pst_scan_lines(&p->scan);
        if (pst_scan_take(&p->scan, "}"))
            break;
        status = take_line(p);
    }
    if (status != PST_OK)
        return status;
    pst_scan_lines(&p->scan);
    if (*p->scan.at != '\0')
        return pst_scan_fail(&p->scan, "text behind the end");
    p->graph->next_node_id = PST_MAX(p->graph->next_node_id, next_id);
    return PST_OK;
}

enum pst_status pst_graph_parse(const char *text, struct pst_graph **ret,
                                struct pst_diag *diag)
{
    struct parser p = {.scan = {.at = text, .line = 1, .diag = diag}};
    enum pst_status status = pst_graph_new(&p.graph, diag);

    if (status != PST_OK)
        return status;
    pst_arena_init(&p.arena, PST_TAG_GRAPH);
    p.scan.arena = &p.arena;
    pst_build_init(&p.build, p.graph, diag);
    status = take_graph(&p);
    if (status == PST_OK)
        status = pst_graph_verify(p.graph, diag);
    pst_arena_fini(&p.arena);
    if (status != PST_OK) {
        pst_graph_free(p.graph);
        return status;
    }
    *ret = p.graph;
    return PST_OK;
}
