// SPDX-License-Identifier: Apache-2.0
#include "stages/split/bind/bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stages/graph/schema.h"
#include "stages/passes/replay.h"
#include "stages/split/bind/rows.h"
#include "stages/split/split.h"

#define TAG PST_TAG_PLAN

/* A size that is requested for an input; expr: its expression in the plan. */
struct wanted {
    const struct pst_plan_input *input; /* input of the old plan */
    const char *expr;
    int64_t size;
};

struct binder {
    struct pst_plan *from, *to;
    int64_t rows; /* 0: the request is for sizes other than rows */
    struct PST_VEC(struct wanted) wanted;
    char request[160];      /* the request, for messages */
    struct pst_build build; /* builds the graph of the current stage */
    /* new value, by value id in the current stage's old graph */
    struct pst_value **map;
    struct pst_diag *diag;
};

static enum pst_status no_memory(struct binder *b)
{
    return pst_diag_nomem(b->diag, 0);
}

/* --- symbols ------------------------------------------------------------ */

static enum pst_status refuse_static(struct binder *b)
{
    const struct pst_plan_input *input = pst_row_input(b->from);

    if (input == NULL)
        return pst_diag_set(b->diag, PST_E_BATCH_FIXED,
                            "no input of the model has rows");
    if (b->from->fixed != NULL)
        return pst_diag_set(b->diag, PST_E_BATCH_FIXED_BY_MODEL,
                            "%s: the model works with %" PRId64 " only: %s",
                            b->request, input->meta.size[input->chunk],
                            b->from->fixed);
    return pst_diag_set(b->diag, PST_E_BATCH_FIXED,
                        "%s: the model was exported for %" PRId64 " in "
                        "dimension %d of input \"%s\"; to have it free, "
                        "export with a torch.export.Dim there "
                        "(dynamic_shapes)",
                        b->request, input->meta.size[input->chunk],
                        input->chunk, input->name);
}

static enum pst_status add_wanted(struct binder *b,
                                  const struct pst_plan_input *input,
                                  const char *expr, int64_t size)
{
    const struct wanted w = {input, expr, size};

    return pst_vec_push(TAG, &b->wanted, w) ? PST_OK : no_memory(b);
}

static enum pst_status set_rows(struct binder *b)
{
    enum pst_status status = PST_OK;

    if (!pst_plan_is_free(b->from))
        return refuse_static(b);
    if (b->rows < 1)
        return pst_diag_set(b->diag, PST_E_BATCH_TWICE,
                            "a microbatch has at least one row");
    for (size_t i = 0; i < b->from->inputs.n && status == PST_OK; i++) {
        const struct pst_plan_input *input = &b->from->inputs.at[i];

        if (pst_row_expr(input) != NULL)
            status = add_wanted(b, input, pst_row_expr(input), b->rows);
    }
    return status;
}

/* Parses NAME.DIM=SIZE. */
static enum pst_status set_size(struct binder *b, const char *spec)
{
    const char *equal = strchr(spec, '='), *dot = equal;
    struct pst_plan_input *input;
    int64_t dim = -1, size = 0;
    char number[32] = "";
    enum pst_status status;

    while (dot != NULL && dot > spec && *dot != '.')
        dot--;
    if (dot != NULL)
        (void)snprintf(number, sizeof(number), "%.*s",
                       (int)PST_MAX(equal - dot - 1, 0), dot + 1);
    if (dot == NULL || dot == spec || !pst_parse_i64(number, &dim) || dim < 0 ||
        !pst_parse_i64(equal + 1, &size) || size < 1)
        return pst_diag_set(b->diag, PST_E_SIZE_OPTION,
                            "--size %.100s: expected NAME.DIMENSION=SIZE",
                            spec);
    status = pst_plan_find_input(b->from, "--size", spec, (size_t)(dot - spec),
                                 &input, b->diag);
    if (status != PST_OK)
        return status;
    if (dim >= input->meta.rank)
        return pst_diag_set(b->diag, PST_E_SIZE_OPTION,
                            "--size %.100s: the input has %u dimensions", spec,
                            input->meta.rank);
    if (dim == input->chunk)
        return pst_diag_set(b->diag, PST_E_SIZE_OPTION,
                            "--size %.100s: these are its rows: give "
                            "--microbatch-size or --batch",
                            spec);
    if (input->dims != NULL && input->dims[dim] != NULL &&
        b->from->fixed == NULL)
        return add_wanted(b, input, input->dims[dim], size);
    if (input->meta.size[dim] == size)
        return PST_OK;
    return pst_diag_set(b->diag, PST_E_BATCH_FIXED,
                        "--size %.100s: the model works with %" PRId64
                        " there only%s%s; export with a torch.export.Dim "
                        "(dynamic_shapes) leaves sizes free",
                        spec, input->meta.size[dim],
                        b->from->fixed != NULL ? ": " : "",
                        b->from->fixed != NULL ? b->from->fixed : "");
}

