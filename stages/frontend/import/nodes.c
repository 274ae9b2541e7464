// SPDX-License-Identifier: Apache-2.0
/* Imports nodes in program order. */
#include "stages/frontend/import/nodes.h"

#include "stages/frontend/import/layout/eager.h"
#include "stages/ops/core/rows.h"

#include <string.h>

static enum pst_status add_name(struct pst_import *import, const char *name,
                                struct pst_names *ret)
{
    if (ret->n == PST_MAX_OUTS)
        return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                            "more than %d results of one operator are not "
                            "supported",
                            PST_MAX_OUTS);
    ret->at[ret->n++] = name;
    return PST_OK;
}

static enum pst_status read_names(struct pst_import *import,
                                  const struct pst_doc_node *node,
                                  struct pst_names *ret)
{
    enum pst_status status = PST_OK;

    ret->n = 0;
    for (unsigned i = 0; i < node->n_outputs && status == PST_OK; i++) {
        const struct pst_doc_arg *out = &node->outputs[i];

        if (out->kind == PST_DOC_TENSOR)
            status = add_name(import, out->name, ret);
        else if (out->kind == PST_DOC_NONE || pst_doc_is_number(out))
            status = add_name(import, NULL, ret);
        else if (out->kind != PST_DOC_TENSORS)
            status = pst_diag_set(import->diag, PST_E_MODEL_OUTPUT_KIND,
                                  "results that are no tensors are not "
                                  "supported");
        for (unsigned k = 0;
             out->kind == PST_DOC_TENSORS && k < out->n && status == PST_OK;
             k++)
            status = add_name(import, out->names[k], ret);
    }
    return status;
}

struct pst_value *pst_import_find(const struct pst_scope *scope,
                                  const char *name)
{
    return name != NULL ? pst_map_get(&scope->values, name) : NULL;
}

static enum pst_status replace_constants(struct pst_import *import,
                                         const char **expr)
{
    return *expr == NULL
               ? PST_OK
               : pst_symbols_replace_constants(&import->model->symbols,
                                               &import->build.graph->arena,
                                               expr, import->diag);
}

enum pst_status pst_import_meta(struct pst_import *import,
                                const struct pst_scope *scope, const char *name,
                                struct pst_doc_meta *ret)
{
    const struct pst_doc_tensor *t = pst_doc_tensor(scope->graph, name);
    enum pst_status status;

    if (t == NULL)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "\"%s\" has no shape in the file", name);
    status = pst_doc_meta(t, &import->model->symbols, ret, import->diag);
    if (status != PST_OK)
        return status;
    status = replace_constants(import, &ret->from);
    ret->symbolic = false;
    for (unsigned i = 0; i < ret->meta.rank && status == PST_OK; i++) {
        status = replace_constants(import, &ret->dims[i]);
        if (status == PST_OK)
            status = replace_constants(import, &ret->strides[i]);
        ret->symbolic = ret->symbolic || ret->dims[i] != NULL;
    }
    return status;
}

/* True for NODE_unused_K, the exporter's name of an unused result. Its recorded
 * meta may be wrong for norms in a model with several dtypes. */
static bool is_unused(const char *name)
{
    return strstr(name, "_unused_") != NULL;
}

/* Takes the expressions of a view's strides and offset from the file if its
 * storage has the same layout there. */
static enum pst_status read_view_exprs(struct pst_import *import,
                                       const struct pst_value *value,
                                       const struct pst_doc_meta *t)
{
    const char *strides[PST_MAX_RANK] = {NULL}, *from = pst_expr_unknown;

    if (value->base == NULL || value->meta.rank != t->meta.rank || t->pairs)
        return PST_OK;
    for (unsigned d = 0; d < t->meta.rank; d++)
        strides[d] = value->meta.stride[d] == t->meta.stride[d]
                         ? t->strides[d]
                         : pst_expr_unknown;
    if (value->offset == t->offset)
        from = t->from;
    return pst_functionalise_explain(import->functional, value, strides, &from);
}

