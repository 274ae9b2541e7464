// SPDX-License-Identifier: Apache-2.0
/* Finds values in records. */
#include "stages/files/pt2/document.h"

#include "stages/base/str.h"

#include <stdio.h>
#include <string.h>

const struct pst_doc_place pst_doc_nowhere = {.module = "", .source = ""};

bool pst_doc_is_number(const struct pst_doc_arg *arg)
{
    return arg->kind == PST_DOC_SYM_INT || arg->kind == PST_DOC_SYM_FLOAT ||
           arg->kind == PST_DOC_SYM_BOOL;
}

const char *pst_doc_number_name(const struct pst_doc_arg *arg)
{
    return pst_doc_is_number(arg) && arg->number.kind == PST_DOC_NUMBER_NAME
               ? arg->number.name
               : NULL;
}

const struct pst_doc_arg *pst_doc_arg(const struct pst_doc_node *node,
                                      const char *name,
                                      enum pst_doc_arg_kind kind)
{
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (strcmp(node->inputs[i].name, name) == 0)
            return pst_doc_arg_at(node, i, kind);
    return NULL;
}

const struct pst_doc_arg *pst_doc_arg_at(const struct pst_doc_node *node,
                                         unsigned i, enum pst_doc_arg_kind kind)
{
    return i < node->n_inputs && node->inputs[i].arg.kind == kind
               ? &node->inputs[i].arg
               : NULL;
}

const struct pst_doc_tensor *pst_doc_tensor(const struct pst_doc_graph *graph,
                                            const char *name)
{
    return name != NULL ? pst_map_get(&graph->tensors, name) : NULL;
}

const struct pst_doc_number *pst_doc_number(const struct pst_doc_graph *graph,
                                            const char *name)
{
    return name != NULL ? pst_map_get(&graph->numbers, name) : NULL;
}

void pst_doc_prefix_node(const struct pst_doc_node *node, struct pst_diag *diag)
{
    const struct pst_doc_place *p = node->place;
    char call[16] = "";

    if (diag == NULL || pst_has_prefix(diag->text, "node \""))
        return;
    if (p->call > 0)
        (void)snprintf(call, sizeof(call), "@%u", p->call);
    pst_diag_prefix(diag, "node \"%s\" (%s) in %s%s%s%s", node->name,
                    node->target,
                    p->module[0] != '\0' ? p->module : "the outermost module",
                    call, p->source[0] != '\0' ? " at " : "", p->source);
}
