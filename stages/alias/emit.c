// SPDX-License-Identifier: Apache-2.0
/* Emits operators in program order, including in-place ones. */
#include "stages/alias/binder.h"
#include "stages/base/checked.h"
#include "stages/base/str.h"
#include "stages/frontend/functional/eager.h"
#include "stages/frontend/functional/overlap.h"
#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <string.h>

#define TAG PST_TAG_GRAPH

struct emission {
    struct pst_binder *b;
    const struct pst_alias_program_op *op;
    const struct pst_op *row;
    const struct pst_schema *schema;
    /* in schema order; the values are not updated by earlier writes */
    struct pst_arg *args;
};

static bool read_arg(struct emission *e,
                     const struct pst_alias_program_arg *from,
                     struct pst_arg *ret)
{
    struct pst_binder *b = e->b;

    *ret = from->literal;
    if (from->kind == PST_PROGRAM_LITERAL)
        return true;
    if (from->kind == PST_PROGRAM_NAME) {
        *ret = pst_v(pst_binder_find(b, from->names[0]));
        return ret->value != NULL;
    }
    *ret = pst_values(pst_arena_calloc(&b->graph->arena, from->n + 1,
                                       sizeof(struct pst_value *)),
                      from->n);
    if (ret->values == NULL) {
        b->build.status = pst_binder_no_memory(b);
        return false;
    }
    for (unsigned k = 0; k < from->n; k++) {
        if (from->names[k] == NULL)
            continue;
        ret->values[k] = pst_binder_find(b, from->names[k]);
        if (ret->values[k] == NULL)
            return false;
    }
    return true;
}

/* Puts arguments in schema order; values are not yet updated to their newest
 * versions. */
static bool bind_args(struct emission *e)
{
    struct pst_binder *b = e->b;
    bool *given =
        pst_arena_calloc(&b->graph->arena, e->schema->n_args + 1, sizeof(bool));

    e->args = pst_arena_calloc(&b->graph->arena, e->schema->n_args + 1,
                               sizeof(*e->args));
    if (e->args == NULL || given == NULL) {
        b->build.status = pst_binder_no_memory(b);
        return false;
    }
    for (unsigned i = 0; i < e->schema->n_args; i++)
        e->args[i] = e->schema->args[i].def;
    for (unsigned i = 0; i < e->op->n_args; i++) {
        const struct pst_alias_program_arg *arg = &e->op->args[i];
        const int at = arg->keyword == NULL
                           ? (int)i
                           : pst_import_find_arg(e->schema, arg->keyword);

        if (at < 0 || at >= (int)e->schema->n_args || given[at]) {
            b->build.status =
                pst_diag_set(b->diag, PST_E_ALIAS_CALL,
                             "%s has no argument \"%s\" (number %u)", e->op->op,
                             arg->keyword != NULL ? arg->keyword : "", i);
            return false;
        }
        given[at] = true;
        if (!read_arg(e, arg, &e->args[at]))
            return false;
    }
    for (unsigned i = 0; i < e->schema->n_args; i++)
        if (!given[i] && !e->schema->args[i].has_default &&
            !e->schema->args[i].optional) {
            b->build.status =
                pst_diag_set(b->diag, PST_E_ALIAS_CALL, "%s: \"%s\" is missing",
                             e->op->op, e->schema->args[i].name);
            return false;
        }
    return true;
}

static int64_t bytes_of(const struct pst_alias_operand *o, int64_t elements)
{
    return elements * (int64_t)pst_dtype_size(o->meta.dtype);
}

/* Records that the program reaches these bytes of the operand's storage,
 * too. */
static void extend_range(struct pst_alias_operand *o, int64_t from, int64_t to)
{
    const int64_t item = bytes_of(o, 1);

    if (o->from < o->to) {
        from = PST_MIN(from, o->from);
        to = PST_MAX(to, o->to);
    }
    o->from = from / 8 * 8;
    o->to = (to + item - 1) / item * item;
}

/* Sets *ret to whether the window, bytes [from, to), lies in bytes that are
 * known to be reached. Gaps in the operand's own strides do not count: they may
 * belong to another operand. */