enum pst_status pst_import_define(struct pst_import *import,
                                  struct pst_scope *scope, const char *name,
                                  struct pst_value *value,
                                  const struct pst_meta *meta)
{
    char ours[PST_META_TEXT], theirs[PST_META_TEXT];
    struct pst_doc_meta t;
    enum pst_status status;
    bool put_right;

    if (pst_map_has(&scope->values, name))
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "\"%s\" is defined twice", name);
    status = pst_import_meta(import, scope, name, &t);
    if (status != PST_OK)
        return status;
    if (pst_import_may_cast(import, t.meta.dtype, meta->dtype))
        t.meta.dtype = meta->dtype;
    if (!pst_meta_same(&t.meta, meta) && !is_unused(name))
        return pst_diag_set(import->diag, PST_E_OP_RESULT,
                            "\"%s\" is %s by its operator, but the file says "
                            "%s",
                            name, pst_meta_text(meta, ours),
                            pst_meta_text(&t.meta, theirs));
    put_right = pst_import_correct_strides(import, value, &t);
    if (!is_unused(name))
        status = pst_import_reorder_storage(import, scope, name, &t, &value);
    if (status == PST_OK && !is_unused(name))
        status = pst_import_keep_strides(import, value, &t, put_right);
    if (status == PST_OK && t.symbolic) /* the file's expressions are shorter */
        status = pst_exprs_copy(&import->build.graph->arena, t.dims,
                                t.meta.rank, &value->dims, import->diag);
    if (status == PST_OK && !put_right)
        status = read_view_exprs(import, value, &t);
    if (status != PST_OK)
        return status;
    if (!pst_map_put(&scope->values, name, value))
        return pst_diag_nomem(import->diag, strlen(name));
    return PST_OK;
}

/* Returns the dtype of the first result in the file, for factories without a
 * dtype argument. */
static enum pst_dtype recorded_dtype(const struct pst_scope *scope,
                                     const struct pst_names *names)
{
    const struct pst_doc_tensor *t =
        names->n > 0 ? pst_doc_tensor(scope->graph, names->at[0]) : NULL;
    enum pst_dtype ret;

    return t != NULL && pst_dtype_from_pt2(t->dtype, &ret) ? ret : PST_N_DTYPES;
}

static enum pst_status refuse_write(struct pst_import *import)
{
    return pst_diag_set(import->diag, PST_E_MODEL_BRANCH_WRITE,
                        "writes inside of a branch are not supported");
}

/* Writes the results of a decomposition to the arguments that the operator
 * writes. */
static enum pst_status commit_writes(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const struct pst_doc_node *doc_node,
                                     const struct pst_target *target,
                                     const struct pst_rewrite *w)
{
    enum pst_status status = PST_OK;
    struct pst_arg *raw = NULL;

    for (unsigned i = 0; i < PST_MAX_WRITES && status == PST_OK; i++) {
        if (w->writes[i] == NULL)
            continue;
        if (scope->pure)
            return refuse_write(import);
        if (raw == NULL)
            status =
                pst_import_bind(import, scope, doc_node, target, true, &raw);
        if (status == PST_OK)
            status = pst_import_writes_storage(import, raw[i].value);
        if (status == PST_OK &&
            pst_functionalise_write(import->functional, raw[i].value,
                                    w->writes[i]) == NULL)
            status = import->build.status;
        if (status == PST_OK)
            status = pst_import_update_mirrors(import, raw[i].value);
    }
    return status;
}

static enum pst_status import_rewrite(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_doc_node *doc_node,
                                      const struct pst_target *target,
                                      const struct pst_names *names,
                                      const struct pst_arg *args)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    PST_UNINIT struct pst_rewrite w;
    enum pst_status status;

    import->build.hint = recorded_dtype(scope, names);
    import->build.names = names->at;
    import->build.n_names = names->n;
    status =
        pst_op_rewrite(target->op, &import->build, args, schema->n_args, &w);
    import->build.hint = PST_N_DTYPES;
    import->build.n_names = 0;
    if (status != PST_OK)
        return status;
    if (w.n_outs != names->n)
        return pst_diag_set(import->diag, PST_E_OP_RESULT,
                            "it has %u results, but the file says %u", w.n_outs,
                            names->n);
    for (unsigned i = 0; i < names->n && status == PST_OK; i++)
        if (names->at[i] != NULL && w.outs[i] == NULL)
            status = pst_diag_set(import->diag, PST_E_OP_RESULT,
                                  "result %u is None, but the file names it "
                                  "\"%s\"",
                                  i, names->at[i]);
        else if (names->at[i] != NULL) {
            status = pst_import_expect_strides(import, scope, doc_node,
                                               target->op, args, i, w.outs[i]);
            if (status == PST_OK)
                status = pst_import_define(import, scope, names->at[i],
                                           w.outs[i], &w.outs[i]->meta);
        }
    if (status == PST_OK)
        status = pst_import_joins_storages(import, target->op, args,
                                           schema->n_args, w.outs, w.n_outs);
    if (status == PST_OK)
        status = commit_writes(import, scope, doc_node, target, &w);
    return status;
}

