// SPDX-License-Identifier: Apache-2.0
/* Reads module and source line of a node from its metadata texts. */
#include "stages/base/str.h"
#include "stages/files/pt2/reader.h"

#include <stdlib.h>
#include <string.h>

#define ROOT_KEY "L__self__"
#define DIGITS   "0123456789"

/* One frame "key,path,type" of a module stack. */
struct frame {
    const char *path;
    size_t path_len;
    unsigned call;
    const char *next; /* the text after the second comma */
};

/* Skips "," or "@3," at *p; *ret is the number, 0 without one. False: neither
 * is there. */
static bool read_call(const char **p, unsigned *ret)
{
    size_t n;

    *ret = 0;
    if (**p == '@') {
        n = strspn(*p + 1, DIGITS);
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

/* True if "L__self__PATH@k,PATH," is at p. */
static bool match_path(const char *p, const char *path, size_t len,
                       struct frame *f)
{
    p += strlen(ROOT_KEY);
    if (strncmp(p, path, len) != 0)
        return false;
    p += len;
    if (!read_call(&p, &f->call) || strncmp(p, path, len) != 0 || p[len] != ',')
        return false;
    f->path = p;
    f->path_len = len;
    f->next = p + len + 1;
    return true;
}

/* Parses a frame at p. Names may contain the separators, so a frame is accepted
 * only if its key and path agree, either literally or for one of the known
 * modules. */
static bool read_frame(const struct pst_map *fqns, const char *p,
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
    n = strspn(p, DIGITS);
    p += n;
    if (n == 0 || !read_call(&p, &f->call) || strchr(p, ',') == NULL)
        return false;
    f->path = p;
    f->path_len = strcspn(p, ",");
    f->next = p + f->path_len + 1;
    return true;
}

/* Skips the type of a frame: returns the key of the next frame; NULL at the
 * end. */
static const char *skip_type(const char *p)
{
    while ((p = strchr(p, ';')) != NULL) {
        p++;
        if (strncmp(p, ROOT_KEY, strlen(ROOT_KEY)) == 0 ||
            strspn(p, DIGITS) > 0)
            return p;
    }
    return NULL;
}

/* True if the path of n bytes is a submodule of the path `parent` of m
 * bytes. */
static bool is_below(const char *path, size_t n, const char *parent, size_t m)
{
    if (m == 0)
        return n > 0;
    return n > m && strncmp(path, parent, m) == 0 && path[m] == '.';
}

/* Adds frame f, whose key begins at p and whose type ends at `end` (NULL: at
 * the end of the text). */
static enum pst_status add_frame(struct pst_reader *r, const char *p,
                                 const struct frame *f, const char *end,
                                 struct pst_doc_frame *ret)
{
    const size_t type_len =
        end != NULL ? (size_t)(end - 1 - f->next) : strlen(f->next);
    char *key, *path, *type;
    enum pst_status status;

    ret->call = f->call;
    key = pst_arena_strndup(&r->scratch, p, (size_t)(f->path - 1 - p));
    path = pst_arena_strndup(&r->scratch, f->path, f->path_len);
    type = pst_arena_strndup(&r->scratch, f->next, type_len);
    if (key == NULL || path == NULL || type == NULL)
        return pst_diag_nomem(r->diag, type_len);
    status = pst_read_text(r, key, &ret->key);
    if (status == PST_OK)
        status = pst_read_text(r, path, &ret->path);
    if (status == PST_OK)
        status = pst_read_text(r, type, &ret->type);
    return status;
}

/* Parses frames as long as they can be separated. n_nested counts the frames
 * before the first one that is not below the previous one. */
static enum pst_status parse_stack(struct pst_reader *r, const char *text,
                                   struct pst_doc_stack *ret)
{
    const struct pst_doc_frame *inner = NULL;
    struct pst_doc_frame *frames = NULL;
    enum pst_status status = PST_OK;
    const char *next, *p;
    struct frame f;
    unsigned n = 0;
    bool nested = true;

    for (p = text; p != NULL && read_frame(&r->fqns, p, &f);
         p = skip_type(f.next))
        n++;
    status = pst_reader_alloc(r, n, sizeof(*frames), &frames);
    ret->frames = frames;
    ret->n = n;
    p = text;
    for (unsigned i = 0; i < n && status == PST_OK; i++, p = next) {
        if (!read_frame(&r->fqns, p, &f))
            break;
        next = skip_type(f.next);
        status = add_frame(r, p, &f, next, &frames[i]);
        if (status != PST_OK)
            break;
        if (f.path_len > 0 && inner != NULL)
            nested = nested && is_below(f.path, f.path_len, inner->path,
                                        strlen(inner->path));
        if (f.path_len > 0)
            inner = &frames[i];
        if (nested)
            ret->n_nested = i + 1;
    }
    return status;
}

static enum pst_status read_stack(struct pst_reader *r, const char *text,
                                  struct pst_doc_place *place)
{
    struct pst_doc_stack *stack = pst_map_get(&r->stacks, text);
    enum pst_status status = PST_OK;
    const char *type = "";

    if (stack == NULL) {
        status = pst_reader_alloc(r, 1, sizeof(*stack), &stack);
        if (status == PST_OK)
            status = parse_stack(r, text, stack);
        if (status == PST_OK && !pst_map_put(&r->stacks, text, stack))
            status = pst_diag_nomem(r->diag, strlen(text));
    }
    if (status != PST_OK || stack == NULL)
        return status;
    place->stack = stack;
    place->module = "";
    place->call = 0;
    for (unsigned i = 0; i < stack->n_nested; i++) {
        const struct pst_doc_frame *f = &stack->frames[i];

        type = f->type;
        if (f->path[0] == '\0')
            continue;
        place->module = f->path;
        place->call = f->call;
    }
    place->library = pst_has_prefix(type, "torch.nn.modules.");
    place->dropout = pst_has_prefix(type, "torch.nn.modules.dropout.");
    return PST_OK;
}

/* Returns an upper bound on the user-defined modules in a stack: names may
 * contain the separators, which are counted. */
static unsigned count_modules(const char *text,
                              const struct pst_doc_stack *stack)
{
    unsigned n = 1, library = 0;

    for (const char *p = text; (p = strchr(p, ';')) != NULL; p++)
        n++;
    for (unsigned i = 0; i < stack->n; i++)
        library += pst_has_prefix(stack->frames[i].type, "torch.nn.");
    return n - PST_MIN(n, library);
}

/* Sets place->lost: why the file may lack the gradient of a node. trace,
 * function: NULL if the node has none. */
static void read_function(const struct pst_doc_trace *trace, const char *stack,
                          const char *function, struct pst_doc_place *place)
{
    place->lost = PST_LOST_NOTHING;
    if (trace != NULL && trace->lost)
        place->lost = PST_LOST_FUNCTION;
    else if (function != NULL &&
             pst_has_prefix(function, "wrap_with_set_grad_enabled;"))
        place->lost = PST_LOST_NO_GRAD;
    else if (trace != NULL && !trace->others && stack != NULL &&
             place->stack != NULL &&
             trace->forwards > count_modules(stack, place->stack))
        place->lost = PST_LOST_PERHAPS;
}

enum pst_status pst_read_place(struct pst_reader *r,
                               const struct pst_json *metadata)
{
    const char *stack =
        pst_json_string(pst_json_get(metadata, "nn_module_stack"));
    const char *trace = pst_json_string(pst_json_get(metadata, "stack_trace"));
    const char *function = pst_json_string(pst_json_get(metadata, "torch_fn"));
    struct pst_doc_place place = *r->place, *copy;
    const struct pst_doc_trace *recorded = NULL;
    enum pst_status status = PST_OK;

    if (stack != NULL &&
        strstr(stack, "_empty_nn_module_stack_from_metadata_hook") == NULL)
        status = read_stack(r, stack, &place);
    if (status == PST_OK && trace != NULL)
        status = pst_read_trace(r, trace, &recorded);
    if (recorded != NULL)
        place.source = recorded->source;
    read_function(recorded, stack, function, &place);
    /* Texts are interned: equal texts have equal pointers. */
    if (status != PST_OK ||
        (place.stack == r->place->stack && place.source == r->place->source &&
         place.lost == r->place->lost))
        return status;
    copy = pst_arena_memdup(r->arena, &place, sizeof(place));
    if (copy == NULL)
        return pst_diag_nomem(r->diag, sizeof(place));
    r->place = copy;
    return PST_OK;
}
