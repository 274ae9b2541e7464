// SPDX-License-Identifier: Apache-2.0
/* Module and source line of a node, from its metadata texts. */
#include "stages/frontend/import/import.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define ROOT_KEY "L__self__"

/* One frame "key,path,type" of a module stack. */
struct frame {
    const char *path;
    size_t path_len;
    unsigned call;
    bool strict; /* key is an object's id, which says nothing of the path */
    const char *next; /* behind the second comma */
};

static size_t digits(const char *p)
{
    size_t n = 0;

    while (isdigit((unsigned char)p[n]))
        n++;
    return n;
}

/* p stands at a possible "@3,": its length and number; 0 if it is a plain
 * comma's place or none. */
static bool take_call(const char **p, unsigned *ret)
{
    size_t n;

    *ret = 0;
    if (**p == '@') {
        n = digits(*p + 1);
        if (n == 0 || n > 9)
            return false;
        *ret = (unsigned)strtoul(*p + 1, NULL, 10);
        *p += 1 + n;
    }
    if (**p != ',')
        return false;
    ++*p;
    return true;
}

/* Does "L__self__PATH@k,PATH," stand at p? */
static bool match_path(const char *p, const char *path, size_t len,
                       struct frame *f)
{
    p += strlen(ROOT_KEY);
    if (strncmp(p, path, len) != 0)
        return false;
    p += len;
    if (!take_call(&p, &f->call) || strncmp(p, path, len) != 0 || p[len] != ',')
        return false;
    f->path = p;
    f->path_len = len;
    f->strict = false;
    f->next = p + len + 1;
    return true;
}

/* Names may hold the separators, so a frame is believed only if key and path
 * agree: taken at face value, or for one of the known modules. */
static bool take_frame(const struct pst_map *fqns, const char *p,
                       struct frame *f)
{
    const char *comma = strchr(p, ',');
    size_t n;

    if (comma == NULL)
        return false;
    if (strncmp(p, ROOT_KEY, strlen(ROOT_KEY)) == 0) {
        const char *path = comma + 1, *end = strchr(path, ',');
        bool found = false;

        if (end != NULL && match_path(p, path, (size_t)(end - path), f))
            return true;
        for (size_t i = 0; i < fqns->n; i++) {
            struct frame g;

            n = strlen(fqns->entries[i].key);
            if (match_path(p, fqns->entries[i].key, n, &g) &&
                (!found || n > f->path_len)) {
                *f = g;
                found = true;
            }
        }
        return found;
    }
    n = digits(p);
    p += n;
    if (n == 0 || !take_call(&p, &f->call) || strchr(p, ',') == NULL)
        return false;
    f->path = p;
    f->path_len = strcspn(p, ",");
    f->strict = true;
    f->next = p + f->path_len + 1;
    return true;
}

/* Behind the type: the next frame's key, NULL at the end. */
static const char *skip_type(const char *p)
{
    while ((p = strchr(p, ';')) != NULL) {
        p++;
        if (strncmp(p, ROOT_KEY, strlen(ROOT_KEY)) == 0 || digits(p) > 0)
            return p;
    }
    return NULL;
}

/* Is path[0..n) below parent[0..m), by components? */
static bool is_below(const char *path, size_t n, const char *parent, size_t m)
{
    if (m == 0)
        return n > 0;
    return n > m && strncmp(path, parent, m) == 0 && path[m] == '.';
}

/* Innermost module of a stack. A frame that does not stand below the one
 * before it ends the stack (a module called from a foreign one). */
static enum pst_status read_stack(struct pst_import *import, const char *stack)
{
    struct frame inner = {.path = "", .path_len = 0}, f;
    const char *p = stack, *type = "";
    char *text;

    while (p != NULL && take_frame(&import->fqns, p, &f)) {
        if (f.path_len > 0) {
            if (!is_below(f.path, f.path_len, inner.path, inner.path_len))
                break;
            inner = f;
        }
        type = f.next;
        p = skip_type(f.next);
    }
    text = pst_arena_strndup(&import->model->arena, inner.path, inner.path_len);
    if (text == NULL)
        return pst_diag_nomem(import->diag, inner.path_len);
    import->place.module = text;
    import->place.call = inner.call;
    import->place.library = pst_has_prefix(type, "torch.nn.modules.");
    import->place.dropout = pst_has_prefix(type, "torch.nn.modules.dropout.");
    return PST_OK;
}

/* A frame of PyTorch itself tells a user nothing. */
static bool is_library(const char *path, size_t len)
{
    return (len > 6 && strncmp(path, "torch/", 6) == 0) ||
           memmem(path, len, "/torch/", 7) != NULL;
}

/* Last frame outside PyTorch of a Python traceback, as "file.py:12". */
static enum pst_status read_trace(struct pst_import *import, const char *trace)
{
    static const char begin[] = "File \"", middle[] = "\", line ";
    const char *path = NULL, *line = NULL, *p = trace;
    size_t len = 0;

    while ((p = strstr(p, begin)) != NULL) {
        const char *end;

        p += sizeof(begin) - 1;
        end = strchr(p, '"');
        if (end == NULL)
            break;
        if (strncmp(end, middle, sizeof(middle) - 1) == 0 &&
            (path == NULL || !is_library(p, (size_t)(end - p)))) {
            path = p;
            len = (size_t)(end - p);
            line = end + sizeof(middle) - 1;
        }
    }
    import->place.source = "";
    if (path == NULL)
        return PST_OK;
    for (size_t i = len; i-- > 0;)
        if (path[i] == '/' || path[i] == '\\') {
            path += i + 1;
            len -= i + 1;
            break;
        }
    import->place.source =
        pst_arena_printf(&import->model->arena, "%.*s:%.*s", (int)len, path,
                         (int)PST_MIN(digits(line), (size_t)9), line);
    return import->place.source != NULL ? PST_OK
                                        : pst_diag_nomem(import->diag, len);
}

enum pst_status pst_import_place(struct pst_import *import, const json_t *node)
{
    const json_t *meta = json_object_get(node, "metadata");
    const char *stack =
        json_string_value(json_object_get(meta, "nn_module_stack"));
    const char *trace = json_string_value(json_object_get(meta, "stack_trace"));
    enum pst_status status = PST_OK;

    if (stack != NULL &&
        strstr(stack, "_empty_nn_module_stack_from_metadata_hook") == NULL)
        status = read_stack(import, stack);
    if (status == PST_OK && trace != NULL)
        status = read_trace(import, trace);
    return status;
}

void pst_import_blame(struct pst_import *import, const json_t *node,
                      const char *target)
{
    const char *name = json_string_value(json_object_get(node, "name"));
    const struct pst_place *p = &import->place;

    if (import->diag == NULL || pst_has_prefix(import->diag->text, "node \""))
        return;
    pst_diag_prefix(import->diag, "node \"%s\" (%s) in %s%s%s",
                    name != NULL ? name : "?", target,
                    p->module[0] != '\0' ? p->module : "the outermost module",
                    p->source[0] != '\0' ? " at " : "", p->source);
}
