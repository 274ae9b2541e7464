// SPDX-License-Identifier: Apache-2.0
#include "stages/passes/replay.h"

#include "stages/graph/oprow.h"
#include "stages/graph/schema.h"
#include "stages/ops/core/mode.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <string.h>

enum pst_dtype pst_replay_dtype(const struct pst_replay *r,
                                enum pst_dtype dtype)
{
    return r->widen && pst_dtype_kind(dtype) == PST_KIND_FLOAT ? PST_F64
                                                               : dtype;
}

static enum pst_status fail_unmapped(struct pst_replay *r,
                                     const struct pst_value *value)
{
    return pst_diag_set(r->build.diag, PST_E_INTERNAL_BUG,
                        "%%%s is used before it is made", value->name);
}

static enum pst_status bind_number(const struct pst_symbols *symbols,
                                   const char *expr, enum pst_arg_kind kind,
                                   struct pst_number *ret,
                                   struct pst_diag *diag)
{
    enum pst_status status = pst_symbols_eval(symbols, expr, ret, diag);
    const bool whole = ret->kind != PST_NUMBER_FLOAT && ret->d == 1;

    if (status == PST_OK && kind == PST_ARG_INT && !whole)
        return pst_diag_set(diag, PST_E_SIZE_EXPRESSION,
                            "the size \"%s\" is not an integer", expr);
    return status;
}

static double to_f64(const struct pst_number *x)
{
    return x->kind == PST_NUMBER_FLOAT ? x->f : (double)x->n / (double)x->d;
}

/* Lists are copied into the arena, so the originals stay unchanged. */
enum pst_status pst_replay_bind(const struct pst_symbols *symbols,
                                struct pst_arg *arg, struct pst_arena *arena,
                                struct pst_diag *diag)
{
    const bool list = arg->kind == PST_ARG_INTS || arg->kind == PST_ARG_FLOATS;
    const unsigned n = list ? arg->n : 1;
    int64_t *ints = NULL;
    double *floats = NULL;

    if (arg->exprs == NULL)
        return PST_OK;
    if (arg->kind == PST_ARG_INTS)
        arg->ints = ints =
            pst_arena_memdup(arena, arg->ints, n * sizeof(*ints));
    if (arg->kind == PST_ARG_FLOATS)
        arg->floats = floats =
            pst_arena_memdup(arena, arg->floats, n * sizeof(*floats));
    if (list && n > 0 && ints == NULL && floats == NULL)
        return pst_diag_nomem(diag, n * sizeof(*ints));
    for (unsigned k = 0; k < n; k++) {
        struct pst_number x = {0};
        enum pst_status status;

        if (arg->exprs[k] == NULL)
            continue;
        status = bind_number(symbols, arg->exprs[k],
                             ints != NULL ? PST_ARG_INT : arg->kind, &x, diag);
        if (status != PST_OK)
            return status;
        if (ints != NULL)
            ints[k] = x.n;
        else if (floats != NULL)
            floats[k] = to_f64(&x);
        else if (arg->kind == PST_ARG_FLOAT)
            arg->f = to_f64(&x);
        else if (arg->kind == PST_ARG_BOOL)
            arg->b = x.n != 0;
        else
            arg->i = x.n;
    }
    return PST_OK;
}

static enum pst_status copy_arg(struct pst_replay *r,
                                const struct pst_arg *from, struct pst_arg *to)
{
    enum pst_status status =
        pst_arg_copy(&r->build.graph->arena, from, to, r->build.diag);

    if (status != PST_OK)
        return status;
    if (from->kind == PST_ARG_DTYPE)
        to->i = pst_replay_dtype(r, (enum pst_dtype)from->i);
    if (from->kind == PST_ARG_VALUE) {
        to->value = r->map[from->value->id];
        if (to->value == NULL)
            return fail_unmapped(r, from->value);
    }
    for (unsigned k = 0; from->kind == PST_ARG_VALUES && k < from->n; k++) {
        if (from->values[k] == NULL)
            continue;
        to->values[k] = r->map[from->values[k]->id];
        if (to->values[k] == NULL)
            return fail_unmapped(r, from->values[k]);
    }
    return r->symbols == NULL
               ? PST_OK
               : pst_replay_bind(r->symbols, to, &r->build.graph->arena,
                                 r->build.diag);
}

/* Finds an earlier copy of the node, from the graph of another stage. */
static const struct pst_node *find_copy(const struct pst_replay *r,
                                        const struct pst_node *node)
{
    const struct pst_node *found = NULL;

    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct pst_value *value =
            pst_graph_find(r->build.graph, node->outs[k]->name);

        if (value == NULL || value->def == NULL || value->def_index != k ||
            (k > 0 && value->def != found))
            return NULL;
        found = value->def;
    }
    if (found == NULL || found->id != node->id || found->op != node->op)
        return NULL;
    return found;
}

static void set_place(struct pst_build *build, const struct pst_node *node,
                      const char *const *names)
{
    build->names = names;
    build->n_names = node->n_outs;
    pst_build_like(build, node);
}

/* Converts a result to f64: some operators turn integers into f32 even if all
 * floats are f64. */
