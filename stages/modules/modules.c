// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/modules.h"

#include "stages/graph/schema.h"
#include "stages/graph/text/print.h"

#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_PLAN

struct describer {
    const struct pst_graph *graph;
    const struct pst_outline *outline;
    struct pst_modules *modules;
    struct pst_map templates; /* text of a graph -> template + 1 */
    struct pst_diag *diag;
};

static enum pst_status no_memory(const struct describer *d)
{
    return pst_diag_nomem(d->diag, 0);
}

/* --- text ----------------------------------------------------------------- */

/* Texts that stand for values in the description of a frame: their position
 * instead of their name, so that equal frames have equal descriptions. */
struct places {
    struct pst_map at; /* value id -> text */
    struct pst_arena arena;
    unsigned n;
};

static const char *key_of(const struct pst_value *v, char key[16])
{
    snprintf(key, 16, "%u", v->id);
    return key;
}

static bool put_place(struct places *p, const struct pst_value *v,
                      const char *fmt, unsigned i)
{
    char *text = pst_arena_printf(&p->arena, fmt, i); // NOLINT
    char key[16];

    return text != NULL && pst_map_put(&p->at, key_of(v, key), text);
}

static void add_value(const struct describer *d, const struct places *p,
                      const struct pst_module_call *call,
                      const struct pst_value *value, struct pst_str *out)
{
    const struct pst_value *v = pst_outline_source(value);
    const char *name = pst_outline_attribute(d->outline, v, call), *text;
    char key[16];

    if (name != NULL) {
        pst_str_add(out, "%");
        pst_str_add_json(out, name);
        return;
    }
    text = pst_map_get(&p->at, key_of(v, key));
    pst_str_add(out, text != NULL ? text : "?");
}

struct printer {
    const struct describer *d;
    const struct places *p;
    const struct pst_module_call *call;
};

static void print_value(void *ctx, const struct pst_value *value,
                        struct pst_str *out)
{
    const struct printer *x = ctx;

    add_value(x->d, x->p, x->call, value, out);
}

static bool add_node(const struct describer *d, struct places *p,
                     const struct pst_node *node, struct pst_str *out)
{
    struct printer x = {d, p, node->call};
    bool ok = true;

    pst_str_addf(out, "%s%s", node->schema->name,
                 node->no_grad ? " no_grad" : "");
    for (unsigned i = 0; i < node->schema->n_args; i++) {
        pst_str_add(out, " ");
        pst_arg_print(&node->args[i], print_value, &x, out);
    }
    for (unsigned k = 0; k < node->n_outs; k++) {
        if (node->outs[k]->version_of == NULL) {
            ok = put_place(p, node->outs[k], "%%%u", p->n++) && ok;
            continue;
        }
        pst_str_add(out, " -> ");
        add_value(d, p, node->call, node->outs[k], out);
    }
    pst_str_add(out, "\n");
    return ok;
}

static bool add_call(const struct describer *d, struct places *p,
                     const struct pst_module_call *call, unsigned inner,
                     struct pst_str *out)
{
    const struct pst_outline_frame *f = &d->outline->frames[inner];
    bool ok = true;

    pst_str_addf(out, "call %u", d->modules->sites[inner].template);
    for (size_t i = 0; i < f->inputs.n; i++) {
        pst_str_add(out, " ");
        add_value(d, p, call, f->inputs.at[i], out);
    }
    pst_str_add(out, "\n");
    for (size_t i = 0; i < f->outs.n; i++)
        ok = put_place(p, f->outs.at[i], "%%%u", p->n++) && ok;
    return ok;
}

static bool add_frame(const struct describer *d, struct places *p,
                      const struct pst_module_call *call, struct pst_str *out)
{
    const struct pst_outline_frame *f = &d->outline->frames[call->id];
    bool ok = true;

    for (size_t i = 0; i < f->inputs.n; i++)
        ok = put_place(p, f->inputs.at[i], "%%in%u", (unsigned)i) && ok;
    for (size_t i = 0; i < f->items.n; i++)
        ok = (f->items.at[i].node != NULL
                  ? add_node(d, p, f->items.at[i].node, out)
                  : add_call(d, p, call, f->items.at[i].call, out)) &&
             ok;
    pst_str_add(out, "return");
    for (size_t i = 0; i < f->outs.n; i++) {
        pst_str_add(out, " ");
        add_value(d, p, call, f->outs.at[i], out);
    }
    return ok && !out->failed;
}

/* --- templates ------------------------------------------------------------ */

static enum pst_status number_template(struct describer *d,
                                       struct pst_module_site *site,
                                       const char *text)
{
    size_t known = (size_t)pst_map_get(&d->templates, text);

    if (known == 0) {
        known = d->templates.n + 1;
        if (!pst_map_put(&d->templates, text, (void *)known))
            return no_memory(d);
    }
    site->template = (unsigned)known - 1;
    return PST_OK;
}

/* Describes a call after its callees; recursion is bounded by
 * PST_MAX_CALL_DEPTH. */
