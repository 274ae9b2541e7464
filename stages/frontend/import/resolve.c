// SPDX-License-Identifier: Apache-2.0
/*
 * Classifies all nodes once. with_effects(token, operator, ...) -> (token, ...)
 * orders operators that have effects and no results, such as assertions of
 * factorisations. Nodes run in the order of the document, so the token is
 * dropped.
 */
#include "stages/frontend/import/import.h"
#include "stages/graph/oprow.h"

#include <string.h>

/* Names all arguments as in the operator's schema; in the file only keyword
 * arguments have names. */
static void name_inputs(struct pst_doc_node *node)
{
    const struct pst_op *op = pst_op_find(node->target);
    const struct pst_schema *schema = op != NULL ? pst_op_schema(op) : NULL;

    for (unsigned i = 0; schema != NULL && i < node->n_inputs; i++)
        if (i < schema->n_args && node->inputs[i].name[0] == '\0')
            node->inputs[i].name = schema->args[i].name;
}

static void unwrap_operator(struct pst_doc_node *node)
{
    const struct pst_doc_arg *op = pst_doc_arg_at(node, 1, PST_DOC_OPERATOR);
    unsigned n = 0;

    if (op == NULL)
        return; /* not a valid node: rejected later under its own name */
    node->target = op->name;
    if (pst_has_prefix(node->target, "torch.ops."))
        node->target += strlen("torch.ops.");
    node->inputs += 2;
    node->n_inputs -= 2;
    name_inputs(node);
    for (unsigned i = 1; i < node->n_outputs; i++) /* after the token */
        if (node->outputs[i].kind != PST_DOC_NONE)
            node->outputs[n++] = node->outputs[i];
    node->n_outputs = n;
}

enum pst_status pst_import_resolve(struct pst_document *doc,
                                   struct pst_diag *diag)
{
    for (struct pst_doc_graph *g = doc->graphs; g != NULL; g = g->next)
        for (size_t i = 0; i < g->n_nodes; i++) {
            struct pst_doc_node *node = &g->nodes[i];
            struct pst_target target;

            if (strcmp(node->target, "higher_order.with_effects") == 0)
                unwrap_operator(node);
            target = pst_import_target(node, g);
            node->resolved =
                pst_arena_memdup(&doc->arena, &target, sizeof(target));
            if (node->resolved == NULL)
                return pst_diag_nomem(diag, sizeof(target));
        }
    return PST_OK;
}