static struct pst_value *widen_result(struct pst_replay *r,
                                      const struct pst_value *old,
                                      struct pst_value *value)
{
    if (value == NULL || !r->widen ||
        pst_dtype_kind(old->meta.dtype) != PST_KIND_FLOAT ||
        pst_dtype_kind(value->meta.dtype) != PST_KIND_FLOAT ||
        value->meta.dtype == PST_F64)
        return value;
    r->build.node_id = UINT32_MAX;
    return pst_emit(&r->build, &pst_op__to_copy,
                    PST_ARGS(pst_v(value), pst_dtype_arg(PST_F64)));
}

/* Copies arguments. Random numbers are drawn in their original dtype and
 * converted afterwards: if they were drawn as f64, they would differ. */
static enum pst_status copy_args(struct pst_replay *r,
                                 const struct pst_node *node,
                                 struct pst_arg *args)
{
    const bool drawn = (node->op->flags & PST_OP_RANDOM) != 0;
    const bool widen = r->widen;
    const int dtype = pst_schema_arg(node->schema, "dtype");
    enum pst_status status = PST_OK;

    r->widen = widen && !drawn;
    for (unsigned i = 0; i < node->schema->n_args && status == PST_OK; i++)
        status = copy_arg(r, &node->args[i], &args[i]);
    if (widen && drawn && dtype >= 0)
        args[dtype] = pst_dtype_arg(node->outs[0]->meta.dtype);
    r->widen = widen;
    return status;
}

static enum pst_status emit(struct pst_replay *r, const struct pst_node *node)
{
    struct pst_arena *arena = &r->build.graph->arena;
    const unsigned n = node->schema->n_args;
    struct pst_arg *args = pst_arena_calloc(arena, n + 1, sizeof(*args));
    const char **names =
        pst_arena_calloc(arena, node->n_outs + 1, sizeof(*names));
    struct pst_node *copy;
    enum pst_status status;

    if (args == NULL || names == NULL)
        return pst_diag_nomem(r->build.diag, n * sizeof(*args));
    status = copy_args(r, node, args);
    if (status != PST_OK)
        return status;
    if (r->eval)
        pst_mode_set_eval(node->schema, args);
    for (unsigned k = 0; k < node->n_outs; k++)
        names[k] = node->outs[k]->name;
    set_place(&r->build, node, names);
    r->build.hint = node->n_outs == 0
                        ? PST_N_DTYPES
                        : pst_replay_dtype(r, node->outs[0]->meta.dtype);
    copy = pst_emit_node(&r->build, node->op, args, n);
    r->build.names = NULL;
    r->build.n_names = 0;
    if (copy == NULL)
        return r->build.status;
    copy->stage = node->stage;
    for (unsigned k = 0; k < copy->n_outs && k < node->n_outs; k++) {
        const struct pst_value *from = node->outs[k];

        status = pst_exprs_copy(arena, from->dims, from->meta.rank,
                                &copy->outs[k]->dims, r->build.diag);
        if (status != PST_OK)
            return status;
        r->map[from->id] = widen_result(r, from, copy->outs[k]);
        if (r->map[from->id] == NULL)
            return r->build.status;
        if (from->version_of != NULL)
            r->map[from->id]->version_of = r->map[from->version_of->id];
    }
    return PST_OK;
}

/* Computes the meta that a result must have: the original one or, with symbols,
 * the exporter's expressions for the current sizes. Results without expressions
 * are not checked. */
static enum pst_status expected_meta(struct pst_replay *r,
                                     const struct pst_value *value,
                                     const struct pst_meta *got,
                                     struct pst_meta *ret)
{
    enum pst_status status = PST_OK;

    *ret = value->meta;
    ret->dtype = pst_replay_dtype(r, ret->dtype);
    if (r->symbols == NULL)
        return PST_OK;
    if (value->dims == NULL || got->rank != ret->rank) {
        *ret = *got;
        return PST_OK;
    }
    for (unsigned d = 0; d < ret->rank && status == PST_OK; d++)
        if (value->dims[d] != NULL)
            status = pst_symbols_int(r->symbols, value->dims[d], &ret->size[d],
                                     r->build.diag);
    return status;
}

static enum pst_status compare(struct pst_replay *r,
                               const struct pst_value *value)
{
    const struct pst_meta *got = &r->map[value->id]->meta;
    char a[PST_META_TEXT], b[PST_META_TEXT];
    struct pst_meta want;
    enum pst_status status = expected_meta(r, value, got, &want);

    if (status != PST_OK || pst_meta_same(&want, got))
        return status;
    return pst_diag_set(r->build.diag,
                        r->symbols != NULL ? PST_E_SIZE_REPLAY
                                           : PST_E_INTERNAL_BUG,
                        "%%%s is %s, not %s", value->name,
                        pst_meta_text(got, a), pst_meta_text(&want, b));
}

enum pst_status pst_replay_node(struct pst_replay *r,
                                const struct pst_node *node)
{
    const struct pst_node *same = r->again ? NULL : find_copy(r, node);
    enum pst_status status = PST_OK;

    if (same == NULL)
        status = emit(r, node);
    for (unsigned k = 0; same != NULL && k < node->n_outs; k++)
        r->map[node->outs[k]->id] = same->outs[k];
    for (unsigned k = 0; k < node->n_outs && status == PST_OK; k++)
        status = compare(r, node->outs[k]);
    return status;
}
