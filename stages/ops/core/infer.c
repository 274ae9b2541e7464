// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/infer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static enum pst_status report_error(const struct pst_infer *c,
                                    enum pst_error error, const char *fmt,
                                    va_list args)
{
    char text[1024];

    vsnprintf(text, sizeof(text), fmt, args);
    return pst_diag_set(c->diag, error, "%s: %s", c->schema->name, text);
}

enum pst_status pst_infer_fail(const struct pst_infer *c, const char *fmt, ...)
{
    enum pst_status status;
    va_list args;

    va_start(args, fmt);
    status = report_error(c, PST_E_OP_SHAPE, fmt, args);
    va_end(args);
    return status;
}

enum pst_status pst_infer_refuse(const struct pst_infer *c, const char *fmt,
                                 ...)
{
    enum pst_status status;
    va_list args;

    va_start(args, fmt);
    status = report_error(c, PST_E_OP_NOT_SUPPORTED, fmt, args);
    va_end(args);
    return status;
}

/* --- promotion ---------------------------------------------------------- */

/* Result types of the operands of each class (pst_result_type): tensors with
 * dimensions, 0-dim tensors, numbers. PST_N_DTYPES: no operand yet. */
struct promotion {
    enum pst_dtype dim, zero, number;
};

static void promote_into(enum pst_dtype *into, enum pst_dtype dtype)
{
    *into = *into == PST_N_DTYPES ? dtype : pst_dtype_promote(*into, dtype);
}

static void promote_meta(struct promotion *p, const struct pst_meta *meta)
{
    promote_into(meta->rank > 0 ? &p->dim : &p->zero, meta->dtype);
}

static void promote_arg(struct promotion *p, const struct pst_arg *arg)
{
    switch (arg->kind) {
    case PST_ARG_VALUE:
        promote_meta(p, &arg->value->meta);
        break;
    case PST_ARG_VALUES:
        for (unsigned k = 0; k < arg->n; k++)
            if (arg->values[k] != NULL)
                promote_meta(p, &arg->values[k]->meta);
        break;
    case PST_ARG_INT:
        promote_into(&p->number, PST_I64);
        break;
    case PST_ARG_FLOAT:
        promote_into(&p->number, PST_F32);
        break;
    case PST_ARG_BOOL:
        promote_into(&p->number, PST_BOOL);
        break;
    default:
        break;
    }
}

/* Combines the result types of two classes of operands; PST_N_DTYPES: the class
 * has no operand. The lower class decides only if its category is higher. */
static enum pst_dtype combine_classes(enum pst_dtype high, enum pst_dtype low)
{
    if (high == PST_N_DTYPES)
        return low;
    if (low == PST_N_DTYPES || pst_dtype_kind(low) <= pst_dtype_kind(high))
        return high;
    return low;
}

enum pst_dtype pst_result_type(const struct pst_arg *args, unsigned n)
{
    struct promotion p = {PST_N_DTYPES, PST_N_DTYPES, PST_N_DTYPES};
    enum pst_dtype ret;

    for (unsigned i = 0; i < n; i++)
        promote_arg(&p, &args[i]);
    ret = combine_classes(combine_classes(p.dim, p.zero), p.number);
    return ret == PST_N_DTYPES ? PST_F32 : ret;
}

enum pst_dtype pst_float_type(enum pst_dtype dtype)
{
    return pst_dtype_kind(dtype) == PST_KIND_FLOAT ? dtype : PST_F32;
}

/* --- arguments ---------------------------------------------------------- */

enum pst_status pst_infer_tensor(const struct pst_infer *c, unsigned i,
                                 const struct pst_meta **ret)
{
    *ret = pst_infer_in(c, i);
    if (*ret == NULL)
        return pst_infer_fail(c, "argument \"%s\" must be a tensor",
                              c->schema->args[i].name);
    return PST_OK;
}

enum pst_status pst_infer_dim_at(const struct pst_infer *c, int64_t dim,
                                 const struct pst_meta *meta, unsigned *ret)
{
    const int d = pst_meta_dim(meta, dim);
    char text[PST_META_TEXT];

    if (d < 0)
        return pst_infer_fail(c, "dimension %" PRId64 " is none of %s", dim,
                              pst_meta_text(meta, text));
    *ret = (unsigned)d;
    return PST_OK;
}

enum pst_status pst_infer_dim(const struct pst_infer *c, unsigned i,
                              const struct pst_meta *meta, unsigned *ret)
{
    return pst_infer_dim_at(c, c->args[i].i, meta, ret);
}

enum pst_status pst_infer_dims(const struct pst_infer *c, unsigned i,
                               const struct pst_meta *meta,
                               bool ret[PST_MAX_RANK])
{
    const struct pst_arg *arg = &c->args[i];
    const bool all = arg->kind != PST_ARG_INTS || arg->n == 0;

    for (unsigned d = 0; d < PST_MAX_RANK; d++)
        ret[d] = all && d < meta->rank;
    for (unsigned k = 0; !all && k < arg->n; k++) {
        unsigned d = 0;
        enum pst_status status = pst_infer_dim_at(c, arg->ints[k], meta, &d);

        if (status != PST_OK)
            return status;
        if (ret[d])
            return pst_infer_fail(c, "dimension %u is given twice", d);
        ret[d] = true;
    }
    return PST_OK;
}

