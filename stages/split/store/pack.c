// SPDX-License-Identifier: Apache-2.0
#include "stages/split/store/pack.h"

#include "plan.pb-c.h"
#include "stages/base/fold/fold.h"
#include "stages/base/str.h"
#include "stages/ops/plugin/plugin.h"

#include <string.h>

#define TAG PST_TAG_PLAN

typedef Penstock__Plan__Plan pb_plan;
typedef Penstock__Plan__Meta pb_meta;

/* State of packing; the arena owns all messages. */
struct packer {
    struct pst_plan *plan;
    struct pst_arena arena;
    bool failed;
};

static void *make(struct packer *p, size_t n, size_t size)
{
    void *ret = pst_arena_calloc(&p->arena, n + 1, size);

    p->failed = p->failed || ret == NULL;
    return ret;
}

static uint32_t pt2_code(enum pst_dtype dtype)
{
    enum pst_dtype found;
    uint32_t code = 0;

    while (!pst_dtype_from_pt2(code, &found) || found != dtype)
        code++;
    return code;
}

static pb_meta *pack_meta(struct packer *p, const struct pst_meta *meta)
{
    pb_meta *ret = make(p, 1, sizeof(*ret));
    int64_t *size = make(p, meta->rank, sizeof(*size));
    int64_t *stride = make(p, meta->rank, sizeof(*stride));

    if (p->failed)
        return NULL;
    penstock__plan__meta__init(ret);
    ret->dtype = pt2_code(meta->dtype);
    memcpy(size, meta->size, meta->rank * sizeof(*size));
    memcpy(stride, meta->stride, meta->rank * sizeof(*stride));
    ret->size = size;
    ret->stride = stride;
    ret->n_size = ret->n_stride = meta->rank;
    return ret;
}

static void pack_stage(struct packer *p, const struct pst_stage *stage,
                       Penstock__Plan__Stage *ret)
{
    const size_t n = stage->graph->inputs.n;
    Penstock__Plan__StageInput *items = make(p, n, sizeof(*items));
    Penstock__Plan__StageInput **list = make(p, n, sizeof(*list));
    struct pst_str text = {0};

    penstock__plan__stage__init(ret);
    pst_graph_print(stage->graph, &text);
    ret->graph = pst_arena_strdup(&p->arena, pst_str_text(&text));
    p->failed = p->failed || text.failed || ret->graph == NULL;
    pst_str_fini(&text);
    ret->weights = (char *)stage->weights;
    ret->weights_size = stage->weights_size;
    ret->weights_digest = (char *)stage->weights_digest;
    if (p->failed)
        return;
    for (size_t i = 0; i < n; i++) {
        penstock__plan__stage_input__init(&items[i]);
        items[i].from_edge = stage->inputs[i].kind == PST_SOURCE_EDGE;
        items[i].index = stage->inputs[i].index;
        list[i] = &items[i];
    }
    ret->inputs = list;
    ret->n_inputs = n;
}

static void pack_stages(struct packer *p, pb_plan *ret)
{
    const size_t n = p->plan->stages.n;
    Penstock__Plan__Stage *items = make(p, n, sizeof(*items));

    ret->stages = make(p, n, sizeof(*ret->stages));
    for (size_t i = 0; i < n && !p->failed; i++) {
        pack_stage(p, &p->plan->stages.at[i], &items[i]);
        ret->stages[i] = &items[i];
    }
    ret->n_stages = n;
}

static void pack_edges(struct packer *p, pb_plan *ret)
{
    const size_t n = p->plan->edges.n;
    Penstock__Plan__Edge *items = make(p, n, sizeof(*items));

    ret->edges = make(p, n, sizeof(*ret->edges));
    for (size_t i = 0; i < n && !p->failed; i++) {
        const struct pst_edge *edge = &p->plan->edges.at[i];

        penstock__plan__edge__init(&items[i]);
        items[i].from_stage = edge->from_stage;
        items[i].from_output = edge->from_output;
        items[i].to_stage = edge->to_stage;
        items[i].to_input = edge->to_input;
        items[i].value = (char *)edge->value;
        items[i].meta = pack_meta(p, &edge->meta);
        items[i].grad_parts = edge->grad_parts;
        if (edge->carries != NULL)
            items[i].carries = (char *)edge->carries;
        ret->edges[i] = &items[i];
    }
    ret->n_edges = n;
}

