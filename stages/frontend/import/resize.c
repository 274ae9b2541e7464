// SPDX-License-Identifier: Apache-2.0
/* Imports nodes of sharded modules: resizes of storages, and the copies that
 * fill them. */
#include "stages/frontend/functional/functionalise.h"
#include "stages/frontend/import/import.h"
#include "stages/frontend/import/nodes.h"

static enum pst_status bad_argument(struct pst_import *import, const char *what)
{
    return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT, "its %s", what);
}

enum pst_status pst_import_resize(struct pst_import *import,
                                  struct pst_scope *scope,
                                  const struct pst_doc_node *node)
{
    const struct pst_doc_arg *of = pst_doc_arg_at(node, 0, PST_DOC_TENSOR);
    const struct pst_doc_arg *bytes = pst_doc_arg_at(node, 1, PST_DOC_INT);
    struct pst_value *v = of != NULL ? pst_import_find(scope, of->name) : NULL;

    if (v == NULL)
        return bad_argument(import,
                            "first argument is not a tensor of the graph");
    if (bytes == NULL)
        return bad_argument(import, "new size is not a number");
    if (scope->pure)
        return pst_diag_set(import->diag, PST_E_MODEL_BRANCH_WRITE,
                            "storages that are resized inside of a branch are "
                            "not supported");
    return pst_functionalise_resize(import->functional, v, bytes->number.i);
}

/* Writes one tensor to another. result: a name for the written tensor, or
 * NULL. */
static enum pst_status write_tensor(struct pst_import *import,
                                    struct pst_scope *scope, const char *to,
                                    const char *from, const char *result)
{
    struct pst_value *written = pst_import_find(scope, to);
    struct pst_value *source = pst_import_find(scope, from), *now;
    enum pst_status status;

    if (written == NULL || source == NULL)
        return bad_argument(import, "arguments are no tensors of the graph");
    status = pst_import_writes_storage(import, written);
    if (status != PST_OK)
        return status;
    source = pst_functionalise_read(import->functional, source);
    if (source == NULL)
        return import->build.status;
    now = pst_functionalise_write(import->functional, written, source);
    if (now == NULL)
        return import->build.status;
    status = pst_import_update_mirrors(import, written);
    return result == NULL || status != PST_OK
               ? status
               : pst_import_define(import, scope, result, written, &now->meta);
}

/* Returns name number i among the node's results; NULL if there is none. */
static const char *result_of(const struct pst_doc_node *node, unsigned i)
{
    for (unsigned k = 0; k < node->n_outputs; k++) {
        const struct pst_doc_arg *out = &node->outputs[k];

        if (out->kind == PST_DOC_TENSORS && i < out->n)
            return out->names[i];
        if (out->kind == PST_DOC_TENSORS)
            i -= out->n;
        else if (i-- == 0)
            return out->kind == PST_DOC_TENSOR ? out->name : NULL;
    }
    return NULL;
}

enum pst_status pst_import_fill(struct pst_import *import,
                                struct pst_scope *scope,
                                const struct pst_doc_node *node)
{
    const struct pst_doc_arg *to = pst_doc_arg_at(node, 0, PST_DOC_TENSOR);
    const struct pst_doc_arg *from = pst_doc_arg_at(node, 1, PST_DOC_TENSOR);
    const struct pst_doc_arg *many = pst_doc_arg_at(node, 0, PST_DOC_TENSORS);
    const struct pst_doc_arg *those = pst_doc_arg_at(node, 1, PST_DOC_TENSORS);
    enum pst_status status = PST_OK;

    if (scope->pure)
        return pst_diag_set(import->diag, PST_E_MODEL_BRANCH_WRITE,
                            "writes inside of a branch are not supported");
    if (to != NULL && from != NULL)
        return write_tensor(import, scope, to->name, from->name,
                            result_of(node, 0));
    if (many == NULL || those == NULL || many->n != those->n)
        return bad_argument(import, "tensors are not as many as their sources");
    for (unsigned i = 0; i < many->n && status == PST_OK; i++)
        status = write_tensor(import, scope, many->names[i], those->names[i],
                              result_of(node, i));
    return status;
}
