// SPDX-License-Identifier: Apache-2.0
#include "stages/passes/layers.h"

#include "stages/base/str.h"

#include <string.h>

#define TAG PST_TAG_GRAPH

void pst_layers_init(struct pst_layers *layers)
{
    pst_map_init(&layers->lists, TAG);
    layers->last = "";
}

void pst_layers_fini(struct pst_layers *layers)
{
    pst_map_fini(&layers->lists);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns the length of the path up to and including its numeric component
 * number `k`: "a.0.b.1.c" has "a.0" and "a.0.b.1". 0: there is none. */
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

/* Returns the length of the layer's path without its final number:
 * "model.layers." of "model.layers.3". */
static size_t list_length(const char *path, size_t layer)
{
    while (layer > 0 && path[layer - 1] != '.')
        layer--;
    return layer;
}

/* Records a layer: `length` characters of `path`. The map has the first path
 * that was seen in a list, or "" if the list has several layers. */
static enum pst_status record_layer(struct pst_layers *layers, const char *path,
                                    size_t length, struct pst_diag *diag)
{
    char *list = pst_strdup(TAG, path);
    const char *known, *now = path;
    int done = 1;

    if (list == NULL)
        return pst_diag_nomem(diag, length);
    list[list_length(path, length)] = '\0';
    known = pst_map_get(&layers->lists, list);
    if (known != NULL && strncmp(known, path, length) != 0)
        now = ""; /* several layers; `known` may be "", too */
    else if (known != NULL)
        now = known[length] == '.' || known[length] == '\0' ? known : "";
    if (known == NULL || (now != known && known[0] != '\0'))
        done = pst_map_put(&layers->lists, list, (char *)now);
    pst_free(list);
    return done ? PST_OK : pst_diag_nomem(diag, length);
}

enum pst_status pst_layers_add(struct pst_layers *layers,
                               const struct pst_graph *graph,
                               struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        const char *path;
        size_t length;

        if (graph->nodes.at[i]->call == NULL)
            continue;
        path = graph->nodes.at[i]->call->path;
        if (strcmp(path, layers->last) == 0)
            continue;
        layers->last = path;
        for (unsigned k = 0; (length = layer_length(path, k)) > 0; k++) {
            status = record_layer(layers, path, length, diag);
            if (status != PST_OK)
                return status;
        }
    }
    return PST_OK;
}

enum pst_status pst_layers_of(const struct pst_layers *layers, const char *path,
                              size_t *ret, struct pst_diag *diag)
{
    *ret = 0;
    for (unsigned k = 0; layer_length(path, k) > 0; k++) {
        const size_t length = layer_length(path, k);
        char *list = pst_strdup(TAG, path);
        const char *known;

        if (list == NULL)
            return pst_diag_nomem(diag, length);
        list[list_length(path, length)] = '\0';
        known = pst_map_get(&layers->lists, list);
        pst_free(list);
        if (known != NULL && known[0] == '\0') {
            *ret = length;
            return PST_OK;
        }
    }
    return PST_OK;
}
