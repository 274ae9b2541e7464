// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/modules.h"

#include "stages/graph/calls.h"
#include "stages/graph/schema.h"
#include "stages/graph/text/print.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG PST_TAG_PLAN

/* A node of a call, or a call in it. */
struct item {
    const struct pst_node *node; /* NULL: a call */
    unsigned call;
};

/* A call while it is described. */
struct frame {
    struct PST_VEC(struct item) items;
    struct PST_VEC(const struct pst_value *) inputs, outs;
    bool entered;
};

struct describer {
    const struct pst_model *model;
    const struct pst_graph *graph;
    struct pst_modules *modules;
    struct frame *frames;
    const struct pst_module_call **reach; /* by value: innermost call with all
                                             its uses and its node */
    struct pst_map names;                 /* FQN of a value -> struct pst_tie */
    struct pst_map taken;     /* "CALL VALUE": an input of that call */
    struct pst_map templates; /* text -> number + 1 */
    struct pst_diag *diag;
};

static enum pst_status no_memory(const struct describer *d)
{
    return pst_diag_nomem(d->diag, 0);
}

/* --- values --------------------------------------------------------------- */

/* What a name of the state holds is told by the name, whatever was written. */
static const struct pst_value *told_by(const struct pst_value *value)
{
    return value->version_of != NULL ? value->version_of : value;
}

static bool is_below(const char *name, const char *path)
{
    const size_t n = strlen(path);

    return n == 0 || (strncmp(name, path, n) == 0 && name[n] == '.');
}

/* The first of the value's names, by letters, that is one of the call's module
 * or below; NULL: there is none. */
static const char *attribute(const struct describer *d,
                             const struct pst_value *value,
                             const struct pst_module_call *call)
{
    const struct pst_tie *tie;
    const char *ret = NULL;

    if (!pst_value_is_state(value))
        return NULL;
    tie = pst_map_get(&d->names, value->fqn);
    if (is_below(value->fqn, call->path))
        ret = value->fqn;
    for (unsigned i = 0; tie != NULL && i < tie->n_aliases; i++)
        if (is_below(tie->aliases[i], call->path) &&
            (ret == NULL || strcmp(tie->aliases[i], ret) < 0))
            ret = tie->aliases[i];
    if (ret != NULL && call->path[0] != '\0')
        ret += strlen(call->path) + 1;
    return ret;
}

static const struct pst_module_call *common(const struct pst_module_call *a,
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

static const struct pst_module_call *home_of(const struct describer *d,
                                             const struct pst_value *value)
{
    return value->def != NULL ? value->def->call : d->graph->calls.at[0];
}

/* --- who takes and gives what --------------------------------------------- */

struct use_ctx {
    struct describer *d;
    const struct pst_node *node;
    bool failed;
};

static void widen(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use_ctx *u = ctx;
    const struct pst_value *v = *slot;

    (void)arg;
    if (v->version_of == NULL)
        u->d->reach[v->id] = common(u->d->reach[v->id], u->node->call);
}

/* An input of the calls around the use, up to the one that makes it or has it
 * as an attribute. */
static void take(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use_ctx *u = ctx;
    struct describer *d = u->d;
    const struct pst_value *v = told_by(*slot);
    const struct pst_module_call *call = u->node->call;
    const struct pst_module_call *end = common(call, home_of(d, v));

    (void)arg;
    for (; call != end && attribute(d, v, call) == NULL; call = call->parent) {
        char key[32];

        snprintf(key, sizeof(key), "%u %u", call->id, v->id);
        if (pst_map_has(&d->taken, key))
            continue;
        if (!pst_map_put(&d->taken, key, d) ||
            !pst_vec_push(TAG, &d->frames[call->id].inputs, v))
            u->failed = true;
    }
}

static enum pst_status give(struct describer *d, const struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        const struct pst_value *v = node->outs[k];
        const struct pst_module_call *call = node->call;

        for (; v->version_of == NULL && call != d->reach[v->id];
             call = call->parent)
            if (!pst_vec_push(TAG, &d->frames[call->id].outs, v))
                return no_memory(d);
    }
    return PST_OK;
}

