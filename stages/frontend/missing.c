// SPDX-License-Identifier: Apache-2.0
#include "stages/frontend/missing.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/alloc.h"
#include "stages/files/pt2/document.h"
#include "stages/frontend/import/target.h"

#define TAG      PST_TAG_ARCHIVE
#define MAX_ARGS 64
#define MAX_OPS  256

/* One argument of an operator, over all calls. */
struct argument {
    const char *name;
    const char *type; /* type in a schema; NULL: all calls have None */
    unsigned calls;   /* that give the argument */
    bool is_none;     /* in some call */
};

struct unknown {
    const char *target; /* "mylib.scale.default" */
    const char *place;  /* source of the first call */
    struct argument args[MAX_ARGS];
    unsigned n_args, calls, n_results;
    bool gives_list; /* returns Tensor[], of n_results in the model */
    const char *why; /* why a plugin cannot implement it; NULL: it can */
};

struct operators {
    struct unknown *at;
    unsigned n;
};

/* Returns the type in a schema for the kind of the argument; NULL: not
 * supported. */
static const char *type_of(const struct pst_doc_arg *arg)
{
    switch (arg->kind) {
    case PST_DOC_TENSOR:
        return "Tensor";
    case PST_DOC_TENSORS:
        return "Tensor[]";
    case PST_DOC_OPTIONAL_TENSORS:
        return "Tensor?[]";
    case PST_DOC_INT:
    case PST_DOC_SYM_INT:
        return "SymInt";
    case PST_DOC_FLOAT:
    case PST_DOC_SYM_FLOAT:
        return "float";
    case PST_DOC_BOOL:
    case PST_DOC_SYM_BOOL:
        return "bool";
    case PST_DOC_INTS:
    case PST_DOC_SYM_INTS:
        return "SymInt[]";
    case PST_DOC_FLOATS:
        return "float[]";
    case PST_DOC_BOOLS:
        return "bool[]";
    case PST_DOC_STRING:
        return "str";
    case PST_DOC_SCALAR_TYPE:
        return "ScalarType";
    default:
        return NULL;
    }
}

/* Returns a type that covers arguments of both types; NULL if there is none. */
static const char *common_type(const char *a, const char *b)
{
    const bool numbers =
        (strcmp(a, "float") == 0 || strcmp(a, "SymInt") == 0) &&
        (strcmp(b, "float") == 0 || strcmp(b, "SymInt") == 0);

    if (strcmp(a, b) == 0)
        return a;
    if (numbers)
        return "float";
    return pst_has_prefix(a, "Tensor") && pst_has_prefix(b, "Tensor") &&
                   pst_has_suffix(a, "[]") && pst_has_suffix(b, "[]")
               ? "Tensor?[]"
               : NULL;
}

static void add_call_arg(struct unknown *op, unsigned i,
                         const struct pst_doc_input *input)
{
    struct argument *arg = &op->args[i];
    const char *type = type_of(&input->arg);

    if (input->name[0] != '\0')
        arg->name = input->name;
    arg->calls++;
    op->n_args = PST_MAX(op->n_args, i + 1);
    if (input->arg.kind == PST_DOC_NONE) {
        arg->is_none = true;
        return;
    }
    if (type != NULL && arg->type != NULL)
        type = common_type(arg->type, type);
    if (type == NULL)
        op->why = "an argument has a type that plugins do not have";
    arg->type = type;
}

/* Returns the index of a keyword argument among those seen so far. */
static unsigned place_of(const struct unknown *op, unsigned i, const char *name)
{
    for (unsigned k = 0; k < op->n_args && name[0] != '\0'; k++)
        if (op->args[k].name != NULL && strcmp(op->args[k].name, name) == 0)
            return k;
    return i < op->n_args && op->args[i].name != NULL ? op->n_args : i;
}

static void add_call(struct unknown *op, const struct pst_doc_node *node)
{
    op->calls++;
    if (node->n_inputs > MAX_ARGS)
        op->why = "it has too many arguments";
    for (unsigned i = 0; i < node->n_inputs && op->why == NULL; i++) {
        const unsigned at = place_of(op, i, node->inputs[i].name);

        if (at < MAX_ARGS)
            add_call_arg(op, at, &node->inputs[i]);
    }
    if (node->n_outputs == 1 && node->outputs[0].kind == PST_DOC_TENSORS) {
        op->gives_list = true;
        op->n_results = PST_MAX(op->n_results, node->outputs[0].n);
        return;
    }
    op->n_results = PST_MAX(op->n_results, node->n_outputs);
    for (unsigned k = 0; k < node->n_outputs; k++)
        if (node->outputs[k].kind != PST_DOC_TENSOR &&
            node->outputs[k].kind != PST_DOC_NONE)
            op->why = "a result is not a tensor";
    if (node->n_outputs == 0)
        op->why = "it has no result";
}

