// SPDX-License-Identifier: Apache-2.0
/*
 * Numbers that a model reads from constants of its file, where the exporter
 * left a symbol ("u0") in place of the number: item() of a tensor that was
 * written as a literal. The scan, which comes first, needs to know that the
 * symbol will have a value; the value is computed when the node is imported.
 */
#include "stages/frontend/import/import.h"
#include "stages/frontend/import/regions/regions.h"
#include "stages/graph/oprow.h"
#include "stages/ops/core/op.h"

#include <math.h>
#include <string.h>

struct search {
    const struct pst_document *doc;
    struct pst_map nodes;  /* name of a tensor -> struct pst_doc_node */
    struct pst_map inputs; /* name of a constant -> its struct pst_doc_spec */
    unsigned n_nodes;      /* number of nodes visited for the current number */
};

static bool is_constant_node(struct search *s, const struct pst_doc_node *node);

/* PST_FOLD_NODES bounds the recursion. */
static bool is_constant(struct search *s, const char *name)
{
    const struct pst_doc_node *node =
        name != NULL ? pst_map_get(&s->nodes, name) : NULL;

    return name != NULL && (pst_map_has(&s->inputs, name) ||
                            (node != NULL && is_constant_node(s, node)));
}

static bool is_constant_argument(struct search *s,
                                 const struct pst_doc_arg *arg)
{
    switch (arg->kind) {
    case PST_DOC_TENSOR:
        return is_constant(s, arg->name);
    case PST_DOC_TENSORS:
        for (unsigned k = 0; k < arg->n; k++)
            if (!is_constant(s, arg->names[k]))
                return false;
        return true;
    case PST_DOC_OPTIONAL_TENSORS:
    case PST_DOC_GRAPH:
    case PST_DOC_SYM_INTS:
        return false;
    default:
        return pst_doc_number_name(arg) == NULL;
    }
}

static bool is_constant_node(struct search *s, const struct pst_doc_node *node)
{
    const struct pst_target *target = node->resolved;

    if (s->n_nodes == PST_FOLD_NODES || target->op == NULL || target->pairs ||
        (target->kind != PST_TARGET_OP && target->kind != PST_TARGET_CONVERT) ||
        (target->op->flags & PST_OP_RANDOM) != 0)
        return false;
    s->n_nodes++;
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (!is_constant_argument(s, &node->inputs[i].arg))
            return false;
    return true;
}

static bool index_document(struct search *s)
{
    const struct pst_doc_graph *graph = s->doc->graph;

    for (size_t i = 0; i < s->doc->n_inputs; i++) {
        const struct pst_doc_spec *spec = &s->doc->inputs[i];

        if (spec->kind == PST_DOC_SPEC_CONSTANT &&
            spec->arg.kind == PST_DOC_TENSOR &&
            !pst_map_put(&s->inputs, spec->arg.name, (void *)spec))
            return false;
    }
    for (size_t i = 0; i < graph->n_nodes; i++)
        for (unsigned k = 0; k < graph->nodes[i].n_outputs; k++)
            if (graph->nodes[i].outputs[k].kind == PST_DOC_TENSOR &&
                !pst_map_put(&s->nodes, graph->nodes[i].outputs[k].name,
                             (void *)&graph->nodes[i]))
                return false;
    return true;
}

/* Returns the symbol without a value that the node reads from a tensor; NULL:
 * the node does something else. */
static struct pst_symbol *find_symbol(const struct pst_import *import,
                                      const struct pst_doc_node *node)
{
    const struct pst_doc_number *x =
        node->resolved->reads_number && node->n_outputs > 0
            ? pst_doc_number(import->doc->graph,
                             pst_doc_number_name(&node->outputs[0]))
            : NULL;
    struct pst_symbol *ret =
        x != NULL && x->kind == PST_DOC_NUMBER_EXPR && x->expr->symbol != NULL
            ? pst_symbols_find(&import->model->symbols, x->expr->symbol)
            : NULL;

    return ret != NULL && !ret->known ? ret : NULL;
}

enum pst_status pst_import_mark_constants(struct pst_import *import)
{
    const struct pst_doc_graph *graph = import->doc->graph;
    struct search s = {.doc = import->doc};
    enum pst_status status = PST_OK;
    bool indexed = false;

    pst_map_init(&s.nodes, PST_TAG_ARCHIVE);
    pst_map_init(&s.inputs, PST_TAG_ARCHIVE);
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const struct pst_doc_node *node = &graph->nodes[i];
        struct pst_symbol *symbol = find_symbol(import, node);
        const struct pst_doc_arg *self =
            pst_doc_arg(node, "self", PST_DOC_TENSOR);

        if (symbol == NULL || self == NULL)
            continue;
        if (!indexed && !index_document(&s)) {
            status = pst_diag_nomem(import->diag, 0);
            break;
        }
        indexed = true;
        s.n_nodes = 0;
        symbol->constant = is_constant(&s, self->name);
    }
    pst_map_fini(&s.nodes);
    pst_map_fini(&s.inputs);
    return status;
}

/* Checks the symbol's value against the range that the file states for it. */
static enum pst_status check_limits(const struct pst_import *import,
                                    const struct pst_symbol *symbol)
{
    const struct pst_document *doc = import->doc;

    for (size_t i = 0; i < doc->n_ranges; i++) {
        const struct pst_doc_range *range = &doc->ranges[i];

        if (range->expr->symbol != NULL &&
            strcmp(range->expr->symbol, symbol->name) == 0 &&
            (symbol->value < range->min || symbol->value > range->max))
            return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                                "the constants of the file make %s %lld, which "
                                "is out of its range in the file",
                                symbol->name, (long long)symbol->value);
    }
    return PST_OK;
}

enum pst_status pst_import_compute_constant(struct pst_import *import,
                                            const struct pst_doc_number *number,
                                            struct pst_value *v)
{
    struct pst_symbol *symbol =
        number != NULL && number->kind == PST_DOC_NUMBER_EXPR &&
                number->expr->symbol != NULL
            ? pst_symbols_find(&import->model->symbols, number->expr->symbol)
            : NULL;
    enum pst_status status;
    double x = 0.0;
    bool known = false;

    if (symbol == NULL || !symbol->constant || v == NULL)
        return PST_OK;
    status = pst_import_fold(import, v, &known, &x);
    if (status != PST_OK)
        return status;
    if (!known || x != trunc(x) || fabs(x) > 9007199254740992.0)
        return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                            "not supported: a number is read from a tensor "
                            "whose content is not an integer of at most 2^53 "
                            "that the file's constants determine");
    status = pst_symbols_add(&import->model->symbols, symbol->name, true,
                             (int64_t)x, import->diag);
    return status == PST_OK ? check_limits(import, symbol) : status;
}
