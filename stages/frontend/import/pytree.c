// SPDX-License-Identifier: Apache-2.0
/* Names the leaves of a model's arguments and results. */
#include "stages/frontend/import/import.h"

#include <string.h>

struct walk {
    struct pst_arena *arena;
    struct pst_paths *paths;
    struct pst_diag *diag;
};

static const char *join_path(const struct walk *w, const char *path,
                             const char *key, unsigned i)
{
    const char *dot = path[0] != '\0' ? "." : "";

    return key != NULL ? pst_arena_printf(w->arena, "%s%s%s", path, dot, key)
                       : pst_arena_printf(w->arena, "%s%s%u", path, dot, i);
}

static enum pst_status add_leaf(struct walk *w, const char *path)
{
    struct pst_paths *p = w->paths;

    if (p->n == p->cap) {
        const size_t cap = p->cap > 0 ? 2 * p->cap : 16;
        const char **at = pst_arena_calloc(w->arena, cap, sizeof(*at));

        if (at == NULL)
            return pst_diag_nomem(w->diag, cap * sizeof(*at));
        if (p->n > 0)
            memcpy(at, p->at, p->n * sizeof(*at));
        p->at = at;
        p->cap = cap;
    }
    p->at[p->n++] = path[0] != '\0' ? path : "0";
    return PST_OK;
}

/* Visits a tree recursively; the JSON parser limits its depth. */
static enum pst_status visit_tree(struct walk *w,
                                  const struct pst_doc_tree *tree,
                                  const char *path)
{
    enum pst_status status = PST_OK;

    if (tree->type == NULL)
        return add_leaf(w, path);
    for (unsigned i = 0; i < tree->n && status == PST_OK; i++) {
        const char *child =
            join_path(w, path, tree->keys != NULL ? tree->keys[i] : NULL, i);

        status = child != NULL ? visit_tree(w, &tree->children[i], child)
                               : pst_diag_nomem(w->diag, 0);
    }
    return status;
}

enum pst_status pst_pytree_results(const struct pst_doc_tree *tree,
                                   struct pst_arena *arena,
                                   struct pst_paths *ret, struct pst_diag *diag)
{
    struct walk w = {arena, ret, diag};

    *ret = (struct pst_paths){0};
    return visit_tree(&w, tree, "");
}

enum pst_status pst_pytree_arguments(const struct pst_doc_tree *tree,
                                     const char *const *names, unsigned n_names,
                                     struct pst_arena *arena,
                                     struct pst_paths *ret,
                                     struct pst_diag *diag)
{
    struct walk w = {arena, ret, diag};
    const struct pst_doc_tree *args = tree->children;
    enum pst_status status = PST_OK;

    *ret = (struct pst_paths){0};
    if (tree->type == NULL || tree->n != 2)
        return pst_diag_set(diag, PST_E_PT2_INCONSISTENT,
                            "a treespec of the model's signature is damaged");
    /* The first names are those of the positional arguments. */
    for (unsigned i = 0; i < args->n && status == PST_OK; i++) {
        const char *path = join_path(
            &w, "", names != NULL && i < n_names ? names[i] : NULL, i);

        status = path != NULL ? visit_tree(&w, &args->children[i], path)
                              : pst_diag_nomem(diag, 0);
    }
    return status == PST_OK ? visit_tree(&w, &tree->children[1], "") : status;
}
