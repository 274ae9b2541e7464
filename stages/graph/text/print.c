// SPDX-License-Identifier: Apache-2.0
/*
 * Prints a graph as text, one line per value, node and output:
 *
 *   graph next_id=13 {
 *     call out@1 in head type torch.nn.Linear key L__self__out
 *     input %x: f32[2, 3]
 *     param %w "out.weight" grad: f32[2, 3]
 *     %add: f32[2, 3] = aten.add.Tensor(%x, %w)  # out zoo.py:12 F id=12
 *     %t: f32[3, 2]:(1, 3) view of %x + 0 = aten.t.default(%x)  # - - F id=3
 *     signature out@1 in "input" %x out "0" %t
 *     output user %t "0"
 *   }
 *
 * A call's line has the call that contains it and the module's class and
 * identity; a signature has the call's inputs and results. After "#" come the
 * module (with "@INDEX" after the first call), source, phase, id and, where
 * they apply, "stage=K", "no_grad", "region=R", "function", "of=ORIGIN"; "-" is
 * an empty source or the model itself.
 */
#include "stages/graph/text/print.h"

#include "stages/graph/schema.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const kind_words[] = {
    [PST_VALUE_INPUT] = "input",   [PST_VALUE_PARAM] = "param",
    [PST_VALUE_BUFFER] = "buffer", [PST_VALUE_CONST] = "const",
    [PST_VALUE_NODE] = "",         [PST_VALUE_SEED] = "seed",
    [PST_VALUE_GRAD] = "gradient",
};

static const char phase_letters[] = {'F', 'I', 'W'};

/* Prints a word without quotes if it has only letters, digits and characters of
 * `more`. */
static void add_word(struct pst_str *out, const char *text, const char *more)
{
    bool bare = text[0] != '\0';

    for (const char *c = text; *c != '\0'; c++)
        bare = bare && (isalnum((unsigned char)*c) || strchr(more, *c) != NULL);
    if (bare)
        pst_str_add(out, text);
    else
        pst_str_add_json(out, text);
}

static void add_value(struct pst_str *out, const struct pst_value *value)
{
    if (value == NULL) {
        pst_str_add(out, "None");
        return;
    }
    pst_str_add(out, "%");
    add_word(out, value->name, "_.");
}

/* Prints the expression of a number: "8{2*s}". */
static void add_expr(struct pst_str *out, const char *const *exprs, unsigned k)
{
    if (exprs != NULL && exprs[k] != NULL)
        pst_str_addf(out, "{%s}", exprs[k]);
}

/* Prints a meta. Unlike pst_meta_text, also prints the strides if they differ
 * from contiguous strides only in dimensions of size 1. */
static void add_meta(struct pst_str *out, const struct pst_value *value)
{
    const struct pst_meta *meta = &value->meta;
    struct pst_meta plain = *meta;

    pst_meta_set_contiguous(&plain);
    pst_str_add(out, pst_dtype_name(meta->dtype));
    pst_str_add(out, "[");
    for (unsigned d = 0; d < meta->rank; d++) {
        pst_str_add(out, d ? ", " : "");
        pst_str_add_i64(out, meta->size[d]);
        add_expr(out, value->dims, d);
    }
    pst_str_add(out, "]");
    if (memcmp(plain.stride, meta->stride,
               sizeof(plain.stride[0]) * meta->rank) == 0)
        return;
    pst_str_add(out, ":(");
    for (unsigned d = 0; d < meta->rank; d++) {
        pst_str_add(out, d ? ", " : "");
        pst_str_add_i64(out, meta->stride[d]);
    }
    pst_str_add(out, ")");
}

/* Prints a float with ".", "e" or a word, so that it does not parse as an
 * integer. NaNs are printed with their bits: there are many different ones. */
static void add_f64(struct pst_str *out, double x)
{
    char text[32];
    uint64_t bits;

    if (isnan(x)) {
        memcpy(&bits, &x, sizeof(bits));
        pst_str_addf(out, "nan:%016" PRIx64, bits);
    } else if (isinf(x)) {
        pst_str_add(out, x > 0 ? "inf" : "-inf");
    } else {
        pst_format_f64(x, text);
        pst_str_add(out, text);
        if (strpbrk(text, ".e") == NULL)
            pst_str_add(out, ".0");
    }
}

static void add_item(struct pst_str *out, const struct pst_arg *arg, unsigned k,
                     pst_print_value_fn fn, void *ctx)
{
    switch (arg->kind) {
    case PST_ARG_VALUES:
        if (arg->values[k] != NULL)
            fn(ctx, arg->values[k], out);
        else
            pst_str_add(out, "None");
        break;
    case PST_ARG_INTS:
        pst_str_add_i64(out, arg->ints[k]);
        break;
    case PST_ARG_FLOATS:
        add_f64(out, arg->floats[k]);
        break;
    default:
        pst_str_add(out, arg->bools[k] ? "True" : "False");
        break;
    }
}

