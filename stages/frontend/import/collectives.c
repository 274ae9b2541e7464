// SPDX-License-Identifier: Apache-2.0
/*
 * Collectives in programs that a single process exported: with one member in
 * the group, a gather, sum or scatter is a copy. Programs of several processes
 * are rejected: each has a part of the parameters and is meaningless alone.
 */
#include "stages/frontend/functional/functionalise.h"
#include "stages/frontend/import/import.h"
#include "stages/frontend/import/nodes.h"
#include "stages/ops/core/rows.h"

#include <string.h>

const char pst_import_several[] =
    "collectives of process groups that have several processes, or may have "
    "them (export the model before it is divided: run --shard divides it)";

enum pst_target_kind pst_import_collective_kind(const struct pst_doc_node *node)
{
    static const char *const copies[] = {
        "all_gather_into_tensor.default",
        "all_gather_into_tensor_coalesced.default",
        "all_gather_into_tensor_out.default",
        "reduce_scatter_tensor.default",
        "reduce_scatter_tensor_coalesced.default",
        "reduce_scatter_tensor_out.default",
    };
    const struct pst_doc_arg *size =
        pst_doc_arg(node, "group_size", PST_DOC_INT);
    const char *name = node->target;

    if (strcmp(name, "fsdp.all_gather_copy_in.default") == 0)
        return PST_TARGET_COPY_IN;
    if (strcmp(name, "fsdp.split_with_sizes_copy.default") == 0)
        return PST_TARGET_COPY_OUT;
    if (pst_has_prefix(name, "_c10d_functional."))
        name += strlen("_c10d_functional.");
    else if (pst_has_prefix(name, "_c10d_functional_autograd."))
        name += strlen("_c10d_functional_autograd.");
    else
        return PST_TARGET_OP;
    if (strcmp(name, "wait_tensor.default") == 0)
        return PST_TARGET_SAME;
    for (size_t i = 0; i < PST_COUNT(copies); i++)
        if (strcmp(name, copies[i]) == 0 && size != NULL && size->number.i == 1)
            return PST_TARGET_COLLECTIVE;
    return PST_TARGET_NONE;
}

static enum pst_status report_bad_part(struct pst_import *import,
                                       const char *what)
{
    return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT, "its %s", what);
}

/* Returns the current value of a tensor. */
static struct pst_value *read_name(struct pst_import *import,
                                   const struct pst_scope *scope,
                                   const char *name)
{
    struct pst_value *v = pst_import_find(scope, name);

    return v != NULL ? pst_functionalise_read(import->functional, v) : NULL;
}

/* Writes `from`, of the same shape, to a tensor. result: a name for the written
 * tensor, or NULL. */
static enum pst_status write_to(struct pst_import *import,
                                struct pst_scope *scope, const char *to,
                                struct pst_value *from, const char *result)
{
    struct pst_value *written = pst_import_find(scope, to);
    enum pst_status status;

    if (written == NULL)
        return report_bad_part(import, "outputs are no tensors of the graph");
    if (!pst_meta_same(&written->meta, &from->meta))
        return report_bad_part(
            import, "output has another shape than what goes into it");
    status = pst_import_writes_storage(import, written);
    if (status == PST_OK &&
        pst_functionalise_write(import->functional, written, from) == NULL)
        status = import->build.status;
    return status != PST_OK || result == NULL
               ? status
               : pst_import_define(import, scope, result, written,
                                   &written->meta);
}

enum pst_status pst_import_collective(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_doc_node *node,
                                      const struct pst_names *names)
{
    const struct pst_doc_arg *one = pst_doc_arg_at(node, 0, PST_DOC_TENSOR);
    const struct pst_doc_arg *many = pst_doc_arg_at(node, 0, PST_DOC_TENSORS);
    const struct pst_doc_arg *out = pst_doc_arg(node, "out", PST_DOC_TENSOR);
    const unsigned n = one != NULL ? 1 : many != NULL ? many->n : 0;
    enum pst_status status = PST_OK;

    if (n == 0 || names->n != n || (out != NULL && n != 1))
        return report_bad_part(import,
                               "tensors are not as many as its results");
    if (out != NULL && scope->pure)
        return pst_diag_set(import->diag, PST_E_MODEL_BRANCH_WRITE,
                            "writes inside of a branch are not supported");
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        struct pst_value *v =
            read_name(import, scope, one != NULL ? one->name : many->names[i]);

        if (v == NULL)
            return report_bad_part(import,
                                   "arguments are no tensors of the graph");
        if (out != NULL)
            return write_to(import, scope, out->name, v, names->at[0]);
        v = pst_emit(&import->build, &pst_op_clone, PST_ARGS(pst_v(v)));
        if (v == NULL)
            return import->build.status;
        if (names->at[i] != NULL)
            status =
                pst_import_define(import, scope, names->at[i], v, &v->meta);
    }
    return status;
}

