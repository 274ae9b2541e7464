// SPDX-License-Identifier: Apache-2.0
/* Plans for people and for programs. */
#include "stages/split/plan.h"

#include "stages/base/str.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "1.25 M"; `step` is 1000 for counts and 1024 for bytes. */
static void add_amount(struct pst_str *out, double x, double step,
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
    pst_str_addf(out, "%12s", text);
}

static int64_t count_params(const struct pst_graph *graph)
{
    int64_t n = 0;

    for (size_t i = 0; i < graph->params.n; i++)
        n += pst_meta_numel(&graph->params.at[i]->meta);
    return n;
}

/* "layers.0..layers.5": the first and the last module with a node. */
static void add_modules(struct pst_str *out, const struct pst_graph *graph)
{
    const char *first = NULL, *last = NULL;

    for (size_t i = 0; i < graph->nodes.n; i++) {
        const char *module = graph->nodes.at[i]->module;

        if (module[0] == '\0')
            continue;
        first = first == NULL ? module : first;
        last = module;
    }
    if (first == NULL)
        pst_str_add(out, "-");
    else if (first == last || strcmp(first, last) == 0)
        pst_str_add(out, first);
    else
        pst_str_addf(out, "%s .. %s", first, last);
}

static void add_stage(struct pst_str *out, const struct pst_stage *stage)
{
    pst_str_addf(out, "%5u %9zu", stage->index, stage->graph->nodes.n);
    add_amount(out, (double)count_params(stage->graph), 1000.0, "");
    add_amount(out, (double)stage->param_bytes, 1024.0, "B");
    add_amount(out, stage->flops, 1000.0, "FLOP");
    add_amount(out, (double)stage->out_bytes, 1024.0, "B");
    pst_str_add(out, "  ");
    add_modules(out, stage->graph);
    pst_str_add(out, "\n");
}

/* Constants are copied wherever they are read. */
static bool is_shared(const struct pst_plan_param *param)
{
    return param->n_stages > 1 && param->kind != PST_VALUE_CONST;
}

static void add_shared(struct pst_str *out, const struct pst_plan *plan)
{
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];

        if (!is_shared(param))
            continue;
        pst_str_addf(out, "shared: \"%s\" is in stages", param->fqn);
        for (unsigned k = 0; k < param->n_stages; k++)
            pst_str_addf(out, "%s %u", k ? "," : "", param->stages[k]);
        if (param->transmit)
            pst_str_addf(out, "; stage %u transmits it", param->home);
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

        pst_str_addf(out,
                     "edge %u: %%%s from stage %u to %u, %s, %u gradient%s\n",
                     edge->id, edge->value, edge->from_stage, edge->to_stage,
                     pst_meta_text(&edge->meta, text), edge->grad_parts,
                     edge->grad_parts == 1 ? "" : "s");
    }
    add_shared(out, plan);
    if (plan->loss >= 0)
        pst_str_addf(out, "loss: output \"%s\" of stage %d\n",
                     plan->outputs.at[plan->loss].path,
                     plan->outputs.at[plan->loss].stage);
    else
        pst_str_add(out, "loss: none, the plan can only infer\n");
    for (size_t i = 0; i < plan->notes.n; i++)
        pst_str_addf(out, "note: %s\n", plan->notes.at[i]);
}

/* --- JSON --------------------------------------------------------------- */

static void add_meta(struct pst_str *out, const struct pst_meta *meta)
{
    pst_str_addf(out, "\"dtype\": \"%s\", \"shape\": [",
                 pst_dtype_name(meta->dtype));
    for (unsigned d = 0; d < meta->rank; d++)
        pst_str_addf(out, "%s%" PRId64, d ? ", " : "", meta->size[d]);
    pst_str_add(out, "]");
}

static void add_names(struct pst_str *out, const struct pst_graph *graph,
                      enum pst_value_kind kind)
{
    bool first = true;

    pst_str_add(out, "[");
    for (size_t i = 0; i < graph->values.n; i++) {
        const struct pst_value *value = graph->values.at[i];

        if (value->kind != kind)
            continue;
        pst_str_add(out, first ? "" : ", ");
        pst_str_add_json(out, value->fqn);
        first = false;
    }
    pst_str_add(out, "]");
}

static void add_json_inputs(struct pst_str *out, const struct pst_plan *plan,
                            const struct pst_stage *stage)
{
    for (size_t i = 0; i < stage->graph->inputs.n; i++) {
        const struct pst_stage_input *input = &stage->inputs[i];
        const struct pst_edge *edge;

        pst_str_add(out, i ? ", " : "");
        if (input->kind == PST_SOURCE_MODEL_INPUT) {
            pst_str_add(out, "{\"input\": ");
            pst_str_add_json(out, plan->inputs.at[input->index].name);
            pst_str_add(out, "}");
            continue;
        }
        edge = &plan->edges.at[input->index];
        pst_str_add(out, "{\"value\": ");
        pst_str_add_json(out, edge->value);
        pst_str_addf(out, ", \"stage\": %u, \"index\": %u, \"edge\": %u}",
                     edge->from_stage, edge->from_output, edge->id);
    }
}

