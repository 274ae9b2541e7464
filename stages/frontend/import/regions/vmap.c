// SPDX-License-Identifier: Apache-2.0
/* The beginnings and ends of vmap and jvp regions; tracks the names that stand
 * for many tensors. */
#include "stages/frontend/import/regions/regions.h"
#include "stages/ops/core/rows.h"

#include <string.h>

#define FUNCTORCH "torch._functorch.predispatch."

/* --- names with lanes ----------------------------------------------------- */

static const struct pst_vmap_lanes *find_lanes(const struct pst_scope *scope,
                                               const char *name)
{
    return name != NULL ? pst_map_get(&scope->lanes, name) : NULL;
}

/* True if the argument has lanes; with `tangent`, true if it is a tangent. */
static bool has_lanes(const struct pst_scope *scope,
                      const struct pst_doc_arg *arg, bool tangent)
{
    const struct pst_vmap_lanes *lanes;

    if (arg->kind == PST_DOC_TENSOR) {
        lanes = find_lanes(scope, arg->name);
        return lanes != NULL && (lanes->tangent || !tangent);
    }
    if (arg->kind != PST_DOC_TENSORS && arg->kind != PST_DOC_OPTIONAL_TENSORS)
        return false;
    for (unsigned i = 0; i < arg->n; i++) {
        lanes = find_lanes(scope, arg->names[i]);
        if (lanes != NULL && (lanes->tangent || !tangent))
            return true;
    }
    return false;
}

static bool reads_lanes(const struct pst_scope *scope,
                        const struct pst_doc_node *node, bool tangent)
{
    if (scope->lanes.n == 0)
        return false;
    for (unsigned i = 0; i < node->n_inputs; i++)
        if (has_lanes(scope, &node->inputs[i].arg, tangent))
            return true;
    return false;
}

bool pst_import_has_lanes(const struct pst_scope *scope,
                          const struct pst_doc_node *node)
{
    return reads_lanes(scope, node, false);
}

static enum pst_status refuse_node(struct pst_import *import,
                                   const struct pst_doc_node *node,
                                   const char *why)
{
    return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                        "not supported: %s %s; run_decompositions() before "
                        "torch.export.save removes such regions",
                        node->target, why);
}

/* Names a value and copies its lanes. */
static enum pst_status define_with_lanes(struct pst_import *import,
                                         struct pst_scope *scope,
                                         const char *name,
                                         struct pst_value *value,
                                         const struct pst_vmap_lanes *lanes)
{
    struct pst_vmap_lanes *copy;
    struct pst_doc_meta t;
    enum pst_status status;

    if (lanes->n == 0 && !lanes->tangent)
        return pst_import_define(import, scope, name, value, &value->meta);
    if (pst_map_has(&scope->values, name) || find_lanes(scope, name) != NULL)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "\"%s\" is defined twice", name);
    status = pst_import_meta(import, scope, name, &t);
    if (status == PST_OK && value != NULL &&
        ((value->meta.dtype != t.meta.dtype &&
          !pst_import_may_cast(import, t.meta.dtype, value->meta.dtype)) ||
         value->meta.rank != t.meta.rank + lanes->n ||
         memcmp(&value->meta.size[lanes->n], t.meta.size,
                t.meta.rank * sizeof(t.meta.size[0])) != 0))
        status = pst_diag_set(import->diag, PST_E_OP_RESULT,
                              "\"%s\" has another shape or dtype in its vmap "
                              "region than the file says",
                              name);
    if (status != PST_OK)
        return status;
    copy = pst_arena_memdup(&import->build.graph->arena, lanes, sizeof(*lanes));
    if (copy == NULL || !pst_map_put(&scope->lanes, name, copy) ||
        (value != NULL && !pst_map_put(&scope->values, name, value)))
        return pst_diag_nomem(import->diag, sizeof(*lanes));
    return PST_OK;
}

/* --- borders of vmap ------------------------------------------------------ */

