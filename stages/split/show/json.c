// SPDX-License-Identifier: Apache-2.0
/* Prints a plan as JSON: everything in plan.pb except the graphs. */
#include "stages/split/show/show.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

/* All functions below return NULL if memory runs out, also if an argument is
 * NULL because memory ran out before. */

static json_t *append_value(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* Makes a JSON string. Names come from files: bytes that are not UTF-8 are
 * replaced. */
static json_t *text_json(const char *s)
{
    struct pst_str valid = {0};
    json_t *ret = NULL;

    pst_str_add_utf8(&valid, s);
    if (!valid.failed)
        ret = json_string(pst_str_text(&valid));
    pst_str_fini(&valid);
    return ret;
}

static json_t *shape_json(const struct pst_meta *meta)
{
    json_t *ret = json_array();

    for (unsigned d = 0; d < meta->rank; d++)
        ret = append_value(ret, json_integer(meta->size[d]));
    return ret;
}

static json_t *numbers_json(const unsigned *at, unsigned n)
{
    json_t *ret = json_array();

    for (unsigned i = 0; i < n; i++)
        ret = append_value(ret, json_integer(at[i]));
    return ret;
}

static json_t *names_json(const struct pst_graph *graph,
                          enum pst_value_kind kind)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < graph->values.n; i++)
        if (graph->values.at[i]->kind == kind)
            ret = append_value(ret, text_json(graph->values.at[i]->fqn));
    return ret;
}

static json_t *stage_inputs(const struct pst_plan *plan,
                            const struct pst_stage *stage)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < stage->graph->inputs.n; i++) {
        const struct pst_stage_input *input = &stage->inputs[i];
        const struct pst_edge *edge;

        if (input->kind == PST_SOURCE_MODEL_INPUT) {
            ret = append_value(
                ret, json_pack("{s:o}", "input",
                               text_json(plan->inputs.at[input->index].name)));
            continue;
        }
        edge = &plan->edges.at[input->index];
        ret = append_value(ret, json_pack("{s:o s:I s:I s:I}", "value",
                                          text_json(edge->value), "stage",
                                          (json_int_t)edge->from_stage, "index",
                                          (json_int_t)edge->from_output, "edge",
                                          (json_int_t)edge->id));
    }
    return ret;
}

static json_t *stages_json(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->stages.n; i++) {
        const struct pst_stage *s = &plan->stages.at[i];

        ret = append_value(
            ret,
            json_pack("{s:I s:I s:I s:I s:I s:I s:o s:o s:o s:o}", "index",
                      (json_int_t)s->index, "operators",
                      (json_int_t)s->graph->nodes.n, "parameters",
                      (json_int_t)pst_show_params(s->graph), "param_bytes",
                      (json_int_t)s->param_bytes, "flops",
                      (json_int_t)PST_MIN(rint(s->flops), 9e18), "out_bytes",
                      (json_int_t)s->out_bytes, "inputs", stage_inputs(plan, s),
                      "reads", names_json(s->graph, PST_VALUE_PARAM), "buffers",
                      names_json(s->graph, PST_VALUE_BUFFER), "constants",
                      names_json(s->graph, PST_VALUE_CONST)));
    }
    return ret;
}

static json_t *edges_json(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->edges.n; i++) {
        const struct pst_edge *e = &plan->edges.at[i];

        ret = append_value(
            ret,
            json_pack(
                "{s:I s:o s:I s:I s:I s:I s:I s:I s:s s:o s:o}", "id",
                (json_int_t)e->id, "value", text_json(e->value), "from",
                (json_int_t)e->from_stage, "output", (json_int_t)e->from_output,
                "to", (json_int_t)e->to_stage, "input", (json_int_t)e->to_input,
                "gradients", (json_int_t)e->grad_parts, "bytes",
                (json_int_t)pst_meta_bytes(&e->meta), "dtype",
                pst_dtype_name(e->meta.dtype), "shape", shape_json(&e->meta),
                "carries",
                e->carries != NULL ? text_json(e->carries) : json_null()));
    }
    return ret;
}

/* Converts an output that is not a tensor: None, a number or a string. */
static json_t *literal_json(const struct pst_arg *arg)
{
    char number[32];

    switch (arg->kind) {
    case PST_ARG_INT:
        return json_integer(arg->i);
    case PST_ARG_FLOAT:
        if (isfinite(arg->f))
            return json_real(arg->f);
        pst_format_f64(arg->f, number);
        return json_string(number);
    case PST_ARG_BOOL:
        return json_boolean(arg->b);
    case PST_ARG_STRING:
        return text_json(arg->s);
    default:
        return json_null();
    }
}