/* True if the node calls an operator "SPACE.NAME.OVERLOAD" that is unknown. The
 * file is not trusted: its names become C source. */
static bool is_missing(const struct pst_doc_node *node)
{
    const struct pst_target *target = node->resolved;

    if (target == NULL || target->kind != PST_TARGET_NONE ||
        target->tier != 0 || strchr(target->name, '.') == NULL)
        return false;
    for (const char *at = target->name; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at) && *at != '_' && *at != '.')
            return false;
    return isalpha((unsigned char)target->name[0]);
}

static enum pst_status add_node(struct operators *all,
                                const struct pst_doc_node *node,
                                struct pst_diag *diag)
{
    const char *name = node->resolved->name;
    unsigned i = 0;

    while (i < all->n && strcmp(all->at[i].target, name) != 0)
        i++;
    if (i == MAX_OPS)
        return pst_diag_set(diag, PST_E_OP_NOT_SUPPORTED,
                            "the model has more than %d unknown operators",
                            MAX_OPS);
    if (i == all->n) {
        all->at[i].target = name;
        all->at[i].place = node->place->source;
        all->n++;
    }
    add_call(&all->at[i], node);
    return PST_OK;
}

/* --- printing ------------------------------------------------------------- */

static size_t space_len(const struct unknown *op)
{
    return strcspn(op->target, ".");
}

static bool is_in(const struct unknown *op, const char *space, size_t n)
{
    return space_len(op) == n && strncmp(op->target, space, n) == 0;
}

/* Appends "scale" or "scale_out" for "mylib.scale.out". Characters that C names
 * cannot have are replaced. */
static void add_identifier(const char *text, struct pst_str *out)
{
    const size_t n = pst_has_suffix(text, ".default")
                         ? strlen(text) - strlen(".default")
                         : strlen(text);

    for (size_t i = 0; i < n; i++)
        pst_str_addf(out, "%c",
                     isalnum((unsigned char)text[i]) ? text[i] : '_');
}

static void add_function(const struct unknown *op, const char *what,
                         struct pst_str *out)
{
    pst_str_addf(out, "%s_", what);
    add_identifier(op->target + space_len(op) + 1, out);
}

static void add_argument(const struct unknown *op, unsigned i,
                         struct pst_str *out)
{
    if (op->args[i].name != NULL)
        add_identifier(op->args[i].name, out);
    else
        pst_str_addf(out, "arg%u", i);
}

static void add_schema(const struct unknown *op, struct pst_str *out)
{
    const char *base = op->target + space_len(op) + 1;
    const size_t n = pst_has_suffix(base, ".default")
                         ? strlen(base) - strlen(".default")
                         : strlen(base);

    pst_str_addf(out, "%.*s::%.*s(", (int)space_len(op), op->target, (int)n,
                 base);
    for (unsigned i = 0; i < op->n_args; i++) {
        const struct argument *arg = &op->args[i];
        const char *type = arg->type != NULL ? arg->type : "Tensor";

        pst_str_addf(out, "%s%s%s ", i > 0 ? ", " : "", type,
                     arg->is_none ? "?" : "");
        add_argument(op, i, out);
        if (arg->calls < op->calls)
            pst_str_add(out, arg->is_none                      ? "=None"
                             : strcmp(type, "float") == 0      ? "=0.0"
                             : strcmp(type, "bool") == 0       ? "=False"
                             : strcmp(type, "str") == 0        ? "=''"
                             : strcmp(type, "SymInt") == 0     ? "=0"
                             : strcmp(type, "ScalarType") == 0 ? "=float"
                                                               : "=[]");
    }
    pst_str_add(out, ") -> ");
    if (op->gives_list) {
        pst_str_add(out, "Tensor[]");
        return;
    }
    for (unsigned k = 0; k < op->n_results; k++)
        pst_str_addf(out, "%sTensor",
                     k > 0               ? ", "
                     : op->n_results > 1 ? "("
                                         : "");
    if (op->n_results > 1)
        pst_str_add(out, ")");
}

