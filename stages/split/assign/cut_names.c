// SPDX-License-Identifier: Apache-2.0
/* Cuts at modules and nodes by name. */
#include "stages/base/str.h"
#include "stages/graph/calls.h"
#include "stages/split/assign/assign.h"

#include <string.h>

#define TAG PST_TAG_PLAN

/* Splits "FQN", "FQN:begin" or "FQN:end" into the FQN and *end: true for
 * ":end". */
static enum pst_status parse_at(struct pst_splitter *s, const char *spec,
                                char **ret, bool *end)
{
    const char *colon = strrchr(spec, ':');
    size_t n = strlen(spec);

    *end = false;
    if (colon != NULL) {
        *end = strcmp(colon, ":end") == 0;
        if (!*end && strcmp(colon, ":begin") != 0)
            return pst_diag_set(s->diag, PST_E_CUT_OPTIONS,
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
    unsigned calls = 0;
    size_t length;
    const char **names = pst_alloc(TAG, (n + 1) * sizeof(*names));
    size_t k = s->model->modules.n;
    int near;

    if (names == NULL)
        return pst_diag_nomem(s->diag, n * sizeof(*names));
    if (pst_call_number(name, &length) >= 0)
        for (size_t i = 1; i < s->graph->calls.n; i++)
            calls += strncmp(s->graph->calls.at[i]->path, name, length) == 0 &&
                     s->graph->calls.at[i]->path[length] == '\0';
    if (calls > 0) {
        pst_free(names);
        return pst_diag_set(s->diag, PST_E_MODULE_CALL_NUMBER,
                            "%s \"%.200s\": the module has %u call%s, and none "
                            "of them has that number",
                            what, name, calls, calls == 1 ? "" : "s");
    }
    if (k > 0)
        memcpy(names, s->model->modules.at, k * sizeof(*names));
    for (size_t i = 0; i < s->graph->values.n; i++)
        if (s->graph->values.at[i]->def != NULL)
            names[k++] = s->graph->values.at[i]->name;
    near = pst_nearest(name, names, k);
    pst_diag_set(s->diag, PST_E_MODULE_UNKNOWN,
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

/* A call of a module: nodes in [begin, end). */
struct call {
    /* NULL: adjacent nodes inside a module that is never called itself */
    const struct pst_module_call *call;
    size_t begin, end;
};

struct calls {
    struct PST_VEC(struct call) list;
};

/* Returns the outermost call of the module that contains the node; NULL if
 * there is none. */
static const struct pst_module_call *call_of(const struct pst_node *node,
                                             const char *fqn)
{
    const struct pst_module_call *ret = NULL;

    for (const struct pst_module_call *c = node->call; c->parent != NULL;
         c = c->parent)
        if (strcmp(c->path, fqn) == 0)
            ret = c;
    return ret;
}

/* Finds the calls of a module, in the order of their first nodes. at: by call
 * id, index in `calls` + 1; 0: not found yet. */
static enum pst_status find_module_calls(struct pst_splitter *s,
                                         const char *fqn, size_t *at,
                                         struct calls *calls)
{
    for (size_t i = 0; i < s->graph->nodes.n; i++) {
        const struct pst_module_call *call =
            call_of(s->graph->nodes.at[i], fqn);
        const struct call fresh = {call, i, i + 1};

        if (call == NULL)
            continue;
        if (at[call->id] > 0) {
            calls->list.at[at[call->id] - 1].end = i + 1;
            continue;
        }
        if (!pst_vec_push(TAG, &calls->list, fresh))
            return pst_diag_nomem(s->diag, sizeof(fresh));
        at[call->id] = calls->list.n;
    }
    return PST_OK;
}

/* True if the module `path` is inside the module `fqn`. */
static bool is_inside(const char *path, const char *fqn)
{
    const size_t n = strlen(fqn);

    return strncmp(path, fqn, n) == 0 && path[n] == '.';
}

/* For a module that is never called itself but contains other modules: finds
 * the runs of adjacent nodes inside it. */
static enum pst_status find_node_runs(struct pst_splitter *s, const char *fqn,
                                      struct calls *calls)
{
    bool open = false;

    for (size_t i = 0; i < s->graph->nodes.n; i++) {
        const bool inside = is_inside(s->graph->nodes.at[i]->call->path, fqn);
        const struct call fresh = {NULL, i, i + 1};

        if (inside && open)
            calls->list.at[calls->list.n - 1].end = i + 1;
        else if (inside && !pst_vec_push(TAG, &calls->list, fresh))
            return pst_diag_nomem(s->diag, sizeof(fresh));
        open = inside;
    }
    return PST_OK;
}

static enum pst_status find_calls(struct pst_splitter *s, const char *fqn,
                                  struct calls *calls)
{
    size_t *at = pst_calloc(TAG, s->graph->calls.n, sizeof(*at));
    enum pst_status status =
        at != NULL ? find_module_calls(s, fqn, at, calls)
                   : pst_diag_nomem(s->diag, s->graph->calls.n * sizeof(*at));

    pst_free(at);
    return status == PST_OK && calls->list.n == 0
               ? find_node_runs(s, fqn, calls)
               : status;
}

static enum pst_status cut_module(struct pst_splitter *s, struct pst_cuts *cuts,
                                  const char *spec, const char *fqn, bool end)
{
    struct calls calls = {0};
    enum pst_status status = find_calls(s, fqn, &calls);

    if (status == PST_OK && calls.list.n == 0)
        status = pst_diag_set(s->diag, PST_E_CUT_MODULE,
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

/* Cuts at one call of a module, "n@1". */
static enum pst_status cut_call(struct pst_splitter *s, struct pst_cuts *cuts,
                                const char *spec,
                                const struct pst_module_call *call, bool end)
{
    struct calls calls = {0};
    enum pst_status status = find_calls(s, call->path, &calls);

    for (size_t i = 0; i < calls.list.n && status == PST_OK; i++)
        if (calls.list.at[i].call == call)
            status =
                add_cut(s, cuts, spec,
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
        const struct pst_module_call *call;
        const char *spec = s->options->at[i];
        char *name = NULL;
        bool end = false;

        status = parse_at(s, spec, &name, &end);
        if (name == NULL)
            return status;
        call = pst_graph_named_call(s->graph, name);
        if (status == PST_OK && is_module(s, name))
            status = cut_module(s, ret, spec, name, end);
        else if (status == PST_OK && call != NULL)
            status = cut_call(s, ret, spec, call, end);
        else if (status == PST_OK)
            status = cut_node(s, ret, spec, name, end);
    }
    return status;
}
