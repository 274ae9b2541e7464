// SPDX-License-Identifier: Apache-2.0
/* Prints one stage: inputs with their sources, operators, outputs with their
 * consumers. */
#include "stages/split/show/show.h"

#include <inttypes.h>
#include <string.h>

#include "stages/base/plural.h"

static void add_inputs(struct pst_str *out, const struct pst_plan *plan,
                       const struct pst_stage *stage)
{
    char text[PST_META_TEXT];

    pst_str_add(out, "inputs\n");
    for (size_t i = 0; i < stage->graph->inputs.n; i++) {
        const struct pst_value *value = stage->graph->inputs.at[i];
        const struct pst_stage_input *input = &stage->inputs[i];

        pst_str_addf(out, "  %%%s: %s  ", value->name,
                     pst_meta_text(&value->meta, text));
        if (input->kind == PST_SOURCE_MODEL_INPUT) {
            pst_str_addf(out, "input \"%s\" of the model\n",
                         plan->inputs.at[input->index].name);
            continue;
        }
        pst_str_addf(out, "from stage %u (edge %u), ",
                     plan->edges.at[input->index].from_stage, input->index);
        if (plan->edges.at[input->index].carries != NULL)
            pst_str_addf(out, "\"%s\" as the microbatch before left it\n",
                         plan->edges.at[input->index].carries);
        else if (plan->edges.at[input->index].grad_parts == 0)
            pst_str_add(out, "no gradient back\n");
        else
            pst_str_addf(out, "gradient back in %u part%s\n",
                         plan->edges.at[input->index].grad_parts,
                         plan->edges.at[input->index].grad_parts == 1 ? ""
                                                                      : "s");
    }
}

static void add_state(struct pst_str *out, const struct pst_plan *plan,
                      const struct pst_stage *stage, const char *title,
                      enum pst_value_kind kind)
{
    char text[PST_META_TEXT];
    bool any = false;

    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];
        bool here = false;

        for (unsigned k = 0; k < param->n_stages; k++)
            here = here || param->stages[k] == stage->index;
        if (param->kind != kind || !here)
            continue;
        pst_str_add(out, any ? "" : title);
        any = true;
        pst_str_addf(out, "  \"%s\": %s", param->fqn,
                     pst_meta_text(&param->meta, text));
        for (unsigned k = 0; k < param->n_aliases; k++)
            pst_str_addf(out, "%s \"%s\"", k == 0 ? "  also named" : ",",
                         param->aliases[k]);
        for (unsigned k = 0; k < param->n_windows; k++)
            pst_str_addf(out, "%s \"%s\" (%s + %" PRId64 ")",
                         k == 0 ? "  with windows" : ",", param->windows[k].fqn,
                         pst_meta_text(&param->windows[k].meta, text),
                         param->windows[k].offset);
        if (kind == PST_VALUE_PARAM && !param->requires_grad)
            pst_str_add(out, "  frozen");
        if (kind == PST_VALUE_BUFFER && !param->persistent)
            pst_str_add(out, "  not persistent");
        if (param->n_stages > 1)
            pst_str_add(out, param->carried    ? "  carried, in stages"
                             : param->transmit ? "  transmitted, in stages"
                             : kind == PST_VALUE_PARAM
                                 ? "  replicated, in stages"
                                 : "  copied, in stages");
        for (unsigned k = 0; param->n_stages > 1 && k < param->n_stages; k++)
            pst_str_addf(out, "%s %u", k ? "," : "", param->stages[k]);
        pst_str_add(out, "\n");
    }
}

static bool begins_with(const char *line, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pst_has_prefix(line, words[i]))
            return true;
    return false;
}

/* Prints the lines of the graph's text that begin with one of the words; if
 * !with, those that begin with none. Prints `before` before the first of these
 * lines. */
static void add_lines(struct pst_str *out, const char *text, const char *before,
                      const char *const *words, size_t n_words, bool with)
{
    bool any = false;

    for (const char *line = text; *line != '\0';) {
        const size_t n = strcspn(line, "\n");

        if (begins_with(line, words, n_words) == with) {
            if (!any)
                pst_str_add(out, before);
            any = true;
            pst_str_addn(out, line, n + (line[n] == '\n'));
        }
        line += n + (line[n] == '\n');
    }
}

static void add_nodes(struct pst_str *out, const struct pst_graph *graph)
{
    static const char *const others[] = {
        "graph ",    "  call ",  "  signature ", "  input ", "  param ",
        "  buffer ", "  const ", "  output ",    "}"};
    struct pst_str text = {.visible = out->visible};

    pst_graph_print(graph, &text);
    add_lines(out, pst_str_text(&text), "calls of modules\n", &others[1], 2,
              true);
    add_lines(out, pst_str_text(&text), "operators\n", others,
              PST_COUNT(others), false);
    out->failed = out->failed || text.failed;
    pst_str_fini(&text);
}

static void add_consumers(struct pst_str *out, const struct pst_plan *plan,
                          unsigned stage, unsigned index)
{
    bool any = false;

    for (size_t i = 0; i < plan->edges.n; i++) {
        const struct pst_edge *edge = &plan->edges.at[i];

        if (edge->from_stage != stage || edge->from_output != index)
            continue;
        pst_str_addf(out, "%s %u", any ? "," : " to stage", edge->to_stage);
        any = true;
    }
    for (size_t i = 0; i < plan->outputs.n; i++) {
        const struct pst_plan_output *output = &plan->outputs.at[i];

        if (!output->is_tensor || output->stage != (int)stage ||
            output->output != index)
            continue;
        pst_str_addf(out, "%s output \"%s\" of the model%s", any ? "," : "",
                     output->path, (int)i == plan->loss ? ", the loss" : "");
        any = true;
    }
}

static void add_outputs(struct pst_str *out, const struct pst_plan *plan,
                        const struct pst_stage *stage)
{
    char text[PST_META_TEXT];

    pst_str_add(out, "outputs\n");
    for (unsigned i = 0; i < stage->graph->outputs.n; i++) {
        const struct pst_output *output = &stage->graph->outputs.at[i];

        pst_str_addf(out, "  %%%s: %s ", output->arg.value->name,
                     pst_meta_text(&output->arg.value->meta, text));
        if (output->kind == PST_OUTPUT_BUFFER_UPDATE)
            pst_str_addf(out, " new value of buffer \"%s\"",
                         output->target->fqn);
        else
            add_consumers(out, plan, stage->index, i);
        pst_str_add(out, "\n");
    }
}

void pst_plan_describe_stage(const struct pst_plan *plan, unsigned stage,
                             struct pst_str *out)
{
    const struct pst_stage *s = &plan->stages.at[stage];

    pst_str_addf(out, "stage %u of %zu: %zu operator%s, modules ", stage,
                 plan->stages.n, s->graph->nodes.n,
                 pst_plural(s->graph->nodes.n));
    pst_show_modules(out, s->graph);
    pst_str_add(out, "\n");
    add_inputs(out, plan, s);
    add_state(out, plan, s, "parameters\n", PST_VALUE_PARAM);
    add_state(out, plan, s, "buffers\n", PST_VALUE_BUFFER);
    add_state(out, plan, s, "constants\n", PST_VALUE_CONST);
    add_nodes(out, s->graph);
    add_outputs(out, plan, s);
}

void pst_plan_print_stage(const struct pst_plan *plan, unsigned stage,
                          struct pst_str *out)
{
    pst_graph_print(plan->stages.at[stage].graph, out);
}