enum pst_target_kind pst_import_functorch_kind(const struct pst_doc_node *node,
                                               const char **ret_reason)
{
    static const struct {
        const char *name;
        enum pst_target_kind kind;
    } kinds[] = {
        {FUNCTORCH "lazy_load_decompositions", PST_TARGET_MARK},
        {FUNCTORCH "_vmap_increment_nesting", PST_TARGET_MARK},
        {FUNCTORCH "_vmap_decrement_nesting", PST_TARGET_MARK},
        {FUNCTORCH "_add_batch_dim", PST_TARGET_BATCH},
        {FUNCTORCH "_remove_batch_dim", PST_TARGET_UNBATCH},
        {FUNCTORCH "_jvp_increment_nesting", PST_TARGET_MARK},
        {FUNCTORCH "_jvp_decrement_nesting", PST_TARGET_MARK},
        {FUNCTORCH "_enter_dual_level", PST_TARGET_MARK},
        {FUNCTORCH "_exit_dual_level", PST_TARGET_MARK},
        {FUNCTORCH "_make_dual", PST_TARGET_SAME},
        {FUNCTORCH "_unwrap_for_grad", PST_TARGET_SAME},
        {FUNCTORCH "_unpack_dual", PST_TARGET_UNPACK},
        /* Files name these functions in two ways; here as operators of aten. */
        {"aten._make_dual.default", PST_TARGET_SAME},
        {"aten._unpack_dual.default", PST_TARGET_UNPACK},
    };
    const struct pst_doc_arg *random = pst_doc_arg_at(node, 1, PST_DOC_STRING);

    *ret_reason = NULL;
    if (pst_has_prefix(node->target, "torch._functorch."))
        *ret_reason = "regions of torch.func other than vmap and jvp "
                      "(run_decompositions() removes them)";
    for (size_t i = 0; i < PST_COUNT(kinds); i++) {
        if (strcmp(node->target, kinds[i].name) != 0)
            continue;
        *ret_reason = "vmap with random numbers of their own in each lane";
        return random != NULL && strcmp(random->name, "different") == 0
                   ? PST_TARGET_NONE
                   : kinds[i].kind;
    }
    return PST_TARGET_NONE;
}

/* Returns the current value of the tensor that enters or leaves a region, with
 * its lanes in *ret. */
static struct pst_value *read_border(struct pst_import *import,
                                     const struct pst_scope *scope,
                                     const struct pst_doc_node *node,
                                     const struct pst_names *names,
                                     struct pst_vmap_lanes *ret)
{
    const struct pst_doc_arg *arg = pst_doc_arg_at(node, 0, PST_DOC_TENSOR);
    const struct pst_vmap_lanes *lanes =
        arg != NULL ? find_lanes(scope, arg->name) : NULL;
    struct pst_value *v =
        arg != NULL ? pst_import_find(scope, arg->name) : NULL;

    *ret = lanes != NULL ? *lanes : (struct pst_vmap_lanes){0};
    if (v == NULL || names->n != 1 || names->at[0] == NULL) {
        import->build.status =
            pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                         "a border of a vmap region has no tensor or no name");
        return NULL;
    }
    return pst_functionalise_read(import->functional, v);
}

/* Moves dimension `from` of v to position `to`. */
static struct pst_value *move_dim(struct pst_import *import,
                                  struct pst_value *v, unsigned from,
                                  unsigned to)
{
    unsigned order[PST_MAX_RANK], n = 0;

    for (unsigned d = 0; d < v->meta.rank; d++) {
        if (n == to)
            order[n++] = from;
        if (d != from)
            order[n++] = d;
    }
    if (n < v->meta.rank)
        order[n] = from;
    return pst_import_reorder(import, v, order);
}

/* Reads a dimension of a tensor of that rank; false if out of range. */
static bool read_dim(const struct pst_doc_arg *arg, int64_t rank, unsigned *ret)
{
    int64_t dim = arg != NULL ? arg->number.i : INT64_MIN;

    if (dim < -rank || dim >= rank)
        return false;
    *ret = (unsigned)(dim < 0 ? dim + rank : dim);
    return true;
}

static enum pst_status refuse_border(struct pst_import *import)
{
    return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                        "the dimension or the level of a vmap region is none "
                        "of its tensor");
}

/* A node at the beginning or end of a region: its tensor with lanes, its level,
 * and the dimension that becomes lanes or that lanes become. */
struct crossing {
    struct pst_value *v;
    struct pst_vmap_lanes lanes;
    int64_t level;
    unsigned dim;
};

/* Reads level and dim from the arguments at these indices. more: 1 if dim is a
 * dimension that the tensor will only get, else 0. */