/* The call and those around it become items, where they are first entered. */
static enum pst_status enter(struct describer *d,
                             const struct pst_module_call *call)
{
    const struct pst_module_call *path[PST_MAX_CALL_DEPTH + 1];
    unsigned n = 0;

    for (; call->parent != NULL && !d->frames[call->id].entered;
         call = call->parent)
        path[n++] = call;
    while (n-- > 0) {
        const struct item item = {NULL, path[n]->id};

        d->frames[path[n]->id].entered = true;
        if (!pst_vec_push(TAG, &d->frames[path[n]->parent->id].items, item))
            return no_memory(d);
    }
    return PST_OK;
}

static enum pst_status visit(struct describer *d, struct pst_node *node)
{
    const struct item item = {node, 0};
    struct use_ctx u = {d, node, false};
    enum pst_status status = enter(d, node->call);

    if (status == PST_OK &&
        !pst_vec_push(TAG, &d->frames[node->call->id].items, item))
        status = no_memory(d);
    pst_node_uses(node, take, &u);
    if (status == PST_OK)
        status = u.failed ? no_memory(d) : give(d, node);
    return status;
}

static enum pst_status visit_all(struct describer *d)
{
    const struct pst_graph *graph = d->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < graph->values.n; i++)
        d->reach[i] = home_of(d, graph->values.at[i]);
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct use_ctx u = {d, graph->nodes.at[i], false};

        pst_node_uses(graph->nodes.at[i], widen, &u);
    }
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_arg *arg = &graph->outputs.at[i].arg;

        if (arg->kind == PST_ARG_VALUE && arg->value->version_of == NULL)
            d->reach[arg->value->id] = graph->calls.at[0];
    }
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++)
        status = visit(d, graph->nodes.at[i]);
    return status;
}

/* --- text ----------------------------------------------------------------- */

/* Where values stand in the frame that is described. */
struct places {
    struct pst_map at; /* id -> text */
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
    const struct pst_value *v = told_by(value);
    const char *name = attribute(d, v, call), *text;
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
    const struct frame *f = &d->frames[inner];
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
    const struct frame *f = &d->frames[call->id];
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

static enum pst_status number(struct describer *d, struct pst_module_site *site,
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

/* Callees first. Calls are as deep as PST_MAX_CALL_DEPTH at most. */
static enum pst_status describe(struct describer *d,
                                const struct pst_module_call *call)
{
    struct frame *f = &d->frames[call->id];
    struct pst_str text = {0};
    struct places p = {.n = 0};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < f->items.n && status == PST_OK; i++) {
        if (f->items.at[i].node == NULL)
            status = describe(d, d->graph->calls.at[f->items.at[i].call]);
        else
            d->modules->sites[call->id].n_nodes++;
    }
    if (status != PST_OK)
        return status;
    pst_map_init(&p.at, TAG);
    pst_arena_init(&p.arena, TAG);
    status = add_frame(d, &p, call, &text)
                 ? number(d, &d->modules->sites[call->id], pst_str_text(&text))
                 : no_memory(d);
    pst_arena_fini(&p.arena);
    pst_map_fini(&p.at);
    pst_str_fini(&text);
    return status;
}

/* Names and numbers that follow from paths, indices and templates. */
static enum pst_status name_sites(struct describer *d)
{
    struct pst_modules *m = d->modules;
    struct pst_map first, modules, paths;
    enum pst_status status = PST_OK;