static enum pst_status is_reached(const struct pst_binder *b,
                                  const struct pst_alias_operand *o,
                                  const struct pst_meta *window, int64_t from,
                                  int64_t to, bool *ret)
{
    const struct pst_window own = {&o->meta, o->offset};
    const struct pst_window other = {
        window, from / (int64_t)pst_dtype_size(window->dtype)};

    *ret =
        o->from < o->to && from >= pst_alias_begin(o) && to <= pst_alias_end(o);
    return *ret ? PST_OK : pst_window_covers(&own, &other, ret, b->diag);
}

/* Converts the offset of as_strided() in the caller's storage to one in the
 * range that is passed. If the window is not inside, extends the range and
 * returns PST_AGAIN: the pass must be repeated. */
static enum pst_status find_offset(struct emission *e)
{
    struct pst_binder *b = e->b;
    const int at = pst_schema_arg(e->schema, "storage_offset");
    const int sizes = pst_schema_arg(e->schema, "size");
    const int strides = pst_schema_arg(e->schema, "stride");
    const struct pst_owner *owner;
    struct pst_alias_operand *as;
    struct pst_value *v;
    struct pst_meta window;
    int64_t item, offset, from, to;
    enum pst_status status;
    bool reached;

    if (at < 0 || sizes < 0 || strides < 0 || e->args[0].kind != PST_ARG_VALUE)
        return PST_OK;
    v = pst_functionalise_shape(b->functional, e->args[0].value);
    owner = v != NULL ? pst_binder_owner(b, v) : NULL;
    if (owner == NULL || e->args[sizes].kind != PST_ARG_INTS ||
        e->args[strides].kind != PST_ARG_INTS ||
        e->args[sizes].n != e->args[strides].n ||
        e->args[sizes].n > PST_MAX_RANK)
        /* shape inference reports this with a better message */
        return b->build.status;
    item = (int64_t)pst_dtype_size(v->meta.dtype);
    offset = v->offset + owner->begin / item;
    if (e->args[at].kind == PST_ARG_INT)
        offset = e->args[at].i;
    window =
        pst_meta_make(v->meta.dtype, e->args[sizes].n, e->args[sizes].ints);
    for (unsigned d = 0; d < window.rank; d++)
        window.stride[d] = e->args[strides].ints[d];
    if (pst_meta_check(&window, NULL) != PST_OK || offset < 0 ||
        PST_MUL(offset, item, &from) ||
        PST_ADD(from, (int64_t)pst_meta_span(&window), &to))
        return PST_OK;
    e->args[at] = pst_i(offset - owner->begin / item);
    as = &b->operands[owner->operand].as;
    if (!b->learning)
        return PST_OK;
    status = is_reached(b, as, &window, from, to, &reached);
    if (status != PST_OK || reached)
        return status;
    extend_range(as, from, to);
    b->widened = true;
    return PST_AGAIN;
}

/* Returns the arguments with the newest versions of values, coerced; NULL after
 * an error. */
static struct pst_arg *bind_newest(struct emission *e)
{
    struct pst_binder *b = e->b;
    const unsigned n = e->schema->n_args;
    struct pst_arg *now =
        pst_arena_calloc(&b->graph->arena, n + 1, sizeof(*now));
    struct pst_arg *ret =
        pst_arena_calloc(&b->graph->arena, n + 1, sizeof(*ret));

    if (now == NULL || ret == NULL) {
        b->build.status = pst_binder_no_memory(b);
        return NULL;
    }
    for (unsigned i = 0; i < n && b->build.status == PST_OK; i++) {
        now[i] = e->args[i];
        if (now[i].kind == PST_ARG_VALUES)
            b->build.status =
                pst_arg_copy(&b->graph->arena, &e->args[i], &now[i], b->diag);
        if (now[i].kind == PST_ARG_VALUE)
            now[i].value = pst_binder_read(b, now[i].value);
        for (unsigned k = 0; now[i].kind == PST_ARG_VALUES && k < now[i].n; k++)
            if (now[i].values[k] != NULL)
                now[i].values[k] = pst_binder_read(b, now[i].values[k]);
    }
    if (b->build.status == PST_OK)
        b->build.status = pst_build_args(&b->build, e->schema, now, n, ret);
    return b->build.status == PST_OK ? ret : NULL;
}

