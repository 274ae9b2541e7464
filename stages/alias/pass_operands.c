// SPDX-License-Identifier: Apache-2.0
/* Passes operands as inputs and parameters of the graph. */
#include "stages/alias/binder.h"
#include "stages/frontend/functional/overlap.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <stdio.h>
#include <string.h>

/* Searches the operators' names, since the program's operators have no rows
 * yet. A part of a name finds all overloads, in-place ones included. */
bool pst_alias_program_is_absolute(const struct pst_alias_program *program)
{
    const struct pst_alias_program_op *ops[] = {program->before, program->ops};
    const unsigned n[] = {program->n_before, program->n_ops};

    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 0; i < n[k]; i++)
            if (strstr(ops[k][i].op, "as_strided") != NULL ||
                strstr(ops[k][i].op, "storage_offset") != NULL ||
                strstr(ops[k][i].op, "view.dtype") != NULL)
                return true;
    return false;
}

void pst_alias_program_range(const struct pst_alias_operand *operand,
                             bool absolute, int64_t *ret_begin,
                             int64_t *ret_end)
{
    const int64_t item = (int64_t)pst_dtype_size(operand->meta.dtype);
    const int64_t begin = pst_alias_begin(operand);

    *ret_begin = absolute ? begin / 8 * 8 : begin;
    *ret_end = *ret_begin +
               (pst_alias_end(operand) - *ret_begin + item - 1) / item * item;
}

/* Returns the view with the given meta at byte `byte` of a flat value. */
static struct pst_value *read_part(struct pst_binder *b, struct pst_value *flat,
                                   const struct pst_meta *meta, int64_t byte)
{
    const int64_t item = (int64_t)pst_dtype_size(meta->dtype);
    const int64_t whole = (int64_t)pst_dtype_size(flat->meta.dtype);
    const int64_t n = (int64_t)pst_meta_span(meta) / whole, one = 1;

    if (item != whole) { /* the flat value is bytes */
        flat = pst_emit(&b->build, &pst_op_as_strided,
                        PST_ARGS(pst_v(flat), pst_ints(&n, 1),
                                 pst_ints(&one, 1), pst_i(byte / whole)));
        if (flat != NULL)
            flat = pst_emit(&b->build, &pst_op_view_dtype,
                            PST_ARGS(pst_v(flat), pst_dtype_arg(meta->dtype)));
        if (flat == NULL)
            return NULL;
    }
    flat = pst_emit(&b->build, &pst_op_as_strided,
                    PST_ARGS(pst_v(flat), pst_ints(meta->size, meta->rank),
                             pst_ints(meta->stride, meta->rank),
                             pst_i(byte / item)));
    if (flat != NULL && flat->meta.dtype != meta->dtype)
        flat = pst_emit(&b->build, &pst_op_view_dtype,
                        PST_ARGS(pst_v(flat), pst_dtype_arg(meta->dtype)));
    return flat;
}

/* Adds an input for a range of bytes of a storage, as elements of dtype. */
static struct pst_value *add_input(struct pst_binder *b, bool base, unsigned i,
                                   enum pst_dtype dtype, int64_t bytes)
{
    const int64_t n = bytes / (int64_t)pst_dtype_size(dtype);
    const struct pst_meta meta = pst_meta_make(dtype, 1, &n);
    struct pst_value *ret;
    char name[32];

    pst_alias_program_input_name(base, i, name);
    ret = pst_graph_add_value(b->graph, PST_VALUE_INPUT, name, NULL, &meta);
    if (ret == NULL)
        b->build.status = pst_binder_no_memory(b);
    return ret;
}

/* Adds a leaf as a contiguous parameter. Returns a copy of it for writes; the
 * copy's gradient is the leaf's. */
static struct pst_value *add_leaf(struct pst_binder *b, unsigned i)
{
    const struct pst_alias_program_operand *o = &b->operands[i];
    struct pst_meta meta = o->as.meta;
    struct pst_value *v;
    char name[32];