static enum pst_status import_op(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const struct pst_doc_node *doc_node,
                                 const struct pst_target *target,
                                 const struct pst_names *names)
{
    const struct pst_op *row =
        pst_import_tensor_row(import, scope->graph, doc_node);
    struct pst_target with_tensor = *target;
    const struct pst_schema *schema;
    enum pst_status status;
    struct pst_node *node;
    struct pst_arg *args;
    bool done;

    if (row != NULL) {
        with_tensor.op = row;
        target = &with_tensor;
    }
    schema = pst_op_schema(target->op);
    status = pst_import_bind(import, scope, doc_node, target, false, &args);
    if (status == PST_OK && target->pairs)
        status = pst_import_pairs(import, scope, doc_node, target, args);
    if (status != PST_OK)
        return status;
    if (!target->pairs)
        status =
            pst_import_autocast(import, scope, target->name,
                                recorded_dtype(scope, names), schema, args);
    if (status == PST_OK)
        status =
            pst_import_conjugate(import, scope, target, names, args, &done);
    if (status != PST_OK || done)
        return status;
    if (pst_op_is_rewrite(target->op))
        return import_rewrite(import, scope, doc_node, target, names, args);
    import->build.hint = recorded_dtype(scope, names);
    import->build.names = names->at;
    import->build.n_names = names->n;
    node = pst_emit_node(&import->build, target->op, args, schema->n_args);
    import->build.hint = PST_N_DTYPES;
    import->build.n_names = 0;
    if (node == NULL)
        return import->build.status;
    if (node->n_outs != names->n)
        return pst_diag_set(import->diag, PST_E_OP_RESULT,
                            "it has %u results, but the file says %u",
                            node->n_outs, names->n);
    for (unsigned i = 0; i < names->n && status == PST_OK; i++) {
        struct pst_value *value = node->outs[i];

        if (names->at[i] == NULL)
            continue;
        status = pst_import_dropout(import, node, &value);
        if (status == PST_OK)
            status = pst_import_expect_strides(import, scope, doc_node,
                                               target->op, args, i, value);
        if (status == PST_OK)
            status = pst_import_define(import, scope, names->at[i], value,
                                       &value->meta);
    }
    if (status == PST_OK)
        status = pst_import_joins_storages(
            import, target->op, args, schema->n_args, node->outs, node->n_outs);
    return status;
}

/* Imports an in-place operator; its result is the written value under another
 * name. */
static enum pst_status import_inplace(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_doc_node *doc_node,
                                      const struct pst_target *target,
                                      const struct pst_names *names)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    struct pst_value *written, *now;
    struct pst_arg *args;
    enum pst_status status;

    if (scope->pure)
        return refuse_write(import);
    status = pst_import_bind(import, scope, doc_node, target, true, &args);
    if (status == PST_OK && target->pairs)
        status = pst_import_pairs(import, scope, doc_node, target, args);
    if (status != PST_OK)
        return status;
    if (schema->n_args == 0 || args[0].kind != PST_ARG_VALUE)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "its first argument is not a tensor");
    written = args[0].value;
    status = pst_import_autocast_write(import, target->op, args);
    if (status == PST_OK && !(target->op->flags & PST_OP_VIEW))
        status = pst_import_writes_storage(import, written);
    if (status != PST_OK)
        return status;
    import->build.names = names->at;
    import->build.n_names = names->n;
    now = pst_functionalise_inplace(import->functional, target->op, args,
                                    schema->n_args);
    import->build.n_names = 0;
    if (now == NULL)
        return import->build.status != PST_OK
                   ? import->build.status
                   : pst_diag_set(import->diag, PST_E_INTERNAL_BUG,
                                  "the write failed");
    if (names->n > 1)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "an in-place operator has one result");
    if (!(target->op->flags & PST_OP_VIEW))
        status = pst_import_update_mirrors(import, written);
    if (status != PST_OK)
        return status;
    if (names->n == 1 && names->at[0] != NULL &&
        (target->op->flags & PST_OP_VIEW) != 0) /* t_() gives a new shape */
        status = pst_import_expect_strides(import, scope, doc_node, target->op,
                                           args, 0, now);
    if (status == PST_OK && names->n == 1 && names->at[0] != NULL)
        status = pst_import_define(
            import, scope, names->at[0],
            target->op->flags & PST_OP_VIEW ? now : written, &now->meta);
    return status;
}

