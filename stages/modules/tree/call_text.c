// SPDX-License-Identifier: Apache-2.0
/* Prints the graph of one module call. */
#include "stages/modules/tree/tree.h"

#include "stages/graph/text/print.h"

#include <string.h>

struct printer {
    const struct pst_modules *modules;
    const struct pst_module_call *call;
    const struct pst_outline_frame *frame;
    struct pst_str *out;
    struct pst_map listed; /* attributes already printed */
};

static void add_attribute(struct printer *p, const struct pst_value *value)
{
    static const char *const words[] = {
        [PST_VALUE_PARAM] = "param",
        [PST_VALUE_BUFFER] = "buffer",
        [PST_VALUE_CONST] = "const",
    };
    const struct pst_value *v = pst_outline_source(value);
    const char *name = pst_outline_attribute(&p->modules->outline, v, p->call);

    if (name == NULL || pst_map_has(&p->listed, name))
        return;
    if (!pst_map_put(&p->listed, name, p))
        p->out->failed = true;
    pst_str_addf(p->out, "  %s ", words[v->kind]);
    pst_str_add_json(p->out, name);
    pst_str_add(p->out, " ");
    pst_value_print(v, true, p->out);
    pst_str_add(p->out, "\n");
}

static void print_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    (void)arg;
    add_attribute(ctx, *slot);
}

static void add_values(struct printer *p, const char *begin,
                       const struct pst_value *const *at, size_t n, bool meta)
{
    pst_str_add(p->out, begin);
    for (size_t i = 0; i < n; i++) {
        pst_str_add(p->out, i > 0 ? ", " : "");
        pst_value_print(at[i], meta, p->out);
    }
}

static void add_call(struct printer *p, unsigned id)
{
    const struct pst_module_site *site = &p->modules->sites[id];
    const struct pst_outline_frame *f = &p->modules->outline.frames[id];

    pst_str_add(p->out, "  call ");
    pst_str_addf(p->out, "%s", site->call->name);
    add_values(p, "(", f->inputs.at, f->inputs.n, false);
    add_values(p, f->outs.n > 0 ? ") -> " : ")", f->outs.at, f->outs.n, true);
    pst_str_addf(p->out, "  # template %u\n", site->template);
}

static void add_head(struct printer *p, const struct pst_module_site *site)
{
    pst_str_add(p->out, "call ");
    pst_str_addf(p->out, "%s",
                 p->call->parent != NULL ? p->call->name : "(model)");
    pst_str_addf(p->out, ", %s", p->call->type[0] ? p->call->type : "-");
    if (p->call->parent != NULL) {
        pst_str_addf(p->out, ", template %u of ", site->template);
        pst_str_addf(p->out, "%s", site->name);
        pst_str_add(p->out, ", in ");
        pst_str_addf(p->out, "%s",
                     p->call->parent->parent != NULL ? p->call->parent->name
                                                     : "(model)");
    }
    pst_str_add(p->out, "\n");
}

/* Prints inputs or results of the model itself, which are the graph's. */
static void add_ends(struct printer *p, bool inputs)
{
    const struct pst_graph *graph = p->modules->outline.graph;

    for (size_t i = 0; inputs && i < graph->inputs.n; i++)
        add_values(p, "  input ",
                   (const struct pst_value *const *)&graph->inputs.at[i], 1,
                   true),
            pst_str_add(p->out, "\n");
    for (size_t i = 0; !inputs && i < graph->outputs.n; i++) {
        const struct pst_output *output = &graph->outputs.at[i];

        if (output->arg.kind != PST_ARG_VALUE)
            continue;
        pst_str_add(p->out, "  output ");
        pst_value_print(output->arg.value, true, p->out);
        if (output->target != NULL) {
            pst_str_add(p->out, " -> ");
            pst_value_print(output->target, false, p->out);
        }
        pst_str_add(p->out, "\n");
    }
}

void pst_modules_print(const struct pst_modules *modules,
                       const struct pst_module_site *site, struct pst_str *out)
{
    struct printer p = {.modules = modules, .call = site->call, .out = out};

    p.frame = &modules->outline.frames[site->call->id];
    pst_map_init(&p.listed, PST_TAG_PLAN);
    add_head(&p, site);
    for (size_t i = 0; i < p.frame->inputs.n; i++) {
        add_values(&p, "  input ", &p.frame->inputs.at[i], 1, true);
        pst_str_add(out, "\n");
    }
    if (site->call->parent == NULL)
        add_ends(&p, true);
    for (size_t i = 0; i < p.frame->items.n; i++) {
        const struct pst_outline_item *item = &p.frame->items.at[i];

        if (item->node != NULL)
            pst_node_uses((struct pst_node *)item->node, print_operand, &p);
    }
    for (size_t i = 0; i < p.frame->items.n; i++) {
        const struct pst_outline_item *item = &p.frame->items.at[i];

        if (item->node != NULL)
            pst_node_print(item->node, out);
        else
            add_call(&p, item->call);
    }
    for (size_t i = 0; i < p.frame->outs.n; i++) {
        add_values(&p, "  output ", &p.frame->outs.at[i], 1, true);
        pst_str_add(out, "\n");
    }
    if (site->call->parent == NULL)
        add_ends(&p, false);
    pst_map_fini(&p.listed);
}