static enum pst_status set_sizes(struct binder *b, const char *specs)
{
    enum pst_status status = PST_OK;

    while (*specs != '\0' && status == PST_OK) {
        const size_t n = strcspn(specs, ",");
        char spec[256];

        (void)snprintf(spec, sizeof(spec), "%.*s", (int)n, specs);
        status = set_size(b, spec);
        specs += n + (specs[n] == ',');
    }
    return status;
}

/* Copies the symbols of the plan. The symbols of the requested sizes lose their
 * values. */
static enum pst_status copy_symbols(struct binder *b)
{
    struct pst_symbols loose;
    enum pst_status status = PST_OK;

    pst_symbols_init(&loose);
    for (size_t i = 0; i < b->wanted.n && status == PST_OK; i++)
        status = pst_symbols_declare(&loose, b->wanted.at[i].expr, b->diag);
    if (status == PST_OK)
        status = pst_symbols_copy(&b->from->symbols, &b->to->symbols, b->diag);
    for (size_t i = 0; i < b->to->symbols.at.n && status == PST_OK; i++) {
        struct pst_symbol *s = &b->to->symbols.at.at[i];

        s->known = s->known && pst_symbols_find(&loose, s->name) == NULL;
    }
    pst_symbols_fini(&loose);
    return status;
}

/* Computes the symbols from the requested sizes; sizes that are a single symbol
 * come first. */
static enum pst_status solve_symbols(struct binder *b)
{
    struct pst_symbols *symbols = &b->to->symbols;
    enum pst_status status = PST_OK;
    bool known = false;

    for (int bare = 1; bare >= 0; bare--) {
        for (size_t i = 0; i < b->wanted.n; i++) {
            const struct wanted *w = &b->wanted.at[i];

            status = pst_symbols_are_known(symbols, w->expr, &known, b->diag);
            if (status != PST_OK)
                return status;
            if (known || (bare && pst_symbols_find(symbols, w->expr) == NULL))
                continue;
            status = pst_symbols_solve(symbols, w->expr, w->size, b->diag);
            if (status == PST_OK)
                continue;
            pst_diag_prefix(b->diag, "input \"%s\"", w->input->name);
            return status;
        }
    }
    return status;
}

/* Checks that all requested sizes agree with the symbols: a size may be
 * requested twice. */
static enum pst_status check_wanted(struct binder *b)
{
    for (size_t i = 0; i < b->wanted.n && b->rows == 0; i++) {
        const struct wanted *w = &b->wanted.at[i];
        int64_t got;
        enum pst_status status =
            pst_symbols_int(&b->to->symbols, w->expr, &got, b->diag);

        if (status != PST_OK)
            return status;
        if (got != w->size)
            return pst_diag_set(b->diag, PST_E_BATCH_FIXED,
                                "%s: a size of input \"%s\" is %" PRId64
                                " then, not %" PRId64,
                                b->request, w->input->name, got, w->size);
    }
    return PST_OK;
}

/* Checks the ranges of symbols. When sizes other than rows are set, ranges that
 * depend on the rows are checked later: the rows may still change. */
static enum pst_status check_ranges(struct binder *b)
{
    const struct pst_plan_input *input = pst_row_input(b->from);
    const char *expr = input != NULL ? pst_row_expr(input) : NULL;
    struct pst_symbols rows, rest;
    enum pst_status status;