static enum pst_status describe_call(struct describer *d,
                                     const struct pst_module_call *call)
{
    const struct pst_outline_frame *f = &d->outline->frames[call->id];
    struct pst_str text = {0};
    struct places p = {.n = 0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < f->items.n && status == PST_OK; i++) {
        if (f->items.at[i].node == NULL)
            status = describe_call(d, d->graph->calls.at[f->items.at[i].call]);
        else
            d->modules->sites[call->id].n_nodes++;
    }
    if (status != PST_OK)
        return status;
    pst_map_init(&p.at, TAG);
    pst_arena_init(&p.arena, TAG);
    status = add_frame(d, &p, call, &text)
                 ? number_template(d, &d->modules->sites[call->id],
                                   pst_str_text(&text))
                 : no_memory(d);
    pst_arena_fini(&p.arena);
    pst_map_fini(&p.at);
    pst_str_fini(&text);
    return status;
}

/* --- names ---------------------------------------------------------------- */

struct namer {
    struct describer *d;
    struct pst_map first;   /* "TEMPLATE PATH" -> name */
    struct pst_map modules; /* identity -> number + 1 */
    struct pst_map paths;   /* path -> id of its first call */
};

/* Returns the number of a key, from 1 on; `next` if it is new; 0 if out of
 * memory. */
static size_t number_of(struct pst_map *map, const char *key, size_t next)
{
    const size_t known = (size_t)pst_map_get(map, key);

    if (known != 0)
        return known;
    return pst_map_put(map, key, (void *)next) ? next : 0;
}

static enum pst_status name_site(struct namer *n, unsigned i)
{
    struct pst_modules *m = n->d->modules;
    struct pst_module_site *s = &m->sites[i];
    const char *key =
        s->call->identity[0] != '\0' ? s->call->identity : s->call->path;
    char *of = pst_arena_printf(&m->arena, "%u %s", s->template, s->call->path);
    const size_t module = number_of(&n->modules, key, n->modules.n + 1);
    const size_t path = number_of(&n->paths, s->call->path, i);

    if (of == NULL || module == 0 || path == 0)
        return no_memory(n->d);
    s->identity = (unsigned)module - 1;
    s->first = (unsigned)path;
    m->sites[path].n_calls++;
    s->name = pst_map_get(&n->first, of);
    if (s->name != NULL)
        return PST_OK;
    m->sites[path].n_graphs++;
    s->name = s->call->index > 0
                  ? pst_arena_printf(&m->arena, "%s@%u", s->call->path,
                                     s->call->index)
                  : s->call->path;
    return s->name != NULL && pst_map_put(&n->first, of, (void *)s->name)
               ? PST_OK
               : no_memory(n->d);
}

/* Sets the names, identities and counts of sites, once templates are set. */
static enum pst_status name_sites(struct describer *d)
{
    struct pst_modules *m = d->modules;
    struct namer n = {.d = d};
    enum pst_status status = PST_OK;

    pst_map_init(&n.first, TAG);
    pst_map_init(&n.modules, TAG);
    pst_map_init(&n.paths, TAG);
    for (size_t i = 0; i < d->outline->order.n && status == PST_OK; i++) {
        const unsigned id = d->outline->order.at[i];

        status = name_site(&n, id);
        m->n_templates = PST_MAX(m->n_templates, m->sites[id].template + 1);
    }
    pst_map_fini(&n.first);
    pst_map_fini(&n.modules);
    pst_map_fini(&n.paths);
    return status;
}

static enum pst_status describe_modules(struct describer *d)
{
    struct pst_modules *m = d->modules;
    const size_t n = d->graph->calls.n;
    enum pst_status status;

    m->sites = pst_arena_calloc(&m->arena, n, sizeof(*m->sites));
    if (m->sites == NULL)
        return no_memory(d);
    m->n_sites = (unsigned)n;
    for (size_t i = 0; i < n; i++)
        m->sites[i] =
            (struct pst_module_site){.call = d->graph->calls.at[i], .name = ""};
    status = describe_call(d, d->graph->calls.at[0]);
    return status == PST_OK ? name_sites(d) : status;
}

enum pst_status pst_modules_new(const struct pst_graph *graph,
                                const struct pst_tie *ties, size_t n_ties,
                                struct pst_modules **ret, struct pst_diag *diag)
{
    struct describer d = {.graph = graph, .diag = diag};
    struct pst_modules *m = pst_calloc(TAG, 1, sizeof(*m));
    enum pst_status status;

    if (m == NULL)
        return no_memory(&d);
    pst_arena_init(&m->arena, TAG);
    status = pst_outline_init(&m->outline, graph, ties, n_ties, diag);
    d.modules = m;
    d.outline = &m->outline;
    pst_map_init(&d.templates, TAG);
    if (status == PST_OK)
        status = describe_modules(&d);
    pst_map_fini(&d.templates);
    if (status != PST_OK) {
        pst_modules_free(m);
        return status;
    }
    *ret = m;
    return PST_OK;
}

void pst_modules_free(struct pst_modules *modules)
{
    if (modules == NULL)
        return;
    if (modules->outline.frames != NULL)
        pst_outline_fini(&modules->outline);
    pst_arena_fini(&modules->arena);
    pst_free(modules);
}
