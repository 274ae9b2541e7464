// SPDX-License-Identifier: Apache-2.0
/*
 * Complex numbers of the document become pairs of real numbers in an additional
 * last dimension (pst_doc_meta). An operator on them becomes the row of that
 * name in stages/ops/complex/; one that only moves elements keeps its own row,
 * which must not touch the last dimension (movers.c).
 */
#include "stages/base/str.h"
#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <string.h>

/* --- complex nodes -------------------------------------------------------- */

static bool is_complex(const struct pst_doc_graph *graph, const char *name)
{
    const struct pst_doc_tensor *t = pst_doc_tensor(graph, name);
    enum pst_dtype part;

    return t != NULL && pst_doc_is_complex(t->dtype, &part);
}

static bool any_complex(const struct pst_doc_graph *graph,
                        const struct pst_doc_arg *arg)
{
    bool any = arg->kind == PST_DOC_TENSOR && is_complex(graph, arg->name);

    for (unsigned i = 0; arg->kind == PST_DOC_TENSORS && i < arg->n; i++)
        any = any || is_complex(graph, arg->names[i]);
    return any;
}

bool pst_import_complex(const struct pst_doc_node *node,
                        const struct pst_doc_graph *graph)
{
    bool any = false;

    for (unsigned i = 0; i < node->n_inputs; i++)
        any = any || any_complex(graph, &node->inputs[i].arg);
    for (unsigned i = 0; i < node->n_outputs; i++)
        any = any || any_complex(graph, &node->outputs[i]);
    return any;
}

bool pst_import_is_complex(const struct pst_doc_graph *graph,
                           const struct pst_doc_arg *arg)
{
    return any_complex(graph, arg);
}

static const struct pst_op *find_row(const char *name)
{
    static const char *const spaces[] = {"complex", "from_real"};
    char text[256];

    for (size_t i = 0; i < PST_COUNT(spaces); i++) {
        const struct pst_op *op;

        (void)pst_format(text, sizeof(text), "%s%s", spaces[i],
                         name + strlen("aten"));
        op = pst_op_find(text);
        if (op != NULL)
            return op;
    }
    return pst_import_mover(name) != NULL ? pst_op_find(name) : NULL;
}

const struct pst_op *pst_import_complex_row(const char *name,
                                            const struct pst_mover **ret_mover)
{
    const struct pst_op *op, *real = pst_op_find(name);

    if (!pst_has_prefix(name, "aten."))
        return NULL;
    op = find_row(name);
    if (op == NULL && real != NULL) { /* `name` may be an alias of a row */
        name = pst_op_schema(real)->name;
        op = find_row(name);
    }
    *ret_mover = pst_import_mover(name);
    return op;
}

/* --- arguments ------------------------------------------------------------ */

/* Returns the dtype of the parts of a complex tensor; PST_N_DTYPES if the
 * tensor is real. */
static enum pst_dtype part_dtype(const struct pst_doc_tensor *t)
{
    enum pst_dtype part;

    return t != NULL && pst_doc_is_complex(t->dtype, &part) ? part
                                                            : PST_N_DTYPES;
}

/* Returns the dtype in which a node computes real and imaginary parts;
 * PST_N_DTYPES: all operands are real. Operands without dimensions do not raise
 * this dtype. */
static enum pst_dtype part_of(const struct pst_doc_node *node,
                              const struct pst_doc_graph *graph)
{
    enum pst_dtype ret = PST_N_DTYPES, flat = PST_N_DTYPES;

    for (unsigned i = 0; i < node->n_outputs; i++)
        if (node->outputs[i].kind == PST_DOC_TENSOR) {
            ret = part_dtype(pst_doc_tensor(graph, node->outputs[i].name));
            if (ret != PST_N_DTYPES)
                return ret;
        }
    for (unsigned i = 0; i < node->n_inputs; i++) {
        const struct pst_doc_arg *arg = &node->inputs[i].arg;
        const unsigned n = arg->kind == PST_DOC_TENSORS ? arg->n : 1;

        for (unsigned k = 0; k < n && any_complex(graph, arg); k++) {
            const struct pst_doc_tensor *t = pst_doc_tensor(
                graph,
                arg->kind == PST_DOC_TENSORS ? arg->names[k] : arg->name);
            enum pst_dtype *to = t != NULL && t->rank > 0 ? &ret : &flat;

            if (part_dtype(t) != PST_N_DTYPES && *to != PST_F64)
                *to = part_dtype(t);
        }
    }
    return ret != PST_N_DTYPES ? ret : flat;
}

/* True if a tensor is converted to the dtype `part` of the complex operands,
 * because its own does not decide the dtype of the result: an integer, or a
 * tensor without dimensions, whose meta here has rank `rank`. */
static bool takes_dtype(const struct pst_meta *meta, unsigned rank,
                        enum pst_dtype part)
{
    return part != PST_N_DTYPES && part != meta->dtype &&
           (pst_dtype_kind(meta->dtype) != PST_KIND_FLOAT ||
            meta->rank == rank);
}

static struct pst_value *convert_part(struct pst_import *import,
                                      struct pst_value *v, enum pst_dtype part)
{
    return pst_emit(&import->build, &pst_op__to_copy,
                    PST_ARGS(pst_v(v), pst_dtype_arg(part)));
}

static struct pst_value *promote_value(struct pst_import *import,
                                       struct pst_value *v, enum pst_dtype part)
{
    struct pst_value *parts[2];