    pst_meta_set_contiguous(&meta);
    (void)snprintf(name, sizeof(name), "leaf.%u", i);
    v = pst_graph_add_value(b->graph, PST_VALUE_PARAM, name, o->leaf, &meta);
    if (v == NULL) {
        b->build.status = pst_binder_no_memory(b);
        return NULL;
    }
    v->requires_grad = true;
    return pst_emit(&b->build, &pst_op_clone, PST_ARGS(pst_v(v)));
}

/* Passes a leaf. If the leaf does not cover its storage, passes the storage,
 * too, and the graph writes the leaf's content into it. If elements of the leaf
 * share memory, the content is read from the storage, and the gradient goes to
 * the leaf. */
static enum pst_status pass_leaf(struct pst_binder *b, unsigned i,
                                 int64_t begin, int64_t end)
{
    const struct pst_meta *meta = &b->operands[i].as.meta;
    const int64_t item = (int64_t)pst_dtype_size(meta->dtype);
    const int64_t at = b->operands[i].as.offset * item - begin;
    struct pst_value *leaf = add_leaf(b, i), *v = leaf, *flat;
    bool expanded;
    enum pst_status status =
        pst_window_overlaps_itself(meta, &expanded, b->diag);

    if (leaf == NULL || status != PST_OK)
        return leaf == NULL ? b->build.status : status;
    b->values[i] = leaf;
    if (expanded || !pst_meta_is_contiguous(meta) || at != 0 ||
        end - begin != (int64_t)pst_meta_span(meta)) {
        v = flat = add_input(b, false, i, meta->dtype, end - begin);
        if (flat != NULL && !expanded)
            v = pst_emit(&b->build, &pst_op_write_strided,
                         PST_ARGS(pst_v(flat), pst_v(leaf),
                                  pst_ints(meta->size, meta->rank),
                                  pst_ints(meta->stride, meta->rank),
                                  pst_i(at / item)));
        b->values[i] = v != NULL ? read_part(b, v, meta, at) : NULL;
    }
    if (expanded && b->values[i] != NULL)
        b->values[i] = pst_emit(&b->build, &pst_op_with_history,
                                PST_ARGS(pst_v(b->values[i]), pst_v(leaf)));
    if (b->values[i] == NULL)
        return b->build.status;
    status = pst_binder_set_owner(b, v, i, begin, true);
    if (status == PST_OK)
        b->owners.at[b->owners.n - 1].expanded = expanded;
    return status;
}

/* Passes one operand as it is: contiguous, or as a view of a flat input. */
static enum pst_status pass_operand(struct pst_binder *b, unsigned i)
{
    const struct pst_alias_program_operand *o = &b->operands[i];
    const struct pst_meta *meta = &o->as.meta;
    int64_t begin, end;
    struct pst_value *v;
    char name[32];

    for (unsigned k = 0; k < i; k++) /* reuses the value of the same tensor */
        if ((o->leaf != NULL || b->alias == NULL) && b->values[k] != NULL &&
            b->operands[k].as.tensor == o->as.tensor) {
            b->values[i] = b->values[k];
            return PST_OK;
        }
    pst_alias_program_range(&o->as, b->absolute, &begin, &end);
    if (o->leaf != NULL && b->alias != NULL)
        return pass_leaf(b, i, begin, end);
    if (pst_meta_is_contiguous(meta) &&
        end - begin == (int64_t)pst_meta_span(meta)) {
        pst_alias_program_input_name(false, i, name);
        v = pst_graph_add_value(b->graph, PST_VALUE_INPUT, name, NULL, meta);
        if (v == NULL)
            return pst_binder_no_memory(b);
        b->values[i] = v;
    } else {
        v = add_input(b, false, i, meta->dtype, end - begin);
        b->values[i] =
            v == NULL ? NULL
                      : read_part(b, v, meta,
                                  o->as.offset *
                                          (int64_t)pst_dtype_size(meta->dtype) -
                                      begin);
    }
    if (b->values[i] == NULL)
        return b->build.status;
    return pst_binder_set_owner(b, v, i, begin, false);
}