static enum pst_status read_crossing(struct pst_import *import,
                                     struct pst_scope *scope,
                                     const struct pst_doc_node *node,
                                     const struct pst_names *names,
                                     unsigned level_at, unsigned dim_at,
                                     int64_t more, struct crossing *ret)
{
    const struct pst_doc_arg *level =
        pst_doc_arg_at(node, level_at, PST_DOC_INT);

    ret->v = read_border(import, scope, node, names, &ret->lanes);
    if (ret->v == NULL)
        return import->build.status;
    if (level == NULL ||
        !read_dim(pst_doc_arg_at(node, dim_at, PST_DOC_INT),
                  (int64_t)ret->v->meta.rank - ret->lanes.n + more, &ret->dim))
        return refuse_border(import);
    ret->level = level->number.i;
    return PST_OK;
}

enum pst_status pst_import_batch(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const struct pst_doc_node *node,
                                 const struct pst_names *names)
{
    PST_UNINIT struct crossing c;
    enum pst_status status =
        read_crossing(import, scope, node, names, 2, 1, 0, &c);
    struct pst_vmap_lanes *lanes = &c.lanes;
    struct pst_value *v;
    unsigned at = 0;

    if (status != PST_OK)
        return status;
    if (lanes->n == PST_MAX_LEVELS)
        return refuse_border(import);
    while (at < lanes->n && lanes->level[at] < c.level)
        at++;
    if (at < lanes->n && lanes->level[at] == c.level)
        return refuse_border(import);
    v = move_dim(import, c.v, lanes->n + c.dim, at);
    if (v == NULL)
        return import->build.status;
    memmove(&lanes->level[at + 1], &lanes->level[at],
            (lanes->n - at) * sizeof(lanes->level[0]));
    lanes->level[at] = c.level;
    lanes->n++;
    return define_with_lanes(import, scope, names->at[0], v, lanes);
}

/* Repeats a tensor that all lanes share. Like PyTorch, inserts `count` at `dim`
 * into the tensor's sizes and expands the tensor to the result. As expand
 * aligns shapes at the last dimension, the new dimension of the tensor is
 * always the first one, whatever `dim` is. */
static struct pst_value *repeat_for_lanes(struct pst_import *import,
                                          struct pst_scope *scope,
                                          struct pst_value *v, unsigned lanes,
                                          unsigned dim,
                                          const struct pst_doc_arg *count)
{
    struct pst_build *b = &import->build;
    struct pst_extent size[PST_MAX_RANK];
    struct pst_arg n = {0};

    b->status = pst_import_value(import, scope, count, "vmap", &n);
    if (b->status != PST_OK)
        return NULL;
    v = pst_emit(b, &pst_op_unsqueeze, PST_ARGS(pst_v(v), pst_i(lanes)));
    if (v == NULL)
        return NULL;
    for (unsigned d = 0; d < v->meta.rank; d++)
        size[d] = pst_extent_of(b, v, d);
    for (unsigned d = 0; d < dim; d++)
        size[lanes + d] = pst_extent_of(b, v, lanes + d + 1);
    size[lanes + dim] = pst_extent_in(b, &n, 0);
    return pst_emit(b, &pst_op_expand,
                    PST_ARGS(pst_v(v), pst_extents_arg(b, size, v->meta.rank)));
}

enum pst_status pst_import_unbatch(struct pst_import *import,
                                   struct pst_scope *scope,
                                   const struct pst_doc_node *node,
                                   const struct pst_names *names)
{
    PST_UNINIT struct crossing c;
    enum pst_status status =
        read_crossing(import, scope, node, names, 1, 3, 1, &c);
    struct pst_vmap_lanes *lanes = &c.lanes;
    struct pst_value *v;
    unsigned at = 0;

    if (status != PST_OK)
        return status;
    while (at < lanes->n && lanes->level[at] != c.level)
        at++;
    if (at == lanes->n) {
        v = repeat_for_lanes(import, scope, c.v, lanes->n, c.dim,
                             &node->inputs[2].arg);
    } else {
        lanes->n--;
        memmove(&lanes->level[at], &lanes->level[at + 1],
                (lanes->n - at) * sizeof(lanes->level[0]));
        v = move_dim(import, c.v, at, lanes->n + c.dim);
    }
    return v == NULL ? import->build.status
                     : define_with_lanes(import, scope, names->at[0], v, lanes);
}

/* --- jvp ------------------------------------------------------------------ */

