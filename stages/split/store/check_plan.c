// SPDX-License-Identifier: Apache-2.0
/* Checks that a plan from a file is consistent, including all indices that
 * later code uses unchecked. */
#include "stages/split/store/pack.h"

#include "stages/graph/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_PARTS 65536

struct checker {
    const struct pst_plan *plan;
    struct pst_map params; /* every name -> struct pst_plan_param */
    /* by index of a parameter: number of stages that read it */
    unsigned *readers;
    struct pst_diag *diag;
};

static enum pst_status report_damage(const struct checker *c, const char *fmt,
                                     ...) PST_PRINTF(2, 3);

static enum pst_status report_damage(const struct checker *c, const char *fmt,
                                     ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return pst_diag_set(c->diag, PST_E_PLAN_DAMAGED, "%s: %s", PST_PLAN_FILE,
                        text);
}

/* True if element i has the same offset in both for all i. Strides of
 * dimensions of size 1, and those of empty tensors, do not matter. */
static bool same_offsets(const struct pst_meta *a, const struct pst_meta *b)
{
    bool same = true;

    if (!pst_meta_same(a, b))
        return false;
    for (unsigned d = 0; d < a->rank; d++)
        same = same && (a->size[d] == 1 || a->stride[d] == b->stride[d]);
    return same || pst_meta_numel(a) == 0;
}

/* Returns the tensor of output i of a stage; NULL if there is none. */
static const struct pst_value *output_value(const struct pst_plan *plan,
                                            unsigned stage, unsigned i)
{
    const struct pst_graph *graph;

    if (stage >= plan->stages.n)
        return NULL;
    graph = plan->stages.at[stage].graph;
    if (i >= graph->outputs.n || graph->outputs.at[i].kind != PST_OUTPUT_USER ||
        graph->outputs.at[i].arg.kind != PST_ARG_VALUE)
        return NULL;
    return graph->outputs.at[i].arg.value;
}

static bool is_sorted(const struct pst_edge *a, const struct pst_edge *b)
{
    if (a->from_stage != b->from_stage)
        return a->from_stage < b->from_stage;
    if (a->from_output != b->from_output)
        return a->from_output < b->from_output;
    return a->to_stage < b->to_stage;
}

/* Checks that an edge to an earlier stage carries a buffer, with the buffer's
 * meta. */
static enum pst_status check_carried(const struct checker *c, unsigned i)
{
    const struct pst_edge *edge = &c->plan->edges.at[i];
    const struct pst_graph *from = c->plan->stages.at[edge->from_stage].graph;
    const struct pst_plan_param *param = pst_map_get(&c->params, edge->carries);
    const struct pst_value *value =
        from->outputs.at[edge->from_output].arg.value;
    bool updates = false, listed = false;

    if (param == NULL || strcmp(param->fqn, edge->carries) != 0 ||
        param->kind != PST_VALUE_BUFFER || edge->grad_parts > 0 ||
        !same_offsets(&edge->meta, &param->meta))
        return report_damage(c, "edge %u carries no buffer", i);
    for (size_t k = 0; k < from->outputs.n; k++)
        updates = updates ||
                  (from->outputs.at[k].kind == PST_OUTPUT_BUFFER_UPDATE &&
                   from->outputs.at[k].arg.value == value &&
                   strcmp(from->outputs.at[k].target->fqn, param->fqn) == 0);
    for (unsigned k = 0; k < param->n_stages; k++)
        listed = listed || param->stages[k] == edge->to_stage;
    if (!updates || !listed || param->writer != edge->from_stage)
        return report_damage(
            c, "edge %u carries \"%.200s\" from where it is not changed", i,
            param->fqn);
    c->readers[param - c->plan->params.at]++;
    return PST_OK;
}

static enum pst_status check_edge(const struct checker *c, unsigned i)
{
    const struct pst_plan *plan = c->plan;
    const struct pst_edge *edge = &plan->edges.at[i];
    const struct pst_value *value =
        output_value(plan, edge->from_stage, edge->from_output);
    const struct pst_stage *to;