    if (b->rows > 0 || expr == NULL)
        return pst_symbols_check(&b->to->symbols, b->diag);
    pst_symbols_init(&rows);
    pst_symbols_init(&rest);
    status = pst_symbols_declare(&rows, expr, b->diag);
    if (status == PST_OK)
        status = pst_symbols_copy(&b->to->symbols, &rest, b->diag);
    for (size_t i = 0; i < rest.at.n && status == PST_OK; i++)
        rest.at.at[i].known =
            rest.at.at[i].known &&
            pst_symbols_find(&rows, rest.at.at[i].name) == NULL;
    if (status == PST_OK)
        status = pst_symbols_check(&rest, b->diag);
    pst_symbols_fini(&rows);
    pst_symbols_fini(&rest);
    return status;
}

static enum pst_status bind_symbols(struct binder *b)
{
    enum pst_status status = copy_symbols(b);

    if (status == PST_OK)
        status = solve_symbols(b);
    if (status == PST_OK)
        status = check_wanted(b);
    if (status != PST_OK)
        return status;
    status = check_ranges(b);
    if (status != PST_OK)
        pst_diag_prefix(b->diag, "%s (input \"%s\")", b->request,
                        b->rows > 0 ? pst_row_input(b->from)->name
                                    : b->wanted.at[0].input->name);
    return status;
}

/* --- inputs --------------------------------------------------------------- */

static enum pst_status bind_input(struct binder *b,
                                  const struct pst_plan_input *from)
{
    struct pst_plan_input input = *from;

    for (unsigned d = 0; from->dims != NULL && d < from->meta.rank; d++) {
        enum pst_status status;

        if (from->dims[d] == NULL)
            continue;
        status = pst_symbols_int(&b->to->symbols, from->dims[d],
                                 &input.meta.size[d], b->diag);
        if (status != PST_OK || input.meta.size[d] < 0)
            return status != PST_OK
                       ? status
                       : pst_diag_set(b->diag, PST_E_BATCH_FIXED,
                                      "input \"%s\" would have a negative size",
                                      from->name);
    }
    if (b->rows > 0 && from->chunk >= 0 && pst_row_expr(from) == NULL)
        return pst_diag_set(b->diag, PST_E_BATCH_FIXED,
                            "input \"%s\" was exported with %" PRId64 " rows, "
                            "which is not free: --chunk %s=replicate gives it "
                            "whole to every microbatch",
                            from->name, from->meta.size[from->chunk],
                            from->name);
    pst_meta_set_contiguous(&input.meta);
    return pst_vec_push(TAG, &b->to->inputs, input) ? PST_OK : no_memory(b);
}

/* --- stages ------------------------------------------------------------- */

/* Adds an input or state value to the stage's graph. meta: its new meta; for a
 * value from an edge, the meta of the sender's output. */
static enum pst_status bind_given(struct binder *b,
                                  const struct pst_value *value,
                                  const struct pst_meta *meta)
{
    struct pst_value *copy = pst_graph_add_value(b->build.graph, value->kind,
                                                 value->name, value->fqn, meta);

    if (copy == NULL)
        return no_memory(b);
    copy->requires_grad = value->requires_grad;
    copy->persistent = value->persistent;
    b->map[value->id] = copy;
    return pst_exprs_copy(&b->build.graph->arena, value->dims, value->meta.rank,
                          &copy->dims, b->diag);
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
    size_t input = 0; /* inputs are in the order of their ids */

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

        output.arg = pst_v(b->map[output.arg.value->id]);
        if (output.target != NULL)
            output.target = b->map[output.target->id];
        status = pst_graph_add_output(b->build.graph, &output, b->diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

/* Sets the metas of the edges that begin in this stage. */
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
            return pst_diag_set(b->diag, PST_E_CUT_VIEW,
                                "%s: %%%s cannot be sent from stage %u, it "
                                "has gaps",
                                b->request, value->name, stage);
        if (pst_meta_is_contiguous(&edge->meta))
            pst_meta_set_contiguous(&edge->meta);
    }
    return PST_OK;
}

