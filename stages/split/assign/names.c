// SPDX-License-Identifier: Apache-2.0
/* Cuts at the names of modules and nodes. */
#include "stages/base/str.h"
#include "stages/split/assign/assign.h"

#include <string.h>

#define TAG PST_TAG_PLAN

/* Is the module `path` the module `fqn` or inside of it, by components? */
static bool is_inside(const char *path, const char *fqn)
{
    const size_t n = strlen(fqn);

    return strncmp(path, fqn, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

/* "FQN:end" -> FQN in ret and true for end. */
static enum pst_status parse_at(struct pst_splitter *s, const char *spec,
                                char **ret, bool *end)
{
    const char *colon = strrchr(spec, ':');
    size_t n = strlen(spec);

    *end = false;
    if (colon != NULL) {
        *end = strcmp(colon, ":end") == 0;
        if (!*end && strcmp(colon, ":begin") != 0)
            return pst_diag_set(s->diag, PST_ERR_USAGE,
                                "\"%.200s\": a cut is written NAME, NAME:begin "
                                "or NAME:end",
                                spec);
        n = (size_t)(colon - spec);
    }
    *ret = pst_arena_strndup(&s->plan->arena, spec, n);
    return *ret == NULL ? pst_diag_nomem(s->diag, n) : PST_OK;
}

enum pst_status pst_cuts_unknown(struct pst_splitter *s, const char *name,
                                 const char *what)
{
    const size_t n = s->model->modules.n + s->graph->values.n;
    const char **names = pst_alloc(TAG, (n + 1) * sizeof(*names));
    size_t k = s->model->modules.n;
    int near;

    if (names == NULL)
        return pst_diag_nomem(s->diag, n * sizeof(*names));
    if (k > 0)
        memcpy(names, s->model->modules.at, k * sizeof(*names));
    for (size_t i = 0; i < s->graph->values.n; i++)
        if (s->graph->values.at[i]->def != NULL)
            names[k++] = s->graph->values.at[i]->name;
    near = pst_nearest(name, names, k);
    pst_diag_set(s->diag, PST_ERR_INPUT,
                 "%s \"%.200s\": the model has no module and no node of that "
                 "name%s%.200s%s",
                 what, name, near < 0 ? "" : "; the nearest name is \"",
                 near < 0 ? "" : names[near], near < 0 ? "" : "\"");
    pst_free(names);
    return PST_ERR_INPUT;
}

static enum pst_status add_cut(struct pst_splitter *s, struct pst_cuts *cuts,
                               const char *spec, size_t node)
{
    struct pst_cut cut = {node, NULL};

    cut.what = pst_arena_printf(&s->plan->arena, "the cut at \"%.200s\"", spec);
    if (cut.what == NULL || !pst_vec_push(TAG, &cuts->list, cut))
        return pst_diag_nomem(s->diag, strlen(spec));
    return PST_OK;
}

/* --- modules ------------------------------------------------------------ */

static bool is_module(const struct pst_splitter *s, const char *fqn)
{
    for (size_t i = 0; i < s->model->modules.n; i++)
        if (strcmp(s->model->modules.at[i], fqn) == 0)
            return true;
    return false;
}

static bool same_call(const struct pst_node *a, const struct pst_node *b)
{
    return a->call == b->call && strcmp(a->call->path, b->call->path) == 0;
}

/* A call of a module: nodes from begin to end. */
struct call {
    size_t begin, end;
};

struct calls {
    struct PST_VEC(struct call) list;
};

/* Does the call go on with this node, behind operators of a module that it
 * called and that stands elsewhere in the tree? */
static bool goes_on(const struct pst_graph *graph, const struct call *call,
                    const struct pst_node *node)
{
    for (size_t i = call->begin; i < call->end; i++)
        if (same_call(graph->nodes.at[i], node))
            return true;
    return false;
}

/*
 * A call of a module is a run of nodes inside of it. Two calls may follow each
 * other directly: then the module that the run began with comes again under
 * another call index.
 */
static enum pst_status find_calls(struct pst_splitter *s, const char *fqn,
                                  struct calls *calls)
{
    const struct pst_graph *graph = s->graph;
    bool open = false;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];
        struct call *last =
            calls->list.n > 0 ? &calls->list.at[calls->list.n - 1] : NULL;
        struct call fresh = {i, i + 1};

        if (!is_inside(node->call->path, fqn)) {
            open = false;
            continue;
        }
        if (last != NULL &&
            (open ? same_call(graph->nodes.at[last->begin], node) ||
                        strcmp(graph->nodes.at[last->begin]->call->path,
                               node->call->path) != 0
                  : goes_on(graph, last, node)))
            last->end = i + 1;
        else if (!pst_vec_push(TAG, &calls->list, fresh))
            return pst_diag_nomem(s->diag, sizeof(fresh));
        open = true;
    }
    return PST_OK;
}

static enum pst_status cut_module(struct pst_splitter *s, struct pst_cuts *cuts,
                                  const char *spec, const char *fqn, bool end)
{
    struct calls calls = {0};
    enum pst_status status = find_calls(s, fqn, &calls);

    if (status == PST_OK && calls.list.n == 0)
        status = pst_diag_set(s->diag, PST_ERR_INPUT,
                              "the module \"%.200s\" has no operator on the "
                              "straight line of the graph, so there is nothing "
                              "to cut at",
                              fqn);
    for (size_t i = 0; i < calls.list.n && status == PST_OK; i++)
        status = add_cut(s, cuts, spec,
                         end ? calls.list.at[i].end : calls.list.at[i].begin);
    pst_vec_fini(&calls.list);
    return status;
}

/* --- nodes -------------------------------------------------------------- */

static enum pst_status cut_node(struct pst_splitter *s, struct pst_cuts *cuts,
                                const char *spec, const char *name, bool end)
{
    const struct pst_value *value = pst_graph_find(s->graph, name);
    size_t i = 0;

    if (value == NULL || value->def == NULL)
        return pst_cuts_unknown(s, name, "cut at");
    while (s->graph->nodes.at[i] != value->def)
        i++;
    return add_cut(s, cuts, spec, i + end);
}

enum pst_status pst_cuts_by_name(struct pst_splitter *s, struct pst_cuts *ret)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < s->options->n_at && status == PST_OK; i++) {
        const char *spec = s->options->at[i];
        char *name = NULL;
        bool end = false;

        status = parse_at(s, spec, &name, &end);
        if (name == NULL)
            return status;
        if (status == PST_OK)
            status = is_module(s, name) ? cut_module(s, ret, spec, name, end)
                                        : cut_node(s, ret, spec, name, end);
    }
    return status;
}