/* Orders dimensions by stride, largest first. */
static void order_of(const struct pst_meta *m, const int64_t *strides,
                     int64_t order[PST_MAX_RANK])
{
    for (unsigned d = 0; d < m->rank; d++) {
        unsigned at = d;

        for (; at > 0 && m->size[d] > 1; at--) {
            const int64_t before = order[at - 1];

            if (m->size[before] > 1 && strides[before] >= strides[d])
                break;
            order[at] = before;
        }
        order[at] = d;
    }
}

/* Puts v into a storage of its own at the offset and with the strides of
 * `like`. */
static struct pst_value *copy_with_strides_of(struct emission *e,
                                              struct pst_value *v,
                                              struct pst_value *like)
{
    struct pst_binder *b = e->b;
    const struct pst_owner *owner = pst_binder_owner(b, like);
    const struct pst_meta *meta = &like->meta;
    const int64_t item = (int64_t)pst_dtype_size(meta->dtype);
    const int64_t offset =
        like->offset + (owner != NULL ? owner->begin / item : 0);
    const int64_t n = offset + (int64_t)pst_meta_span(meta) / item;
    struct pst_value *flat;

    if ((offset == 0 && pst_meta_is_contiguous(meta)) || n == offset ||
        !pst_meta_same(&v->meta, meta))
        return v;
    flat = pst_emit(&b->build, &pst_op_new_zeros,
                    PST_ARGS(pst_v(v), pst_ints(&n, 1)));
    if (flat != NULL)
        flat = pst_emit(
            &b->build, &pst_op_write_strided,
            PST_ARGS(pst_v(flat), pst_v(v), pst_ints(meta->size, meta->rank),
                     pst_ints(meta->stride, meta->rank), pst_i(offset)));
    if (flat != NULL)
        flat = pst_emit(&b->build, &pst_op_as_strided,
                        PST_ARGS(pst_v(flat), pst_ints(meta->size, meta->rank),
                                 pst_ints(meta->stride, meta->rank),
                                 pst_i(offset)));
    return flat;
}

/* Gives a new result the strides of PyTorch's result. args: the operator's;
 * NULL: the result is not new. */
static struct pst_value *set_result_strides(struct emission *e,
                                            const struct pst_arg *args,
                                            struct pst_value *v)
{
    struct pst_build *build = &e->b->build;
    int64_t strides[PST_MAX_RANK], order[PST_MAX_RANK];
    const struct pst_meta meta = v->meta;

    if (args != NULL && pst_eager_keeps_window(e->row) &&
        args[0].kind == PST_ARG_VALUE && pst_binder_owner(e->b, v) == NULL)
        return copy_with_strides_of(e, v, args[0].value);
    if ((v->base != NULL && e->row != &pst_op_rot90) || args == NULL)
        return v;
    if (!pst_eager_strides(e->row, args, e->schema->n_args, PST_EAGER_PRESERVE,
                           &meta, strides) ||
        memcmp(strides, meta.stride, meta.rank * sizeof(*strides)) == 0)
        return v;
    order_of(&meta, strides, order);
    v = pst_emit(build, &pst_op_permute,
                 PST_ARGS(pst_v(v), pst_ints(order, meta.rank)));
    if (v != NULL)
        v = pst_emit(build, &pst_op_clone, PST_ARGS(pst_v(v)));
    if (v != NULL)
        v = pst_emit(build, &pst_op_as_strided,
                     PST_ARGS(pst_v(v), pst_ints(meta.size, meta.rank),
                              pst_ints(strides, meta.rank), pst_i(0)));
    return v;
}

/* True if the result, which shares the operand's storage, is the operand itself
 * in PyTorch. A view would keep its shape when t_() changes the operand. */
static bool returns_operand(const struct emission *e, const struct pst_value *v)
{
    const struct pst_value *from =
        e->schema->n_args > 0 && e->args[0].kind == PST_ARG_VALUE
            ? pst_functionalise_shape(e->b->functional, e->args[0].value)
            : NULL;

    if (from == NULL || v->meta.rank != from->meta.rank ||
        pst_functionalise_owner(e->b->functional, (struct pst_value *)v) !=
            pst_functionalise_owner(e->b->functional, (struct pst_value *)from))
        return false;
    return e->row == &pst_op_contiguous || e->row == &pst_op_positive ||
           e->row == &pst_op_flatten_using_ints ||
           (e->row->flags & PST_OP_DROPOUT) != 0;
}

/* If result number i is a view of the first argument (or, if that is a list, of
 * its item i), records that it is a view of the same operand. */
