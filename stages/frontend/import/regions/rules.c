// SPDX-License-Identifier: Apache-2.0
/* Emits operators of a vmap region for all lanes at once. */
#include "stages/frontend/import/regions/regions.h"
#include "stages/ops/core/infer.h"
#include "stages/ops/core/rows.h"

#include <string.h>

enum rule {
    NO_RULE,
    EACH,     /* elementwise; operands keep their dtypes */
    PROMOTES, /* elementwise; operands are promoted to one dtype */
    CHOOSES,  /* elementwise; all operands but the first are promoted */
    CREATES,  /* reads only the dtype of its operand */
    ALONG,    /* works along its argument "dim" */
    INDEXES,
    EXPANDS,
    UNSQUEEZES,
};

/* Operators of aten, with all overloads. */
static const struct {
    enum rule rule;
    const char *names;
} rules[] = {
    {PROMOTES, " eq ne lt le gt ge greater greater_equal less less_equal "
               "not_equal logical_and logical_or logical_xor bitwise_and "
               "bitwise_or bitwise_xor __and__ __or__ __xor__ add sub rsub mul "
               "div floor_divide remainder fmod minimum maximum pow "
               "bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ "},
    {CHOOSES, " where "},
    {EACH, " logical_not bitwise_not neg abs sign square sqrt rsqrt exp log "
           "sin cos tanh sigmoid relu floor ceil round trunc reciprocal isnan "
           "isinf isfinite to _to_copy type_as clone detach alias lift_fresh "
           "lift_fresh_copy zeros_like ones_like full_like masked_fill clamp "
           "clamp_min clamp_max "},
    {CREATES, " new_zeros new_ones new_full new_empty "},
    {ALONG, " select slice squeeze any all sum amax amin cumsum cumprod argmax "
            "argmin mean softmax log_softmax "},
    {INDEXES, " index _unsafe_index "},
    {EXPANDS, " expand "},
    {UNSQUEEZES, " unsqueeze "},
};

static enum rule find_rule(const struct pst_target *target)
{
    const char *name = target->name, *dot;
    char word[64];

    if (!pst_has_prefix(name, "aten.") || target->op == NULL || target->pairs ||
        (target->kind != PST_TARGET_OP && target->kind != PST_TARGET_CONVERT))
        return NO_RULE;
    name += strlen("aten.");
    dot = strchr(name, '.');
    if (dot == NULL ||
        (size_t)pst_format(word, sizeof(word), " %.*s ", (int)(dot - name),
                           name) >= sizeof(word))
        return NO_RULE;
    for (size_t i = 0; i < PST_COUNT(rules); i++)
        if (strstr(rules[i].names, word) != NULL)
            return rules[i].rule;
    return NO_RULE;
}

static unsigned lanes_of(const struct pst_vmap_lanes *lanes)
{
    return lanes != NULL ? lanes->n : 0;
}

static bool has_level(const struct pst_vmap_lanes *lanes, int64_t level)
{
    for (unsigned i = 0; i < lanes_of(lanes); i++)
        if (lanes->level[i] == level)
            return true;
    return false;
}

/* Adds the levels of `more` to *ret; false if *ret then has too many. */
static bool join_lanes(struct pst_vmap_lanes *ret,
                       const struct pst_vmap_lanes *more)
{
    for (unsigned i = 0; i < lanes_of(more); i++) {
        unsigned at = ret->n;

        if (has_level(ret, more->level[i]))
            continue;
        if (ret->n == PST_MAX_LEVELS)
            return false;
        while (at > 0 && ret->level[at - 1] > more->level[i]) {
            ret->level[at] = ret->level[at - 1];
            at--;
        }
        ret->level[at] = more->level[i];
        ret->n++;
    }
    return true;
}

static struct pst_value *emit_unsqueeze(struct pst_import *import,
                                        struct pst_value *v, unsigned dim)
{
    return v == NULL ? NULL
                     : pst_emit(&import->build, &pst_op_unsqueeze,
                                PST_ARGS(pst_v(v), pst_i(dim)));
}

