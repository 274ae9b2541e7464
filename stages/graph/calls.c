// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/calls.h"

#include <fnmatch.h>
#include <string.h>

#define TAG PST_TAG_GRAPH

struct pst_module_call *pst_graph_find_call(const struct pst_graph *graph,
                                            const char *path, unsigned index)
{
    struct pst_module_call *call;

    if (path[0] == '\0' && index == 0)
        return graph->calls.at[0];
    /* The newest call matches in most cases: calls are added in ascending
     * order. */
    call = pst_map_get(&graph->newest_calls, path);
    while (call != NULL && call->index != index)
        call = call->older;
    return call;
}

const struct pst_module_call *pst_common_call(const struct pst_module_call *a,
                                              const struct pst_module_call *b)
{
    while (a != b) {
        if (a->depth >= b->depth)
            a = a->parent;
        else
            b = b->parent;
    }
    return a;
}

int64_t pst_call_number(const char *name, size_t *ret_length)
{
    const char *at = strrchr(name, '@');
    int64_t number;

    *ret_length = strlen(name);
    if (at == NULL || at[1] < '0' || at[1] > '9' ||
        (at[1] == '0' && at[2] != '\0') || !pst_parse_i64(at + 1, &number))
        return -1; /* graph text has no sign and no leading zeros */
    *ret_length = (size_t)(at - name);
    return number;
}

struct pst_module_call *pst_graph_named_call(const struct pst_graph *graph,
                                             const char *name)
{
    size_t length;
    const int64_t number = pst_call_number(name, &length);

    for (size_t i = 1; number >= 0 && i < graph->calls.n; i++) {
        struct pst_module_call *call = graph->calls.at[i];

        if (call->index == number && strncmp(call->path, name, length) == 0 &&
            call->path[length] == '\0')
            return call;
    }
    return NULL;
}

static bool name_call(struct pst_graph *graph, struct pst_module_call *call,
                      const struct pst_module_call *like)
{
    call->path = pst_arena_strdup(&graph->arena, like->path);
    call->identity = pst_arena_strdup(&graph->arena, like->identity);
    call->type = pst_arena_strdup(&graph->arena, like->type);
    call->name = like->index > 0 ? pst_arena_printf(&graph->arena, "%s@%u",
                                                    like->path, like->index)
                                 : call->path;
    call->older = pst_map_get(&graph->newest_calls, like->path);
    return call->path != NULL && call->identity != NULL && call->type != NULL &&
           call->name != NULL &&
           pst_map_put(&graph->newest_calls, call->path, call);
}

static enum pst_status fill_root(struct pst_graph *graph,
                                 const struct pst_module_call *like,
                                 struct pst_diag *diag)
{
    struct pst_module_call *root = graph->calls.at[0];

    if (root->identity[0] == '\0')
        root->identity = pst_arena_strdup(&graph->arena, like->identity);
    if (root->type[0] == '\0')
        root->type = pst_arena_strdup(&graph->arena, like->type);
    if (root->identity == NULL || root->type == NULL)
        return pst_diag_nomem(diag, strlen(like->type));
    return PST_OK;
}

enum pst_status pst_graph_add_call(struct pst_graph *graph,
                                   const struct pst_module_call *like,
                                   struct pst_module_call **ret,
                                   struct pst_diag *diag)
{
    struct pst_module_call *call =
        pst_graph_find_call(graph, like->path, like->index);
    const struct pst_module_call *parent =
        like->parent != NULL ? like->parent : graph->calls.at[0];

    *ret = call;
    if (call == graph->calls.at[0])
        return fill_root(graph, like, diag);
    if (call != NULL)
        return PST_OK;
    if (parent->depth + 1 > PST_MAX_CALL_DEPTH)
        return pst_diag_set(diag, PST_E_GRAPH_DEPTH,
                            "module \"%s\" lies in more than %d others",
                            like->path, PST_MAX_CALL_DEPTH);
    call = pst_arena_alloc(&graph->arena, sizeof(*call));
    if (call == NULL || !name_call(graph, call, like) ||
        !pst_vec_push(TAG, &graph->calls, call))
        return pst_diag_nomem(diag, sizeof(*call));
    call->id = (unsigned)graph->calls.n - 1;
    call->depth = parent->depth + 1;
    call->parent = parent;
    call->index = like->index;
    *ret = call;
    return PST_OK;
}

enum pst_status pst_graph_adopt_call(struct pst_graph *graph,
                                     const struct pst_module_call *other,
                                     struct pst_module_call **ret,
                                     struct pst_diag *diag)
{
    struct pst_module_call like;
    enum pst_status status;

    if (other == NULL ||
        (other->id < graph->calls.n && graph->calls.at[other->id] == other)) {
        *ret = graph->calls.at[other == NULL ? 0 : other->id];
        return PST_OK;
    }
    *ret = pst_graph_find_call(graph, other->path, other->index);
    if (*ret != NULL && *ret != graph->calls.at[0])
        return PST_OK;
    like = *other;
    if (other->parent != NULL) { /* recursion is bounded by
                                    PST_MAX_CALL_DEPTH */
        struct pst_module_call *parent;

        status = pst_graph_adopt_call(graph, other->parent, &parent, diag);
        if (status != PST_OK)
            return status;
        like.parent = parent;
    }
    return pst_graph_add_call(graph, &like, ret, diag);
}

