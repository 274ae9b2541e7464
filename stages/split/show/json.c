// SPDX-License-Identifier: Apache-2.0
/* A plan for programs: all that plan.pb says but the graphs. */
#include "stages/split/show/show.h"

#include <inttypes.h>
#include <math.h>

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
                 pst_show_params(stage->graph), stage->param_bytes,
                 stage->flops, stage->out_bytes);
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
                 "\"gradients\": %u, \"bytes\": %zu, ",
                 edge->from_stage, edge->from_output, edge->to_stage,
                 edge->to_input, edge->grad_parts, pst_meta_bytes(&edge->meta));
    add_meta(out, &edge->meta);
    pst_str_add(out, "}");
}

/* None, numbers and texts among the outputs. */
static void add_literal(struct pst_str *out, const struct pst_arg *arg)
{
    char number[32];

    switch (arg->kind) {
    case PST_ARG_INT:
        pst_str_addf(out, "%" PRId64, arg->i);
        break;
    case PST_ARG_FLOAT:
        pst_format_f64(arg->f, number);
        pst_str_addf(out, isfinite(arg->f) ? "%s" : "\"%s\"", number);
        break;
    case PST_ARG_BOOL:
        pst_str_add(out, arg->b ? "true" : "false");
        break;
    case PST_ARG_STRING:
        pst_str_add_json(out, arg->s);
        break;
    default:
        pst_str_add(out, "null");
    }
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
    } else {
        pst_str_add(out, ", \"literal\": ");
        add_literal(out, &output->literal);
    }
    pst_str_add(out, "}");
}

static void add_json_shared(struct pst_str *out, const struct pst_plan *plan)
{
    bool first = true;

    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];

        if (!pst_show_is_shared(param))
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

static void add_json_input(struct pst_str *out,
                           const struct pst_plan_input *input)
{
    pst_str_add(out, "{\"name\": ");
    pst_str_add_json(out, input->name);
    pst_str_add(out, ", ");
    add_meta(out, &input->meta);
    pst_str_add(out, "}");
}

static void add_json_param(struct pst_str *out,
                           const struct pst_plan_param *param)
{
    const char *const kind = param->kind == PST_VALUE_PARAM    ? "parameter"
                             : param->kind == PST_VALUE_BUFFER ? "buffer"
                                                               : "constant";

    pst_str_add(out, "{\"name\": ");
    pst_str_add_json(out, param->fqn);
    pst_str_add(out, ", \"aliases\": [");
    for (unsigned k = 0; k < param->n_aliases; k++) {
        pst_str_add(out, k ? ", " : "");
        pst_str_add_json(out, param->aliases[k]);
    }
    pst_str_add(out, "], \"windows\": [");
    for (unsigned k = 0; k < param->n_windows; k++) {
        pst_str_add(out, k ? ", {\"name\": " : "{\"name\": ");
        pst_str_add_json(out, param->windows[k].fqn);
        pst_str_addf(out, ", \"offset\": %" PRId64 ", ",
                     param->windows[k].offset);
        add_meta(out, &param->windows[k].meta);
        pst_str_add(out, "}");
    }
    pst_str_addf(out, "], \"named\": %s, \"kind\": \"%s\", ",
                 param->nameless ? "false" : "true", kind);
    add_meta(out, &param->meta);
    pst_str_addf(out,
                 ", \"requires_grad\": %s, \"persistent\": %s, "
                 "\"transmit\": %s, \"home\": %u, \"stages\": [",
                 param->requires_grad ? "true" : "false",
                 param->kind != PST_VALUE_BUFFER || param->persistent ? "true"
                                                                      : "false",
                 param->transmit ? "true" : "false", param->home);
    for (unsigned k = 0; k < param->n_stages; k++)
        pst_str_addf(out, "%s%u", k ? ", " : "", param->stages[k]);
    pst_str_add(out, "]}");
}

static void add_json_head(struct pst_str *out, const struct pst_plan *plan)
{
    const char *loss = plan->loss >= 0 ? "true" : "false";

    pst_str_add(out, "{\"name\": ");
    pst_str_add_json(out, plan->name);
    pst_str_add(out, ", \"digest\": ");
    pst_str_add_json(out, plan->digest);
    pst_str_add(out, ", \"cut_by\": ");
    if (plan->cut_by != NULL)
        pst_str_add_json(out, plan->cut_by);
    else
        pst_str_add(out, "null");
    pst_str_addf(out,
                 ", \"stage_count\": %zu, \"has_loss\": %s, "
                 "\"has_backward\": %s, \"inputs\": [",
                 plan->stages.n, loss, loss);
    for (size_t i = 0; i < plan->inputs.n; i++) {
        pst_str_add(out, i ? ", " : "");
        add_json_input(out, &plan->inputs.at[i]);
    }
    pst_str_add(out, "], \"parameters\": [");
    for (size_t i = 0; i < plan->params.n; i++) {
        pst_str_add(out, i ? ", " : "");
        add_json_param(out, &plan->params.at[i]);
    }
}

void pst_plan_print_json(const struct pst_plan *plan, struct pst_str *out)
{
    add_json_head(out, plan);
    pst_str_add(out, "], \"stages\": [");
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