static const struct {
    const char *type, *text;
} reads[] = {
    {"Tensor", "const DLTensor *%s = &c->in[c->args[%u].first];"},
    {"Tensor[]", "const DLTensor *%s = &c->in[c->args[%u].first];"},
    {"Tensor?[]", "const DLTensor *%s = &c->in[c->args[%u].first];"},
    {"SymInt", "const int64_t %s = c->args[%u].i;"},
    {"float", "const double %s = c->args[%u].f;"},
    {"bool", "const int %s = c->args[%u].i != 0;"},
    {"SymInt[]", "const int64_t *%s = c->args[%u].ints;"},
    {"float[]", "const double *%s = c->args[%u].floats;"},
    {"bool[]", "const uint8_t *%s = c->args[%u].bools;"},
    {"str", "const char *%s = c->args[%u].text;"},
    {"ScalarType", "const DLDataType %s = c->args[%u].dtype;"},
};

/* Appends the declaration of a variable for argument i. Its name ends with "_",
 * unlike any keyword or other variable. */
static void add_read(const struct unknown *op, unsigned i, struct pst_str *out)
{
    const char *type = op->args[i].type != NULL ? op->args[i].type : "Tensor";
    struct pst_str name = {0};

    add_argument(op, i, &name);
    pst_str_add(&name, "_");
    for (size_t k = 0; k < PST_COUNT(reads); k++) {
        const char *text = reads[k].text;
        const char *at = strstr(text, "%s"), *number = strstr(text, "%u");

        if (strcmp(reads[k].type, type) != 0)
            continue;
        pst_str_add(out, "    ");
        pst_str_addn(out, text, (size_t)(at - text));
        pst_str_add(out, pst_str_text(&name));
        pst_str_addn(out, at + 2, (size_t)(number - at) - 2);
        pst_str_addf(out, "%u%s", i, number + 2);
    }
    if (op->args[i].is_none)
        pst_str_addf(out, " /* kind is PENSTOCK_ARG_NONE: None */");
    else if (pst_has_suffix(type, "[]"))
        pst_str_addf(out, " /* c->args[%u].n of them */", i);
    pst_str_addf(out, "\n");
    out->failed |= name.failed;
    pst_str_fini(&name);
}

/* Appends a source line of the user's, without characters that could end a C
 * comment. */
static void add_place(const char *place, struct pst_str *out)
{
    for (; *place != '\0'; place++)
        pst_str_addf(out, "%c",
                     isalnum((unsigned char)*place) ||
                             strchr("_./:- ", *place) != NULL
                         ? *place
                         : '?');
}

static void add_kernel(const struct unknown *op, struct pst_str *out)
{
    pst_str_addf(out, "/* ");
    add_schema(op, out);
    pst_str_addf(out, "\n * %u call%s in the model%s", op->calls,
                 op->calls == 1 ? "" : "s",
                 op->place[0] != '\0' ? ", the first at " : "");
    add_place(op->place, out);
    for (unsigned i = 0; i < op->n_args; i++)
        if (op->args[i].calls < op->calls && !op->args[i].is_none) {
            pst_str_add(out, "\n * Correct the default of ");
            add_argument(op, i, out);
            pst_str_add(out, ", which the model uses but does not have");
        }
    pst_str_add(out, " */\n");
    pst_str_add(out, "static int ");
    add_function(op, "run", out);
    pst_str_add(out, "(const struct penstock_kernel_call *c)\n{\n");
    for (unsigned i = 0; i < op->n_args; i++)
        add_read(op, i, out);
    for (unsigned k = 0; k < op->n_results; k++)
        pst_str_addf(out, "    const DLTensor *result%u = &c->out[%u];\n", k,
                     k);
    pst_str_add(out, "\n");
    for (unsigned i = 0; i < op->n_args; i++) {
        pst_str_add(out, "    (void)");
        add_argument(op, i, out);
        pst_str_add(out, "_;\n");
    }
    for (unsigned k = 0; k < op->n_results; k++)
        pst_str_addf(out, "    (void)result%u;\n", k);
    pst_str_add(out, "    (void)snprintf(c->reason, PENSTOCK_MAX_REASON, "
                     "\"not written yet\");\n    return 1;\n}\n\n");
    pst_str_add(out, "static int ");
    add_function(op, "infer", out);
    pst_str_add(out, "(struct penstock_shapes *s)\n{\n"
                     "    /* The results begin as copies of the first tensor: "
                     "change s->out[k] where they\n     * are not. */\n");
    if (op->gives_list)
        pst_str_addf(out, "    s->n_out = %u; /* as in the model */\n",
                     op->n_results);
    pst_str_add(out, "    (void)s;\n    return 0;\n}\n\n");
    pst_str_add(out, "static const struct penstock_kernel ");
    add_function(op, "kernels", out);
    pst_str_add(out, "[] = {\n    {sizeof(struct penstock_kernel), f32, 1, 0, "
                     "NULL, ");
    add_function(op, "run", out);
    pst_str_add(out, "},\n};\n\n");
}