static enum pst_status inherit_view(struct emission *e, struct pst_value *v,
                                    unsigned i)
{
    const struct pst_arg *first = &e->args[0];

    if (e->schema->n_args == 0)
        return PST_OK;
    if (first->kind == PST_ARG_VALUE)
        return pst_binder_inherit(e->b, v, first->value);
    if (first->kind == PST_ARG_VALUES && i < first->n &&
        first->values[i] != NULL)
        return pst_binder_inherit(e->b, v, first->values[i]);
    return PST_OK;
}

/* Checks the gradient history of the arguments; if `written` is not NULL,
 * records instead that they were written to it. */
static enum pst_status follow_history(struct emission *e,
                                      struct pst_value *written)
{
    struct pst_binder *b = e->b;
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < e->schema->n_args; i++) {
        const struct pst_arg *arg = &e->args[i];
        const unsigned n = arg->kind == PST_ARG_VALUES  ? arg->n
                           : arg->kind == PST_ARG_VALUE ? 1
                                                        : 0;

        for (unsigned k = 0; k < n && status == PST_OK; k++) {
            struct pst_value *v =
                arg->kind == PST_ARG_VALUE ? arg->value : arg->values[k];

            if (v == NULL || v == written)
                continue;
            status = written == NULL ? pst_binder_check_history(b, v)
                                     : pst_binder_note_history(b, written, v);
        }
    }
    return status;
}

static enum pst_status name_results(struct emission *e,
                                    const struct pst_arg *args,
                                    struct pst_value *const *values, unsigned n)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < e->op->n_outs && status == PST_OK; i++) {
        struct pst_value *v = i < n ? values[i] : NULL;

        if (e->op->outs[i] == NULL)
            continue;
        if (v == NULL)
            return pst_diag_set(e->b->diag, PST_E_ALIAS_CALL,
                                "%s has no result %u", e->op->op, i);
        v = args != NULL && returns_operand(e, v)
                ? e->args[0].value
                : set_result_strides(e, args, v);
        status = v != NULL ? pst_binder_name(e->b, e->op->outs[i], v)
                           : e->b->build.status;
        if (status == PST_OK)
            status = inherit_view(e, v, i);
    }
    return status;
}

static enum pst_status emit_rewrite(struct emission *e,
                                    const struct pst_arg *args)
{
    struct pst_binder *b = e->b;
    PST_UNINIT struct pst_rewrite w;
    enum pst_status status =
        pst_op_rewrite(e->row, &b->build, args, e->schema->n_args, &w);

    if (status == PST_OK)
        status = name_results(e, args, w.outs, w.n_outs);
    for (unsigned i = 0; i < PST_MAX_WRITES && status == PST_OK; i++) {
        if (w.writes[i] == NULL)
            continue;
        status = pst_binder_note_write(b, e->args[i].value);
        if (status == PST_OK &&
            pst_functionalise_write(b->functional, e->args[i].value,
                                    w.writes[i]) == NULL)
            status = b->build.status;
    }
    return status;
}

static enum pst_status emit_plain(struct emission *e)
{
    struct pst_binder *b = e->b;
    struct pst_arg *args = bind_newest(e);
    const struct pst_node *node;

    if (args == NULL)
        return b->build.status;
    if (pst_op_is_rewrite(e->row))
        return emit_rewrite(e, args);
    node = pst_emit_node(&b->build, e->row, args, e->schema->n_args);
    return node != NULL ? name_results(e, args, node->outs, node->n_outs)
                        : b->build.status;
}

/* Emits an in-place operator. Its result is the written tensor, or the tensor
 * in its new shape for t_() and the like. */
static enum pst_status emit_inplace(struct emission *e)
{
    struct pst_binder *b = e->b;
    struct pst_value *written, *now;
    enum pst_status status = PST_OK;
    struct pst_arg *args = pst_arena_calloc(
        &b->graph->arena, e->schema->n_args + 1, sizeof(*args));

