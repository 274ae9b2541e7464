// SPDX-License-Identifier: Apache-2.0
/*
 * The layers of a model: modules that stand in a list ("encoder.3"), where the
 * list is not inside another such module. A list of one is none.
 */
#include "stages/base/str.h"
#include "stages/split/assign/assign.h"

#include <string.h>

#define TAG PST_TAG_PLAN

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of the path up to and with component number `k` that is a number:
 * "a.0.b.1.c" has "a.0" and "a.0.b.1". 0: there is none. */
static size_t layer_length(const char *path, unsigned k)
{
    const char *c = path;

    while (*c != '\0') {
        const char *begin = c;
        bool digits = true;

        for (; *c != '\0' && *c != '.'; c++)
            digits = digits && is_digit(*c);
        if (digits && c > begin && k-- == 0)
            return (size_t)(c - path);
        c += *c == '.';
    }
    return 0;
}

/* Length of the list's own name, without ".3". */
static size_t list_length(const char *path, size_t layer)
{
    while (layer > 0 && path[layer - 1] != '.')
        layer--;
    return layer;
}

struct layers {
    struct pst_splitter *s;
    struct pst_map lists; /* name -> name of its first layer, or "" if many */
    struct pst_cuts *cuts;
};

static enum pst_status note_layer(struct layers *l, const char *path,
                                  size_t length)
{
    struct pst_arena *arena = &l->s->plan->arena;
    char *list = pst_arena_strndup(arena, path, list_length(path, length));
    char *layer = pst_arena_strndup(arena, path, length);
    const char *known;

    if (list == NULL || layer == NULL)
        return pst_diag_nomem(l->s->diag, length);
    known = pst_map_get(&l->lists, list);
    if (known != NULL && strcmp(known, layer) == 0)
        return PST_OK;
    if (!pst_map_put(&l->lists, list, known == NULL ? layer : (char *)""))
        return pst_diag_nomem(l->s->diag, length);
    return PST_OK;
}

static enum pst_status note_layers(struct layers *l)
{
    const struct pst_graph *graph = l->s->graph;
    const char *last = "";
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        const char *path = graph->nodes.at[i]->call->path;
        size_t length;

        if (strcmp(path, last) == 0)
            continue;
        last = path;
        for (unsigned k = 0; (length = layer_length(path, k)) > 0; k++) {
            status = note_layer(l, path, length);
            if (status != PST_OK)
                return status;
        }
    }
    return PST_OK;
}

/* The layer that the path is in: of the outermost list that has several. */
static enum pst_status layer_of(const struct layers *l, const char *path,
                                size_t *ret)
{
    *ret = 0;
    for (unsigned k = 0; layer_length(path, k) > 0; k++) {
        const size_t length = layer_length(path, k);
        char *list = pst_strdup(TAG, path);
        const char *known;

        if (list == NULL)
            return pst_diag_nomem(l->s->diag, length);
        list[list_length(path, length)] = '\0';
        known = pst_map_get(&l->lists, list);
        pst_free(list);
        if (known != NULL && known[0] == '\0') {
            *ret = length;
            return PST_OK;
        }
    }
    return PST_OK;
}

static enum pst_status add_cuts(struct layers *l)
{
    const struct pst_graph *graph = l->s->graph;
    const struct pst_node *before = NULL; /* of a layer */
    size_t length_before = 0;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];
        struct pst_cut cut = {i, "the cut before a layer"};
        size_t length;
        enum pst_status status;
        bool same;

        if (before != NULL &&
            strcmp(before->call->path, node->call->path) == 0 &&
            before->call == node->call)
            continue;
        status = layer_of(l, node->call->path, &length);
        if (status != PST_OK)
            return status;
        if (length == 0)
            continue; /* what stands between layers stays with the former */
        same = before != NULL && length == length_before &&
               strncmp(before->call->path, node->call->path, length) == 0;
        if (before != NULL && !same && !pst_vec_push(TAG, &l->cuts->list, cut))
            return pst_diag_nomem(l->s->diag, sizeof(cut));
        before = node;
        length_before = length;
    }
    return PST_OK;
}

enum pst_status pst_cuts_by_layer(struct pst_splitter *s, struct pst_cuts *ret)
{
    struct layers l = {.s = s, .cuts = ret};
    enum pst_status status;

    pst_map_init(&l.lists, TAG);
    status = note_layers(&l);
    if (status == PST_OK)
        status = add_cuts(&l);
    pst_map_fini(&l.lists);
    if (status == PST_OK && ret->list.n == 0)
        status = pst_diag_set(s->diag, PST_ERR_INPUT,
                              "the model has no list of layers (modules named "
                              "\"layers.0\", \"layers.1\" ...); --policy flops "
                              "cuts without");
    return status;
}