static json_t *outputs_json(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->outputs.n; i++) {
        const struct pst_plan_output *o = &plan->outputs.at[i];

        if (o->is_tensor)
            ret = append_value(ret, json_pack("{s:o s:I s:I s:s s:o}", "path",
                                              text_json(o->path), "stage",
                                              (json_int_t)o->stage, "index",
                                              (json_int_t)o->output, "dtype",
                                              pst_dtype_name(o->meta.dtype),
                                              "shape", shape_json(&o->meta)));
        else
            ret = append_value(ret, json_pack("{s:o s:o}", "path",
                                              text_json(o->path), "literal",
                                              literal_json(&o->literal)));
    }
    return ret;
}

static json_t *shared_json(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];

        if (pst_show_is_shared(p))
            ret = append_value(
                ret,
                json_pack(
                    "{s:o s:o s:s s:o}", "name", text_json(p->fqn), "stages",
                    numbers_json(p->stages, p->n_stages), "mode",
                    p->transmit ? "transmit" : "replicate", "owners",
                    numbers_json(p->stages, p->transmit ? 1 : p->n_stages)));
    }
    return ret;
}

static json_t *inputs_json(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->inputs.n; i++) {
        const struct pst_plan_input *input = &plan->inputs.at[i];

        ret = append_value(ret, json_pack("{s:o s:s s:o}", "name",
                                          text_json(input->name), "dtype",
                                          pst_dtype_name(input->meta.dtype),
                                          "shape", shape_json(&input->meta)));
    }
    return ret;
}

static json_t *texts_json(const char *const *at, size_t n)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < n; i++)
        ret = append_value(ret, text_json(at[i]));
    return ret;
}

static json_t *windows_json(const struct pst_plan_param *param)
{
    json_t *ret = json_array();

    for (unsigned k = 0; k < param->n_windows; k++) {
        const struct pst_named_window *w = &param->windows[k];

        ret = append_value(ret, json_pack("{s:o s:I s:s s:o}", "name",
                                          text_json(w->fqn), "offset",
                                          (json_int_t)w->offset, "dtype",
                                          pst_dtype_name(w->meta.dtype),
                                          "shape", shape_json(&w->meta)));
    }
    return ret;
}

static json_t *parameters_json(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        const char *const kind = p->kind == PST_VALUE_PARAM    ? "parameter"
                                 : p->kind == PST_VALUE_BUFFER ? "buffer"
                                                               : "constant";

        ret = append_value(
            ret,
            json_pack("{s:o s:o s:o s:b s:s s:s s:o s:b s:b s:b s:I s:o}",
                      "name", text_json(p->fqn), "aliases",
                      texts_json(p->aliases, p->n_aliases), "windows",
                      windows_json(p), "named", !p->nameless, "kind", kind,
                      "dtype", pst_dtype_name(p->meta.dtype), "shape",
                      shape_json(&p->meta), "requires_grad", p->requires_grad,
                      "persistent",
                      p->kind != PST_VALUE_BUFFER || p->persistent, "transmit",
                      p->transmit, "home", (json_int_t)p->owner_stage, "stages",
                      numbers_json(p->stages, p->n_stages)));
    }
    return ret;
}

void pst_plan_print_json(const struct pst_plan *plan, struct pst_str *out)
{
    json_t *const root = json_pack(
        "{s:o s:o s:o s:I s:b s:b s:o s:o s:o s:o s:o s:o s:i s:s* s:o}",
        "name", text_json(plan->name), "digest", text_json(plan->digest),
        "cut_by", plan->cut_by != NULL ? text_json(plan->cut_by) : json_null(),
        "stage_count", (json_int_t)plan->stages.n, "has_loss", plan->loss >= 0,
        "has_backward", plan->loss >= 0, "inputs", inputs_json(plan),
        "parameters", parameters_json(plan), "stages", stages_json(plan),
        "edges", edges_json(plan), "outputs", outputs_json(plan), "shared",
        shared_json(plan), "loss", plan->loss, "autocast", plan->autocast,
        "notes", texts_json(plan->notes.at, plan->notes.n));
    char *dumped =
        root != NULL ? json_dumps(root, JSON_REAL_PRECISION(17)) : NULL;

    json_decref(root);
    if (dumped != NULL)
        pst_str_add(out, dumped);
    else
        out->failed = 1;
    free(dumped);
}