void pst_arg_print(const struct pst_arg *arg, pst_print_value_fn fn, void *ctx,
                   struct pst_str *out)
{
    switch (arg->kind) {
    case PST_ARG_NONE:
        pst_str_add(out, "None");
        break;
    case PST_ARG_VALUE:
        fn(ctx, arg->value, out);
        break;
    case PST_ARG_INT:
        pst_str_add_i64(out, arg->i);
        add_expr(out, arg->exprs, 0);
        break;
    case PST_ARG_FLOAT:
        add_f64(out, arg->f);
        add_expr(out, arg->exprs, 0);
        break;
    case PST_ARG_BOOL:
        pst_str_add(out, arg->b ? "True" : "False");
        add_expr(out, arg->exprs, 0);
        break;
    case PST_ARG_STRING:
        pst_str_add_json(out, arg->s);
        break;
    case PST_ARG_DTYPE:
        pst_str_add(out, pst_dtype_name((enum pst_dtype)arg->i));
        break;
    case PST_ARG_IGNORED:
        pst_str_add(out, "_");
        break;
    default: /* a list of any type */
        pst_str_add(out, "[");
        for (unsigned k = 0; k < arg->n; k++) {
            pst_str_add(out, k ? ", " : "");
            add_item(out, arg, k, fn, ctx);
            add_expr(out, arg->exprs, k);
        }
        pst_str_add(out, "]");
        break;
    }
}

static void add_name(void *ctx, const struct pst_value *value,
                     struct pst_str *out)
{
    (void)ctx;
    add_value(out, value);
}

static void add_arg(struct pst_str *out, const struct pst_arg *arg)
{
    pst_arg_print(arg, add_name, NULL, out);
}

bool pst_arg_same(const struct pst_arg *a, const struct pst_arg *b)
{
    if (a->kind != b->kind || a->exprs != NULL)
        return false;
    switch (a->kind) {
    case PST_ARG_NONE:
    case PST_ARG_IGNORED:
        return true;
    case PST_ARG_INT:
    case PST_ARG_DTYPE:
    case PST_ARG_FLOAT: /* compares bits: 0.0 is not -0.0 */
        return a->i == b->i;
    case PST_ARG_BOOL:
        return a->b == b->b;
    case PST_ARG_STRING:
        return strcmp(a->s, b->s) == 0;
    case PST_ARG_INTS:
    case PST_ARG_FLOATS:
        return a->n == b->n &&
               memcmp(a->ints, b->ints, a->n * sizeof(a->ints[0])) == 0;
    case PST_ARG_BOOLS:
        return a->n == b->n && memcmp(a->bools, b->bools, a->n) == 0;
    case PST_ARG_VALUES:
        return a->n == 0 && b->n == 0;
    case PST_ARG_VALUE:
        break;
    }
    return false;
}

static void add_args(struct pst_str *out, const struct pst_node *node)
{
    bool omitted = false, first = true;

    for (unsigned i = 0; i < node->schema->n_args; i++) {
        const struct pst_param *param = &node->schema->args[i];

        if (param->has_default && pst_arg_same(&node->args[i], &param->def)) {
            omitted = true;
            continue;
        }
        pst_str_add(out, first ? "" : ", ");
        first = false;
        if (omitted || param->has_default) {
            pst_str_add(out, param->name);
            pst_str_add(out, "=");
        }
        add_arg(out, &node->args[i]);
    }
}

static void add_outs(struct pst_str *out, const struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct pst_value *value = node->outs[k];

        pst_str_add(out, k ? ", " : "");
        add_value(out, value);
        pst_str_add(out, ": ");
        add_meta(out, value);
        if (value->base != NULL) {
            pst_str_add(out, " view of ");
            add_value(out, value->base);
            pst_str_add(out, " + ");
            pst_str_add_i64(out, value->offset);
        }
        if (value->version_of != NULL) {
            pst_str_add(out, " version of ");
            add_value(out, value->version_of);
        }
    }
    if (node->n_outs > 0)
        pst_str_add(out, " = ");
}

static void add_place(struct pst_str *out, const char *text)
{
    if (text[0] == '\0')
        pst_str_add(out, "-");
    else
        add_word(out, text, strcmp(text, "-") ? "_.-/:<>" : "");
}

static void add_call_name(struct pst_str *out,
                          const struct pst_module_call *call)
{
    add_place(out, call->path);
    if (call->index > 0) {
        pst_str_add(out, "@");
        pst_str_add_u64(out, call->index);
    }
}