    if (takes_dtype(&v->meta, 0, part))
        v = convert_part(import, v, part);
    if (v == NULL)
        return NULL;
    parts[0] = v;
    parts[1] = pst_emit(&import->build, &pst_op_zeros_like, PST_ARGS(pst_v(v)));
    return pst_emit(&import->build, &pst_op_stack,
                    PST_ARGS(pst_values(parts, 2), pst_i(-1)));
}

/* Converts a real or complex number of the file to a pair. */
static struct pst_value *convert_literal(struct pst_import *import,
                                         const struct pst_doc_arg *arg,
                                         const struct pst_arg *bound,
                                         enum pst_dtype part)
{
    const bool pair = arg->kind == PST_DOC_COMPLEX;
    const struct pst_arg numbers[2] = {pair ? pst_f(arg->parts[0]) : *bound,
                                       pst_f(pair ? arg->parts[1] : 0.0)};
    const struct pst_arg dtype =
        pst_dtype_arg(part == PST_N_DTYPES ? PST_F32 : part);
    struct pst_value *parts[2];

    for (unsigned i = 0; i < 2; i++)
        parts[i] = pst_emit(&import->build, &pst_op_scalar_tensor,
                            PST_ARGS(numbers[i], dtype));
    return pst_emit(&import->build, &pst_op_stack,
                    PST_ARGS(pst_values(parts, 2), pst_i(-1)));
}

/* Converts a tensor of an operator whose operands all become complex. For
 * in-place operators, pst_import_bind has not read the newest version yet. */
static struct pst_value *convert_operand(struct pst_import *import,
                                         const struct pst_target *target,
                                         struct pst_value *v, bool is_complex,
                                         enum pst_dtype part)
{
    if (v == NULL || (is_complex && !takes_dtype(&v->meta, 1, part)))
        return v;
    if (target->kind == PST_TARGET_INPLACE)
        v = pst_functionalise_read(import->functional, v);
    if (v == NULL)
        return NULL;
    return is_complex ? convert_part(import, v, part)
                      : promote_value(import, v, part);
}

/* True for arguments that stay real: indices and conditions. */
static bool stays_real(const char *name)
{
    static const char *const names[] = {"index", "indices", "condition", "mask",
                                        "window"};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static void promote_one(struct pst_import *import,
                        const struct pst_doc_graph *graph,
                        const struct pst_target *target,
                        const struct pst_doc_arg *arg, enum pst_dtype part,
                        struct pst_arg *bound)
{
    if (arg->kind == PST_DOC_TENSOR && bound->kind == PST_ARG_VALUE)
        bound->value = convert_operand(import, target, bound->value,
                                       is_complex(graph, arg->name), part);
    else if (arg->kind == PST_DOC_COMPLEX || pst_doc_is_number(arg) ||
             bound->kind == PST_ARG_INT || bound->kind == PST_ARG_FLOAT ||
             bound->kind == PST_ARG_BOOL)
        *bound = pst_v(convert_literal(import, arg, bound, part));
    for (unsigned k = 0; arg->kind == PST_DOC_TENSORS && k < arg->n; k++)
        if (bound->kind == PST_ARG_VALUES && k < bound->n)
            bound->values[k] =
                convert_operand(import, target, bound->values[k],
                                is_complex(graph, arg->names[k]), part);
}

static void promote_operands(struct pst_import *import,
                             const struct pst_scope *scope,
                             const struct pst_doc_node *node,
                             const struct pst_target *target,
                             struct pst_arg *args)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    const enum pst_dtype part = part_of(node, scope->graph);

    for (unsigned i = 0; i < node->n_inputs; i++) {
        const char *name = node->inputs[i].name;
        const int at = pst_import_find_arg(schema, name);

        /* The target of an in-place operator is not converted. */
        if (at < 0 || stays_real(name) ||
            (at == 0 && target->kind == PST_TARGET_INPLACE) ||
            (schema->args[at].type != PST_TYPE_TENSOR &&
             node->inputs[i].arg.kind != PST_DOC_TENSORS))
            continue;
        promote_one(import, scope->graph, target, &node->inputs[i].arg, part,
                    &args[at]);
    }
}

/* Replaces complex operands by their real parts. */
static void use_real_parts(struct pst_import *import,
                           const struct pst_scope *scope,
                           const struct pst_doc_node *node,
                           const struct pst_target *target,
                           struct pst_arg *args)
{
    const struct pst_schema *schema = pst_op_schema(target->op);

    for (unsigned i = 0; i < node->n_inputs; i++) {
        const int at = pst_import_find_arg(schema, node->inputs[i].name);
        struct pst_value *v;

        if (at < 0 || node->inputs[i].arg.kind != PST_DOC_TENSOR ||
            !any_complex(scope->graph, &node->inputs[i].arg))
            continue;
        v = args[at].value;
        if (target->kind == PST_TARGET_INPLACE)
            v = pst_functionalise_read(import->functional, v);
        args[at] = pst_v(pst_emit(&import->build, &pst_op_select_int,
                                  PST_ARGS(pst_v(v), pst_i(-1), pst_i(0))));
    }
}

enum pst_status pst_import_pairs(struct pst_import *import,
                                 const struct pst_scope *scope,
                                 const struct pst_doc_node *node,
                                 const struct pst_target *target,
                                 struct pst_arg *args)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    enum pst_status status;

    if (target->promotes)
        promote_operands(import, scope, node, target, args);
    if (target->real_parts)
        use_real_parts(import, scope, node, target, args);
    status = import->build.status;
    if (status == PST_OK && target->mover != NULL)
        status = pst_import_adapt_dims(import, target->mover, schema, args);
    return status;
}
