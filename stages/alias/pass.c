// SPDX-License-Identifier: Apache-2.0
/* Operands as inputs and parameters of the graph. */
#include "stages/alias/binder.h"
#include "stages/ops/op.h"
#include "stages/ops/rows.h"

/* The window of meta at `offset` (elements) of a flat value. */
static struct pst_value *look(struct pst_binder *b, struct pst_value *flat,
                              const struct pst_meta *meta, int64_t offset)
{
    struct pst_value *ret =
        pst_emit(&b->build, &pst_op_as_strided,
                 PST_ARGS(pst_v(flat), pst_ints(meta->size, meta->rank),
                          pst_ints(meta->stride, meta->rank), pst_i(offset)));

    if (ret != NULL && ret->meta.dtype != meta->dtype)
        ret = pst_emit(&b->build, &pst_op_view_dtype,
                       PST_ARGS(pst_v(ret), pst_dtype_arg(meta->dtype)));
    return ret;
}

/* One that is passed as it is: contiguous, or flat with a window on it. */
static enum pst_status pass(struct pst_binder *b, unsigned i)
{
    const struct pst_program_operand *o = &b->operands[i];
    const struct pst_meta *meta = &o->as.meta;
    const bool leaf = o->leaf != NULL && b->alias != NULL;
    const bool whole = pst_meta_is_contiguous(meta);
    const int64_t item = (int64_t)pst_dtype_size(meta->dtype);
    const int64_t n = (int64_t)pst_meta_span(meta) / item;
    const struct pst_meta flat = pst_meta_make(meta->dtype, 1, &n);
    struct pst_value *v;
    char name[32];

    for (unsigned k = 0; leaf && k < i; k++) /* the same one again */
        if (b->operands[k].as.tensor == o->as.tensor) {
            b->values[i] = b->values[k];
            return PST_OK;
        }
    pst_program_input_name(false, i, name);
    v = pst_graph_add_value(b->graph, leaf ? PST_VALUE_PARAM : PST_VALUE_INPUT,
                            name, leaf ? o->leaf : NULL, whole ? meta : &flat);
    if (v == NULL)
        return pst_binder_no_memory(b);
    v->requires_grad = leaf;
    if (leaf) /* writes go to a copy, whose gradient is the leaf's */
        v = pst_emit(&b->build, &pst_op_clone, PST_ARGS(pst_v(v)));
    b->values[i] = v;
    if (v != NULL && !whole)
        b->values[i] = look(b, v, meta, 0);
    if (b->values[i] == NULL)
        return b->build.status;
    return pst_binder_own(b, v, i, o->as.offset * item, leaf);
}

static enum pst_status pass_base(struct pst_binder *b, unsigned index)
{
    const struct pst_alias_base *base = &b->alias->bases[index];
    const int64_t item = (int64_t)pst_dtype_size(base->dtype);
    const int64_t n = (base->end - base->begin) / item;
    const struct pst_meta meta = pst_meta_make(base->dtype, 1, &n);
    struct pst_value *v;
    char name[32];

    pst_program_input_name(true, index, name);
    v = pst_graph_add_value(b->graph, PST_VALUE_INPUT, name, NULL, &meta);
    if (v == NULL)
        return pst_binder_no_memory(b);
    for (unsigned i = 0; i < b->n; i++) {
        const struct pst_alias_operand *o = &b->operands[i].as;

        if (b->alias->parts[i].base != (int)index)
            continue;
        if (b->operands[i].leaf != NULL)
            return pst_diag_set(b->diag, PST_ERR_UNSUPPORTED,
                                "E_ALIAS_NONDIFF: leaf \"%s\", which wants a "
                                "gradient, shares memory with another operand, "
                                "and one of them is written",
                                o->name);
        b->values[i] = look(b, v, &o->meta, o->offset - base->begin / item);
        if (b->values[i] == NULL)
            return b->build.status;
    }
    return pst_binder_own(b, v, base->first, base->begin, false);
}

enum pst_status pst_binder_pass(struct pst_binder *b)
{
    enum pst_status status = PST_OK;

    for (unsigned k = 0; b->alias != NULL && k < b->alias->n_bases; k++)
        if (status == PST_OK &&
            !b->operands[b->alias->bases[k].first].from_before)
            status = pass_base(b, k);
    for (unsigned i = 0; i < b->n && status == PST_OK; i++)
        if (b->values[i] == NULL &&
            (b->alias == NULL ||
             (b->alias->parts[i].same == i && !b->operands[i].from_before)))
            status = pass(b, i);
    for (unsigned i = 0; i < b->n && status == PST_OK; i++) {
        if (b->values[i] == NULL && b->alias != NULL)
            b->values[i] = b->values[b->alias->parts[i].same];
        if (b->values[i] == NULL) /* made by what runs before */
            continue;
        status = pst_binder_name(b, b->operands[i].as.name, b->values[i]);
        if (status == PST_OK)
            status = pst_binder_name(b, b->operands[i].again, b->values[i]);
    }
    return status;
}