static void add_json_stage(struct pst_str *out, const struct pst_plan *plan,
                           const struct pst_stage *stage)
{
    pst_str_addf(out,
                 "{\"index\": %u, \"operators\": %zu, \"parameters\": %" PRId64
                 ", \"param_bytes\": %zu, \"flops\": %.0f, \"out_bytes\": %zu, "
                 "\"inputs\": [",
                 stage->index, stage->graph->nodes.n,
                 count_params(stage->graph), stage->param_bytes, stage->flops,
                 stage->out_bytes);
    add_json_inputs(out, plan, stage);
    pst_str_add(out, "], \"reads\": ");
    add_names(out, stage->graph, PST_VALUE_PARAM);
    pst_str_add(out, ", \"buffers\": ");
    add_names(out, stage->graph, PST_VALUE_BUFFER);
    pst_str_add(out, ", \"constants\": ");
    add_names(out, stage->graph, PST_VALUE_CONST);
    pst_str_add(out, "}");
}

static void add_json_edge(struct pst_str *out, const struct pst_edge *edge)
{
    pst_str_addf(out, "{\"id\": %u, \"value\": ", edge->id);
    pst_str_add_json(out, edge->value);
    pst_str_addf(out,
                 ", \"from\": %u, \"output\": %u, \"to\": %u, \"input\": %u, "
                 "\"gradients\": %u, ",
                 edge->from_stage, edge->from_output, edge->to_stage,
                 edge->to_input, edge->grad_parts);
    add_meta(out, &edge->meta);
    pst_str_add(out, "}");
}

static void add_json_output(struct pst_str *out,
                            const struct pst_plan_output *output)
{
    pst_str_add(out, "{\"path\": ");
    pst_str_add_json(out, output->path);
    if (output->is_tensor) {
        pst_str_addf(out, ", \"stage\": %d, \"index\": %u, ", output->stage,
                     output->output);
        add_meta(out, &output->meta);
    }
    pst_str_add(out, "}");
}

static void add_json_shared(struct pst_str *out, const struct pst_plan *plan)
{
    bool first = true;

    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];

        if (!is_shared(param))
            continue;
        pst_str_add(out, first ? "{\"name\": " : ", {\"name\": ");
        pst_str_add_json(out, param->fqn);
        pst_str_add(out, ", \"stages\": [");
        for (unsigned k = 0; k < param->n_stages; k++)
            pst_str_addf(out, "%s%u", k ? ", " : "", param->stages[k]);
        pst_str_addf(out, "], \"mode\": \"%s\", \"owners\": [",
                     param->transmit ? "transmit" : "replicate");
        for (unsigned k = 0; k < (param->transmit ? 1 : param->n_stages); k++)
            pst_str_addf(out, "%s%u", k ? ", " : "", param->stages[k]);
        pst_str_add(out, "]}");
        first = false;
    }
}

void pst_plan_print_json(const struct pst_plan *plan, struct pst_str *out)
{
    pst_str_add(out, "{\"name\": ");
    pst_str_add_json(out, plan->name);
    pst_str_add(out, ", \"digest\": ");
    pst_str_add_json(out, plan->digest);
    pst_str_add(out, ", \"stages\": [");
    for (size_t i = 0; i < plan->stages.n; i++) {
        pst_str_add(out, i ? ", " : "");
        add_json_stage(out, plan, &plan->stages.at[i]);
    }
    pst_str_add(out, "], \"edges\": [");
    for (size_t i = 0; i < plan->edges.n; i++) {
        pst_str_add(out, i ? ", " : "");
        add_json_edge(out, &plan->edges.at[i]);
    }
    pst_str_add(out, "], \"outputs\": [");
    for (size_t i = 0; i < plan->outputs.n; i++) {
        pst_str_add(out, i ? ", " : "");
        add_json_output(out, &plan->outputs.at[i]);
    }
    pst_str_add(out, "], \"shared\": [");
    add_json_shared(out, plan);
    pst_str_addf(out, "], \"loss\": %d, \"notes\": [", plan->loss);
    for (size_t i = 0; i < plan->notes.n; i++) {
        pst_str_add(out, i ? ", " : "");
        pst_str_add_json(out, plan->notes.at[i]);
    }
    pst_str_add(out, "]}");
}

void pst_plan_print_stage(const struct pst_plan *plan, unsigned stage,
                          struct pst_str *out)
{
    pst_graph_print(plan->stages.at[stage].graph, out);
}