struct pst_value *pst_import_reorder(struct pst_import *import,
                                     struct pst_value *v, const unsigned *order)
{
    int64_t dims[PST_MAX_RANK];
    bool same = true;

    if (v == NULL)
        return NULL;
    for (unsigned d = 0; d < v->meta.rank; d++) {
        dims[d] = order[d];
        same = same && order[d] == d;
    }
    return same ? v
                : pst_emit(&import->build, &pst_op_permute,
                           PST_ARGS(pst_v(v), pst_ints(dims, v->meta.rank)));
}

/* Gives v one dimension per level of `all`, of size 1 where v lacks the level,
 * followed by `rank` dimensions. A value without lanes broadcasts. */
static struct pst_value *align_lanes(struct pst_import *import,
                                     struct pst_value *v,
                                     const struct pst_vmap_lanes *have,
                                     const struct pst_vmap_lanes *all,
                                     unsigned rank)
{
    const unsigned own = v->meta.rank - lanes_of(have);

    if (lanes_of(have) == 0)
        return v;
    for (unsigned d = own; d < rank; d++)
        v = emit_unsqueeze(import, v, have->n);
    for (unsigned i = 0; i < all->n; i++)
        if (!has_level(have, all->level[i]))
            v = emit_unsqueeze(import, v, i);
    return v;
}

/* --- element by element --------------------------------------------------- */

/* Returns the promoted dtype, computed for one lane: tensors without dimensions
 * have lower priority in promotion, and batch dimensions would hide that. */
static enum pst_dtype lane_type(const struct pst_lane_args *a, unsigned first)
{
    const struct pst_schema *schema = pst_op_schema(a->target->op);
    struct pst_value seen[2];
    struct pst_arg args[2];
    unsigned n = 0;

    /* Only the two operands count, not an argument such as alpha. */
    for (unsigned i = first; i < a->n && n < PST_COUNT(args); i++) {
        if (schema->args[i].type != PST_TYPE_TENSOR &&
            schema->args[i].type != PST_TYPE_SCALAR)
            break;
        args[n] = a->at[i];
        if (args[n].kind == PST_ARG_VALUE) {
            seen[n] = *args[n].value;
            seen[n].meta.rank -= lanes_of(a->lanes[i]);
            args[n].value = &seen[n];
        }
        n++;
    }
    return pst_result_type(args, n);
}

static struct pst_value *apply_elementwise(struct pst_import *import,
                                           const struct pst_lane_args *a,
                                           enum rule rule,
                                           const struct pst_vmap_lanes *all)
{
    const unsigned first = rule == CHOOSES ? 1 : 0;
    const enum pst_dtype dtype =
        rule == EACH ? PST_N_DTYPES : lane_type(a, first);
    unsigned rank = 0;

    for (unsigned i = 0; i < a->n; i++)
        if (a->at[i].kind == PST_ARG_VALUE)
            rank = PST_MAX(rank,
                           a->at[i].value->meta.rank - lanes_of(a->lanes[i]));
    for (unsigned i = 0; i < a->n; i++) {
        struct pst_value *v = a->at[i].value;

        if (a->at[i].kind != PST_ARG_VALUE)
            continue;
        v = align_lanes(import, v, a->lanes[i], all, rank);
        if (v != NULL && rule != EACH && i >= first && v->meta.dtype != dtype)
            v = pst_emit(&import->build, &pst_op__to_copy,
                         PST_ARGS(pst_v(v), pst_dtype_arg(dtype)));
        if (v == NULL)
            return NULL;
        a->at[i].value = v;
    }
    return pst_emit(&import->build, a->target->op, a->at, a->n);
}

/* --- along a dimension ---------------------------------------------------- */

static bool shift_dim(int64_t *dim, unsigned lanes, unsigned own)
{
    if (own == 0 || *dim < -(int64_t)own || *dim >= (int64_t)own)
        return false;
    if (*dim >= 0)
        *dim += lanes;
    return true;
}

