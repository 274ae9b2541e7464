// SPDX-License-Identifier: Apache-2.0
#include "stages/split/bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stages/graph/schema.h"
#include "stages/split/replay.h"
#include "stages/split/split.h"

#define TAG PST_TAG_PLAN

struct binder {
    struct pst_plan *from, *to;
    int64_t rows;
    struct pst_build build;   /* of the stage at work */
    struct pst_value **twins; /* by value id of its graph */
    struct pst_diag *diag;
};

static enum pst_status no_memory(struct binder *b)
{
    return pst_diag_nomem(b->diag, 0);
}

/* --- what is divided ----------------------------------------------------- */

static struct pst_plan_input *find_input(const struct pst_plan *plan,
                                         const char *name, size_t len)
{
    for (size_t i = 0; i < plan->inputs.n; i++)
        if (strlen(plan->inputs.at[i].name) == len &&
            memcmp(plan->inputs.at[i].name, name, len) == 0)
            return &plan->inputs.at[i];
    return NULL;
}

static enum pst_status no_input(const struct pst_plan *plan, const char *spec,
                                size_t len, struct pst_diag *diag)
{
    struct pst_str names = {0};
    enum pst_status status;

    for (size_t i = 0; i < plan->inputs.n; i++)
        pst_str_addf(&names, "%s%.60s", i > 0 ? ", " : "",
                     plan->inputs.at[i].name);
    status = pst_diag_set(diag, PST_ERR_USAGE,
                          "--chunk %.100s: the model has no input \"%.*s\"; it "
                          "has %.600s",
                          spec, (int)PST_MIN(len, (size_t)60), spec,
                          pst_str_text(&names));
    pst_str_fini(&names);
    return status;
}

enum pst_status pst_plan_chunk(struct pst_plan *plan, const char *spec,
                               struct pst_diag *diag)
{
    const char *equal = strrchr(spec, '=');
    struct pst_plan_input *input;
    int64_t dim = -1;

    if (equal == NULL || (strcmp(equal + 1, "replicate") != 0 &&
                          (!pst_parse_i64(equal + 1, &dim) || dim < 0)))
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--chunk %.100s: expected NAME=DIMENSION or "
                            "NAME=replicate",
                            spec);
    input = find_input(plan, spec, (size_t)(equal - spec));
    if (input == NULL)
        return no_input(plan, spec, (size_t)(equal - spec), diag);
    if (dim >= (int64_t)input->meta.rank)
        return pst_diag_set(diag, PST_ERR_USAGE,
                            "--chunk %.100s: the input has %u dimensions%s",
                            spec, input->meta.rank,
                            input->meta.rank == 0 ? " (replicate it)" : "");
    input->chunk = (int)dim;
    return PST_OK;
}

/* The expression of the size that is divided, or NULL. */
static const char *row_expr(const struct pst_plan_input *input)
{
    return input->chunk < 0 || input->dims == NULL ? NULL
                                                   : input->dims[input->chunk];
}

/* The input whose rows are those of a microbatch: one with a bare symbol, else
 * one with a free size, else any that is divided. */
static const struct pst_plan_input *row_input(const struct pst_plan *plan)
{
    const struct pst_plan_input *found[3] = {NULL, NULL, NULL};

    for (size_t i = plan->inputs.n; i-- > 0;) {
        const struct pst_plan_input *input = &plan->inputs.at[i];
        const char *expr = row_expr(input);

        if (input->chunk < 0)
            continue;
        found[2] = input;
        if (expr != NULL)
            found[1] = input;
        if (expr != NULL && pst_symbols_find(&plan->symbols, expr) != NULL)
            found[0] = input;
    }
    return found[0] != NULL ? found[0] : found[1] != NULL ? found[1] : found[2];
}

int64_t pst_plan_rows(const struct pst_plan *plan)
{
    const struct pst_plan_input *input = row_input(plan);

    return input == NULL ? 1 : input->meta.size[input->chunk];
}

bool pst_plan_is_free(const struct pst_plan *plan)
{
    const struct pst_plan_input *input = row_input(plan);

    return input != NULL && row_expr(input) != NULL && plan->fixed == NULL;
}

/* Sizes of an output, or NULL. */
static const char *const *output_dims(const struct pst_plan *plan,
                                      const struct pst_plan_output *o)
{
    if (!o->is_tensor)
        return NULL;
    if (o->stage < 0)
        return plan->inputs.at[o->output].dims;
    return plan->stages.at[o->stage]
        .graph->outputs.at[o->output]
        .arg.value->dims;
}

