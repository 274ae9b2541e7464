// SPDX-License-Identifier: Apache-2.0
/* Functions of values known when the graph is built: shapes, dtypes,
 * numbers. */
#include "stages/graph/sizes/extent.h"
#include "stages/ops/core/infer.h"
#include "stages/ops/core/rows.h"
#include "stages/ops/formula/machine.h"

#include <math.h>
#include <string.h>

/* Returns the meta of tensor argument i. If it is not a tensor, reports a
 * failure and returns NULL. */
static const struct pst_meta *meta_of(struct pst_formula *f,
                                      const struct pst_formula_call *c,
                                      unsigned i)
{
    if (i < c->n && c->args[i].kind == PST_ARG_VALUE)
        return &c->args[i].value->meta;
    (void)pst_formula_fail(f, "%s wants a tensor", c->name);
    return NULL;
}

static struct pst_arg is_given(struct pst_formula *f,
                               const struct pst_formula_call *c)
{
    (void)f;
    return pst_b(c->n > 0 && c->args[0].kind != PST_ARG_NONE);
}

static struct pst_arg is_number(struct pst_formula *f,
                                const struct pst_formula_call *c)
{
    (void)f;
    return pst_b(c->n > 0 && pst_formula_is_number(&c->args[0]));
}

static struct pst_arg rank(struct pst_formula *f,
                           const struct pst_formula_call *c)
{
    const struct pst_meta *m = meta_of(f, c, 0);

    return m == NULL ? pst_none() : pst_i(m->rank);
}

/* size(x, dim): size of x along dim; 1 for a tensor without dimensions. */
static struct pst_arg size(struct pst_formula *f,
                           const struct pst_formula_call *c)
{
    const struct pst_meta *m = meta_of(f, c, 0);
    int d;

    if (m == NULL)
        return pst_none();
    if (m->rank == 0)
        return pst_i(1);
    d = c->n > 1 && c->args[1].kind == PST_ARG_INT
            ? pst_meta_dim(m, c->args[1].i)
            : -1;
    if (d < 0) {
        f->build->status =
            pst_diag_set(f->build->diag, PST_E_OP_SHAPE,
                         "%s: a dimension is out of range", f->schema->name);
        return pst_none();
    }
    return pst_extent_arg(
        f->build, pst_extent_of(f->build, c->args[0].value, (unsigned)d));
}

static struct pst_arg int_list(struct pst_formula *f, const int64_t *at,
                               unsigned n)
{
    int64_t *copy =
        pst_arena_calloc(&f->build->graph->arena, n + 1, sizeof(*copy));

    if (copy == NULL) {
        f->build->status = pst_diag_nomem(f->build->diag, n);
        return pst_none();
    }
    memcpy(copy, at, n * sizeof(*copy));
    return pst_ints(copy, n);
}

static struct pst_arg sizes(struct pst_formula *f,
                            const struct pst_formula_call *c)
{
    const struct pst_meta *m = meta_of(f, c, 0);

    return m == NULL ? pst_none() : pst_extents_of(f->build, c->args[0].value);
}

/* dims(x): all dimensions of x; dims(x, given): the dimensions `given`, or all
 * if `given` is None or empty. */
static struct pst_arg dims(struct pst_formula *f,
                           const struct pst_formula_call *c)
{
    const struct pst_meta *m = meta_of(f, c, 0);
    int64_t all[PST_MAX_RANK];

    if (m == NULL)
        return pst_none();
    if (c->n > 1 && c->args[1].kind == PST_ARG_INT)
        return int_list(f, &c->args[1].i, 1);
    if (c->n > 1 && c->args[1].kind == PST_ARG_INTS && c->args[1].n > 0)
        return c->args[1];
    for (unsigned d = 0; d < m->rank; d++)
        all[d] = d;
    return int_list(f, all, m->rank);
}

/* numel(x): number of elements; numel(x, dims): product of the sizes of the
 * dimensions `dims`. */
static struct pst_arg numel(struct pst_formula *f,
                            const struct pst_formula_call *c)
{
    const struct pst_meta *m = meta_of(f, c, 0);
    struct pst_extent n = pst_extent(1);
    const struct pst_value *x;
    struct pst_arg over;

    if (m == NULL)
        return pst_none();
    x = c->args[0].value;
    if (c->n < 2)
        return pst_extent_arg(f->build, pst_extent_numel(f->build, x));
    over = dims(f, c);
    for (unsigned i = 0; over.kind == PST_ARG_INTS && i < over.n; i++) {
        const int d = pst_meta_dim(m, over.ints[i]);

        if (d >= 0 && m->rank > 0)
            n = pst_extent_mul(f->build, n,
                               pst_extent_of(f->build, x, (unsigned)d));
    }
    return pst_extent_arg(f->build, n);
}

static struct pst_arg count(struct pst_formula *f,
                            const struct pst_formula_call *c)
{
    if (c->n == 0 ||
        (c->args[0].kind != PST_ARG_INTS && c->args[0].kind != PST_ARG_VALUES))
        return pst_formula_fail(f, "len wants a list");
    return pst_i(c->args[0].n);
}

static struct pst_arg dtype(struct pst_formula *f,
                            const struct pst_formula_call *c)
{
    const struct pst_meta *m = meta_of(f, c, 0);

    return m == NULL ? pst_none() : pst_dtype_arg(m->dtype);
}

