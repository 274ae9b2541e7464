// SPDX-License-Identifier: Apache-2.0
/* Prints the table of stages, edges and shared parameters. */
#include "stages/split/show/show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void pst_show_amount(struct pst_str *out, int width, double x, double step,
                     const char *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    static const char *const binary[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi"};
    unsigned k = 0;
    char text[64];

    while (x >= step && k + 1 < PST_COUNT(prefixes)) {
        x /= step;
        k++;
    }
    snprintf(text, sizeof(text), "%.*f %s%s", k == 0 || x >= 100.0 ? 0 : 1, x,
             step > 1000.0 ? binary[k] : prefixes[k], unit);
    pst_str_addf(out, "%*s", width, text);
}

int64_t pst_show_params(const struct pst_graph *graph)
{
    int64_t n = 0;

    for (size_t i = 0; i < graph->params.n; i++)
        n += pst_meta_numel(&graph->params.at[i]->meta);
    return n;
}

/* Appends the range from the first to the last module that has a node. */
void pst_show_modules(struct pst_str *out, const struct pst_graph *graph)
{
    const char *first = NULL, *last = NULL;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        const char *module = graph->nodes.at[i]->call->name;

        if (module[0] == '\0')
            continue;
        first = first == NULL ? module : first;
        last = module;
    }
    if (first == NULL)
        pst_str_add(out, "-");
    else if (first == last || strcmp(first, last) == 0)
        pst_str_addf(out, "%s", first);
    else
        pst_str_addf(out, "%s .. %s", first, last);
}

static void add_stage(struct pst_str *out, const struct pst_stage *stage)
{
    pst_str_addf(out, "%5u %9zu", stage->index, stage->graph->nodes.n);
    pst_show_amount(out, 12, (double)pst_show_params(stage->graph), 1000.0, "");
    pst_show_amount(out, 12, (double)stage->param_bytes, 1024.0, "B");
    pst_show_amount(out, 12, stage->flops, 1000.0, "FLOP");
    pst_show_amount(out, 12, (double)stage->out_bytes, 1024.0, "B");
    pst_str_add(out, "  ");
    pst_show_modules(out, stage->graph);
    pst_str_add(out, "\n");
}

/* True for state that several stages read, except constants: every stage has
 * its own copy of them. */
bool pst_show_is_shared(const struct pst_plan_param *param)
{
    return param->n_stages > 1 && param->kind != PST_VALUE_CONST;
}

static void add_shared(struct pst_str *out, const struct pst_plan *plan)
{
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];

        if (!pst_show_is_shared(param))
            continue;
        pst_str_addf(out, "shared: \"%s\" is in stages", param->fqn);
        for (unsigned k = 0; k < param->n_stages; k++)
            pst_str_addf(out, "%s %u", k ? "," : "", param->stages[k]);
        if (param->carried)
            pst_str_addf(out, "; stage %u owns it", param->owner_stage);
        else if (param->transmit)
            pst_str_addf(out, "; stage %u transmits it", param->owner_stage);
        else
            pst_str_add(out, "; replicated");
        pst_str_add(out,
                    param->requires_grad ? ", gradients are summed\n" : "\n");
    }
}

void pst_plan_print(const struct pst_plan *plan, struct pst_str *out)
{
    pst_str_addf(out, "plan of %s, %zu stage%s\n", plan->name, plan->stages.n,
                 plan->stages.n == 1 ? "" : "s");
    pst_str_addf(out, "%5s %9s%12s%12s%12s%12s  %s\n", "stage", "operators",
                 "parameters", "size", "forward", "sends", "modules");
    for (size_t i = 0; i < plan->stages.n; i++)
        add_stage(out, &plan->stages.at[i]);
    for (size_t i = 0; i < plan->edges.n; i++) {
        const struct pst_edge *edge = &plan->edges.at[i];
        char text[PST_META_TEXT];

        pst_str_addf(out, "edge %u: %%%s, stage %u -> %u, %s, ", edge->id,
                     edge->value, edge->from_stage, edge->to_stage,
                     pst_meta_text(&edge->meta, text));
        pst_show_amount(out, 0, (double)pst_meta_bytes(&edge->meta), 1024.0,
                        "B");
        if (edge->carries != NULL)
            pst_str_add(out, ", for the next microbatch\n");
        else
            pst_str_addf(out, ", %u gradient%s back\n", edge->grad_parts,
                         edge->grad_parts == 1 ? "" : "s");
    }
    add_shared(out, plan);
    if (plan->loss >= 0)
        pst_str_addf(out, "loss: output \"%s\" of stage %d\n",
                     plan->outputs.at[plan->loss].path,
                     plan->outputs.at[plan->loss].stage);
    else
        pst_str_add(out, "no loss: the plan can infer and serve; to train, "
                         "split with --loss-fn or return a scalar loss\n");
    if (plan->cut_by != NULL)
        pst_str_addf(out, "cut by estimated times: %s\n", plan->cut_by);
    for (size_t i = 0; i < plan->notes.n; i++)
        pst_str_addf(out, "note: %s\n", plan->notes.at[i]);
}