enum pst_status pst_plan_output_dim(const struct pst_plan *plan, size_t output,
                                    unsigned *ret, struct pst_diag *diag)
{
    const struct pst_plan_output *o = &plan->outputs.at[output];
    const char *const *dims = output_dims(plan, o);
    const struct pst_plan_input *input = row_input(plan);
    struct pst_symbols rows;
    enum pst_status status;

    *ret = 0;
    if (o->stage < 0 && plan->inputs.at[o->output].chunk > 0)
        *ret = (unsigned)plan->inputs.at[o->output].chunk;
    if (dims == NULL || input == NULL || row_expr(input) == NULL)
        return PST_OK;
    pst_symbols_init(&rows); /* all of them unknown */
    status = pst_symbols_declare(&rows, row_expr(input), diag);
    for (unsigned d = 0; d < o->meta.rank && status == PST_OK; d++) {
        bool depends = false;

        for (size_t i = 0; dims[d] != NULL && i < rows.at.n; i++)
            depends = depends || strstr(dims[d], rows.at.at[i].name) != NULL;
        if (!depends)
            continue;
        *ret = d;
        break;
    }
    pst_symbols_fini(&rows);
    return status;
}

/* --- symbols ------------------------------------------------------------ */

static enum pst_status refuse_static(struct binder *b)
{
    const struct pst_plan_input *input = row_input(b->from);

    if (input == NULL)
        return pst_diag_set(b->diag, PST_ERR_INPUT,
                            "no input of the model has rows");
    if (b->from->fixed != NULL)
        return pst_diag_set(b->diag, PST_ERR_UNSUPPORTED,
                            "microbatches of %" PRId64 " rows: the model works "
                            "with %" PRId64 " only: %s",
                            b->rows, input->meta.size[input->chunk],
                            b->from->fixed);
    return pst_diag_set(b->diag, PST_ERR_INPUT,
                        "microbatches of %" PRId64 " rows: the model was "
                        "exported for %" PRId64 " in dimension %d of input "
                        "\"%s\"; to have it free, export with a "
                        "torch.export.Dim there (dynamic_shapes)",
                        b->rows, input->meta.size[input->chunk], input->chunk,
                        input->name);
}

/* Symbols of what is divided become unknown, all others stay. */
static enum pst_status loosen(struct binder *b)
{
    struct pst_symbols rows;
    enum pst_status status = PST_OK;

    pst_symbols_init(&rows);
    for (size_t i = 0; i < b->from->inputs.n && status == PST_OK; i++)
        if (row_expr(&b->from->inputs.at[i]) != NULL)
            status = pst_symbols_declare(
                &rows, row_expr(&b->from->inputs.at[i]), b->diag);
    if (status == PST_OK)
        status = pst_symbols_copy(&b->from->symbols, &b->to->symbols, b->diag);
    for (size_t i = 0; i < b->to->symbols.at.n && status == PST_OK; i++) {
        struct pst_symbol *s = &b->to->symbols.at.at[i];

        s->known = s->known && pst_symbols_find(&rows, s->name) == NULL;
    }
    pst_symbols_fini(&rows);
    return status;
}

static enum pst_status solve_rows(struct binder *b)
{
    struct pst_symbols *symbols = &b->to->symbols;
    enum pst_status status = PST_OK;

    for (int bare = 1; bare >= 0 && status == PST_OK; bare--) {
        for (size_t i = 0; i < b->from->inputs.n; i++) {
            const struct pst_plan_input *input = &b->from->inputs.at[i];
            const char *expr = row_expr(input);

            if (expr == NULL || pst_symbols_know(symbols, expr) ||
                (bare && pst_symbols_find(symbols, expr) == NULL))
                continue;
            status = pst_symbols_solve(symbols, expr, b->rows, b->diag);
            if (status == PST_OK)
                continue;
            pst_diag_prefix(b->diag, "input \"%s\"", input->name);
            return status;
        }
    }
    return status;
}

static enum pst_status bind_symbols(struct binder *b)
{
    enum pst_status status;

    if (!pst_plan_is_free(b->from))
        return refuse_static(b);
    if (b->rows < 1)
        return pst_diag_set(b->diag, PST_ERR_USAGE,
                            "a microbatch has at least one row");
    status = loosen(b);
    if (status == PST_OK)
        status = solve_rows(b);
    if (status != PST_OK)
        return status;
    status = pst_symbols_check(&b->to->symbols, b->diag);
    if (status != PST_OK)
        pst_diag_prefix(b->diag,
                        "microbatches of %" PRId64 " rows (input "
                        "\"%s\")",
                        b->rows, row_input(b->from)->name);
    return status;
}