enum pst_dtype pst_infer_dtype(const struct pst_infer *c, unsigned i,
                               enum pst_dtype otherwise)
{
    return c->args[i].kind == PST_ARG_DTYPE ? (enum pst_dtype)c->args[i].i
                                            : otherwise;
}

enum pst_status pst_infer_same_dtype(const struct pst_infer *c, unsigned i,
                                     unsigned j)
{
    const struct pst_meta *a = pst_infer_in(c, i), *b = pst_infer_in(c, j);

    if (a == NULL || b == NULL || a->dtype == b->dtype)
        return PST_OK;
    return pst_infer_fail(c, "dtypes %s of \"%s\" and %s of \"%s\" differ",
                          pst_dtype_name(a->dtype), c->schema->args[i].name,
                          pst_dtype_name(b->dtype), c->schema->args[j].name);
}

/* --- results ------------------------------------------------------------ */

enum pst_status pst_infer_set(struct pst_infer *c, unsigned k,
                              enum pst_dtype dtype, unsigned rank,
                              const int64_t *sizes)
{
    enum pst_status status;

    if (k >= PST_MAX_OUTS)
        return pst_infer_refuse(c, "more than %d results", PST_MAX_OUTS);
    if (rank > PST_MAX_RANK)
        return pst_infer_refuse(c, "rank %u is above the limit of %d", rank,
                                PST_MAX_RANK);
    c->out[k] = pst_meta_make(dtype, rank, sizes);
    status = pst_meta_check(&c->out[k], c->diag);
    if (status != PST_OK)
        pst_diag_prefix(c->diag, "%s", c->schema->name);
    return status;
}

enum pst_status pst_infer_set_like(struct pst_infer *c, unsigned k,
                                   enum pst_dtype dtype,
                                   const struct pst_meta *meta)
{
    return pst_infer_set(c, k, dtype, meta->rank, meta->size);
}

enum pst_status pst_infer_view(struct pst_infer *c, unsigned k, unsigned i,
                               const struct pst_meta *meta, int64_t offset)
{
    if (k >= PST_MAX_OUTS)
        return pst_infer_refuse(c, "more than %d results", PST_MAX_OUTS);
    if (c->args[i].kind != PST_ARG_VALUE)
        return pst_infer_fail(c, "argument \"%s\" must be a tensor",
                              c->schema->args[i].name);
    c->out[k] = *meta;
    c->alias_of[k] = c->args[i].value;
    c->offset[k] = offset;
    return PST_OK;
}

static enum pst_status broadcast_one(const struct pst_infer *c,
                                     const struct pst_meta *meta,
                                     struct pst_meta *into)
{
    char a[PST_META_TEXT], b[PST_META_TEXT];

    if (pst_meta_broadcast(into, meta, into))
        return PST_OK;
    into->dtype = meta->dtype;
    return pst_infer_fail(c, "%s does not broadcast with %s",
                          pst_meta_text(meta, a), pst_meta_text(into, b));
}

enum pst_status pst_infer_broadcast(struct pst_infer *c, unsigned k,
                                    unsigned first, unsigned n,
                                    enum pst_dtype dtype)
{
    struct pst_meta meta = {.dtype = dtype};

    for (unsigned i = first; i < first + n; i++) {
        const struct pst_arg *arg = &c->args[i];
        enum pst_status status = PST_OK;

        if (arg->kind == PST_ARG_VALUE)
            status = broadcast_one(c, &arg->value->meta, &meta);
        for (unsigned j = 0; arg->kind == PST_ARG_VALUES && j < arg->n; j++)
            if (status == PST_OK && arg->values[j] != NULL)
                status = broadcast_one(c, &arg->values[j]->meta, &meta);
        if (status != PST_OK)
            return status;
    }
    return pst_infer_set(c, k, dtype, meta.rank, meta.size);
}

/* --- whole functions ---------------------------------------------------- */

enum pst_status pst_infer_same_as_0(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    return status != PST_OK ? status : pst_infer_set_like(c, 0, x->dtype, x);
}

enum pst_status pst_infer_binary(struct pst_infer *c)
{
    return pst_infer_broadcast(c, 0, 0, 2, pst_result_type(c->args, 2));
}

enum pst_status pst_infer_binary_float(struct pst_infer *c)
{
    return pst_infer_broadcast(c, 0, 0, 2,
                               pst_float_type(pst_result_type(c->args, 2)));
}

enum pst_status pst_infer_compare(struct pst_infer *c)
{
    return pst_infer_broadcast(c, 0, 0, 2, PST_BOOL);
}

enum pst_status pst_infer_same_as_1(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 1, &x);

    return status != PST_OK ? status : pst_infer_set_like(c, 0, x->dtype, x);
}

enum pst_status pst_infer_unary_float(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    if (status != PST_OK)
        return status;
    return pst_infer_set_like(c, 0, pst_float_type(x->dtype), x);
}

enum pst_status pst_infer_unary_bool(struct pst_infer *c)
{
    const struct pst_meta *x;
    enum pst_status status = pst_infer_tensor(c, 0, &x);

    return status != PST_OK ? status : pst_infer_set_like(c, 0, PST_BOOL, x);
}