static void add_row(const struct unknown *op, struct pst_str *out)
{
    pst_str_add(out, "    {sizeof(struct penstock_op),\n     \"");
    add_schema(op, out);
    pst_str_add(out, "\",\n     ");
    add_function(op, "infer", out);
    pst_str_add(out, ",\n     NULL, /* gradient */\n     ");
    add_function(op, "kernels", out);
    pst_str_add(out, ", 1, NULL, 0},\n");
}

static void add_source(const struct operators *all, const char *space, size_t n,
                       struct pst_str *out)
{
    pst_str_addf(out,
                 "/* The operators of %.*s: a plugin to start from "
                 "(docs/plugins.md).\n *\n *     cc -O2 -fPIC -shared -o "
                 "%.*s.so %.*s.c\n *\n"
                 " * The model shows names and types of arguments, but not "
                 "their defaults: take the\n * schemas of torch.library where "
                 "they differ. */\n#include <penstock_plugin.h>\n#include "
                 "<stdio.h>\n\nstatic const DLDataType f32[] = {{kDLFloat, 32, "
                 "1}};\n\n",
                 (int)n, space, (int)n, space, (int)n, space);
    for (unsigned i = 0; i < all->n; i++)
        if (is_in(&all->at[i], space, n) && all->at[i].why == NULL)
            add_kernel(&all->at[i], out);
        else if (is_in(&all->at[i], space, n))
            pst_str_addf(out, "/* %s cannot be in a plugin: %s. */\n\n",
                         all->at[i].target, all->at[i].why);
    pst_str_add(out, "static const struct penstock_op ops[] = {\n");
    for (unsigned i = 0; i < all->n; i++)
        if (is_in(&all->at[i], space, n) && all->at[i].why == NULL)
            add_row(&all->at[i], out);
    pst_str_addf(out,
                 "};\n\nconst struct penstock_plugin *penstock_plugin(void)\n{"
                 "\n    static const struct penstock_plugin plugin = {\n"
                 "        sizeof(struct penstock_plugin), PENSTOCK_PLUGIN_ABI, "
                 "\"%.*s\", \"0.1\", ops,\n        sizeof(ops) / "
                 "sizeof(ops[0])};\n\n    return &plugin;\n}\n",
                 (int)n, space);
}

/* Appends the namespaces other than the printed one, each once. */
static void add_others(const struct operators *all, const char *space, size_t n,
                       struct pst_str *out)
{
    for (unsigned i = 0; i < all->n; i++) {
        const struct unknown *op = &all->at[i];
        bool first = !is_in(op, space, n);

        for (unsigned k = 0; k < i && first; k++)
            first = !is_in(&all->at[k], op->target, space_len(op));
        if (first)
            pst_str_addf(out, "%s%.*s", out->len > 0 ? " " : "",
                         (int)space_len(op), op->target);
    }
}

enum pst_status pst_missing_print(const struct pst_document *doc,
                                  const char *space, struct pst_str *out,
                                  struct pst_str *ret_more,
                                  struct pst_diag *diag)
{
    struct operators all = {pst_calloc(TAG, MAX_OPS, sizeof(struct unknown)),
                            0};
    enum pst_status status = PST_OK;
    bool any = false;

    if (all.at == NULL)
        return pst_diag_nomem(diag, MAX_OPS * sizeof(struct unknown));
    for (const struct pst_doc_graph *g = doc->graphs; g != NULL; g = g->next)
        for (size_t i = 0; i < g->n_nodes && status == PST_OK; i++)
            if (is_missing(&g->nodes[i]))
                status = add_node(&all, &g->nodes[i], diag);
    if (space[0] == '\0' && all.n > 0)
        space = all.at[0].target;
    for (unsigned i = 0; i < all.n; i++)
        any = any || is_in(&all.at[i], space, strcspn(space, "."));
    if (status == PST_OK && any)
        add_source(&all, space, strcspn(space, "."), out);
    if (status == PST_OK)
        add_others(&all, space, strcspn(space, "."), ret_more);
    if (status == PST_OK && (out->failed || ret_more->failed))
        status = pst_diag_nomem(diag, out->len);
    pst_free(all.at);
    return status;
}