static void pack_dims(struct packer *p, const struct pst_plan_input *input,
                      Penstock__Plan__PlanInput *ret)
{
    if (input->dims == NULL)
        return;
    ret->dims = make(p, input->meta.rank, sizeof(*ret->dims));
    for (unsigned d = 0; d < input->meta.rank && !p->failed; d++)
        ret->dims[d] = (char *)(input->dims[d] != NULL ? input->dims[d] : "");
    ret->n_dims = p->failed ? 0 : input->meta.rank;
}

static void pack_symbols(struct packer *p, pb_plan *ret)
{
    const struct pst_symbols *symbols = &p->plan->symbols;
    Penstock__Plan__Symbol *items = make(p, symbols->at.n, sizeof(*items));
    Penstock__Plan__Range *ranges = make(p, symbols->ranges.n, sizeof(*ranges));

    ret->symbols = make(p, symbols->at.n, sizeof(*ret->symbols));
    ret->ranges = make(p, symbols->ranges.n, sizeof(*ret->ranges));
    if (p->failed)
        return;
    for (size_t i = 0; i < symbols->at.n; i++) {
        Penstock__Plan__Symbol *item = &items[ret->n_symbols];

        if (!symbols->at.at[i].known)
            continue; /* the plan does not depend on this symbol */
        penstock__plan__symbol__init(item);
        item->name = (char *)symbols->at.at[i].name;
        item->value = symbols->at.at[i].value;
        ret->symbols[ret->n_symbols++] = item;
    }
    for (size_t i = 0; i < symbols->ranges.n; i++) {
        penstock__plan__range__init(&ranges[i]);
        ranges[i].expr = (char *)symbols->ranges.at[i].expr;
        ranges[i].min = symbols->ranges.at[i].min;
        ranges[i].max = symbols->ranges.at[i].max;
        ret->ranges[i] = &ranges[i];
    }
    ret->n_ranges = symbols->ranges.n;
    ret->fixed = (char *)(p->plan->fixed != NULL ? p->plan->fixed : "");
}

static void pack_inputs(struct packer *p, pb_plan *ret)
{
    const size_t n = p->plan->inputs.n;
    Penstock__Plan__PlanInput *items = make(p, n, sizeof(*items));

    ret->inputs = make(p, n, sizeof(*ret->inputs));
    for (size_t i = 0; i < n && !p->failed; i++) {
        penstock__plan__plan_input__init(&items[i]);
        items[i].name = (char *)p->plan->inputs.at[i].name;
        items[i].meta = pack_meta(p, &p->plan->inputs.at[i].meta);
        items[i].chunk = p->plan->inputs.at[i].chunk;
        pack_dims(p, &p->plan->inputs.at[i], &items[i]);
        ret->inputs[i] = &items[i];
    }
    ret->n_inputs = n;
}

static void pack_literal(const struct pst_arg *arg,
                         Penstock__Plan__PlanOutput *ret)
{
    if (arg->exprs != NULL && arg->exprs[0] != NULL)
        ret->expr = (char *)arg->exprs[0];
    switch (arg->kind) {
    case PST_ARG_INT:
        ret->literal_case = PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_INT_VALUE;
        ret->int_value = arg->i;
        break;
    case PST_ARG_FLOAT:
        ret->literal_case = PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_FLOAT_VALUE;
        ret->float_value = arg->f;
        break;
    case PST_ARG_BOOL:
        ret->literal_case = PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_BOOL_VALUE;
        ret->bool_value = arg->b;
        break;
    case PST_ARG_STRING:
        ret->literal_case = PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_STRING_VALUE;
        ret->string_value = (char *)arg->s;
        break;
    default: /* None; an output of a model has no other kind */
        ret->literal_case = PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_NONE;
        ret->none = true;
        break;
    }
}

static void pack_outputs(struct packer *p, pb_plan *ret)
{
    const size_t n = p->plan->outputs.n;
    Penstock__Plan__PlanOutput *items = make(p, n, sizeof(*items));

    ret->outputs = make(p, n, sizeof(*ret->outputs));
    for (size_t i = 0; i < n && !p->failed; i++) {
        const struct pst_plan_output *output = &p->plan->outputs.at[i];

        penstock__plan__plan_output__init(&items[i]);
        items[i].path = (char *)output->path;
        items[i].stage = output->stage;
        items[i].output = output->output;
        if (output->is_tensor)
            items[i].meta = pack_meta(p, &output->meta);
        else
            pack_literal(&output->literal, &items[i]);
        ret->outputs[i] = &items[i];
    }
    ret->n_outputs = n;
}