/* --- inputs --------------------------------------------------------------- */

static enum pst_status bind_input(struct binder *b,
                                  const struct pst_plan_input *from)
{
    struct pst_plan_input input = *from;
    const int64_t rows =
        from->chunk >= 0 ? from->meta.size[from->chunk] : b->rows;

    for (unsigned d = 0; from->dims != NULL && d < from->meta.rank; d++) {
        enum pst_status status;

        if (from->dims[d] == NULL)
            continue;
        status = pst_symbols_int(&b->to->symbols, from->dims[d],
                                 &input.meta.size[d], b->diag);
        if (status != PST_OK || input.meta.size[d] < 0)
            return status != PST_OK
                       ? status
                       : pst_diag_set(b->diag, PST_ERR_INPUT,
                                      "input \"%s\" would have a negative size",
                                      from->name);
    }
    if (from->chunk >= 0 && row_expr(from) == NULL)
        return pst_diag_set(b->diag, PST_ERR_INPUT,
                            "input \"%s\" was exported with %" PRId64 " rows, "
                            "which is not free: --chunk %s=replicate gives it "
                            "whole to every microbatch",
                            from->name, rows, from->name);
    pst_meta_set_contiguous(&input.meta);
    return pst_vec_push(TAG, &b->to->inputs, input) ? PST_OK : no_memory(b);
}

/* --- stages ------------------------------------------------------------- */

/* A given value of the stage; what an edge brings is as its sender has it. */
static enum pst_status bind_given(struct binder *b,
                                  const struct pst_value *value,
                                  const struct pst_meta *meta)
{
    struct pst_value *twin = pst_graph_add_value(b->build.graph, value->kind,
                                                 value->name, value->fqn, meta);

    if (twin == NULL)
        return no_memory(b);
    twin->requires_grad = value->requires_grad;
    twin->persistent = value->persistent;
    b->twins[value->id] = twin;
    return pst_exprs_copy(&b->build.graph->arena, value->dims, value->meta.rank,
                          &twin->dims, b->diag);
}

static const struct pst_meta *input_meta(const struct binder *b,
                                         const struct pst_stage_input *input)
{
    return input->kind == PST_SOURCE_EDGE
               ? &b->to->edges.at[input->index].meta
               : &b->to->inputs.at[input->index].meta;
}

static enum pst_status bind_givens(struct binder *b,
                                   const struct pst_stage *stage)
{
    const struct pst_graph *graph = stage->graph;
    enum pst_status status = PST_OK;
    size_t input = 0; /* they stand in the order of their ids */

    for (size_t i = 0; i < graph->values.n && status == PST_OK; i++) {
        const struct pst_value *value = graph->values.at[i];

        if (value->kind == PST_VALUE_INPUT)
            status =
                bind_given(b, value, input_meta(b, &stage->inputs[input++]));
        else if (value->kind != PST_VALUE_NODE)
            status = bind_given(b, value, &value->meta);
    }
    return status;
}