    pst_map_init(&first, TAG);
    pst_map_init(&modules, TAG);
    pst_map_init(&paths, TAG);
    for (unsigned i = 1; i < m->n_sites && status == PST_OK; i++) {
        struct pst_module_site *s = &m->sites[i];
        const char *key =
            s->call->identity[0] != '\0' ? s->call->identity : s->call->path;
        char *of =
            pst_arena_printf(&m->arena, "%u %s", s->template, s->call->path);
        size_t known = (size_t)pst_map_get(&modules, key);

        if (known == 0) {
            known = modules.n + 1;
            if (!pst_map_put(&modules, key, (void *)known))
                status = no_memory(d);
        }
        s->identity = (unsigned)known - 1;
        known = (size_t)pst_map_get(&paths, s->call->path);
        if (known == 0) {
            known = i;
            if (!pst_map_put(&paths, s->call->path, (void *)known))
                status = no_memory(d);
        }
        m->sites[known].n_calls++;
        s->name = of != NULL ? pst_map_get(&first, of) : NULL;
        if (s->name != NULL)
            continue;
        m->sites[known].n_graphs++;
        s->name = s->call->index > 0
                      ? pst_arena_printf(&m->arena, "%s@%u", s->call->path,
                                         s->call->index)
                      : s->call->path;
        if (of == NULL || s->name == NULL ||
            !pst_map_put(&first, of, (void *)s->name))
            status = no_memory(d);
    }
    pst_map_fini(&first);
    pst_map_fini(&modules);
    pst_map_fini(&paths);
    return status;
}

static void count_templates(struct pst_modules *m)
{
    for (unsigned i = 1; i < m->n_sites; i++)
        m->n_templates = PST_MAX(m->n_templates, m->sites[i].template + 1);
}

static enum pst_status fill(struct describer *d)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < d->model->ties.n && status == PST_OK; i++)
        if (!pst_map_put(&d->names, d->model->ties.at[i].fqn,
                         &d->model->ties.at[i]))
            status = no_memory(d);
    if (status == PST_OK)
        status = visit_all(d);
    /* Calls that left no operator, of which only a signature tells. */
    for (size_t i = 1; i < d->graph->calls.n && status == PST_OK; i++)
        status = enter(d, d->graph->calls.at[i]);
    if (status == PST_OK)
        status = describe(d, d->graph->calls.at[0]);
    if (status == PST_OK)
        status = name_sites(d);
    if (status == PST_OK)
        count_templates(d->modules);
    return status;
}

static enum pst_status make(struct describer *d)
{
    struct pst_modules *m = d->modules;
    const size_t n = d->graph->calls.n;
    enum pst_status status;

    pst_arena_init(&m->arena, TAG);
    m->sites = pst_arena_calloc(&m->arena, n, sizeof(*m->sites));
    d->frames = pst_calloc(TAG, n, sizeof(*d->frames));
    d->reach = pst_calloc(TAG, d->graph->values.n + 1, sizeof(*d->reach));
    if (m->sites == NULL || d->frames == NULL || d->reach == NULL) {
        status = no_memory(d);
    } else {
        m->n_sites = (unsigned)n;
        for (size_t i = 0; i < n; i++) {
            m->sites[i].call = d->graph->calls.at[i];
            m->sites[i].name = "";
        }
        status = fill(d);
    }
    for (size_t i = 0; d->frames != NULL && i < n; i++) {
        pst_vec_fini(&d->frames[i].items);
        pst_vec_fini(&d->frames[i].inputs);
        pst_vec_fini(&d->frames[i].outs);
    }
    pst_free(d->frames);
    pst_free(d->reach);
    return status;
}

enum pst_status pst_modules_new(const struct pst_model *model,
                                struct pst_modules **ret, struct pst_diag *diag)
{
    struct describer d = {.model = model, .graph = model->graph, .diag = diag};
    enum pst_status status;

    d.modules = pst_calloc(TAG, 1, sizeof(*d.modules));
    if (d.modules == NULL)
        return no_memory(&d);
    pst_map_init(&d.names, TAG);
    pst_map_init(&d.taken, TAG);
    pst_map_init(&d.templates, TAG);
    status = make(&d);
    pst_map_fini(&d.names);
    pst_map_fini(&d.taken);
    pst_map_fini(&d.templates);
    if (status != PST_OK) {
        pst_modules_free(d.modules);
        return status;
    }
    *ret = d.modules;
    return PST_OK;
}

void pst_modules_free(struct pst_modules *modules)
{
    if (modules == NULL)
        return;
    pst_arena_fini(&modules->arena);
    pst_free(modules);
}
