// SPDX-License-Identifier: Apache-2.0
/*
 * Complex numbers of the document are pairs of real ones along one more
 * dimension, the last (pst_doc_meta). An operator on them is the row of
 * that name in stages/ops/complex/; one that only moves elements is its own
 * row, which must leave the last dimension alone.
 */
#include "stages/base/str.h"
#include "stages/frontend/import/import.h"
#include "stages/ops/op.h"
#include "stages/ops/rows.h"

#include <string.h>

/* Operators that treat both parts alike. */
static const struct pst_mover {
    const char *name;
    bool adds_dim;      /* a negative dimension counts the result's */
    const char *append; /* this list takes `last`; NULL: none */
    int64_t last;       /* 0: the number of the last dimension */
    bool every;         /* without `dim` it is of all dimensions */
} movers[] = {
    {"aten.view.default", false, "size", 2, false},
    {"aten.reshape.default", false, "shape", 2, false},
    {"aten._unsafe_view.default", false, "size", 2, false},
    {"aten.expand.default", false, "size", 2, false},
    {"aten.repeat.default", false, "repeats", 1, false},
    {"aten.permute.default", false, "dims", 0, false},
    {"aten.transpose.int", false, NULL, 0, false},
    {"aten.movedim.int", false, NULL, 0, false},
    {"aten.movedim.intlist", false, NULL, 0, false},
    {"aten.unsqueeze.default", true, NULL, 0, false},
    {"aten.squeeze.default", false, NULL, 0, false},
    {"aten.squeeze.dim", false, NULL, 0, false},
    {"aten.squeeze.dims", false, NULL, 0, false},
    {"aten.flatten.using_ints", false, NULL, 0, false},
    {"aten.unflatten.int", false, NULL, 0, false},
    {"aten.slice.Tensor", false, NULL, 0, false},
    {"aten.narrow.default", false, NULL, 0, false},
    {"aten.select.int", false, NULL, 0, false},
    {"aten.index_select.default", false, NULL, 0, false},
    {"aten.index.Tensor", false, NULL, 0, false},
    {"aten.split.Tensor", false, NULL, 0, false},
    {"aten.split_with_sizes.default", false, NULL, 0, false},
    {"aten.chunk.default", false, NULL, 0, false},
    {"aten.unbind.int", false, NULL, 0, false},
    {"aten.cat.default", false, NULL, 0, false},
    {"aten.stack.default", true, NULL, 0, false},
    {"aten.flip.default", false, NULL, 0, false},
    {"aten.roll.default", false, NULL, 0, false},
    {"aten.clone.default", false, NULL, 0, false},
    {"aten.contiguous.default", false, NULL, 0, false},
    {"aten.alias.default", false, NULL, 0, false},
    {"aten.detach.default", false, NULL, 0, false},
    {"aten.lift_fresh_copy.default", false, NULL, 0, false},
    {"aten.zeros_like.default", false, NULL, 0, false},
    {"aten.sum.dim_IntList", false, NULL, 0, true},
    {"aten.mean.dim", false, NULL, 0, true},
    {"aten.fft_fftshift.default", false, NULL, 0, true},
    {"aten.fft_ifftshift.default", false, NULL, 0, true},
};

const struct pst_mover *pst_import_mover(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(movers); i++)
        if (strcmp(movers[i].name, name) == 0)
            return &movers[i];
    return NULL;
}

/* --- which nodes ---------------------------------------------------------- */

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