/* Imports an `out` variant; its result is the tensor `out`. */
static enum pst_status import_out(struct pst_import *import,
                                  struct pst_scope *scope,
                                  const struct pst_doc_node *doc_node,
                                  const struct pst_target *target,
                                  const struct pst_names *names)
{
    const struct pst_schema *schema = pst_op_schema(target->op);
    const struct pst_doc_arg *out =
        pst_doc_arg(doc_node, "out", PST_DOC_TENSOR);
    struct pst_value *written =
        out != NULL ? pst_import_find(scope, out->name) : NULL;
    struct pst_value *now;
    struct pst_arg *args;
    enum pst_status status;

    if (scope->pure)
        return refuse_write(import);
    if (written == NULL || names->n > 1)
        return pst_diag_set(
            import->diag, PST_E_PT2_INCONSISTENT,
            "its argument \"out\" is not a tensor of the graph");
    status = pst_import_bind(import, scope, doc_node, target, false, &args);
    if (status == PST_OK && target->pairs)
        status = pst_import_pairs(import, scope, doc_node, target, args);
    if (status != PST_OK)
        return status;
    status = pst_import_writes_storage(import, written);
    if (status != PST_OK)
        return status;
    now = pst_emit(&import->build, target->op, args, schema->n_args);
    if (now != NULL)
        now = pst_functionalise_write(import->functional, written, now);
    if (now == NULL)
        return import->build.status;
    status = pst_import_update_mirrors(import, written);
    if (status != PST_OK || names->n == 0 || names->at[0] == NULL)
        return status;
    return pst_import_define(import, scope, names->at[0], written, &now->meta);
}

/* Returns the parameter's dtype in the file; it may be kept in a larger one. */
static enum pst_dtype dtype_in_file(const struct pst_import *import,
                                    const struct pst_value *v)
{
    const struct pst_weight *w = v->kind == PST_VALUE_PARAM
                                     ? pst_model_weight(import->model, v->fqn)
                                     : NULL;

    return w != NULL ? w->meta.dtype : v->meta.dtype;
}

/* Returns the dtype that to.* and type_as convert to: that of the argument, of
 * the other tensor, or, if neither is given, the tensor's own. */
static enum pst_dtype wanted_dtype(const struct pst_import *import,
                                   const struct pst_scope *scope,
                                   const struct pst_doc_node *doc_node,
                                   const struct pst_value *v)
{
    const struct pst_doc_arg *dtype =
        pst_doc_arg(doc_node, "dtype", PST_DOC_SCALAR_TYPE);
    const struct pst_doc_arg *tensor =
        pst_doc_arg(doc_node, "other", PST_DOC_TENSOR);
    const struct pst_value *other =
        tensor != NULL ? pst_import_find(scope, tensor->name) : NULL;
    enum pst_dtype ret;

    if (dtype != NULL)
        return pst_dtype_from_pt2(dtype->code, &ret) ? ret : PST_N_DTYPES;
    return dtype_in_file(import, other != NULL ? other : v);
}

static enum pst_status import_copy(struct pst_import *import,
                                   struct pst_scope *scope,
                                   const struct pst_doc_node *doc_node,
                                   struct pst_value *v, const char *name)
{
    struct pst_arg args[] = {
        pst_v(pst_functionalise_read(import->functional, v)), pst_none()};
    enum pst_status status;

    v = args[0].value == NULL
            ? NULL
            : pst_emit(&import->build, &pst_op_clone, args, 1);
    if (v == NULL)
        return import->build.status;
    status = pst_import_expect_strides(import, scope, doc_node, &pst_op_clone,
                                       args, 0, v);
    return status != PST_OK
               ? status
               : pst_import_define(import, scope, name, v, &v->meta);
}

/* Imports a conversion. It returns its input if dtype and memory layout are the
 * same. */
