// SPDX-License-Identifier: Apache-2.0
/* Imports nodes with sub-graphs: regions, which are inlined, and branches. */
#include "stages/frontend/import/nodes.h"
#include "stages/ops/core/rows.h"

struct pst_scope pst_import_inherit(const struct pst_scope *scope)
{
    return (struct pst_scope){.no_grad = scope->no_grad,
                              .region = scope->region,
                              .autocast = scope->autocast,
                              .low = scope->low,
                              .pure = scope->pure,
                              .inner = scope->inner};
}

void pst_import_enter_scope(struct pst_scope *inner,
                            const struct pst_doc_graph *body)
{
    inner->graph = body;
    pst_map_init(&inner->values, PST_TAG_ARCHIVE);
    pst_map_init(&inner->read, PST_TAG_ARCHIVE);
    pst_map_init(&inner->numbers, PST_TAG_ARCHIVE);
    pst_map_init(&inner->lanes, PST_TAG_ARCHIVE);
}

void pst_import_leave_scope(struct pst_scope *inner)
{
    pst_map_fini(&inner->values);
    pst_map_fini(&inner->read);
    pst_map_fini(&inner->numbers);
    pst_map_fini(&inner->lanes);
}

/* Returns the sub-graph and the position of the first operand after it; NULL if
 * there is none. */
static const struct pst_doc_graph *find_body(const struct pst_doc_node *node,
                                             unsigned *ret_operands)
{
    for (unsigned i = 0; i < node->n_inputs; i++) {
        const struct pst_doc_arg *body = pst_doc_arg_at(node, i, PST_DOC_GRAPH);

        *ret_operands = i + 1;
        if (body != NULL)
            return body->graph;
    }
    return NULL;
}

/* Binds operand i: the name `formal` of the body gets the caller's `actual`. */
static enum pst_status bind_operand(struct pst_import *import,
                                    const struct pst_scope *scope,
                                    const struct pst_doc_arg *formal,
                                    const char *actual, unsigned i,
                                    struct pst_scope *inner)
{
    struct pst_value *v = pst_import_find(scope, actual);

    if (formal->kind != PST_DOC_TENSOR || v == NULL)
        return pst_diag_set(import->diag, PST_E_MODEL_OUTPUT_KIND,
                            "operand %u of its sub-graph is not a tensor", i);
    return pst_import_define(import, inner, formal->name, v, &v->meta);
}

struct pst_value *pst_import_result(const struct pst_scope *inner, unsigned i)
{
    const struct pst_doc_arg *out = &inner->graph->outputs[i];

    return out->kind == PST_DOC_TENSOR ? pst_import_find(inner, out->name)
                                       : NULL;
}

/* --- regions ------------------------------------------------------------ */

static enum pst_status bind_operands(struct pst_import *import,
                                     const struct pst_scope *scope,
                                     const struct pst_doc_node *node,
                                     unsigned first, struct pst_scope *inner)
{
    const struct pst_doc_graph *body = inner->graph;
    enum pst_status status = PST_OK;
    unsigned end = node->n_inputs;

    while (end > first && node->inputs[end - 1].name[0] != '\0')
        end--; /* named arguments are options */
    if (end - first != body->n_inputs)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "its sub-graph takes %u values, not %u",
                            body->n_inputs, end - first);
    for (unsigned i = 0; i < body->n_inputs && status == PST_OK; i++) {
        const struct pst_doc_arg *actual =
            pst_doc_arg_at(node, first + i, PST_DOC_TENSOR);

        if (!pst_doc_is_number(&body->inputs[i]))
            status =
                bind_operand(import, scope, &body->inputs[i],
                             actual != NULL ? actual->name : NULL, i, inner);
    }
    return status;
}

static enum pst_status bind_results(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_scope *inner,
                                    const struct pst_names *names)
{
    const unsigned n = inner->graph->n_outputs;
    enum pst_status status = PST_OK;

    if (n != names->n)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "its sub-graph has %u results, not %u", n,
                            names->n);
    for (unsigned i = 0; i < names->n && status == PST_OK; i++) {
        struct pst_value *v = pst_import_result(inner, i);

        if (names->at[i] == NULL)
            continue;
        if (v == NULL)
            return pst_diag_set(
                import->diag, PST_E_PT2_INCONSISTENT,
                "result %u of its sub-graph is not a tensor of it", i);
        status = pst_import_define(import, scope, names->at[i], v, &v->meta);
    }
    return status;
}