static enum pst_status bind_stage(struct binder *b, unsigned index)
{
    const struct pst_stage *from = &b->from->stages.at[index];
    struct pst_replay replay = {.symbols = &b->to->symbols};
    /* shares strings and inputs with the old plan, which outlives this one */
    struct pst_stage stage = *from;
    enum pst_status status = pst_graph_new(&stage.graph, b->diag);

    if (status != PST_OK)
        return status;
    if (!pst_vec_push(TAG, &b->to->stages, stage)) {
        pst_graph_free(stage.graph);
        return no_memory(b);
    }
    pst_build_init(&b->build, stage.graph, b->diag);
    stage.graph->next_node_id = from->graph->next_node_id;
    b->map = pst_arena_calloc(&b->to->arena, from->graph->values.n + 1,
                              sizeof(*b->map));
    if (b->map == NULL)
        return no_memory(b);
    status = bind_givens(b, from);
    replay.build = b->build;
    replay.map = b->map;
    for (size_t i = 0; i < from->graph->nodes.n && status == PST_OK; i++) {
        const struct pst_node *node = from->graph->nodes.at[i];

        status = pst_replay_node(&replay, node);
        if (status != PST_OK)
            pst_diag_prefix(b->diag, "%s: %s in \"%s\" (%s)", b->request,
                            pst_node_origin(node), node->call->name,
                            node->source);
    }
    if (status == PST_OK)
        status = bind_stage_outputs(b, from->graph);
    if (status == PST_OK)
        status = bind_edges(b, index);
    return status == PST_OK ? pst_graph_verify(stage.graph, b->diag) : status;
}

/* --- the plan ----------------------------------------------------------- */

/* Fills in the plan's name, inputs and other facts; borrows strings from the
 * parent, which outlives the plan. */
static enum pst_status bind_head(struct binder *b)
{
    const struct pst_plan *from = b->from;
    struct pst_plan *to = b->to;
    enum pst_status status = PST_OK;
    char text[300];

    to->parent = b->from;
    to->name = from->name;
    to->loss = from->loss;
    to->evaluates = from->evaluates;
    to->autocast = from->autocast;
    to->lost = from->lost;
    to->writes = from->writes;
    to->counted = from->counted;
    memcpy(to->model_digest, from->model_digest, sizeof(to->model_digest));
    memcpy(to->identity, from->identity, sizeof(to->identity));
    (void)snprintf(text, sizeof(text), "%s bound to %s", from->digest,
                   b->request);
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

/* Builds the plan for the requested sizes unless `status` is an error; frees
 * the memory of the binder. */
static enum pst_status bind_plan(struct binder *b, enum pst_status status,
                                 struct pst_plan **ret)
{
    if (status == PST_OK)
        status = pst_plan_new(&b->to, b->diag);
    if (status == PST_OK)
        status = bind_symbols(b);
    if (status == PST_OK)
        status = bind_head(b);
    for (unsigned s = 0; s < b->from->stages.n && status == PST_OK; s++)
        status = bind_stage(b, s);
    if (status == PST_OK)
        status = bind_outputs(b);
    if (status == PST_OK)
        status = pst_plan_index(b->to, b->diag);
    pst_vec_fini(&b->wanted);
    if (status != PST_OK) {
        pst_plan_free(b->to);
        return status;
    }
    pst_plan_measure(b->to);
    *ret = b->to;
    return PST_OK;
}

enum pst_status pst_plan_bind(struct pst_plan *plan, int64_t rows,
                              struct pst_plan **ret, struct pst_diag *diag)
{
    struct binder b = {.from = plan, .rows = rows, .diag = diag};

    (void)snprintf(b.request, sizeof(b.request),
                   "microbatches of %" PRId64 " rows", rows);
    return bind_plan(&b, set_rows(&b), ret);
}

enum pst_status pst_plan_resize(struct pst_plan *plan, const char *specs,
                                struct pst_plan **ret, struct pst_diag *diag)
{
    struct binder b = {.from = plan, .diag = diag};

    (void)snprintf(b.request, sizeof(b.request), "--size %s", specs);
    return bind_plan(&b, set_sizes(&b, specs), ret);
}
