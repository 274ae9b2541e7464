// SPDX-License-Identifier: Apache-2.0
/* Prints a plan as JSON: everything in plan.pb except the graphs. */
#include "stages/split/show/show.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

/* All functions below return NULL if memory runs out. They accept NULL for a
 * part that could not be made, and then return NULL, too. */

static json_t *add(json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* Makes a JSON string; bytes that are not UTF-8 are replaced, since names come
 * from files. */
static json_t *text(const char *s)
{
    struct pst_str valid = {0};
    json_t *ret = NULL;

    pst_str_add_utf8(&valid, s);
    if (!valid.failed)
        ret = json_string(pst_str_text(&valid));
    pst_str_fini(&valid);
    return ret;
}

static json_t *shape(const struct pst_meta *meta)
{
    json_t *ret = json_array();

    for (unsigned d = 0; d < meta->rank; d++)
        ret = add(ret, json_integer(meta->size[d]));
    return ret;
}

static json_t *numbers(const unsigned *at, unsigned n)
{
    json_t *ret = json_array();

    for (unsigned i = 0; i < n; i++)
        ret = add(ret, json_integer(at[i]));
    return ret;
}

static json_t *names(const struct pst_graph *graph, enum pst_value_kind kind)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < graph->values.n; i++)
        if (graph->values.at[i]->kind == kind)
            ret = add(ret, text(graph->values.at[i]->fqn));
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
            ret = add(ret, json_pack("{s:o}", "input",
                                     text(plan->inputs.at[input->index].name)));
            continue;
        }
        edge = &plan->edges.at[input->index];
        ret =
            add(ret, json_pack("{s:o s:I s:I s:I}", "value", text(edge->value),
                               "stage", (json_int_t)edge->from_stage, "index",
                               (json_int_t)edge->from_output, "edge",
                               (json_int_t)edge->id));
    }
    return ret;
}

static json_t *stages(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->stages.n; i++) {
        const struct pst_stage *s = &plan->stages.at[i];

        ret = add(ret,
                  json_pack("{s:I s:I s:I s:I s:I s:I s:o s:o s:o s:o}",
                            "index", (json_int_t)s->index, "operators",
                            (json_int_t)s->graph->nodes.n, "parameters",
                            (json_int_t)pst_show_params(s->graph),
                            "param_bytes", (json_int_t)s->param_bytes, "flops",
                            (json_int_t)PST_MIN(rint(s->flops), 9e18),
                            "out_bytes", (json_int_t)s->out_bytes, "inputs",
                            stage_inputs(plan, s), "reads",
                            names(s->graph, PST_VALUE_PARAM), "buffers",
                            names(s->graph, PST_VALUE_BUFFER), "constants",
                            names(s->graph, PST_VALUE_CONST)));
    }
    return ret;
}

static json_t *edges(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->edges.n; i++) {
        const struct pst_edge *e = &plan->edges.at[i];

        ret = add(
            ret,
            json_pack("{s:I s:o s:I s:I s:I s:I s:I s:I s:s s:o s:o}", "id",
                      (json_int_t)e->id, "value", text(e->value), "from",
                      (json_int_t)e->from_stage, "output",
                      (json_int_t)e->from_output, "to", (json_int_t)e->to_stage,
                      "input", (json_int_t)e->to_input, "gradients",
                      (json_int_t)e->grad_parts, "bytes",
                      (json_int_t)pst_meta_bytes(&e->meta), "dtype",
                      pst_dtype_name(e->meta.dtype), "shape", shape(&e->meta),
                      "carries",
                      e->carries != NULL ? text(e->carries) : json_null()));
    }
    return ret;
}

/* Converts an output that is not a tensor: None, a number or a string. */
static json_t *literal(const struct pst_arg *arg)
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
        return text(arg->s);
    default:
        return json_null();
    }
}