/* Imports all_gather_copy_in(tensors, output, sizes, numel, rank): the tensors
 * fill this rank's part of the output, here all of it. */
enum pst_status pst_import_copy_in(struct pst_import *import,
                                   struct pst_scope *scope,
                                   const struct pst_doc_node *node,
                                   const struct pst_names *names)
{
    const struct pst_doc_arg *from = pst_doc_arg_at(node, 0, PST_DOC_TENSORS);
    const struct pst_doc_arg *to = pst_doc_arg_at(node, 1, PST_DOC_TENSOR);
    struct pst_value *output =
        to != NULL ? pst_import_find(scope, to->name) : NULL;
    struct pst_value **parts, *all;
    enum pst_status status;
    int64_t numel = 0;

    if (from == NULL || from->n == 0 || output == NULL || names->n != 2)
        return report_bad_part(import, "arguments are no tensors of the graph");
    if (scope->pure)
        return pst_diag_set(import->diag, PST_E_MODEL_BRANCH_WRITE,
                            "writes inside of a branch are not supported");
    parts = pst_arena_calloc(&import->build.graph->arena, from->n,
                             sizeof(struct pst_value *));
    if (parts == NULL)
        return pst_diag_nomem(import->diag, from->n * sizeof(*parts));
    for (unsigned i = 0; i < from->n; i++) {
        parts[i] = read_name(import, scope, from->names[i]);
        if (parts[i] == NULL || parts[i]->meta.rank != 1)
            return report_bad_part(import,
                                   "inputs are no vectors of the graph");
        numel += pst_meta_numel(&parts[i]->meta);
    }
    if (numel != pst_meta_numel(&output->meta))
        return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                            "not supported: %s", pst_import_several);
    all = pst_emit(&import->build, &pst_op_cat,
                   PST_ARGS(pst_values(parts, from->n), pst_i(0)));
    if (all == NULL)
        return import->build.status;
    status = write_to(import, scope, to->name, all, names->at[0]);
    if (status == PST_OK && names->at[1] != NULL)
        status = pst_import_define(import, scope, names->at[1], output,
                                   &output->meta);
    return status;
}

/* Imports split_with_sizes_copy(tensor, sizes, dim, out=tensors). */
enum pst_status pst_import_copy_out(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_doc_node *node)
{
    const struct pst_doc_arg *from = pst_doc_arg_at(node, 0, PST_DOC_TENSOR);
    const struct pst_doc_arg *sizes =
        pst_doc_arg(node, "all_gather_input_split_sizes", PST_DOC_INTS);
    const struct pst_doc_arg *dim = pst_doc_arg(node, "dim", PST_DOC_INT);
    const struct pst_doc_arg *out = pst_doc_arg(node, "out", PST_DOC_TENSORS);
    struct pst_value *all =
        from != NULL ? read_name(import, scope, from->name) : NULL;
    enum pst_status status = PST_OK;
    int64_t begin = 0;

    if (all == NULL || sizes == NULL || out == NULL || out->n != sizes->n)
        return report_bad_part(import, "outputs are not as many as its sizes");
    if (scope->pure)
        return pst_diag_set(import->diag, PST_E_MODEL_BRANCH_WRITE,
                            "writes inside of a branch are not supported");
    for (unsigned i = 0; i < out->n && status == PST_OK; i++) {
        const int64_t n = sizes->numbers[i].i;
        struct pst_value *part;

        if (n < 0 || n > pst_meta_numel(&all->meta) - begin)
            return report_bad_part(import, "sizes are not those of its tensor");
        part = pst_emit(&import->build, &pst_op_slice_Tensor,
                        PST_ARGS(pst_v(all),
                                 pst_i(dim != NULL ? dim->number.i : 0),
                                 pst_i(begin), pst_i(begin + n)));
        if (part == NULL)
            return import->build.status;
        status = write_to(import, scope, out->names[i], part, NULL);
        begin += n;
    }
    return status;
}