static void pack_windows(struct packer *p, const struct pst_plan_param *param,
                         Penstock__Plan__Param *ret)
{
    const size_t n = param->n_windows;
    Penstock__Plan__Window *items = make(p, n, sizeof(*items));

    ret->windows = make(p, n, sizeof(*ret->windows));
    for (size_t i = 0; i < n && !p->failed; i++) {
        penstock__plan__window__init(&items[i]);
        items[i].fqn = (char *)param->windows[i].fqn;
        items[i].meta = pack_meta(p, &param->windows[i].meta);
        items[i].offset = param->windows[i].offset;
        ret->windows[i] = &items[i];
    }
    ret->n_windows = n;
    ret->nameless = param->nameless;
}

static void pack_params(struct packer *p, pb_plan *ret)
{
    const size_t n = p->plan->params.n;
    Penstock__Plan__Param *items = make(p, n, sizeof(*items));

    ret->params = make(p, n, sizeof(*ret->params));
    for (size_t i = 0; i < n && !p->failed; i++) {
        const struct pst_plan_param *param = &p->plan->params.at[i];

        penstock__plan__param__init(&items[i]);
        items[i].fqn = (char *)param->fqn;
        items[i].aliases = (char **)param->aliases;
        items[i].n_aliases = param->n_aliases;
        items[i].kind = param->kind == PST_VALUE_PARAM
                            ? PENSTOCK__PLAN__PARAM__KIND__PARAM
                        : param->kind == PST_VALUE_BUFFER
                            ? PENSTOCK__PLAN__PARAM__KIND__BUFFER
                            : PENSTOCK__PLAN__PARAM__KIND__CONST;
        items[i].meta = pack_meta(p, &param->meta);
        items[i].requires_grad = param->requires_grad;
        items[i].since = param->since;
        items[i].changed = param->changed;
        if (param->rounded)
            items[i].rounds = pt2_code(param->rounds);
        items[i].persistent = param->persistent;
        items[i].pairs = param->is_complex;
        items[i].stages = param->stages;
        items[i].n_stages = param->n_stages;
        items[i].uses = param->uses;
        items[i].n_uses = param->n_stages;
        items[i].home = param->owner_stage;
        items[i].transmit = param->transmit;
        if (param->n_windows > 0)
            pack_windows(p, param, &items[i]);
        ret->params[i] = &items[i];
    }
    ret->n_params = n;
}

static void pack_adapters(struct packer *p, pb_plan *ret)
{
    const size_t n = p->plan->adapters.n;
    Penstock__Plan__Adapter *items = make(p, n, sizeof(*items));

    ret->adapters = make(p, n, sizeof(*ret->adapters));
    for (size_t i = 0; i < n && !p->failed; i++) {
        const struct pst_adapter *adapter = &p->plan->adapters.at[i];

        penstock__plan__adapter__init(&items[i]);
        items[i].module = (char *)adapter->module;
        items[i].weight = (char *)adapter->weight;
        items[i].down = (char *)adapter->down;
        items[i].up = (char *)adapter->up;
        items[i].alpha = adapter->alpha;
        items[i].transposed = adapter->transposed;
        items[i].shared = adapter->shared;
        ret->adapters[i] = &items[i];
    }
    ret->n_adapters = n;
}

/* Adds the plugins of the plan's operators, ordered by name: processes may have
 * loaded them in different orders. */
static void pack_plugins(struct packer *p, pb_plan *ret)
{
    Penstock__Plan__Plugin *items;
    size_t n = 0;

    for (const struct pst_plugin *x = pst_plugins(); x != NULL; x = x->next)
        n++;
    items = make(p, n, sizeof(*items));
    ret->plugins = make(p, n, sizeof(*ret->plugins));
    for (const struct pst_plugin *x = pst_plugins(); x != NULL && !p->failed;
         x = x->next) {
        Penstock__Plan__Plugin *item = &items[ret->n_plugins];
        size_t at = ret->n_plugins;

        if (!pst_plan_has_plugin(p->plan, x) || at == n)
            continue;
        penstock__plan__plugin__init(item);
        item->name = (char *)x->name;
        item->version = (char *)x->version;
        item->digest = (char *)x->digest;
        for (; at > 0 && strcmp(ret->plugins[at - 1]->name, x->name) > 0; at--)
            ret->plugins[at] = ret->plugins[at - 1];
        ret->plugins[at] = item;
        ret->n_plugins++;
    }
}