static struct pst_value *apply_along_dim(struct pst_import *import,
                                         const struct pst_lane_args *a)
{
    const int at = pst_schema_arg(pst_op_schema(a->target->op), "dim");
    struct pst_arg *dim = at >= 0 ? &a->at[at] : NULL;
    unsigned lanes, own;
    int64_t *dims;

    if (dim == NULL)
        return NULL;
    lanes = lanes_of(a->lanes[0]);
    own = a->at[0].value->meta.rank - lanes;
    if (dim->kind == PST_ARG_INT) {
        if (!shift_dim(&dim->i, lanes, own))
            return NULL;
        return pst_emit(&import->build, a->target->op, a->at, a->n);
    }
    if (dim->kind != PST_ARG_INTS || dim->n == 0)
        return NULL;
    dims = pst_arena_calloc(&import->build.graph->arena, dim->n, sizeof(*dims));
    if (dims == NULL) {
        import->build.status = pst_diag_nomem(import->diag, dim->n);
        return NULL;
    }
    for (unsigned i = 0; i < dim->n; i++) {
        dims[i] = dim->ints[i];
        if (!shift_dim(&dims[i], lanes, own))
            return NULL;
    }
    dim->ints = dims;
    return pst_emit(&import->build, a->target->op, a->at, a->n);
}

static struct pst_value *apply_unsqueeze(struct pst_import *import,
                                         const struct pst_lane_args *a)
{
    const unsigned lanes = lanes_of(a->lanes[0]);
    const int64_t rank = a->at[0].value->meta.rank - lanes + 1;
    int64_t dim = a->at[1].i;

    if (dim < -rank || dim >= rank)
        return NULL;
    dim += dim < 0 ? rank : 0;
    return emit_unsqueeze(import, a->at[0].value, lanes + (unsigned)dim);
}

static struct pst_value *apply_expand(struct pst_import *import,
                                      const struct pst_lane_args *a)
{
    struct pst_build *b = &import->build;
    struct pst_extent size[PST_MAX_RANK];
    struct pst_value *v = a->at[0].value;
    const unsigned lanes = lanes_of(a->lanes[0]), n = a->at[1].n;
    unsigned own = v->meta.rank - lanes;

    if (n < own || lanes + n > PST_MAX_RANK)
        return NULL;
    for (; own < n && v != NULL; own++)
        v = emit_unsqueeze(import, v, lanes);
    for (unsigned d = 0; d < lanes; d++)
        size[d] = pst_extent(-1);
    for (unsigned d = 0; d < n; d++)
        size[lanes + d] = pst_extent_in(b, &a->at[1], d);
    return v == NULL ? NULL
                     : pst_emit(b, &pst_op_expand,
                                PST_ARGS(pst_v(v),
                                         pst_extents_arg(b, size, lanes + n)));
}

/* --- index.Tensor(self, indices) ------------------------------------------ */

/* The list of indices in one lane. */
struct indices {
    unsigned n, first, last; /* list: length, first and last tensor */
    unsigned rank;           /* rank of the broadcast indices */
    bool not_adjacent;       /* the list's tensors are not adjacent */
};

static bool read_indices(const struct pst_lane_args *a, struct indices *ret)
{
    const struct pst_arg *list = &a->at[1];
    unsigned count = 0;

    *ret = (struct indices){.n = list->n};
    for (unsigned k = 0; k < list->n; k++) {
        const struct pst_value *v = list->values[k];

        if (v == NULL)
            continue;
        if (v->meta.dtype == PST_BOOL)
            return false;
        if (count++ == 0)
            ret->first = k;
        ret->last = k;
        ret->rank = PST_MAX(ret->rank, v->meta.rank - lanes_of(a->item[k]));
    }
    ret->not_adjacent = count > 0 && ret->last - ret->first + 1 != count;
    return count > 0;
}

/* Returns indices along a lane dimension of `self`, so that each lane reads its
 * own elements. */