    if (value == NULL || edge->to_stage >= plan->stages.n ||
        (edge->carries == NULL ? edge->from_stage >= edge->to_stage
                               : edge->from_stage <= edge->to_stage))
        return report_damage(c, "edge %u has no ends", i);
    if (i > 0 && !is_sorted(&plan->edges.at[i - 1], edge))
        return report_damage(c, "edge %u is out of order", i);
    to = &plan->stages.at[edge->to_stage];
    if (edge->to_input >= to->graph->inputs.n ||
        to->inputs[edge->to_input].kind != PST_SOURCE_EDGE ||
        to->inputs[edge->to_input].index != i)
        return report_damage(c, "edge %u does not end at its input", i);
    /* Messages and local copies move bytes: both ends need the same layout. */
    if (!pst_meta_is_dense(&edge->meta) ||
        !same_offsets(&edge->meta, &value->meta) ||
        !same_offsets(&edge->meta, &to->graph->inputs.at[edge->to_input]->meta))
        return report_damage(
            c,
            "edge %u has another shape or other strides than its "
            "value",
            i);
    if (edge->grad_parts > MAX_PARTS ||
        (edge->grad_parts > 0 &&
         pst_dtype_kind(edge->meta.dtype) != PST_KIND_FLOAT))
        return report_damage(c, "edge %u cannot have %u gradients", i,
                             edge->grad_parts);
    return edge->carries != NULL ? check_carried(c, i) : PST_OK;
}

/* Checks a value of the state in a stage: it must be among the plan's
 * parameters, and the stage among that parameter's readers. */
static enum pst_status check_state(const struct checker *c, unsigned stage,
                                   const struct pst_value *value)
{
    const struct pst_plan_param *param = pst_map_get(&c->params, value->fqn);
    bool listed = false;

    if (param == NULL || strcmp(param->fqn, value->fqn) != 0 ||
        param->kind != value->kind ||
        param->requires_grad != value->requires_grad ||
        param->persistent != value->persistent ||
        !same_offsets(&param->meta, &value->meta))
        return report_damage(
            c,
            "stage %u reads \"%.200s\" as another kind or with "
            "another layout than the plan says",
            stage, value->fqn);
    for (unsigned k = 0; k < param->n_stages; k++)
        listed = listed || param->stages[k] == stage;
    if (!listed)
        return report_damage(c,
                             "stage %u is not among the readers of \"%.200s\"",
                             stage, value->fqn);
    c->readers[param - c->plan->params.at]++;
    return PST_OK;
}

static enum pst_status check_stage(const struct checker *c, unsigned s)
{
    const struct pst_stage *stage = &c->plan->stages.at[s];
    const struct pst_graph *graph = stage->graph;
    char name[64];