/* result_type(a, b, ...): dtype to which tensors and numbers promote. */
static struct pst_arg result_type(struct pst_formula *f,
                                  const struct pst_formula_call *c)
{
    (void)f;
    return pst_dtype_arg(pst_result_type(c->args, c->n));
}

/* float_type(a, b, ...): their result_type, but f32 if that is an integer
 * dtype. */
static struct pst_arg float_type(struct pst_formula *f,
                                 const struct pst_formula_call *c)
{
    (void)f;
    return pst_dtype_arg(pst_float_type(pst_result_type(c->args, c->n)));
}

static struct pst_arg floating(struct pst_formula *f,
                               const struct pst_formula_call *c)
{
    const struct pst_meta *m = meta_of(f, c, 0);

    return pst_b(m != NULL && pst_dtype_kind(m->dtype) == PST_KIND_FLOAT);
}

static struct pst_arg is_bool(struct pst_formula *f,
                              const struct pst_formula_call *c)
{
    const struct pst_meta *m = meta_of(f, c, 0);

    return pst_b(m != NULL && m->dtype == PST_BOOL);
}

/* cast(x, dtype): emits nothing if x already has that dtype. */
static struct pst_arg cast(struct pst_formula *f,
                           const struct pst_formula_call *c)
{
    if (c->n == 2 && c->args[0].kind == PST_ARG_IGNORED)
        return c->args[0];
    if (c->n != 2 || c->args[0].kind != PST_ARG_VALUE)
        return pst_formula_fail(f, "cast wants a tensor and a dtype");
    if (c->args[1].kind != PST_ARG_DTYPE ||
        c->args[0].value->meta.dtype == (enum pst_dtype)c->args[1].i)
        return c->args[0];
    return pst_v(pst_emit(f->build, &pst_op__to_copy, c->args, 2));
}

/* values_of(x): how many consecutive integers from 0 the dtype represents. */
static struct pst_arg values_of(struct pst_formula *f,
                                const struct pst_formula_call *c)
{
    const struct pst_meta *m = meta_of(f, c, 0);
    unsigned bits;

    if (m == NULL)
        return pst_none();
    bits = m->dtype == PST_F64   ? 53
           : m->dtype == PST_F32 ? 24
           : m->dtype == PST_F16 ? 11
           : m->dtype == PST_BF16
               ? 8
               : 8 * (unsigned)pst_dtype_size(m->dtype) - (m->dtype != PST_U8);
    return pst_f(ldexp(1.0, (int)bits));
}

static struct pst_arg same_text(struct pst_formula *f,
                                const struct pst_formula_call *c)
{
    if (c->n != 2 || c->args[1].kind != PST_ARG_STRING)
        return pst_formula_fail(f, "same wants two texts");
    return pst_b(c->args[0].kind == PST_ARG_STRING &&
                 strcmp(c->args[0].s, c->args[1].s) == 0);
}

static struct pst_arg of_number(struct pst_formula *f,
                                const struct pst_formula_call *c,
                                double (*fn)(double), const char *row)
{
    if (c->n != 1 || !pst_formula_is_number(&c->args[0]))
        return pst_formula_fail(f, "%s wants a number", c->name);
    return pst_extent_fold(f->build, row, &c->args[0], NULL,
                           pst_f(fn(pst_formula_number(&c->args[0]))));
}

static struct pst_arg log_of(struct pst_formula *f,
                             const struct pst_formula_call *c)
{
    return of_number(f, c, log, "OpaqueUnaryFn_log");
}

static struct pst_arg sqrt_of(struct pst_formula *f,
                              const struct pst_formula_call *c)
{
    return of_number(f, c, sqrt, "OpaqueUnaryFn_sqrt");
}

/* fail('why'): rejects the call with that message. */
static struct pst_arg fail_call(struct pst_formula *f,
                                const struct pst_formula_call *c)
{
    if (f->build->status == PST_OK)
        f->build->status = pst_diag_set(
            f->build->diag, PST_E_OP_SHAPE, "%s: %s", f->schema->name,
            c->n > 0 && c->args[0].kind == PST_ARG_STRING ? c->args[0].s : "?");
    return pst_none();
}

static const struct {
    const char *name;
    struct pst_arg (*fn)(struct pst_formula *f,
                         const struct pst_formula_call *c);
} builtins[] = {
    {"is", is_given},       {"is_number", is_number},
    {"rank", rank},         {"size", size},
    {"sizes", sizes},       {"dims", dims},
    {"numel", numel},       {"len", count},
    {"dtype", dtype},       {"result_type", result_type},
    {"floating", floating}, {"float_type", float_type},
    {"is_bool", is_bool},   {"cast", cast},
    {"same", same_text},    {"values_of", values_of},
    {"log_of", log_of},     {"sqrt_of", sqrt_of},
    {"fail", fail_call},
};

bool pst_formula_builtin(struct pst_formula *f,
                         const struct pst_formula_call *call,
                         struct pst_arg *ret)
{
    for (size_t i = 0; i < PST_COUNT(builtins); i++)
        if (strcmp(builtins[i].name, call->name) == 0) {
            *ret = builtins[i].fn(f, call);
            return true;
        }
    return false;
}

bool pst_formula_is_builtin(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(builtins); i++)
        if (strcmp(builtins[i].name, name) == 0)
            return true;
    return false;
}