    if (args == NULL)
        return pst_binder_no_memory(b);
    if (e->schema->n_args == 0 || e->args[0].kind != PST_ARG_VALUE)
        return pst_diag_set(b->diag, PST_E_ALIAS_CALL, "%s writes no tensor",
                            e->op->op);
    status =
        pst_build_args(&b->build, e->schema, e->args, e->schema->n_args, args);
    written = e->args[0].value;
    if (status == PST_OK && !(e->row->flags & PST_OP_VIEW)) {
        status = pst_binder_note_write(b, written);
        if (status == PST_OK)
            status = follow_history(e, written);
    }
    if (status != PST_OK)
        return status;
    now = pst_functionalise_inplace(b->functional, e->row, args,
                                    e->schema->n_args);
    if (now == NULL)
        return b->build.status;
    if (e->row->flags & PST_OP_VIEW)
        written = now;
    return name_results(e, NULL, &written, 1);
}

/* True if to() or type_as() returns its operand because the dtype is the
 * same. */
static bool is_same_dtype(const struct emission *e)
{
    const int dtype = pst_schema_arg(e->schema, "dtype");
    const int other = pst_schema_arg(e->schema, "other");
    const int copy = pst_schema_arg(e->schema, "copy");
    const struct pst_arg *a = e->args;
    const enum pst_dtype have = a[0].value->meta.dtype;

    if (copy >= 0 && a[copy].kind == PST_ARG_BOOL && a[copy].b)
        return false;
    if (dtype >= 0 && a[dtype].kind == PST_ARG_DTYPE)
        return (enum pst_dtype)a[dtype].i == have;
    return other >= 0 && a[other].kind == PST_ARG_VALUE &&
           a[other].value->meta.dtype == have;
}

static enum pst_status emit_op(struct pst_binder *b,
                               const struct pst_alias_program_op *op)
{
    const struct pst_doc_node like = {.target = op->op};
    const struct pst_target target = pst_import_target(&like, NULL);
    struct emission e = {b, op, target.op, NULL, NULL};
    enum pst_status status;

    b->build.no_grad = op->no_grad;
    /* Compared by name: set_ has no row, since it changes the storage. */
    if (strcmp(op->op, "aten.set_.source_Tensor") == 0 ||
        strcmp(op->op, "aten.set_.source_Tensor_storage_offset") == 0)
        return pst_binder_set(b, op);
    if (target.op == NULL || target.kind == PST_TARGET_OUT)
        return pst_diag_set(b->diag, PST_E_OP_NOT_SUPPORTED, "%s: %s", op->op,
                            target.reason != NULL ? target.reason
                                                  : "not supported");
    e.schema = pst_op_schema(target.op);
    if (!bind_args(&e))
        return b->build.status;
    status = find_offset(&e);
    /* Views are skipped: they read no elements. */
    if (status == PST_OK && !(e.row->flags & PST_OP_VIEW))
        status = follow_history(&e, NULL);
    if (status != PST_OK)
        return status;
    switch (target.kind) {
    case PST_TARGET_INPLACE:
        return emit_inplace(&e);
    case PST_TARGET_CONVERT:
        if (e.args[0].kind == PST_ARG_VALUE && is_same_dtype(&e))
            return name_results(&e, NULL, &e.args[0].value, 1);
        return emit_plain(&e);
    case PST_TARGET_OP:
        return emit_plain(&e);
    default:
        return pst_diag_set(b->diag, PST_E_OP_NOT_SUPPORTED,
                            "%s: not supported", op->op);
    }
}

/* Adds the program's operator to the error: "aten.add_.Tensor(a, b)". */
static void add_operator_name(struct pst_binder *b,
                              const struct pst_alias_program_op *op)
{
    struct pst_str names = {0};

    for (unsigned i = 0; i < op->n_args; i++)
        for (unsigned k = 0; k < op->args[i].n; k++)
            if (op->args[i].names[k] != NULL)
                pst_str_addf(&names, "%s%s", names.len > 0 ? ", " : "",
                             op->args[i].names[k]);
    pst_diag_prefix(b->diag, "%s(%s)", op->op, pst_str_text(&names));
    pst_str_fini(&names);
}

enum pst_status pst_binder_emit(struct pst_binder *b,
                                const struct pst_alias_program_op *ops,
                                unsigned n)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        for (; b->stage < ops[i].stage && b->alias != NULL; b->stage++)
            if (pst_emit_node(&b->build, &pst_op__pipe_split, NULL, 0) == NULL)
                return b->build.status;
        status = emit_op(b, &ops[i]);
        if (status == PST_OK)
            status = b->build.status;
        if (status < 0)
            add_operator_name(b, &ops[i]);
    }
    return status;
}