static void pack_plan(struct packer *p, pb_plan *ret)
{
    penstock__plan__plan__init(ret);
    ret->name = (char *)p->plan->name;
    ret->model_digest = p->plan->model_digest;
    ret->identity = p->plan->identity;
    ret->loss = p->plan->loss;
    ret->evaluates = p->plan->evaluates;
    ret->writes = p->plan->writes;
    ret->loss_fn = (char *)(p->plan->loss_fn != NULL ? p->plan->loss_fn : "");
    if (p->plan->autocast != NULL)
        ret->autocast = (char *)p->plan->autocast;
    if (p->plan->lost != NULL)
        ret->lost = (char *)p->plan->lost;
    ret->notes = (char **)p->plan->notes.at;
    ret->n_notes = p->plan->notes.n;
    pack_symbols(p, ret);
    pack_stages(p, ret);
    pack_edges(p, ret);
    pack_inputs(p, ret);
    pack_outputs(p, ret);
    pack_params(p, ret);
    pack_adapters(p, ret);
    pack_plugins(p, ret);
}

/* Packs the plan's message into the arena; sets the plan's digest. */
static enum pst_status pack_body(struct packer *p, ProtobufCBinaryData *ret,
                                 struct pst_diag *diag)
{
    pb_plan body;

    pack_plan(p, &body);
    if (!p->failed) {
        ret->len = penstock__plan__plan__get_packed_size(&body);
        ret->data = make(p, ret->len, 1);
    }
    if (p->failed)
        return pst_diag_nomem(diag, ret->len);
    penstock__plan__plan__pack(&body, ret->data);
    pst_digest(ret->data, ret->len, p->plan->digest);
    return PST_OK;
}

/* Folds equal layers of the body; keeps the body if folding does not make the
 * file smaller. */
static enum pst_status fold_body(struct pst_folded *folded,
                                 struct pst_str *runs,
                                 Penstock__Plan__PlanFile *file,
                                 struct pst_diag *diag)
{
    Penstock__Plan__PlanFile other = *file;
    enum pst_status status =
        pst_fold(&penstock__plan__plan__descriptor, file->body.data,
                 file->body.len, folded, diag);

    if (status == PST_ERR_UNSUPPORTED)
        return PST_OK;
    if (status == PST_OK)
        status = pst_fold_pack_runs(folded, runs, diag);
    if (status != PST_OK)
        return status;
    other.body.len = 0;
    other.lines.data = (uint8_t *)folded->lines.text;
    other.lines.len = folded->lines.len;
    other.runs.data = (uint8_t *)runs->text;
    other.runs.len = runs->len;
    if (penstock__plan__plan_file__get_packed_size(&other) <
        penstock__plan__plan_file__get_packed_size(file))
        *file = other;
    return PST_OK;
}

enum pst_status pst_plan_pack(struct pst_plan *plan, void **ret,
                              size_t *ret_size, struct pst_diag *diag)
{
    struct packer p = {.plan = plan};
    Penstock__Plan__PlanFile file = PENSTOCK__PLAN__PLAN_FILE__INIT;
    struct pst_folded folded = {0};
    struct pst_str runs = {0};
    enum pst_status status;

    pst_arena_init(&p.arena, TAG);
    status = pack_body(&p, &file.body, diag);
    file.version = PST_PLAN_VERSION;
    file.digest = plan->digest;
    if (status == PST_OK)
        status = fold_body(&folded, &runs, &file, diag);
    if (status == PST_OK) {
        *ret_size = penstock__plan__plan_file__get_packed_size(&file);
        *ret = pst_alloc(TAG, *ret_size);
        if (*ret == NULL)
            status = pst_diag_nomem(diag, *ret_size);
        else
            penstock__plan__plan_file__pack(&file, *ret);
    }
    pst_str_fini(&runs);
    pst_folded_fini(&folded);
    pst_arena_fini(&p.arena);
    return status;
}

enum pst_status pst_plan_body(struct pst_plan *plan, void **ret,
                              size_t *ret_size, struct pst_diag *diag)
{
    struct packer p = {.plan = plan};
    ProtobufCBinaryData body = {0};
    enum pst_status status;

    pst_arena_init(&p.arena, TAG);
    status = pack_body(&p, &body, diag);
    if (status == PST_OK) {
        *ret_size = body.len;
        *ret = pst_alloc(TAG, body.len);
        if (*ret == NULL)
            status = pst_diag_nomem(diag, body.len);
        else
            memcpy(*ret, body.data, body.len);
    }
    pst_arena_fini(&p.arena);
    return status;
}

enum pst_status pst_plan_digest(struct pst_plan *plan, struct pst_diag *diag)
{
    size_t size;
    void *data;
    enum pst_status status = pst_plan_body(plan, &data, &size, diag);

    if (status == PST_OK)
        pst_free(data);
    return status;
}