static enum pst_status bind_stage_outputs(struct binder *b,
                                          const struct pst_graph *graph)
{
    for (size_t i = 0; i < graph->outputs.n; i++) {
        struct pst_output output = graph->outputs.at[i];
        enum pst_status status;

        output.arg = pst_v(b->twins[output.arg.value->id]);
        if (output.target != NULL)
            output.target = b->twins[output.target->id];
        status = pst_graph_add_output(b->build.graph, &output, b->diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* The edges that leave the stage, as the values are now. */
static enum pst_status bind_edges(struct binder *b, unsigned stage)
{
    for (size_t i = 0; i < b->to->edges.n; i++) {
        struct pst_edge *edge = &b->to->edges.at[i];
        const struct pst_value *value;

        if (edge->from_stage != stage)
            continue;
        value = b->build.graph->outputs.at[edge->from_output].arg.value;
        edge->meta = value->meta;
        if (!pst_meta_is_dense(&edge->meta))
            return pst_diag_set(b->diag, PST_ERR_UNSUPPORTED,
                                "microbatches of %" PRId64 " rows: %%%s cannot "
                                "be sent from stage %u, it has gaps",
                                b->rows, value->name, stage);
        if (pst_meta_is_contiguous(&edge->meta))
            pst_meta_set_contiguous(&edge->meta);
    }
    return PST_OK;
}

static enum pst_status bind_stage(struct binder *b, unsigned index)
{
    const struct pst_stage *from = &b->from->stages.at[index];
    struct pst_replay replay = {.symbols = &b->to->symbols};
    struct pst_stage stage = *from; /* texts and inputs live longer */
    enum pst_status status = pst_graph_new(&stage.graph, b->diag);

    if (status != PST_OK)
        return status;
    if (!pst_vec_push(TAG, &b->to->stages, stage)) {
        pst_graph_free(stage.graph);
        return no_memory(b);
    }
    pst_build_init(&b->build, stage.graph, b->diag);
    stage.graph->next_node_id = from->graph->next_node_id;
    b->twins = pst_arena_calloc(&b->to->arena, from->graph->values.n + 1,
                                sizeof(*b->twins));
    if (b->twins == NULL)
        return no_memory(b);
    status = bind_givens(b, from);
    replay.build = b->build;
    replay.twins = b->twins;
    for (size_t i = 0; i < from->graph->nodes.n && status == PST_OK; i++) {
        const struct pst_node *node = from->graph->nodes.at[i];

        status = pst_replay_node(&replay, node);
        if (status != PST_OK)
            pst_diag_prefix(b->diag,
                            "microbatches of %" PRId64 " rows: %s in "
                            "\"%s\" (%s)",
                            b->rows, node->schema->name, node->module,
                            node->source);
    }
    if (status == PST_OK)
        status = bind_stage_outputs(b, from->graph);
    if (status == PST_OK)
        status = bind_edges(b, index);
    return status == PST_OK ? pst_graph_verify(stage.graph, b->diag) : status;
}

/* --- the plan ----------------------------------------------------------- */

/* Texts are the parent's, which lives longer. */
static enum pst_status bind_head(struct binder *b)
{
    const struct pst_plan *from = b->from;
    struct pst_plan *to = b->to;
    enum pst_status status = PST_OK;
    char text[100];

    to->parent = b->from;
    to->name = from->name;
    to->loss = from->loss;
    memcpy(to->model_digest, from->model_digest, sizeof(to->model_digest));
    snprintf(text, sizeof(text), "%s bound to %" PRId64, from->digest, b->rows);
    pst_digest(text, strlen(text), to->digest);
    for (size_t i = 0; i < from->inputs.n && status == PST_OK; i++)
        status = bind_input(b, &from->inputs.at[i]);
    for (size_t i = 0; i < from->edges.n && status == PST_OK; i++)
        if (!pst_vec_push(TAG, &to->edges, from->edges.at[i]))
            status = no_memory(b);
    for (size_t i = 0; i < from->params.n && status == PST_OK; i++)
        if (!pst_vec_push(TAG, &to->params, from->params.at[i]))
            status = no_memory(b);
    return status;
}

static enum pst_status bind_outputs(struct binder *b)
{
    for (size_t i = 0; i < b->from->outputs.n; i++) {
        struct pst_plan_output output = b->from->outputs.at[i];
        enum pst_status status = PST_OK;

        if (!output.is_tensor)
            status = pst_replay_bind(&b->to->symbols, &output.literal,
                                     &b->to->arena, b->diag);
        else if (output.stage < 0)
            output.meta = b->to->inputs.at[output.output].meta;
        else
            output.meta = b->to->stages.at[output.stage]
                              .graph->outputs.at[output.output]
                              .arg.value->meta;
        if (output.is_tensor && pst_meta_is_contiguous(&output.meta))
            pst_meta_set_contiguous(&output.meta);
        if (status != PST_OK)
            return status;
        if (!pst_vec_push(TAG, &b->to->outputs, output))
            return no_memory(b);
    }
    return PST_OK;
}

enum pst_status pst_plan_bind(struct pst_plan *plan, int64_t rows,
                              struct pst_plan **ret, struct pst_diag *diag)
{
    struct binder b = {.from = plan, .rows = rows, .diag = diag};
    enum pst_status status = pst_plan_new(&b.to, diag);

    if (status != PST_OK)
        return status;
    status = bind_symbols(&b);
    if (status == PST_OK)
        status = bind_head(&b);
    for (unsigned s = 0; s < plan->stages.n && status == PST_OK; s++)
        status = bind_stage(&b, s);
    if (status == PST_OK)
        status = bind_outputs(&b);
    if (status != PST_OK) {
        pst_plan_free(b.to);
        return status;
    }
    pst_plan_measure(b.to);
    *ret = b.to;
    return PST_OK;
}