static struct pst_value *own_lane(struct pst_import *import,
                                  const struct pst_value *self, unsigned dim,
                                  unsigned behind)
{
    struct pst_build *b = &import->build;
    struct pst_value *v =
        pst_emit(b, &pst_op_arange,
                 PST_ARGS(pst_extent_arg(b, pst_extent_of(b, self, dim)),
                          pst_dtype_arg(PST_I64)));

    for (unsigned i = 0; i < behind; i++)
        v = emit_unsqueeze(import, v, 1);
    return v;
}

static struct pst_value *apply_index(struct pst_import *import,
                                     const struct pst_lane_args *a,
                                     const struct pst_vmap_lanes *all)
{
    const struct pst_vmap_lanes *own = a->lanes[0];
    const unsigned n_own = lanes_of(own);
    struct pst_value *list[PST_MAX_RANK] = {NULL}, *self, *v;
    unsigned order[PST_MAX_RANK], n = 0, before, at;
    struct indices x;

    if (!read_indices(a, &x) || n_own + x.n > PST_MAX_RANK)
        return NULL;
    self = a->at[0].value;
    for (unsigned i = 0; i < n_own; i++) {
        unsigned level = 0;

        while (all->level[level] != own->level[i])
            level++;
        list[i] = own_lane(import, self, i, all->n - level - 1 + x.rank);
        if (list[i] == NULL)
            return NULL;
    }
    for (unsigned k = 0; k < x.n; k++)
        if (a->at[1].values[k] != NULL) {
            list[n_own + k] = align_lanes(import, a->at[1].values[k],
                                          a->item[k], all, x.rank);
            if (list[n_own + k] == NULL)
                return NULL;
        }
    v = pst_emit(&import->build, &pst_op_index_Tensor,
                 PST_ARGS(pst_v(self), pst_values(list, n_own + x.n)));
    if (v == NULL || v->meta.rank > PST_MAX_RANK)
        return NULL;
    /* The result has the dimensions of the indices at the position of the first
     * index or, if the indices are not adjacent, in front. */
    before = x.not_adjacent ? 0 : x.first;
    at = n_own > 0 ? 0 : before;
    for (unsigned i = 0; i < all->n; i++)
        order[n++] = at + i;
    for (unsigned d = 0; d < before; d++)
        order[n++] = at > 0 ? d : all->n + x.rank + d;
    for (unsigned i = 0; i < x.rank; i++)
        order[n++] = at + all->n + i;
    for (; n < v->meta.rank; n++)
        order[n] = n;
    return pst_import_reorder(import, v, order);
}

/* --- applying a rule ------------------------------------------------------ */

struct pst_value *pst_import_apply_rule(struct pst_import *import,
                                        const struct pst_lane_args *a,
                                        struct pst_vmap_lanes *ret)
{
    const enum rule rule = find_rule(a->target);

    *ret = (struct pst_vmap_lanes){0};
    if (rule == NO_RULE || a->n == 0 || a->at[0].kind != PST_ARG_VALUE ||
        (rule == INDEXES &&
         (a->at[1].kind != PST_ARG_VALUES || a->item == NULL)) ||
        (rule == EXPANDS && a->at[1].kind != PST_ARG_INTS) ||
        (rule == UNSQUEEZES && a->at[1].kind != PST_ARG_INT))
        return NULL;
    for (unsigned i = 0; i < a->n; i++)
        if (!join_lanes(ret, a->lanes[i]))
            return NULL;
    for (unsigned k = 0; rule == INDEXES && k < a->at[1].n; k++)
        if (!join_lanes(ret, a->item[k]))
            return NULL;
    switch (rule) {
    case EACH:
    case PROMOTES:
    case CHOOSES:
        return apply_elementwise(import, a, rule, ret);
    case CREATES:
        ret->n = 0;
        return pst_emit(&import->build, a->target->op, a->at, a->n);
    case ALONG:
        return apply_along_dim(import, a);
    case INDEXES:
        return apply_index(import, a, ret);
    case EXPANDS:
        return apply_expand(import, a);
    case UNSQUEEZES:
        return apply_unsqueeze(import, a);
    case NO_RULE:
        break;
    }
    return NULL;
}