enum pst_status pst_import_unpack(struct pst_import *import,
                                  struct pst_scope *scope,
                                  const struct pst_doc_node *node,
                                  const struct pst_names *names)
{
    const struct pst_doc_arg *arg = pst_doc_arg_at(node, 0, PST_DOC_TENSOR);
    const struct pst_vmap_lanes tangent = {.tangent = true};
    struct pst_value *v =
        arg != NULL ? pst_import_find(scope, arg->name) : NULL;
    enum pst_status status = PST_OK;

    if (v == NULL || names->n != 2)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "it unpacks no tensor");
    if (names->at[0] != NULL)
        status = pst_import_define(import, scope, names->at[0], v, &v->meta);
    if (status == PST_OK && names->at[1] != NULL)
        status = define_with_lanes(import, scope, names->at[1], NULL, &tangent);
    return status;
}

/* --- nodes between the borders -------------------------------------------- */

/* True if no node uses the results. Only known for the outermost graph. */
static bool is_dead(const struct pst_import *import,
                    const struct pst_scope *scope,
                    const struct pst_target *target,
                    const struct pst_names *names)
{
    if (target->kind != PST_TARGET_METADATA &&
        (target->op == NULL || pst_op_has_effect(target->op) ||
         (target->kind != PST_TARGET_OP && target->kind != PST_TARGET_CONVERT)))
        return false;
    for (unsigned i = 0; i < names->n; i++)
        if (names->at[i] != NULL && pst_map_has(&import->used, names->at[i]))
            return false;
    return scope->graph == import->doc->graph;
}

static enum pst_status bind_node(struct pst_import *import,
                                 struct pst_scope *scope,
                                 const struct pst_doc_node *node,
                                 struct pst_lane_args *ret)
{
    const struct pst_schema *schema = pst_op_schema(node->resolved->op);
    struct pst_arena *arena = &import->build.graph->arena;
    enum pst_status status;

    ret->target = node->resolved;
    ret->n = schema->n_args;
    ret->lanes = pst_arena_calloc(arena, schema->n_args, sizeof(*ret->lanes));
    if (ret->lanes == NULL)
        return pst_diag_nomem(import->diag, schema->n_args);
    status = pst_import_bind(import, scope, node, ret->target, false, &ret->at);
    for (unsigned k = 0; k < node->n_inputs && status == PST_OK; k++) {
        const struct pst_doc_arg *arg = &node->inputs[k].arg;
        const int i = pst_import_find_arg(schema, node->inputs[k].name);

        if (arg->kind == PST_DOC_TENSOR && i >= 0)
            ret->lanes[i] = find_lanes(scope, arg->name);
        if (arg->kind != PST_DOC_TENSORS &&
            arg->kind != PST_DOC_OPTIONAL_TENSORS)
            continue;
        ret->item = pst_arena_calloc(arena, arg->n, sizeof(*ret->item));
        if (ret->item == NULL)
            return pst_diag_nomem(import->diag, arg->n);
        for (unsigned j = 0; j < arg->n; j++)
            ret->item[j] = find_lanes(scope, arg->names[j]);
    }
    return status;
}

static enum pst_status define_tangent(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_doc_node *node,
                                      const struct pst_names *names)
{
    const struct pst_vmap_lanes tangent = {.tangent = true};

    if (node->resolved->kind != PST_TARGET_SAME || names->n != 1 ||
        names->at[0] == NULL)
        return refuse_node(import, node,
                           "reads a forward-mode derivative (jvp)");
    return define_with_lanes(import, scope, names->at[0], NULL, &tangent);
}

enum pst_status pst_import_on_lanes(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_doc_node *node,
                                    const struct pst_names *names)
{
    PST_UNINIT struct pst_vmap_lanes lanes;
    struct pst_lane_args args = {0};
    struct pst_value *v;
    enum pst_status status;

    if (is_dead(import, scope, node->resolved, names))
        return PST_OK;
    if (reads_lanes(scope, node, true))
        return define_tangent(import, scope, node, names);
    if (node->resolved->kind == PST_TARGET_BATCH)
        return pst_import_batch(import, scope, node, names);
    if (node->resolved->kind == PST_TARGET_UNBATCH)
        return pst_import_unbatch(import, scope, node, names);
    if (node->resolved->op == NULL || names->n != 1 || names->at[0] == NULL ||
        pst_import_autocast_kind(scope->autocast, node->resolved->name) !=
            PST_AUTOCAST_KEEP)
        return refuse_node(import, node, "inside of vmap");
    status = bind_node(import, scope, node, &args);
    if (status != PST_OK)
        return status;
    v = pst_import_apply_rule(import, &args, &lanes);
    if (v != NULL)
        return define_with_lanes(import, scope, names->at[0], v, &lanes);
    return import->build.status != PST_OK
               ? import->build.status
               : refuse_node(import, node, "inside of vmap");
}