static enum pst_status import_convert(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_doc_node *doc_node,
                                      const struct pst_target *target,
                                      const struct pst_names *names)
{
    const struct pst_doc_arg *self =
        pst_doc_arg(doc_node, "self", PST_DOC_TENSOR);
    const struct pst_doc_arg *copy =
        pst_doc_arg(doc_node, "copy", PST_DOC_BOOL);
    struct pst_value *v =
        self != NULL ? pst_import_find(scope, self->name) : NULL;

    if (v == NULL || (copy != NULL && copy->number.b) || names->n != 1 ||
        names->at[0] == NULL || dtype_in_file(import, v) != v->meta.dtype ||
        wanted_dtype(import, scope, doc_node, v) != v->meta.dtype)
        return import_op(import, scope, doc_node, target, names);
    if (!pst_import_returns_itself(import, doc_node, v,
                                   target->op == &pst_op_contiguous))
        return import_copy(import, scope, doc_node, v, names->at[0]);
    return pst_import_define(import, scope, names->at[0], v, &v->meta);
}

/* Checks an assertion on metadata at import: metadata cannot change in a step.
 * Dtypes are not compared under --autocast, which changes them. Complex tensors
 * were compared with the file when they were defined. */
static enum pst_status check_metadata(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_doc_node *doc_node,
                                      const struct pst_target *target)
{
    PST_UNINIT struct pst_infer c;
    struct pst_value seen;
    struct pst_arg *args;
    enum pst_status status;

    if (pst_import_complex(doc_node, scope->graph))
        return PST_OK;
    status = pst_import_bind(import, scope, doc_node, target, true, &args);
    if (status != PST_OK)
        return status;
    if (args[0].kind == PST_ARG_VALUE) {
        seen = *args[0].value;
        seen.meta.dtype = dtype_in_file(import, &seen);
        args[0].value = &seen;
    }
    if (scope->autocast == PST_AUTOCAST_CUDA ||
        scope->autocast == PST_AUTOCAST_CPU)
        args[pst_schema_arg(pst_op_schema(target->op), "dtype")] = pst_none();
    c.schema = pst_op_schema(target->op);
    c.args = args;
    c.hint = PST_N_DTYPES;
    c.diag = import->diag;
    return pst_op_infer(target->op, &c);
}

static enum pst_status import_same(struct pst_import *import,
                                   struct pst_scope *scope,
                                   const struct pst_doc_node *doc_node,
                                   const struct pst_names *names)
{
    for (unsigned i = 0; i < names->n; i++) {
        const struct pst_doc_arg *arg =
            pst_doc_arg_at(doc_node, i, PST_DOC_TENSOR);
        struct pst_value *v =
            arg != NULL ? pst_import_find(scope, arg->name) : NULL;
        enum pst_status status;

        if (names->at[i] == NULL)
            continue;
        if (v == NULL)
            return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                                "result %u stands for no tensor", i);
        status = pst_import_define(import, scope, names->at[i], v, &v->meta);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static enum pst_status import_without_grad(struct pst_import *import,
                                           struct pst_scope *scope,
                                           const struct pst_doc_node *doc_node,
                                           const struct pst_target *target,
                                           const struct pst_names *names)
{
    struct pst_names others = *names;
    bool all;
    enum pst_status status =
        pst_import_operands(import, scope, doc_node, target, &others, &all);

    return status != PST_OK || all
               ? status
               : import_op(import, scope, doc_node, target, &others);
}

/* Imports a node according to its classification. */
static enum pst_status import_target(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const struct pst_doc_node *doc_node,
                                     const struct pst_names *names)
{
    const struct pst_target *target = doc_node->resolved;

    switch (target->kind) {
    case PST_TARGET_OP:
        if (target->op == &pst_op_contiguous && !target->pairs &&
            pst_import_wants_channels(doc_node))
            return import_convert(import, scope, doc_node, target, names);
        if (scope->no_grad)
            return import_without_grad(import, scope, doc_node, target, names);
        return import_op(import, scope, doc_node, target, names);
    case PST_TARGET_INPLACE:
        return import_inplace(import, scope, doc_node, target, names);
    case PST_TARGET_OUT:
        return import_out(import, scope, doc_node, target, names);
    case PST_TARGET_CONVERT:
        return import_convert(import, scope, doc_node, target, names);
    case PST_TARGET_METADATA:
        return check_metadata(import, scope, doc_node, target);
    case PST_TARGET_SIZE:
        for (unsigned i = 0; i < names->n; i++)
            if (names->at[i] != NULL)
                return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                                    "sizes do not make a tensor");
        return pst_import_note_number(import, scope, doc_node);
    case PST_TARGET_ASSERT:
    case PST_TARGET_RANGE:
    case PST_TARGET_RANGE_OF_SIZE:
        return pst_import_assert(import, scope, doc_node);
    case PST_TARGET_SET_GRAD:
        return pst_import_set_grad(import, scope, doc_node, names);
    case PST_TARGET_CHECKPOINT:
        return pst_import_checkpoint(import, scope, doc_node, names);
    case PST_TARGET_AUTOCAST:
        return pst_import_autocast_region(import, scope, doc_node, names);
    case PST_TARGET_SAME:
        return import_same(import, scope, doc_node, names);
    case PST_TARGET_MARK:
        return PST_OK;
    case PST_TARGET_BATCH:
        return pst_import_batch(import, scope, doc_node, names);
    case PST_TARGET_UNBATCH:
        return pst_import_unbatch(import, scope, doc_node, names);
    case PST_TARGET_UNPACK:
        return pst_import_unpack(import, scope, doc_node, names);
    case PST_TARGET_COND:
        return pst_import_cond(import, scope, doc_node, names);
    case PST_TARGET_SCAN:
        return pst_import_scan_loop(import, scope, doc_node, names);
    case PST_TARGET_MAP:
        return pst_import_map_loop(import, scope, doc_node, names);
    case PST_TARGET_WHILE:
        return pst_import_while_loop(import, scope, doc_node, names);
    case PST_TARGET_RESIZE:
        return pst_import_resize(import, scope, doc_node);
    case PST_TARGET_FILL:
        return pst_import_fill(import, scope, doc_node);
    case PST_TARGET_COLLECTIVE:
        return pst_import_collective(import, scope, doc_node, names);
    case PST_TARGET_COPY_IN:
        return pst_import_copy_in(import, scope, doc_node, names);
    case PST_TARGET_COPY_OUT:
        return pst_import_copy_out(import, scope, doc_node);
    case PST_TARGET_NONE:
        break;
    }
    return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                        "not supported: %s", target->reason);
}

