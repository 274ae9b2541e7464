// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/rewrite.h"
#include "stages/ops/core/rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool pst_op_is_rewrite(const struct pst_op *op)
{
    return op->rewrite != NULL;
}

static enum pst_status check_results(struct pst_build *build,
                                     const struct pst_rewrite *w)
{
    if (w->n_outs <= PST_MAX_OUTS &&
        (w->schema->list_return || w->n_outs == w->schema->n_returns))
        return PST_OK;
    return pst_diag_set(build->diag, PST_E_OP_TOO_MANY,
                        "%s: %u results are too many", w->schema->name,
                        w->n_outs);
}

enum pst_status pst_op_rewrite(const struct pst_op *op, struct pst_build *build,
                               const struct pst_arg *args, unsigned n_args,
                               struct pst_rewrite *ret)
{
    const struct pst_schema *schema = pst_op_schema(op);
    const char *const *names = build->names;
    const char *prefix = build->prefix;
    const unsigned n_names = build->n_names;
    struct pst_arg *full;

    if (build->status != PST_OK)
        return build->status;
    memset(ret, 0, sizeof(*ret));
    full = pst_arena_calloc(&build->graph->arena, PST_MAX(schema->n_args, 1u),
                            sizeof(*full));
    if (full == NULL)
        return build->status = pst_diag_nomem(build->diag, schema->n_args);
    build->status = pst_build_args(build, schema, args, n_args, full);
    if (build->status != PST_OK)
        return build->status;
    *ret = (struct pst_rewrite){.op = op,
                                .build = build,
                                .schema = schema,
                                .args = full,
                                .n_outs = schema->n_returns};
    /* All values of the composition are named after its first result. */
    if (n_names > 0 && names[0] != NULL)
        build->prefix = names[0];
    build->n_names = 0;
    build->status = op->rewrite(ret);
    build->prefix = prefix;
    build->n_names = n_names;
    if (build->status == PST_OK)
        build->status = check_results(build, ret);
    return build->status;
}

enum pst_status pst_op_rewrite_first(const struct pst_op *op,
                                     struct pst_build *build,
                                     const struct pst_arg *args,
                                     unsigned n_args, struct pst_value **ret)
{
    PST_UNINIT struct pst_rewrite w;
    enum pst_status status = pst_op_rewrite(op, build, args, n_args, &w);

    if (status == PST_OK)
        *ret = w.n_outs > 0 ? w.outs[0] : NULL;
    return status;
}

enum pst_status pst_rewrite_out(struct pst_rewrite *w, unsigned k,
                                struct pst_value *value)
{
    w->outs[k] = value;
    return w->build->status;
}

/* --- emitters ----------------------------------------------------------- */

struct pst_value *pst_rw(struct pst_rewrite *w, const struct pst_op *op,
                         const struct pst_arg *args, unsigned n_args)
{
    return pst_emit(w->build, op, args, n_args);
}

struct pst_node *pst_rw_node(struct pst_rewrite *w, const struct pst_op *op,
                             const struct pst_arg *args, unsigned n_args)
{
    return pst_emit_node(w->build, op, args, n_args);
}

enum pst_status pst_rewrite_effect(struct pst_rewrite *w,
                                   const struct pst_op *op,
                                   const struct pst_arg *args, unsigned n_args)
{
    struct pst_build *b = w->build;
    const unsigned id = b->node_id;

    if (id == UINT32_MAX && b->graph->next_node_id > 0)
        b->node_id = b->graph->next_node_id - 1;
    (void)pst_rw_node(w, op, args, n_args);
    b->node_id = id;
    return b->status;
}

struct pst_value *pst_rw_add(struct pst_rewrite *w, struct pst_value *a,
                             struct pst_value *b)
{
    return pst_rw(w, &pst_op_add_Tensor, PST_ARGS(pst_v(a), pst_v(b)));
}

struct pst_value *pst_rw_sub(struct pst_rewrite *w, struct pst_value *a,
                             struct pst_value *b)
{
    return pst_rw(w, &pst_op_sub_Tensor, PST_ARGS(pst_v(a), pst_v(b)));
}

struct pst_value *pst_rw_mul(struct pst_rewrite *w, struct pst_value *a,
                             struct pst_value *b)
{
    return pst_rw(w, &pst_op_mul_Tensor, PST_ARGS(pst_v(a), pst_v(b)));
}

struct pst_value *pst_rw_scale(struct pst_rewrite *w, struct pst_value *a,
                               double by)
{
    return pst_rw(w, &pst_op_mul_Scalar, PST_ARGS(pst_v(a), pst_f(by)));
}

struct pst_value *pst_rw_shift(struct pst_rewrite *w, struct pst_value *a,
                               double by)
{
    return pst_rw(w, &pst_op_add_Scalar, PST_ARGS(pst_v(a), pst_f(by)));
}

struct pst_value *pst_rw_reshape(struct pst_rewrite *w, struct pst_value *a,
                                 unsigned rank, const struct pst_extent *sizes)
{
    return pst_rw(w, &pst_op_reshape,
                  PST_ARGS(pst_v(a), pst_extents_arg(w->build, sizes, rank)));
}

struct pst_value *pst_rw_own(struct pst_rewrite *w, struct pst_value *a,
                             unsigned i)
{
    return a == NULL || (a->base == NULL && a != pst_rewrite_in(w, i))
               ? a
               : pst_rw(w, &pst_op_clone, PST_ARGS(pst_v(a)));
}

void pst_rw_strides(struct pst_rewrite *w, const struct pst_value *v,
                    struct pst_extent ret[PST_MAX_RANK])
{
    struct pst_extent step = pst_extent(1);

    for (unsigned d = v->meta.rank; d-- > 0;) {
        ret[d] = step;
        step = pst_extent_mul(w->build, step, pst_rw_size(w, v, d));
    }
}

struct pst_value *pst_rw_permute(struct pst_rewrite *w, struct pst_value *a,
                                 const int64_t *dims, unsigned n)
{
    return pst_rw(w, &pst_op_permute, PST_ARGS(pst_v(a), pst_ints(dims, n)));
}

struct pst_value *pst_rw_cast(struct pst_rewrite *w, struct pst_value *a,
                              enum pst_dtype dtype)
{
    if (a == NULL || a->meta.dtype == dtype)
        return a;
    return pst_rw(w, &pst_op__to_copy,
                  PST_ARGS(pst_v(a), pst_dtype_arg(dtype)));
}

/* --- refusals ----------------------------------------------------------- */

static enum pst_status report_error(struct pst_rewrite *w, enum pst_error error,
                                    const char *fmt, va_list args)
{
    char text[1024];

    vsnprintf(text, sizeof(text), fmt, args);
    w->build->status =
        pst_diag_set(w->build->diag, error, "%s: %s", w->schema->name, text);
    return w->build->status;
}

enum pst_status pst_rewrite_fail(struct pst_rewrite *w, const char *fmt, ...)
{
    enum pst_status status;
    va_list args;

    va_start(args, fmt);
    status = report_error(w, PST_E_OP_SHAPE, fmt, args);
    va_end(args);
    return status;
}

enum pst_status pst_rewrite_refuse(struct pst_rewrite *w, const char *fmt, ...)
{
    enum pst_status status;
    va_list args;

    va_start(args, fmt);
    status = report_error(w, PST_E_OP_NOT_SUPPORTED, fmt, args);
    va_end(args);
    return status;
}