/* Inlines a body. It shares its operands' storage, and its results become
 * values of the outer graph. inner: the scope of the body. */
static enum pst_status inline_body(struct pst_import *import,
                                   struct pst_scope *scope,
                                   const struct pst_doc_node *node,
                                   struct pst_scope inner,
                                   const struct pst_names *names)
{
    unsigned first = 0;
    const struct pst_doc_graph *body = find_body(node, &first);
    enum pst_status status;

    if (body == NULL)
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "it has no sub-graph");
    pst_import_enter_scope(&inner, body);
    status = bind_operands(import, scope, node, first, &inner);
    if (status == PST_OK)
        status = pst_import_nodes(import, &inner);
    if (status == PST_OK)
        status = bind_results(import, scope, &inner, names);
    pst_import_leave_scope(&inner);
    return status;
}

enum pst_status pst_import_set_grad(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_doc_node *node,
                                    const struct pst_names *names)
{
    const struct pst_doc_arg *flag = pst_doc_arg_at(node, 0, PST_DOC_BOOL);
    struct pst_scope inner = pst_import_inherit(scope);

    inner.no_grad = flag != NULL && !flag->number.b;
    return inline_body(import, scope, node, inner, names);
}

enum pst_status pst_import_autocast_region(struct pst_import *import,
                                           struct pst_scope *scope,
                                           const struct pst_doc_node *node,
                                           const struct pst_names *names)
{
    struct pst_scope inner = pst_import_inherit(scope);

    if (!pst_import_autocast_mode(node, &inner.autocast, &inner.low))
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "it does not say what it casts");
    return inline_body(import, scope, node, inner, names);
}

enum pst_status pst_import_checkpoint(struct pst_import *import,
                                      struct pst_scope *scope,
                                      const struct pst_doc_node *node,
                                      const struct pst_names *names)
{
    struct pst_scope inner = pst_import_inherit(scope);

    inner.region =
        pst_arena_printf(&import->model->arena, "%s%s%u",
                         scope->region != NULL ? scope->region : "",
                         scope->region != NULL ? "." : "", import->n_regions++);
    if (inner.region == NULL)
        return pst_diag_nomem(import->diag, 0);
    return inline_body(import, scope, node, inner, names);
}

/* --- results under no_grad that are operands --------------------------- */

/* True if a flatten() of a tensor of that rank changes nothing. */
static bool joins_nothing(const struct pst_doc_node *node, unsigned rank)
{
    const struct pst_doc_arg *first =
        pst_doc_arg(node, "start_dim", PST_DOC_INT);
    const struct pst_doc_arg *last = pst_doc_arg(node, "end_dim", PST_DOC_INT);
    const int64_t a = first != NULL ? first->number.i : 0;
    const int64_t b = last != NULL ? last->number.i : -1;

    return rank > 0 && (a < 0 ? a + rank : a) == (b < 0 ? b + rank : b);
}

static bool drops_nothing(const struct pst_doc_node *node)
{
    const struct pst_doc_arg *share = pst_doc_arg(node, "p", PST_DOC_FLOAT);
    const struct pst_doc_arg *train = pst_doc_arg(node, "train", PST_DOC_BOOL);

    return (share != NULL && share->number.f == 0.0) ||
           (train != NULL && !train->number.b);
}

/* Returns the operand that PyTorch itself returns as result i of the node; NULL
 * if the result is a new tensor. */
static struct pst_value *find_operand(struct pst_import *import,
                                      const struct pst_scope *scope,
                                      const struct pst_doc_node *node,
                                      const struct pst_target *target,
                                      const char *name, unsigned i)
{
    const struct pst_doc_arg *list =
        pst_doc_arg(node, "tensors", PST_DOC_TENSORS);
    const struct pst_doc_arg *one = pst_doc_arg_at(node, 0, PST_DOC_TENSOR);
    PST_UNINIT struct pst_doc_meta made;
    struct pst_value *v;

    if (target->op == &pst_op_broadcast_tensors) {
        v = list != NULL && i < list->n ? pst_import_find(scope, list->names[i])
                                        : NULL;
        if (v == NULL || pst_import_meta(import, scope, name, &made) != PST_OK)
            return NULL;
        return pst_meta_same_shape(&made.meta, &v->meta) ? v : NULL;
    }
    v = one != NULL ? pst_import_find(scope, one->name) : NULL;
    if (v == NULL)
        return NULL;
    if (target->op == &pst_op_flatten_using_ints)
        return joins_nothing(node, v->meta.rank - (target->pairs ? 1 : 0))
                   ? v
                   : NULL;
    /* native_dropout also makes a mask, result 1. */
    if (target->op == &pst_op_dropout || target->op == &pst_op_native_dropout)
        return i == 0 && drops_nothing(node) ? v : NULL;
    return NULL;
}