    snprintf(name, sizeof(name), "stage-%03u.safetensors", s);
    if (strcmp(name, stage->weights) != 0)
        return report_damage(c, "stage %u has its weights in a foreign file",
                             s);
    if (graph->extras.n > 0)
        return report_damage(c, "stage %u has gradients in its graph", s);
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (graph->nodes.at[i]->phase != PST_PHASE_F)
            return report_damage(c, "stage %u has a backward node", s);
    for (size_t i = 0; i < graph->inputs.n; i++) {
        const struct pst_stage_input *input = &stage->inputs[i];
        const struct pst_meta *meta = &graph->inputs.at[i]->meta;

        if (input->kind == PST_SOURCE_EDGE
                ? input->index >= c->plan->edges.n ||
                      c->plan->edges.at[input->index].to_stage != s ||
                      c->plan->edges.at[input->index].to_input != i
                : input->index >= c->plan->inputs.n ||
                      !same_offsets(&c->plan->inputs.at[input->index].meta,
                                    meta))
            return report_damage(c, "input %zu of stage %u has no source", i,
                                 s);
    }
    for (size_t i = 0; i < graph->values.n; i++) {
        const struct pst_value *value = graph->values.at[i];
        enum pst_status status = PST_OK;

        if (pst_value_is_state(value))
            status = check_state(c, s, value);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static enum pst_status check_output(const struct checker *c, unsigned i)
{
    const struct pst_plan_output *output = &c->plan->outputs.at[i];
    const struct pst_value *value;

    if (!output->is_tensor)
        return PST_OK;
    if (output->stage < 0) {
        if (output->stage != -1 || output->output >= c->plan->inputs.n ||
            !pst_meta_same(&output->meta,
                           &c->plan->inputs.at[output->output].meta))
            return report_damage(c, "output %u is not an input", i);
        return PST_OK;
    }
    value = output_value(c->plan, (unsigned)output->stage, output->output);
    if (value == NULL || !pst_meta_same(&output->meta, &value->meta))
        return report_damage(c, "output %u is not made where the plan says", i);
    return PST_OK;
}

static enum pst_status add_name(struct checker *c, const char *name,
                                const struct pst_plan_param *param)
{
    if (name[0] == '\0' || pst_map_has(&c->params, name))
        return report_damage(c, "the name \"%.200s\" stands for two parameters",
                             name);
    return pst_map_put(&c->params, name, (void *)param)
               ? PST_OK
               : pst_diag_nomem(c->diag, strlen(name));
}

/* Checks that the named parts lie inside the tensor. A nameless tensor must
 * have named parts. */
static enum pst_status check_windows(struct checker *c,
                                     const struct pst_plan_param *param)
{
    const int64_t n = pst_meta_numel(&param->meta);
    enum pst_status status = PST_OK;

    if (param->n_windows > 0 && param->kind == PST_VALUE_PARAM)
        return report_damage(c, "\"%.200s\" has windows", param->fqn);
    if (param->nameless && param->n_windows == 0)
        return report_damage(c, "\"%.200s\" has no name", param->fqn);
    for (unsigned k = 0; k < param->n_windows && status == PST_OK; k++) {
        const struct pst_named_window *w = &param->windows[k];
        const int64_t span =
            (int64_t)(pst_meta_span(&w->meta) / pst_dtype_size(w->meta.dtype));

        if (w->meta.dtype != param->meta.dtype || w->offset < 0 || span > n ||
            w->offset > n - span)
            return report_damage(c, "\"%.200s\" lies outside of \"%.200s\"",
                                 w->fqn, param->fqn);
        status = add_name(c, w->fqn, param);
    }
    return status;
}

/* True if the owner is one of the readers of a carried buffer, or the first
 * reader of any other tensor. */
static bool has_owner_stage(const struct pst_plan_param *param)
{
    bool reads = false;

    if (!param->carried)
        return param->owner_stage ==
               (param->n_stages > 0 ? param->stages[0] : 0);
    for (unsigned k = 0; k < param->n_stages; k++)
        reads = reads || param->stages[k] == param->owner_stage;
    return reads;
}

static enum pst_status check_param(struct checker *c,
                                   const struct pst_plan_param *param)
{
    enum pst_status status = add_name(c, param->fqn, param);

    for (unsigned k = 0; k < param->n_aliases && status == PST_OK; k++)
        status = add_name(c, param->aliases[k], param);
    if (status == PST_OK)
        status = check_windows(c, param);
    if (status != PST_OK)
        return status;
    for (unsigned k = 0; k < param->n_stages; k++)
        if (param->stages[k] >= c->plan->stages.n ||
            (k > 0 && param->stages[k] <= param->stages[k - 1]))
            return report_damage(c, "the readers of \"%.200s\" are wrong",
                                 param->fqn);
    for (unsigned k = 0; k < param->n_stages; k++)
        if (param->uses[k] > (param->requires_grad ? MAX_PARTS : 0))
            return report_damage(
                c, "the gradient of \"%.200s\" cannot have %u terms",
                param->fqn, param->uses[k]);
    if (!has_owner_stage(param))
        return report_damage(c, "\"%.200s\" is not stored with its owner",
                             param->fqn);
    if (param->transmit &&
        (param->kind != PST_VALUE_PARAM || param->n_stages < 2))
        return report_damage(c, "\"%.200s\" cannot be transmitted", param->fqn);
    return PST_OK;
}

/* --- free sizes ---------------------------------------------------------- */

static enum pst_status check_expr(const struct checker *c, const char *expr,
                                  int64_t want)
{
    int64_t have;
    enum pst_status status =
        pst_symbols_int(&c->plan->symbols, expr, &have, c->diag);

    if (status == PST_OK && have != want)
        return report_damage(c, "the size \"%.200s\" is another number", expr);
    return status;
}

static enum pst_status check_dims(const struct checker *c,
                                  const char *const *dims,
                                  const struct pst_meta *meta)
{
    enum pst_status status = PST_OK;

    for (unsigned d = 0; dims != NULL && d < meta->rank; d++)
        if (status == PST_OK && dims[d] != NULL)
            status = check_expr(c, dims[d], meta->size[d]);
    return status;
}

/* Checks that expressions of integers have the recorded values; other
 * expressions only have to be computable. */
static enum pst_status check_arg(const struct checker *c,
                                 const struct pst_arg *arg)
{
    const bool list = arg->kind == PST_ARG_INTS || arg->kind == PST_ARG_FLOATS;
    const unsigned n = list ? arg->n : 1;
    enum pst_status status = PST_OK;
    struct pst_number x;

    for (unsigned k = 0; arg->exprs != NULL && k < n; k++) {
        if (status != PST_OK || arg->exprs[k] == NULL)
            continue;
        if (arg->kind == PST_ARG_INT)
            status = check_expr(c, arg->exprs[k], arg->i);
        else if (arg->kind == PST_ARG_INTS)
            status = check_expr(c, arg->exprs[k], arg->ints[k]);
        else
            status =
                pst_symbols_eval(&c->plan->symbols, arg->exprs[k], &x, c->diag);
    }
    return status;
}

static enum pst_status check_sizes(const struct checker *c)
{
    const struct pst_plan *plan = c->plan;
    enum pst_status status = pst_symbols_check(&plan->symbols, c->diag);

    for (size_t i = 0; i < plan->inputs.n && status == PST_OK; i++)
        status =
            check_dims(c, plan->inputs.at[i].dims, &plan->inputs.at[i].meta);
    for (size_t i = 0; i < plan->outputs.n && status == PST_OK; i++)
        if (!plan->outputs.at[i].is_tensor)
            status = check_arg(c, &plan->outputs.at[i].literal);
    for (size_t s = 0; s < plan->stages.n; s++) {
        const struct pst_graph *graph = plan->stages.at[s].graph;

        for (size_t i = 0; i < graph->values.n && status == PST_OK; i++)
            status = check_dims(c, graph->values.at[i]->dims,
                                &graph->values.at[i]->meta);
        for (size_t i = 0; i < graph->nodes.n; i++)
            for (unsigned k = 0; k < graph->nodes.at[i]->schema->n_args; k++)
                if (status == PST_OK)
                    status = check_arg(c, &graph->nodes.at[i]->args[k]);
    }
    return status;
}

static enum pst_status check_loss(const struct checker *c)
{
    const struct pst_plan *plan = c->plan;
    const struct pst_plan_output *loss;

    if (plan->loss == -1)
        return PST_OK;
    if (plan->loss < 0 || plan->loss >= (int)plan->outputs.n)
        return report_damage(c, "output %d, the loss, is not there",
                             plan->loss);
    loss = &plan->outputs.at[plan->loss];
    if (!loss->is_tensor || loss->stage < 0 ||
        !pst_plan_may_be_loss(
            output_value(plan, (unsigned)loss->stage, loss->output)))
        return report_damage(c, "output %d cannot be the loss", plan->loss);
    return PST_OK;
}

static enum pst_status check_all(struct checker *c)
{
    const struct pst_plan *plan = c->plan;
    enum pst_status status = PST_OK;

    if (plan->stages.n == 0)
        return report_damage(c, "there are no stages");
    for (size_t i = 0; i < plan->params.n && status == PST_OK; i++)
        status = check_param(c, &plan->params.at[i]);
    for (size_t i = 0; i < plan->inputs.n && status == PST_OK; i++)
        if (!pst_meta_is_contiguous(&plan->inputs.at[i].meta))
            status = report_damage(c, "input %zu is not contiguous", i);
    for (size_t i = 0; i < plan->stages.n && status == PST_OK; i++)
        status = check_stage(c, (unsigned)i);
    for (size_t i = 0; i < plan->edges.n && status == PST_OK; i++)
        status = check_edge(c, (unsigned)i);
    for (size_t i = 0; i < plan->params.n && status == PST_OK; i++)
        if (c->readers[i] != plan->params.at[i].n_stages)
            status = report_damage(c, "the readers of \"%.200s\" are wrong",
                                   plan->params.at[i].fqn);
    for (size_t i = 0; i < plan->outputs.n && status == PST_OK; i++)
        status = check_output(c, (unsigned)i);
    if (status == PST_OK)
        status = check_sizes(c);
    if (status != PST_OK)
        return status;
    return check_loss(c);
}

enum pst_status pst_plan_check(const struct pst_plan *plan,
                               struct pst_diag *diag)
{
    struct checker c = {.plan = plan, .diag = diag};
    enum pst_status status;

    c.readers =
        pst_calloc(PST_TAG_PLAN, plan->params.n + 1, sizeof(*c.readers));
    if (c.readers == NULL)
        return pst_diag_nomem(diag, plan->params.n);
    pst_map_init(&c.params, PST_TAG_PLAN);
    status = check_all(&c);
    pst_map_fini(&c.params);
    pst_free(c.readers);
    return status;
}

enum pst_status pst_plan_check_packed(struct pst_plan *plan,
                                      struct pst_diag *diag)
{
    struct pst_plan *read = NULL;
    void *data = NULL;
    size_t size = 0;
    enum pst_status status = pst_plan_pack(plan, &data, &size, diag);

    if (status == PST_OK)
        status = pst_plan_unpack(data, size, &read, diag);
    if (status == PST_OK)
        status = pst_plan_check(read, diag);
    if (read != NULL)
        pst_plan_free(read);
    pst_free(data);
    return status;
}