const struct pst_op *pst_import_complex_row(const char *name)
{
    static const char *const spaces[] = {"complex", "from_real"};
    char text[256];

    if (!pst_has_prefix(name, "aten."))
        return NULL;
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

/* --- arguments ------------------------------------------------------------ */

/* The dtype of the parts of what a node is given; PST_N_DTYPES: all of it is
 * real. */
static enum pst_dtype part_of(const struct pst_doc_node *node,
                              const struct pst_doc_graph *graph)
{
    enum pst_dtype part = PST_N_DTYPES;

    for (unsigned i = 0; i < node->n_inputs; i++) {
        const struct pst_doc_arg *arg = &node->inputs[i].arg;
        const unsigned n = arg->kind == PST_DOC_TENSORS ? arg->n : 1;

        for (unsigned k = 0; k < n && any_complex(graph, arg); k++) {
            const char *name =
                arg->kind == PST_DOC_TENSORS ? arg->names[k] : arg->name;

            if (is_complex(graph, name))
                (void)pst_doc_is_complex(pst_doc_tensor(graph, name)->dtype,
                                         &part);
        }
    }
    return part;
}

/* What is whole or has no dimensions does not decide the dtype of a result,
 * so it takes that of the complex operand, if there is one. */
static struct pst_value *promoted(struct pst_import *import,
                                  struct pst_value *v, enum pst_dtype part)
{
    struct pst_value *parts[2];

    if (part != PST_N_DTYPES && part != v->meta.dtype &&
        (pst_dtype_kind(v->meta.dtype) != PST_KIND_FLOAT || v->meta.rank == 0))
        v = pst_emit(&import->build, &pst_op__to_copy,
                     PST_ARGS(pst_v(v), pst_dtype_arg(part)));
    if (v == NULL)
        return NULL;
    parts[0] = v;
    parts[1] = pst_emit(&import->build, &pst_op_zeros_like, PST_ARGS(pst_v(v)));
    return pst_emit(&import->build, &pst_op_stack,
                    PST_ARGS(pst_values(parts, 2), pst_i(-1)));
}

/* A real operand among complex ones. */
static bool needs_promotion(const struct pst_value *v,
                            const struct pst_doc_graph *graph, const char *name)
{
    return v != NULL && !is_complex(graph, name);
}

static void promote(struct pst_import *import, const struct pst_scope *scope,
                    const struct pst_doc_node *node,
                    const struct pst_schema *schema, struct pst_arg *args)
{
    const enum pst_dtype part = part_of(node, scope->graph);

    for (unsigned i = 0; i < node->n_inputs; i++) {
        const struct pst_doc_arg *arg = &node->inputs[i].arg;
        const int at = pst_schema_arg(schema, node->inputs[i].name);

        if (at < 0 || strcmp(node->inputs[i].name, "index") == 0 ||
            strcmp(node->inputs[i].name, "indices") == 0)
            continue;
        if (args[at].kind == PST_ARG_VALUE &&
            needs_promotion(args[at].value, scope->graph,
                            arg->kind == PST_DOC_TENSOR ? arg->name : NULL))
            args[at].value = promoted(import, args[at].value, part);
        for (unsigned k = 0; arg->kind == PST_DOC_TENSORS && k < arg->n; k++)
            if (args[at].kind == PST_ARG_VALUES && k < args[at].n &&
                needs_promotion(args[at].values[k], scope->graph,
                                arg->names[k]))
                args[at].values[k] = promoted(import, args[at].values[k], part);
    }
}

/* Dimensions without the last one of the first tensor. */
static int64_t rank_of(const struct pst_schema *schema,
                       const struct pst_arg *args)
{
    for (unsigned i = 0; i < schema->n_args; i++) {
        if (args[i].kind == PST_ARG_VALUE)
            return (int64_t)args[i].value->meta.rank - 1;
        for (unsigned k = 0; args[i].kind == PST_ARG_VALUES && k < args[i].n;
             k++)
            if (args[i].values[k] != NULL) /* a list of indices has holes */
                return (int64_t)args[i].values[k]->meta.rank - 1;
    }
    return 0;
}

static bool names_dims(const char *name)
{
    static const char *const names[] = {
        "dim",         "dims",      "dim0",    "dim1",  "source",
        "destination", "start_dim", "end_dim", "axis0", "axis1"};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* A copy of the list with room for one more; NULL without memory. */
static int64_t *copy_ints(struct pst_import *import, struct pst_arg *arg)
{
    struct pst_arena *arena = &import->build.graph->arena;
    int64_t *ints = pst_arena_calloc(arena, arg->n + 1, sizeof(*ints));
    const char **exprs = pst_arena_calloc(arena, arg->n + 1, sizeof(*exprs));

    if (ints == NULL || exprs == NULL)
        return NULL;
    for (unsigned i = 0; i < arg->n; i++) {
        ints[i] = arg->ints[i];
        exprs[i] = arg->exprs != NULL ? arg->exprs[i] : NULL;
    }
    arg->ints = ints;
    arg->exprs = arg->exprs != NULL ? exprs : NULL;
    return ints;
}

/* Reductions and shifts of all dimensions, where none is given: the pair is
 * none of them. */
static bool every_dim(struct pst_import *import, int64_t rank,
                      struct pst_arg *arg)
{
    int64_t *ints = pst_arena_calloc(&import->build.graph->arena,
                                     (size_t)rank + 1, sizeof(*ints));

    for (int64_t d = 0; ints != NULL && d < rank; d++)
        ints[d] = d;
    if (ints != NULL)
        *arg = pst_ints(ints, (unsigned)rank);
    return ints != NULL;
}

static enum pst_status move(struct pst_import *import,
                            const struct pst_mover *m,
                            const struct pst_schema *schema,
                            struct pst_arg *args)
{
    const int64_t rank = rank_of(schema, args);
    const int64_t dims = rank + m->adds_dim;

    for (unsigned i = 0; i < schema->n_args; i++) {
        struct pst_arg *arg = &args[i];
        const char *name = schema->args[i].name;
        const bool append = m->append != NULL && strcmp(m->append, name) == 0;
        int64_t *ints;

        if (names_dims(name) && arg->kind == PST_ARG_INT && arg->i < 0)
            arg->i += dims;
        if (m->every && strcmp(name, "dim") == 0 &&
            (arg->kind != PST_ARG_INTS || arg->n == 0) &&
            !every_dim(import, rank, arg))
            return pst_diag_nomem(import->diag, (size_t)rank * sizeof(*ints));
        if (arg->kind != PST_ARG_INTS || (!append && !names_dims(name)))
            continue;
        ints = copy_ints(import, arg);
        if (ints == NULL)
            return pst_diag_nomem(import->diag, arg->n * sizeof(*ints));
        for (unsigned k = 0; k < arg->n && names_dims(name); k++)
            if (ints[k] < 0)
                ints[k] += dims;
        if (append)
            ints[arg->n++] = m->last == 0 ? rank : m->last;
    }
    return PST_OK;
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
        promote(import, scope, node, schema, args);
    status = import->build.status;
    if (status == PST_OK && target->mover != NULL)
        status = move(import, target->mover, schema, args);
    return status;
}