/* --- signatures --------------------------------------------------------- */

static enum pst_status copy_leaves(struct pst_graph *graph,
                                   const struct pst_call_leaf *from, unsigned n,
                                   struct pst_call_leaf **ret,
                                   struct pst_diag *diag)
{
    struct pst_call_leaf *leaves =
        pst_arena_calloc(&graph->arena, PST_MAX(n, 1u), sizeof(*leaves));

    if (leaves == NULL)
        return pst_diag_nomem(diag, n * sizeof(*leaves));
    for (unsigned i = 0; i < n; i++) {
        enum pst_status status =
            pst_arg_copy(&graph->arena, &from[i].arg, &leaves[i].arg, diag);

        if (status != PST_OK)
            return status;
        leaves[i].path = pst_arena_strdup(&graph->arena, from[i].path);
        if (leaves[i].path == NULL)
            return pst_diag_nomem(diag, strlen(from[i].path));
    }
    *ret = leaves;
    return PST_OK;
}

enum pst_status pst_graph_sign_call(struct pst_graph *graph,
                                    struct pst_module_call *call,
                                    const struct pst_call_signature *signature,
                                    struct pst_diag *diag)
{
    struct pst_call_signature *copy =
        pst_arena_memdup(&graph->arena, signature, sizeof(*signature));
    enum pst_status status;

    if (copy == NULL)
        return pst_diag_nomem(diag, sizeof(*copy));
    status = copy_leaves(graph, signature->inputs, signature->n_inputs,
                         &copy->inputs, diag);
    if (status == PST_OK)
        status = copy_leaves(graph, signature->outputs, signature->n_outputs,
                             &copy->outputs, diag);
    if (status == PST_OK)
        call->signature = copy;
    return status;
}

static enum pst_status map_leaves(struct pst_graph *to,
                                  struct pst_value *const *map,
                                  struct pst_call_leaf **leaves, unsigned n,
                                  struct pst_diag *diag)
{
    struct pst_call_leaf *copy =
        pst_arena_memdup(&to->arena, *leaves, PST_MAX(n, 1u) * sizeof(*copy));

    if (copy == NULL)
        return pst_diag_nomem(diag, n * sizeof(*copy));
    for (unsigned i = 0; i < n; i++) {
        struct pst_arg *arg = &copy[i].arg;
        struct pst_value *mapped =
            arg->kind == PST_ARG_VALUE ? map[arg->value->id] : NULL;

        if (arg->kind == PST_ARG_VALUE)
            *arg = (struct pst_arg){.kind = mapped != NULL ? PST_ARG_VALUE
                                                           : PST_ARG_IGNORED,
                                    .value = mapped};
    }
    *leaves = copy;
    return PST_OK;
}

enum pst_status pst_graph_carry_signatures(const struct pst_graph *from,
                                           struct pst_graph *to,
                                           struct pst_value *const *map,
                                           struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < from->calls.n && status == PST_OK; i++) {
        const struct pst_module_call *call = from->calls.at[i];
        struct pst_module_call *there;
        struct pst_call_signature s;

        if (call->signature == NULL)
            continue;
        there = pst_graph_find_call(to, call->path, call->index);
        if (there == NULL || there->signature != NULL)
            continue;
        s = *call->signature;
        status = map_leaves(to, map, &s.inputs, s.n_inputs, diag);
        if (status == PST_OK)
            status = map_leaves(to, map, &s.outputs, s.n_outputs, diag);
        if (status == PST_OK)
            status = pst_graph_sign_call(to, there, &s, diag);
    }
    return status;
}

static void drop_dead_leaves(struct pst_call_leaf *leaves, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (leaves[i].arg.kind == PST_ARG_VALUE &&
            pst_value_is_dead(leaves[i].arg.value))
            leaves[i].arg = (struct pst_arg){.kind = PST_ARG_IGNORED};
}

void pst_graph_trim_signatures(struct pst_graph *graph)
{
    for (size_t i = 0; i < graph->calls.n; i++) {
        const struct pst_call_signature *s = graph->calls.at[i]->signature;

        if (s == NULL)
            continue;
        drop_dead_leaves(s->inputs, s->n_inputs);
        drop_dead_leaves(s->outputs, s->n_outputs);
    }
}

bool pst_pattern_covers(const char *pattern, const char *name)
{
    struct pst_str part = {0};
    bool ret = fnmatch(pattern, name, 0) == 0;

    pst_str_add(&part, name);
    while (!ret && !part.failed) {
        char *dot = strrchr(part.text, '.');

        if (dot == NULL)
            break;
        *dot = '\0';
        ret = fnmatch(pattern, part.text, 0) == 0;
    }
    pst_str_fini(&part);
    return ret;
}
