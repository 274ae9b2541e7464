// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/tree/tree.h"

#include "stages/base/str.h"
#include "stages/graph/calls.h"
#include "stages/ops/core/op.h"

#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_PLAN

struct tree_maker {
    const struct pst_modules *modules;
    const struct pst_graph *graph;
    struct pst_tree *tree;
    int *row_of; /* by call id: row of its module */
    struct pst_diag *diag;
};

static enum pst_status no_memory(const struct tree_maker *p)
{
    return pst_diag_nomem(p->diag, 0);
}

/* --- rows ----------------------------------------------------------------- */

static int find_row(const struct pst_tree *tree, const char *path)
{
    return (int)(size_t)pst_map_get(&tree->by_path, path) - 1;
}

/* Adds the row of the first n characters of a path and of all its ancestors. */
static enum pst_status add_path(struct tree_maker *p, const char *path,
                                size_t n, int *ret)
{
    struct pst_tree_row row = {.parent = -1};
    char *copy = pst_arena_strndup(&p->tree->arena, path, n);

    if (copy == NULL)
        return no_memory(p);
    *ret = find_row(p->tree, copy);
    if (*ret >= 0)
        return PST_OK;
    if (n > 0) {
        const char *dot = strrchr(copy, '.');
        enum pst_status status = add_path(
            p, copy, dot != NULL ? (size_t)(dot - copy) : 0, &row.parent);

        if (status != PST_OK)
            return status;
        row.depth = p->tree->rows.at[row.parent].depth + 1;
    }
    row.path = copy;
    *ret = (int)p->tree->rows.n;
    if (!pst_vec_push(TAG, &p->tree->rows, row) ||
        !pst_map_put(&p->tree->by_path, copy, (void *)((size_t)*ret + 1)))
        return no_memory(p);
    return PST_OK;
}

static bool add_once(unsigned **at, size_t *n, size_t *cap, unsigned x)
{
    struct PST_VEC(unsigned) list = {*at, *n, *cap};
    bool ok = true;

    for (size_t i = list.n; i-- > 0;)
        if (list.at[i] == x)
            return true;
    ok = pst_vec_push(TAG, &list, x);
    *at = list.at, *n = list.n, *cap = list.cap;
    return ok;
}
#define ADD_ONCE(list, x) add_once(&(list).at, &(list).n, &(list).cap, x)

static enum pst_status add_calls(struct tree_maker *p)
{
    const struct pst_modules *m = p->modules;
    enum pst_status status = add_path(p, "", 0, &p->row_of[0]);

    if (status == PST_OK)
        p->tree->rows.at[0].site = &m->sites[0];
    for (size_t i = 0; i < m->outline.order.n && status == PST_OK; i++) {
        const struct pst_module_site *site = pst_modules_call(m, i);
        const char *path = site->call->path;
        struct pst_tree_row *row;

        status = add_path(p, path, strlen(path), &p->row_of[site->call->id]);
        if (status != PST_OK)
            return status;
        row = &p->tree->rows.at[p->row_of[site->call->id]];
        if (row->site == NULL)
            row->site = site;
        if (!ADD_ONCE(row->templates, site->template))
            return no_memory(p);
    }
    return status;
}

/* --- parameters and costs ------------------------------------------------- */

static enum pst_status add_name(struct tree_maker *p, const struct pst_value *v,
                                const char *name)
{
    const char *dot = strrchr(name, '.');
    const int64_t n = pst_meta_numel(&v->meta);
    enum pst_status status;
    int row;

    status = add_path(p, name, dot != NULL ? (size_t)(dot - name) : 0, &row);
    if (status != PST_OK || v->kind != PST_VALUE_PARAM)
        return status;
    /* Names of one tensor follow each other, so comparing with the last tensor
     * is enough to count it once. */
    if (p->tree->rows.at[row].seen_own != v)
        p->tree->rows.at[row].own += n;
    p->tree->rows.at[row].seen_own = v;
    for (; row >= 0; row = p->tree->rows.at[row].parent) {
        if (p->tree->rows.at[row].seen == v)
            break;
        p->tree->rows.at[row].seen = v;
        p->tree->rows.at[row].total += n;
    }
    return PST_OK;
}