static enum pst_status refuse_leaf(struct pst_binder *b, unsigned base,
                                   unsigned leaf)
{
    const struct pst_alias_operand *o = &b->operands[leaf].as, *other = o;
    char x[PST_META_TEXT], y[PST_META_TEXT];

    for (unsigned k = 0; k < b->n && other == o; k++)
        if (k != leaf && b->alias->parts[k].base == (int)base)
            other = &b->operands[k].as;
    return pst_diag_set(
        b->diag, PST_E_ALIAS_SHARED_WRITE,
        "E_ALIAS_NONDIFF: leaf \"%s\", %s at %lld, which wants "
        "a gradient, shares memory with \"%s\", %s at %lld, and "
        "one of them is written",
        o->name, pst_meta_text(&o->meta, x), (long long)o->offset, other->name,
        pst_meta_text(&other->meta, y), (long long)other->offset);
}

/* Passes a leaf in a base, which other operands write: the content is that of
 * the base, and gradients go to the leaf. */
static enum pst_status pass_leaf_of_base(struct pst_binder *b, unsigned index,
                                         unsigned i)
{
    const enum pst_dtype dtype = b->alias->bases[index].dtype;
    struct pst_value *leaf;

    if (pst_dtype_size(dtype) != pst_dtype_size(b->operands[i].as.meta.dtype))
        return b->build.status = refuse_leaf(b, index, i);
    leaf = add_leaf(b, i);
    if (leaf != NULL)
        b->values[i] = pst_emit(&b->build, &pst_op_with_history,
                                PST_ARGS(pst_v(b->values[i]), pst_v(leaf)));
    return b->build.status;
}

static enum pst_status pass_base(struct pst_binder *b, unsigned index)
{
    const struct pst_alias_base *base = &b->alias->bases[index];
    struct pst_value *v =
        add_input(b, true, index, base->dtype, base->end - base->begin);
    unsigned first = b->n;

    if (v == NULL)
        return b->build.status;
    for (unsigned i = 0; i < b->n; i++) {
        const struct pst_alias_operand *o = &b->operands[i].as;

        if (b->alias->parts[i].base != (int)index || b->operands[i].from_before)
            continue;
        first = PST_MIN(first, i);
        b->values[i] = read_part(
            b, v, &o->meta,
            o->offset * (int64_t)pst_dtype_size(o->meta.dtype) - base->begin);
        if (b->values[i] == NULL)
            return b->build.status;
        if (b->operands[i].leaf != NULL &&
            pass_leaf_of_base(b, index, i) != PST_OK)
            return b->build.status;
    }
    return pst_binder_set_owner(b, v, first, base->begin, false);
}

enum pst_status pst_binder_make_values(struct pst_binder *b)
{
    enum pst_status status = PST_OK;

    for (unsigned k = 0; b->alias != NULL && k < b->alias->n_bases; k++)
        if (status == PST_OK && b->alias->bases[k].viewed < 0)
            status = pass_base(b, k);
    for (unsigned i = 0; i < b->n && status == PST_OK; i++)
        if (b->values[i] == NULL &&
            (b->alias == NULL ||
             (b->alias->parts[i].same == i && !b->operands[i].from_before)))
            status = pass_operand(b, i);
    for (unsigned i = 0; i < b->n && status == PST_OK; i++) {
        if (b->values[i] == NULL && b->alias != NULL)
            b->values[i] = b->values[b->alias->parts[i].same];
        if (b->values[i] == NULL) /* made before the call */
            continue;
        status = pst_binder_name(b, b->operands[i].as.name, b->values[i]);
        if (status == PST_OK)
            status = pst_binder_name(b, b->operands[i].again, b->values[i]);
    }
    return status;
}