static enum pst_status import_node(struct pst_import *import,
                                   struct pst_scope *scope,
                                   const struct pst_doc_node *doc_node)
{
    const struct pst_target *target = doc_node->resolved;
    PST_UNINIT struct pst_names names;
    enum pst_status status = read_names(import, doc_node, &names);

    if (status != PST_OK)
        return status;
    import->build.region = scope->region;
    /* Nodes of branches and loop bodies have no stacks, or stacks with another
     * root: they belong to the call that runs the sub-graph. */
    if (scope->inner)
        import->build.source = import->place->source;
    else
        status = pst_import_set_place(import, import->place);
    if (status != PST_OK)
        return status;
    import->build.no_grad = scope->no_grad;
    import->build.origin = target->name;
    import->build.is_function = !import->place->library;
    if (target->op != NULL && (target->op->flags & PST_OP_STORAGE))
        status = pst_import_reads_storage(import, scope, doc_node);
    if (status != PST_OK)
        return status;
    if (pst_import_has_lanes(scope, doc_node))
        return pst_import_on_lanes(import, scope, doc_node, &names);
    return import_target(import, scope, doc_node, &names);
}

/* Rejects assertions in branches: both branches run, and an assertion of the
 * branch that is not selected need not hold. */
static enum pst_status refuse_asserts(struct pst_import *import, size_t first)
{
    const struct pst_graph *graph = import->build.graph;

    for (size_t i = first; i < graph->nodes.n; i++)
        if (pst_op_runs_for_effect(graph->nodes.at[i]->op))
            return pst_diag_set(import->diag, PST_E_MODEL_BRANCH_WRITE,
                                "assertions inside of a branch are not "
                                "supported: assert before the branch");
    return PST_OK;
}

enum pst_status pst_import_nodes(struct pst_import *import,
                                 struct pst_scope *scope)
{
    enum pst_status status;

    for (size_t i = 0; i < scope->graph->n_nodes; i++) {
        const struct pst_doc_node *node = &scope->graph->nodes[i];
        const size_t first = import->build.graph->nodes.n;

        import->place = node->place;
        if (pst_import_is_idle(import, node))
            status = pst_import_note_number(import, scope, node);
        else if (pst_import_is_fixed(import, scope->graph, node))
            status = pst_import_fix_number(import, scope, node);
        else
            status = import_node(import, scope, node);
        if (status == PST_OK && scope->pure)
            status = refuse_asserts(import, first);
        import->place = node->place; /* importing inner graphs changed it */
        if (status == PST_OK)
            status = pst_import_note_lost(import, first);
        if (status == PST_OK)
            continue;
        pst_doc_prefix_node(node, import->diag);
        return status;
    }
    return PST_OK;
}