static void add_call(struct pst_str *out, const struct pst_module_call *call)
{
    pst_str_add(out, "  call ");
    add_call_name(out, call);
    if (call->parent != NULL) {
        pst_str_add(out, " in ");
        add_call_name(out, call->parent);
    }
    if (call->type[0] != '\0') {
        pst_str_add(out, " type ");
        add_place(out, call->type);
    }
    if (call->identity[0] != '\0') {
        pst_str_add(out, " key ");
        add_place(out, call->identity);
    }
    pst_str_add(out, "\n");
}

static void add_leaves(struct pst_str *out, const char *word,
                       const struct pst_call_leaf *leaves, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        pst_str_addf(out, " %s ", word);
        pst_str_add_json(out, leaves[i].path);
        pst_str_add(out, " ");
        add_arg(out, &leaves[i].arg);
    }
}

static void add_signature(struct pst_str *out,
                          const struct pst_module_call *call)
{
    const struct pst_call_signature *s = call->signature;

    if (s == NULL)
        return;
    pst_str_add(out, "  signature ");
    add_call_name(out, call);
    add_leaves(out, "in", s->inputs, s->n_inputs);
    add_leaves(out, "out", s->outputs, s->n_outputs);
    pst_str_add(out, "\n");
}

void pst_node_print(const struct pst_node *node, struct pst_str *out)
{
    pst_str_add(out, "  ");
    add_outs(out, node);
    pst_str_add(out, node->schema->name);
    pst_str_add(out, "(");
    add_args(out, node);
    pst_str_add(out, ")  # ");
    add_call_name(out, node->call);
    pst_str_add(out, " ");
    add_place(out, node->source);
    pst_str_add(out, " ");
    pst_str_addn(out, &phase_letters[node->phase], 1);
    pst_str_add(out, " id=");
    pst_str_add_u64(out, node->id);
    if (node->stage >= 0)
        pst_str_addf(out, " stage=%d", node->stage);
    pst_str_add(out, node->no_grad ? " no_grad" : "");
    if (node->region != NULL) {
        pst_str_add(out, " region=");
        add_place(out, node->region);
    }
    pst_str_add(out, node->is_function ? " function" : "");
    if (node->origin[0] != '\0') {
        pst_str_add(out, " of=");
        add_place(out, node->origin);
    }
    pst_str_add(out, "\n");
}

void pst_value_print(const struct pst_value *value, bool with_meta,
                     struct pst_str *out)
{
    add_value(out, value);
    if (!with_meta)
        return;
    pst_str_add(out, ": ");
    add_meta(out, value);
}

static void add_output(struct pst_str *out, const struct pst_output *output)
{
    static const char *const words[] = {
        [PST_OUTPUT_USER] = "user",
        [PST_OUTPUT_BUFFER_UPDATE] = "buffer",
        [PST_OUTPUT_INPUT_UPDATE] = "input",
    };

    pst_str_addf(out, "  output %s ", words[output->kind]);
    add_arg(out, &output->arg);
    if (output->target != NULL) {
        pst_str_add(out, " -> ");
        add_value(out, output->target);
    }
    pst_str_add(out, " ");
    pst_str_add_json(out, output->path);
    pst_str_add(out, "\n");
}

void pst_graph_print(const struct pst_graph *graph, struct pst_str *out)
{
    pst_str_addf(out, "graph next_id=%u {\n", graph->next_node_id);
    for (size_t i = 0; i < graph->calls.n; i++)
        if (i > 0 || graph->calls.at[0]->type[0] != '\0' ||
            graph->calls.at[0]->identity[0] != '\0')
            add_call(out, graph->calls.at[i]);
    for (size_t i = 0; i < graph->values.n; i++) {
        const struct pst_value *value = graph->values.at[i];

        if (value->kind == PST_VALUE_NODE)
            continue;
        pst_str_add(out, "  ");
        pst_str_add(out, kind_words[value->kind]);
        pst_str_add(out, " ");
        add_value(out, value);
        if (value->fqn != NULL) {
            pst_str_add(out, " ");
            pst_str_add_json(out, value->fqn);
        }
        pst_str_add(out, value->requires_grad ? " grad" : "");
        pst_str_add(out, value->persistent ? " persistent" : "");
        pst_str_add(out, value->empty_before ? " empty_before" : "");
        pst_str_add(out, value->empty_after ? " empty_after: " : ": ");
        add_meta(out, value);
        pst_str_add(out, "\n");
    }
    for (size_t i = 0; i < graph->nodes.n; i++)
        pst_node_print(graph->nodes.at[i], out);
    for (size_t i = 0; i < graph->calls.n; i++)
        add_signature(out, graph->calls.at[i]);
    for (size_t i = 0; i < graph->outputs.n; i++)
        add_output(out, &graph->outputs.at[i]);
    pst_str_add(out, "}\n");
}