static enum pst_status add_state(struct tree_maker *p)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < p->graph->values.n && status == PST_OK; i++) {
        const struct pst_value *v = p->graph->values.at[i];
        const struct pst_tie *tie;

        if (!pst_value_is_state(v))
            continue;
        tie = pst_map_get(&p->modules->outline.names, v->fqn);
        status = add_name(p, v, v->fqn);
        for (unsigned k = 0; tie != NULL && k < tie->n_aliases; k++)
            if (status == PST_OK)
                status = add_name(p, v, tie->aliases[k]);
    }
    return status;
}

static enum pst_status add_nodes(struct tree_maker *p)
{
    for (size_t i = 0; i < p->graph->nodes.n; i++) {
        struct pst_node *node = p->graph->nodes.at[i];
        const double flops = pst_node_flops(node);

        for (const struct pst_module_call *call = node->call; call != NULL;
             call = call->parent) {
            int k = p->row_of[call->id];

            for (; k >= 0; k = p->tree->rows.at[k].parent) {
                struct pst_tree_row *row = &p->tree->rows.at[k];

                if (row->seen == node)
                    break;
                row->seen = node;
                row->flops += flops;
                if (node->stage >= 0 &&
                    !ADD_ONCE(row->stages, (unsigned)node->stage))
                    return no_memory(p);
            }
        }
    }
    return PST_OK;
}

/* Sets the printing order: children follow their parent, in order of rows. */
static enum pst_status sort_rows(struct tree_maker *p)
{
    struct pst_tree *t = p->tree;
    const size_t n = t->rows.n;
    int *last = pst_calloc(TAG, n, sizeof(*last));
    int *before = pst_calloc(TAG, n, sizeof(*before));
    struct PST_VEC(unsigned) open = {0};
    bool ok = last != NULL && before != NULL && pst_vec_push(TAG, &open, 0u);

    for (size_t i = 0; ok && i < n; i++) {
        const int parent = t->rows.at[i].parent;

        before[i] = parent >= 0 ? last[parent] : 0;
        if (parent >= 0)
            last[parent] = (int)i + 1;
    }
    while (ok && open.n > 0) {
        const unsigned row = open.at[--open.n];

        ok = pst_vec_push(TAG, &t->order, row);
        for (int k = last[row]; ok && k > 0; k = before[k - 1])
            ok = pst_vec_push(TAG, &open, (unsigned)k - 1);
    }
    pst_vec_fini(&open);
    pst_free(last);
    pst_free(before);
    return ok ? PST_OK : no_memory(p);
}

enum pst_status pst_tree_new(const struct pst_modules *modules,
                             struct pst_tree **ret, struct pst_diag *diag)
{
    struct tree_maker p = {
        .modules = modules, .graph = modules->outline.graph, .diag = diag};
    enum pst_status status;

    p.tree = pst_calloc(TAG, 1, sizeof(*p.tree));
    if (p.tree == NULL)
        return no_memory(&p);
    pst_arena_init(&p.tree->arena, TAG);
    pst_map_init(&p.tree->by_path, TAG);
    p.row_of = pst_calloc(TAG, modules->n_sites, sizeof(*p.row_of));
    status = p.row_of != NULL ? add_calls(&p) : no_memory(&p);
    if (status == PST_OK)
        status = add_state(&p);
    if (status == PST_OK)
        status = add_nodes(&p);
    if (status == PST_OK)
        status = sort_rows(&p);
    pst_free(p.row_of);
    if (status != PST_OK) {
        pst_tree_free(p.tree);
        return status;
    }
    *ret = p.tree;
    return PST_OK;
}

void pst_tree_free(struct pst_tree *tree)
{
    if (tree == NULL)
        return;
    for (size_t i = 0; i < tree->rows.n; i++) {
        pst_vec_fini(&tree->rows.at[i].templates);
        pst_vec_fini(&tree->rows.at[i].stages);
    }
    pst_vec_fini(&tree->rows);
    pst_vec_fini(&tree->order);
    pst_map_fini(&tree->by_path);
    pst_arena_fini(&tree->arena);
    pst_free(tree);
}