/* If a result is the operand itself, PyTorch's tracer renames the operand to
 * that result. So nodes after the no_grad region read the result's name, and
 * gradients must flow to the operand. */
enum pst_status pst_import_operands(struct pst_import *import,
                                    struct pst_scope *scope,
                                    const struct pst_doc_node *node,
                                    const struct pst_target *target,
                                    struct pst_names *names, bool *ret_all)
{
    enum pst_status status = PST_OK;

    *ret_all = names->n > 0;
    for (unsigned i = 0; i < names->n && status == PST_OK; i++) {
        struct pst_value *v =
            names->at[i] != NULL
                ? find_operand(import, scope, node, target, names->at[i], i)
                : NULL;

        *ret_all = *ret_all && v != NULL;
        if (v == NULL)
            continue;
        status = pst_import_define(import, scope, names->at[i], v, &v->meta);
        names->at[i] = NULL;
    }
    return status;
}

/* --- branches ----------------------------------------------------------- */

/* A branch: selected if pred equals `taken`. */
struct branch {
    struct pst_value *pred;
    bool taken;
};

/* Binds operand i so that its gradient is zero if the branch is not
 * selected. */
static enum pst_status bind_gated(struct pst_import *import,
                                  const struct pst_scope *scope,
                                  const struct pst_doc_arg *formal,
                                  const char *actual, unsigned i,
                                  const struct branch *b,
                                  struct pst_scope *inner)
{
    struct pst_value *v = pst_import_find(scope, actual);

    if (formal->kind != PST_DOC_TENSOR || v == NULL ||
        pst_dtype_kind(v->meta.dtype) != PST_KIND_FLOAT)
        return bind_operand(import, scope, formal, actual, i, inner);
    v = pst_functionalise_read(import->functional, v);
    if (v != NULL)
        v = pst_emit(&import->build, &pst_op_pass_if,
                     PST_ARGS(pst_v(v), pst_v(b->pred), pst_b(b->taken)));
    return v == NULL
               ? import->build.status
               : pst_import_define(import, inner, formal->name, v, &v->meta);
}

/* Adds to `order` the branch's operands that an argument reads, unless they are
 * in it already. numbers: name of an operand -> its number + 1. */
static void add_uses(const struct pst_map *numbers,
                     const struct pst_doc_arg *arg, bool *used, unsigned *order,
                     unsigned *n)
{
    const char *const *names = arg->kind == PST_DOC_TENSOR    ? &arg->name
                               : arg->kind == PST_DOC_TENSORS ? arg->names
                                                              : NULL;
    const unsigned count = arg->kind == PST_DOC_TENSOR ? 1 : arg->n;

    for (unsigned i = 0; names != NULL && i < count; i++) {
        const size_t number =
            names[i] != NULL ? (size_t)pst_map_get(numbers, names[i]) : 0;

        if (number == 0 || used[number - 1])
            continue;
        used[number - 1] = true;
        order[(*n)++] = (unsigned)number - 1;
    }
}

/* Orders the operands of a branch by their first reads; unread ones come last.
 * Exports of equal modules list operands in different orders, but equal calls
 * must have equal nodes. *ret: in the model's arena. */