static json_t *outputs(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->outputs.n; i++) {
        const struct pst_plan_output *o = &plan->outputs.at[i];

        if (o->is_tensor)
            ret =
                add(ret, json_pack("{s:o s:I s:I s:s s:o}", "path",
                                   text(o->path), "stage", (json_int_t)o->stage,
                                   "index", (json_int_t)o->output, "dtype",
                                   pst_dtype_name(o->meta.dtype), "shape",
                                   shape(&o->meta)));
        else
            ret = add(ret, json_pack("{s:o s:o}", "path", text(o->path),
                                     "literal", literal(&o->literal)));
    }
    return ret;
}

static json_t *shared(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];

        if (pst_show_is_shared(p))
            ret = add(
                ret,
                json_pack("{s:o s:o s:s s:o}", "name", text(p->fqn), "stages",
                          numbers(p->stages, p->n_stages), "mode",
                          p->transmit ? "transmit" : "replicate", "owners",
                          numbers(p->stages, p->transmit ? 1 : p->n_stages)));
    }
    return ret;
}

static json_t *inputs(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->inputs.n; i++) {
        const struct pst_plan_input *input = &plan->inputs.at[i];

        ret = add(ret, json_pack("{s:o s:s s:o}", "name", text(input->name),
                                 "dtype", pst_dtype_name(input->meta.dtype),
                                 "shape", shape(&input->meta)));
    }
    return ret;
}

static json_t *texts(const char *const *at, size_t n)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < n; i++)
        ret = add(ret, text(at[i]));
    return ret;
}

static json_t *windows(const struct pst_plan_param *param)
{
    json_t *ret = json_array();

    for (unsigned k = 0; k < param->n_windows; k++) {
        const struct pst_named_window *w = &param->windows[k];

        ret = add(ret, json_pack("{s:o s:I s:s s:o}", "name", text(w->fqn),
                                 "offset", (json_int_t)w->offset, "dtype",
                                 pst_dtype_name(w->meta.dtype), "shape",
                                 shape(&w->meta)));
    }
    return ret;
}

static json_t *parameters(const struct pst_plan *plan)
{
    json_t *ret = json_array();

    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        const char *const kind = p->kind == PST_VALUE_PARAM    ? "parameter"
                                 : p->kind == PST_VALUE_BUFFER ? "buffer"
                                                               : "constant";

        ret =
            add(ret,
                json_pack(
                    "{s:o s:o s:o s:b s:s s:s s:o s:b s:b s:b s:I s:o}", "name",
                    text(p->fqn), "aliases", texts(p->aliases, p->n_aliases),
                    "windows", windows(p), "named", !p->nameless, "kind", kind,
                    "dtype", pst_dtype_name(p->meta.dtype), "shape",
                    shape(&p->meta), "requires_grad", p->requires_grad,
                    "persistent", p->kind != PST_VALUE_BUFFER || p->persistent,
                    "transmit", p->transmit, "home", (json_int_t)p->owner_stage,
                    "stages", numbers(p->stages, p->n_stages)));
    }
    return ret;
}

void pst_plan_print_json(const struct pst_plan *plan, struct pst_str *out)
{
    json_t *const root = json_pack(
        "{s:o s:o s:o s:I s:b s:b s:o s:o s:o s:o s:o s:o s:i s:o}", "name",
        text(plan->name), "digest", text(plan->digest), "cut_by",
        plan->cut_by != NULL ? text(plan->cut_by) : json_null(), "stage_count",
        (json_int_t)plan->stages.n, "has_loss", plan->loss >= 0, "has_backward",
        plan->loss >= 0, "inputs", inputs(plan), "parameters", parameters(plan),
        "stages", stages(plan), "edges", edges(plan), "outputs", outputs(plan),
        "shared", shared(plan), "loss", plan->loss, "notes",
        texts(plan->notes.at, plan->notes.n));
    char *dumped =
        root != NULL ? json_dumps(root, JSON_REAL_PRECISION(17)) : NULL;

    json_decref(root);
    if (dumped != NULL)
        pst_str_add(out, dumped);
    else
        out->failed = 1;
    free(dumped);
}