/* --- by name -------------------------------------------------------------- */

static enum pst_status refuse_name(const struct pst_tree *tree,
                                   const char *path, struct pst_diag *diag)
{
    const char *at = strrchr(path, '@');
    const char **names =
        pst_calloc(TAG, tree->rows.n + 1, sizeof(const char *));
    struct pst_str module = {0};
    enum pst_status status;
    int near = -1;

    if (names == NULL)
        return pst_diag_nomem(diag, 0);
    if (at != NULL)
        pst_str_addn(&module, path, (size_t)(at - path));
    if (at != NULL && find_row(tree, pst_str_text(&module)) >= 0) {
        status = pst_diag_set(diag, PST_E_MODULE_CALL_NUMBER,
                              "\"%.200s\" is not a number of a call of module "
                              "\"%.200s\": a call is written NAME@NUMBER",
                              at + 1, pst_str_text(&module));
        pst_str_fini(&module);
        pst_free(names);
        return status;
    }
    pst_str_fini(&module);
    for (size_t i = 0; i < tree->rows.n; i++)
        names[i] = tree->rows.at[i].path;
    near = pst_nearest(path, names, tree->rows.n);
    status = pst_diag_set(diag, PST_E_MODULE_UNKNOWN,
                          "there is no module \"%.200s\"%s%.200s%s", path,
                          near < 0 ? "" : "; the nearest name is \"",
                          near < 0 ? "" : names[near], near < 0 ? "" : "\"");
    pst_free(names);
    return status;
}

static enum pst_status refuse_call(const struct pst_modules *modules,
                                   const char *path, int64_t number,
                                   struct pst_diag *diag)
{
    struct pst_str calls = {0};
    enum pst_status status;
    unsigned n = 0;

    for (size_t i = 0; i < modules->outline.order.n; i++) {
        const struct pst_module_call *call = pst_modules_call(modules, i)->call;

        if (strcmp(call->path, path) != 0)
            continue;
        if (n < 8) {
            pst_str_add(&calls, n > 0 ? ", " : "");
            pst_str_add(&calls, call->name);
        }
        n++;
    }
    if (n == 0)
        status = pst_diag_set(diag, PST_E_MODULE_NOT_CALLED,
                              "module \"%.200s\" is in no call", path);
    else
        status = pst_diag_set(
            diag, PST_E_MODULE_CALL_NUMBER,
            "module \"%.200s\" has %u call%s, and none of them is number "
            "%lld: %s%s",
            path, n, n == 1 ? "" : "s", (long long)number, pst_str_text(&calls),
            n > 8 ? ", ..." : "");
    pst_str_fini(&calls);
    return status;
}

enum pst_status pst_tree_find(const struct pst_modules *modules,
                              const struct pst_tree *tree, const char *name,
                              const struct pst_module_site **ret,
                              struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status = PST_OK;
    int64_t number;
    size_t n;
    int row;

    number = pst_call_number(name, &n);
    if (find_row(tree, name) >= 0) { /* the module's name itself has an "@" */
        number = -1;
        n = strlen(name);
    }
    pst_str_addn(&path, name, n);
    row = find_row(tree, pst_str_text(&path));
    *ret = NULL;
    for (size_t i = 0; row > 0 && i < modules->outline.order.n; i++) {
        const struct pst_module_site *site = pst_modules_call(modules, i);

        if (*ret == NULL && (number < 0 || site->call->index == number) &&
            strcmp(site->call->path, pst_str_text(&path)) == 0)
            *ret = site;
    }
    if (row == 0)
        *ret = &modules->sites[0];
    if (path.failed)
        status = pst_diag_nomem(diag, n);
    else if (row < 0)
        status = refuse_name(tree, pst_str_text(&path), diag);
    else if (*ret == NULL)
        status = refuse_call(modules, pst_str_text(&path), number, diag);
    pst_str_fini(&path);
    return status;
}