static enum pst_status order_of_use(struct pst_import *import,
                                    const struct pst_doc_graph *body,
                                    unsigned **ret)
{
    struct pst_arena *arena = &import->model->arena;
    bool *used = pst_arena_calloc(arena, body->n_inputs + 1, sizeof(*used));
    struct pst_map numbers;
    unsigned n = 0;
    bool failed;

    *ret = pst_arena_calloc(arena, body->n_inputs + 1, sizeof(**ret));
    failed = used == NULL || *ret == NULL;
    pst_map_init(&numbers, PST_TAG_ARCHIVE);
    for (unsigned i = 0; i < body->n_inputs && !failed; i++)
        failed = body->inputs[i].kind == PST_DOC_TENSOR &&
                 !pst_map_put(&numbers, body->inputs[i].name,
                              (void *)((size_t)i + 1));
    for (size_t k = 0; k < body->n_nodes && !failed; k++)
        for (unsigned i = 0; i < body->nodes[k].n_inputs; i++)
            add_uses(&numbers, &body->nodes[k].inputs[i].arg, used, *ret, &n);
    for (unsigned i = 0; i < body->n_inputs && !failed; i++)
        if (!used[i])
            (*ret)[n++] = i;
    pst_map_fini(&numbers);
    return failed ? pst_diag_nomem(import->diag, body->n_inputs) : PST_OK;
}

/* Imports a branch with n results; it must not write values from outside. */
static enum pst_status import_branch(struct pst_import *import,
                                     const struct pst_scope *scope,
                                     const struct pst_doc_arg *branch,
                                     const struct pst_doc_arg *operands,
                                     const struct branch *b, unsigned n,
                                     struct pst_value **ret)
{
    const struct pst_doc_graph *body = branch != NULL ? branch->graph : NULL;
    struct pst_scope inner = pst_import_inherit(scope);
    unsigned *order = NULL;
    enum pst_status status;

    if (body == NULL || body->n_outputs != n ||
        body->n_inputs != (operands != NULL ? operands->n : 0))
        return pst_diag_set(import->diag, PST_E_PT2_INCONSISTENT,
                            "a branch does not fit its operands and results");
    status = order_of_use(import, body, &order);
    if (status != PST_OK)
        return status;
    pst_import_enter_scope(&inner, body);
    inner.pure = true;
    inner.inner = true;
    for (unsigned k = 0; k < body->n_inputs && status == PST_OK; k++) {
        const unsigned i = order[k];

        status = bind_gated(import, scope, &body->inputs[i], operands->names[i],
                            i, b, &inner);
    }
    if (status == PST_OK)
        status = pst_import_nodes(import, &inner);
    for (unsigned i = 0; i < n && status == PST_OK; i++) {
        struct pst_value *v = pst_import_result(&inner, i);

        if (v == NULL) {
            status = pst_diag_set(import->diag, PST_E_MODEL_OUTPUT_KIND,
                                  "result %u of a branch is not a tensor", i);
            continue;
        }
        ret[i] = pst_functionalise_read(import->functional, v);
        if (ret[i] == NULL)
            status = import->build.status;
    }
    pst_import_leave_scope(&inner);
    return status;
}

enum pst_status pst_import_cond(struct pst_import *import,
                                struct pst_scope *scope,
                                const struct pst_doc_node *node,
                                const struct pst_names *names)
{
    const struct pst_doc_arg *of_bool = pst_doc_arg_at(node, 0, PST_DOC_TENSOR);
    const struct pst_doc_arg *operands =
        pst_doc_arg_at(node, 3, PST_DOC_TENSORS);
    struct pst_value *pred =
        of_bool != NULL ? pst_import_find(scope, of_bool->name) : NULL;
    struct pst_value *of[2][PST_MAX_OUTS];
    enum pst_status status = PST_OK;

    if (pred == NULL || pred->meta.dtype != PST_BOOL ||
        pst_meta_numel(&pred->meta) != 1)
        return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                            "what it depends on is not a bool tensor of one "
                            "element");
    pred = pst_functionalise_read(import->functional, pred);
    if (pred == NULL)
        return import->build.status;
    for (unsigned k = 0; k < 2 && status == PST_OK; k++) {
        const struct branch b = {pred, k == 0};

        status = import_branch(import, scope,
                               pst_doc_arg_at(node, k + 1, PST_DOC_GRAPH),
                               operands, &b, names->n, of[k]);
    }
    for (unsigned i = 0; i < names->n && status == PST_OK; i++) {
        struct pst_value *v;

        if (names->at[i] == NULL)
            continue;
        v = pst_emit(&import->build, &pst_op_where_self,
                     PST_ARGS(pst_v(pred), pst_v(of[0][i]), pst_v(of[1][i])));
        status = v == NULL ? import->build.status
                           : pst_import_define(import, scope, names->at[i], v,
                                               &v->meta);
    }
    return status;
}
