// SPDX-License-Identifier: Apache-2.0
#include "stages/split/store/pack.h"

#include "plan.pb-c.h"
#include "stages/base/fold/fold.h"
#include "stages/base/str.h"
#include "stages/base/untrusted/wire.h"
#include "stages/ops/plugin/plugin.h"
#include "stages/split/split.h"

#include <string.h>

#define TAG PST_TAG_PLAN
/* maximum number of stages; also of edges, of inputs, ... */
#define MAX_COUNT 1000000

typedef Penstock__Plan__Plan pb_plan;

static void *pb_alloc(void *ctx, size_t size)
{
    (void)ctx;
    return pst_alloc(TAG, size);
}

static void pb_free(void *ctx, void *p)
{
    (void)ctx;
    pst_free(p);
}

static ProtobufCAllocator allocator = {pb_alloc, pb_free, NULL};

/* Checks the message before it is unpacked, and that there is memory for it:
 * most of a plan is graph text, and unpacking takes 1.3 to 2.4 times the
 * message's size, up to 4 times for a very small one. The only empty message
 * inside is a stage's reference to the model's first input. */
static enum pst_status scan(const ProtobufCMessageDescriptor *descriptor,
                            const void *data, size_t size,
                            struct pst_diag *diag)
{
    const struct pst_wire_limits limits = {.fields = 8 * MAX_COUNT,
                                           .unknown = 64,
                                           .empty = PST_PLAN_MAX_STAGES,
                                           .bytes =
                                               3 * size + ((size_t)256 << 10),
                                           .depth = 3};
    struct pst_diag why;

    if (pst_wire_scan(descriptor, data, size, &limits, &why) == PST_OK)
        return PST_OK;
    return pst_diag_set(diag, PST_E_PLAN_DAMAGED, "%s: not a plan: %s",
                        PST_PLAN_FILE, why.text);
}

struct unpacker {
    struct pst_plan *plan;
    struct pst_diag *diag;
};

static enum pst_status bad(const struct unpacker *u, const char *what, size_t i)
{
    return pst_diag_set(u->diag, PST_E_PLAN_DAMAGED, "%s: %s %zu is wrong",
                        PST_PLAN_FILE, what, i);
}

static enum pst_status no_memory(const struct unpacker *u)
{
    return pst_diag_nomem(u->diag, 0);
}

/* Copies a string into the plan's arena; NULL becomes "". */
static const char *copy_text(struct unpacker *u, const char *text)
{
    return pst_arena_strdup(&u->plan->arena, text == NULL ? "" : text);
}

static bool unpack_meta(const Penstock__Plan__Meta *pb, struct pst_meta *ret)
{
    enum pst_dtype dtype = PST_F32;

    if (pb == NULL || pb->n_size > PST_MAX_RANK || pb->n_stride != pb->n_size ||
        !pst_dtype_from_pt2(pb->dtype, &dtype))
        return false;
    *ret = pst_meta_make(dtype, (unsigned)pb->n_size, pb->size);
    if (pb->n_size > 0)
        memcpy(ret->stride, pb->stride, pb->n_size * sizeof(*pb->stride));
    return pst_meta_check(ret, NULL) == PST_OK;
}

static enum pst_status unpack_stage(struct unpacker *u, size_t i,
                                    const Penstock__Plan__Stage *pb)
{
    struct pst_stage stage = {.index = (unsigned)i};
    enum pst_status status = pst_graph_parse(pb->graph, &stage.graph, u->diag);

    if (status != PST_OK) {
        pst_diag_prefix(u->diag, "%s: stage %zu", PST_PLAN_FILE, i);
        return status;
    }
    if (!pst_vec_push(TAG, &u->plan->stages, stage)) {
        pst_graph_free(stage.graph);
        return no_memory(u);
    }
    stage.weights = copy_text(u, pb->weights);
    stage.weights_size = pb->weights_size;
    stage.inputs = pst_arena_calloc(&u->plan->arena, pb->n_inputs + 1,
                                    sizeof(*stage.inputs));
    if (stage.weights == NULL || stage.inputs == NULL)
        return no_memory(u);
    /* "": the plan was saved without weights files. */
    if (pb->weights_digest[0] != '\0' &&
        strlen(pb->weights_digest) != sizeof(stage.weights_digest) - 1)
        return bad(u, "digest of the weights of stage", i);
    strcpy(stage.weights_digest, pb->weights_digest);
    if (pb->n_inputs != stage.graph->inputs.n)
        return bad(u, "number of inputs of stage", i);
    for (size_t k = 0; k < pb->n_inputs; k++) {
        stage.inputs[k].kind =
            pb->inputs[k]->from_edge ? PST_SOURCE_EDGE : PST_SOURCE_MODEL_INPUT;
        stage.inputs[k].index = pb->inputs[k]->index;
    }
    u->plan->stages.at[i] = stage;
    return PST_OK;
}

static enum pst_status unpack_edge(struct unpacker *u, size_t i,
                                   const Penstock__Plan__Edge *pb)
{
    struct pst_edge edge = {.id = (unsigned)i,
                            .from_stage = pb->from_stage,
                            .from_output = pb->from_output,
                            .to_stage = pb->to_stage,
                            .to_input = pb->to_input,
                            .grad_parts = pb->grad_parts};

    if (!unpack_meta(pb->meta, &edge.meta))
        return bad(u, "shape of edge", i);
    edge.value = copy_text(u, pb->value);
    if (pb->carries[0] != '\0') {
        edge.carries = copy_text(u, pb->carries);
        if (edge.carries == NULL)
            return no_memory(u);
    }
    if (edge.value == NULL || !pst_vec_push(TAG, &u->plan->edges, edge))
        return no_memory(u);
    return PST_OK;
}

/* Parses an expression and prints it again, so that the text is canonical; NULL
 * for "". */
static enum pst_status unpack_expr(struct unpacker *u, const char *text,
                                   const char **ret)
{
    const struct pst_expr *expr;
    enum pst_status status;

    *ret = NULL;
    if (text == NULL || text[0] == '\0')
        return PST_OK;
    status = pst_expr_parse(&u->plan->arena, text, &expr, u->diag);
    if (status == PST_OK)
        status = pst_expr_print(&u->plan->arena, expr, ret, u->diag);
    return status;
}

static enum pst_status unpack_symbols(struct unpacker *u, const pb_plan *pb)
{
    struct pst_symbols *symbols = &u->plan->symbols;
    enum pst_status status = PST_OK;

    if (pb->n_symbols > 1000 || pb->n_ranges > MAX_COUNT)
        return bad(u, "number of symbols", pb->n_symbols);
    for (size_t i = 0; i < pb->n_symbols && status == PST_OK; i++)
        status = pst_symbols_add(symbols, pb->symbols[i]->name, true,
                                 pb->symbols[i]->value, u->diag);
    for (size_t i = 0; i < pb->n_ranges && status == PST_OK; i++) {
        const char *expr;

        status = unpack_expr(u, pb->ranges[i]->expr, &expr);
        if (status == PST_OK && expr == NULL)
            status = bad(u, "range", i);
        if (status == PST_OK)
            status = pst_symbols_limit(symbols, expr, pb->ranges[i]->min,
                                       pb->ranges[i]->max, u->diag);
    }
    if (status == PST_OK && pb->fixed != NULL && pb->fixed[0] != '\0') {
        u->plan->fixed = copy_text(u, pb->fixed);
        status = u->plan->fixed == NULL ? no_memory(u) : PST_OK;
    }
    return status;
}

static enum pst_status unpack_dims(struct unpacker *u, size_t i,
                                   const Penstock__Plan__PlanInput *pb,
                                   struct pst_plan_input *ret)
{
    enum pst_status status = PST_OK;
    const char **dims;

    ret->chunk = pb->chunk;
    if (pb->chunk < -1 || pb->chunk >= (int)ret->meta.rank)
        return bad(u, "division of input", i);
    if (pb->n_dims == 0)
        return PST_OK;
    if (pb->n_dims != ret->meta.rank)
        return bad(u, "sizes of input", i);
    dims = pst_arena_calloc(&u->plan->arena, pb->n_dims, sizeof(*dims));
    if (dims == NULL)
        return no_memory(u);
    for (size_t d = 0; d < pb->n_dims && status == PST_OK; d++)
        status = unpack_expr(u, pb->dims[d], &dims[d]);
    ret->dims = dims;
    return status;
}

static enum pst_status unpack_input(struct unpacker *u, size_t i,
                                    const Penstock__Plan__PlanInput *pb)
{
    struct pst_plan_input input = {0};
    enum pst_status status;

    if (!unpack_meta(pb->meta, &input.meta))
        return bad(u, "shape of input", i);
    status = unpack_dims(u, i, pb, &input);
    if (status != PST_OK)
        return status;
    input.name = copy_text(u, pb->name);
    if (input.name == NULL || !pst_vec_push(TAG, &u->plan->inputs, input))
        return no_memory(u);
    return PST_OK;
}

static bool unpack_literal(struct unpacker *u,
                           const Penstock__Plan__PlanOutput *pb,
                           struct pst_arg *ret)
{
    switch (pb->literal_case) {
    case PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_NONE:
        ret->kind = PST_ARG_NONE;
        return true;
    case PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_INT_VALUE:
        ret->kind = PST_ARG_INT;
        ret->i = pb->int_value;
        return true;
    case PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_FLOAT_VALUE:
        ret->kind = PST_ARG_FLOAT;
        ret->f = pb->float_value;
        return true;
    case PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_BOOL_VALUE:
        ret->kind = PST_ARG_BOOL;
        ret->b = pb->bool_value;
        return true;
    case PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL_STRING_VALUE:
        ret->kind = PST_ARG_STRING;
        ret->s = copy_text(u, pb->string_value);
        return ret->s != NULL;
    default:
        return false;
    }
}

static enum pst_status unpack_output(struct unpacker *u, size_t i,
                                     const Penstock__Plan__PlanOutput *pb)
{
    struct pst_plan_output output = {.stage = pb->stage, .output = pb->output};
    enum pst_status status;
    const char *expr;

    output.is_tensor =
        pb->literal_case == PENSTOCK__PLAN__PLAN_OUTPUT__LITERAL__NOT_SET;
    if (output.is_tensor ? !unpack_meta(pb->meta, &output.meta)
                         : !unpack_literal(u, pb, &output.literal))
        return bad(u, "output", i);
    status = unpack_expr(u, pb->expr, &expr);
    if (status == PST_OK && expr != NULL)
        status = pst_exprs_copy(&u->plan->arena, &expr, 1,
                                &output.literal.exprs, u->diag);
    if (status != PST_OK)
        return status;
    output.path = copy_text(u, pb->path);
    if (output.path == NULL || !pst_vec_push(TAG, &u->plan->outputs, output))
        return no_memory(u);
    return PST_OK;
}

static enum pst_status unpack_windows(struct unpacker *u, size_t i,
                                      const Penstock__Plan__Param *pb,
                                      struct pst_plan_param *param)
{
    if (pb->n_windows > MAX_COUNT)
        return bad(u, "parameter", i);
    param->nameless = pb->nameless;
    param->n_windows = (unsigned)pb->n_windows;
    param->windows = pst_arena_calloc(&u->plan->arena, pb->n_windows + 1,
                                      sizeof(*param->windows));
    if (param->windows == NULL)
        return no_memory(u);
    for (size_t k = 0; k < pb->n_windows; k++) {
        struct pst_named_window *w = &param->windows[k];

        w->offset = pb->windows[k]->offset;
        w->fqn = copy_text(u, pb->windows[k]->fqn);
        if (w->fqn == NULL)
            return no_memory(u);
        if (!unpack_meta(pb->windows[k]->meta, &w->meta))
            return bad(u, "window of parameter", i);
    }
    return PST_OK;
}

/* Reads the 16-bit dtype that an f32 parameter is rounded to. */
static bool unpack_rounds(uint32_t code, struct pst_plan_param *param)
{
    return pst_dtype_from_pt2(code, &param->rounds) &&
           (param->rounds == PST_BF16 || param->rounds == PST_F16) &&
           param->meta.dtype == PST_F32;
}

static enum pst_status unpack_param(struct unpacker *u, size_t i,
                                    const Penstock__Plan__Param *pb)
{
    static const enum pst_value_kind kinds[] = {
        PST_VALUE_PARAM, PST_VALUE_BUFFER, PST_VALUE_CONST};
    struct pst_arena *arena = &u->plan->arena;
    struct pst_plan_param param = {.since = pb->since,
                                   .changed = pb->changed,
                                   .requires_grad = pb->requires_grad,
                                   .persistent = pb->persistent,
                                   .is_complex = pb->pairs,
                                   .n_aliases = (unsigned)pb->n_aliases,
                                   .n_stages = (unsigned)pb->n_stages,
                                   .owner_stage = pb->home,
                                   .transmit = pb->transmit};
    enum pst_status status;

    if ((unsigned)pb->kind >= PST_COUNT(kinds) ||
        !unpack_meta(pb->meta, &param.meta) ||
        !pst_meta_is_contiguous(&param.meta) || pb->n_aliases > MAX_COUNT ||
        pb->n_stages > MAX_COUNT || pb->n_uses != pb->n_stages)
        return bad(u, "parameter", i);
    param.rounded = pb->rounds != 0;
    if (param.rounded && !unpack_rounds(pb->rounds, &param))
        return bad(u, "parameter", i);
    if (param.is_complex && !pb->nameless && !pst_meta_is_pairs(&param.meta))
        return bad(u, "parameter", i);
    param.kind = kinds[pb->kind];
    param.fqn = copy_text(u, pb->fqn);
    param.aliases = pst_arena_calloc(arena, pb->n_aliases + 1, sizeof(char *));
    param.stages =
        pst_arena_calloc(arena, pb->n_stages + 1, sizeof(*param.stages));
    param.uses = pst_arena_calloc(arena, pb->n_stages + 1, sizeof(*param.uses));
    if (param.fqn == NULL || param.aliases == NULL || param.stages == NULL ||
        param.uses == NULL)
        return no_memory(u);
    for (size_t k = 0; k < pb->n_aliases; k++) {
        param.aliases[k] = copy_text(u, pb->aliases[k]);
        if (param.aliases[k] == NULL)
            return no_memory(u);
    }
    status = unpack_windows(u, i, pb, &param);
    if (status != PST_OK)
        return status;
    if (pb->n_stages > 0)
        memcpy(param.stages, pb->stages, pb->n_stages * sizeof(*pb->stages));
    if (pb->n_uses > 0)
        memcpy(param.uses, pb->uses, pb->n_uses * sizeof(*pb->uses));
    return pst_vec_push(TAG, &u->plan->params, param) ? PST_OK : no_memory(u);
}

static enum pst_status unpack_head(struct unpacker *u, const pb_plan *pb)
{
    u->plan->name = copy_text(u, pb->name);
    if (u->plan->name == NULL)
        return no_memory(u);
    if ((strlen(pb->model_digest) != sizeof(u->plan->model_digest) - 1 &&
         pb->model_digest[0] != '\0') ||
        (strlen(pb->identity) != sizeof(u->plan->identity) - 1 &&
         pb->identity[0] != '\0'))
        return pst_diag_set(u->diag, PST_E_PLAN_DAMAGED,
                            "%s: the digest of the model is wrong",
                            PST_PLAN_FILE);
    strcpy(u->plan->model_digest, pb->model_digest);
    strcpy(u->plan->identity, pb->identity);
    u->plan->loss = pb->loss;
    u->plan->evaluates = pb->evaluates;
    u->plan->writes = pb->writes;
    u->plan->loss_fn =
        pb->loss_fn[0] != '\0' ? copy_text(u, pb->loss_fn) : NULL;
    if (pb->loss_fn[0] != '\0' && u->plan->loss_fn == NULL)
        return no_memory(u);
    if (pb->autocast[0] != '\0') {
        enum pst_dtype dtype;

        if (!pst_dtype_from_name(pb->autocast, &dtype) ||
            (dtype != PST_BF16 && dtype != PST_F16))
            return pst_diag_set(u->diag, PST_E_PLAN_DAMAGED,
                                "%s: the dtype of autocast is wrong",
                                PST_PLAN_FILE);
        u->plan->autocast = pst_dtype_name(dtype);
    }
    if (pb->lost[0] != '\0') {
        u->plan->lost = copy_text(u, pb->lost);
        if (u->plan->lost == NULL)
            return no_memory(u);
    }
    for (size_t i = 0; i < pb->n_notes; i++) {
        const char *note = copy_text(u, pb->notes[i]);

        if (note == NULL || !pst_vec_push(TAG, &u->plan->notes, note))
            return no_memory(u);
    }
    return PST_OK;
}

/* Checks that this process has loaded the plan's plugins; their operators are
 * looked up later. */
static enum pst_status check_plugins(struct unpacker *u, const pb_plan *pb)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < pb->n_plugins && status == PST_OK; i++)
        status = pst_plugin_require("the plan", pb->plugins[i]->name,
                                    pb->plugins[i]->version,
                                    pb->plugins[i]->digest, u->diag);
    return status;
}

static enum pst_status unpack_plan(struct unpacker *u, const pb_plan *pb)
{
    enum pst_status status = unpack_head(u, pb);

    if (status == PST_OK)
        status = check_plugins(u, pb);
    if (status == PST_OK && pb->n_stages > PST_PLAN_MAX_STAGES)
        status = bad(u, "number of stages", pb->n_stages);
    if (status == PST_OK)
        status = unpack_symbols(u, pb);
    for (size_t i = 0; i < pb->n_stages && status == PST_OK; i++)
        status = unpack_stage(u, i, pb->stages[i]);
    for (size_t i = 0; i < pb->n_edges && status == PST_OK; i++)
        status = unpack_edge(u, i, pb->edges[i]);
    for (size_t i = 0; i < pb->n_inputs && status == PST_OK; i++)
        status = unpack_input(u, i, pb->inputs[i]);
    for (size_t i = 0; i < pb->n_outputs && status == PST_OK; i++)
        status = unpack_output(u, i, pb->outputs[i]);
    for (size_t i = 0; i < pb->n_params && status == PST_OK; i++)
        status = unpack_param(u, i, pb->params[i]);
    return status;
}

static const struct pst_meta *find_meta(const struct unpacker *u,
                                        const char *fqn)
{
    const int index = pst_plan_find_param(u->plan, fqn);

    return index < 0 ? NULL : &u->plan->params.at[index].meta;
}

/* Reads an adapter. The index of parameter names must exist. */
static enum pst_status unpack_adapter(struct unpacker *u, size_t i,
                                      const Penstock__Plan__Adapter *pb)
{
    const struct pst_adapter adapter = {.module = pb->module,
                                        .weight = pb->weight,
                                        .down = pb->down,
                                        .up = pb->up,
                                        .alpha = pb->alpha,
                                        .transposed = pb->transposed,
                                        .shared = pb->shared};
    enum pst_status status = pst_adapter_check(
        &adapter, find_meta(u, pb->weight), find_meta(u, pb->down),
        find_meta(u, pb->up), u->diag);

    if (status != PST_OK) {
        pst_diag_prefix(u->diag, "%s: adapter %zu", PST_PLAN_FILE, i);
        return status;
    }
    return pst_adapters_add(&u->plan->adapters, &u->plan->arena, &adapter,
                            u->diag);
}

static enum pst_status unpack_body(const ProtobufCBinaryData *body,
                                   const char *digest, struct pst_plan **ret,
                                   struct pst_diag *diag)
{
    struct unpacker u = {.diag = diag};
    enum pst_status status =
        scan(&penstock__plan__plan__descriptor, body->data, body->len, diag);
    pb_plan *pb;

    if (status == PST_OK)
        status = pst_plan_new(&u.plan, diag);
    if (status != PST_OK)
        return status;
    pb = penstock__plan__plan__unpack(&allocator, body->len, body->data);
    if (pb == NULL)
        status = pst_diag_set(diag, PST_E_PLAN_DAMAGED, "%s: not a plan",
                              PST_PLAN_FILE);
    else
        status = unpack_plan(&u, pb);
    if (status == PST_OK)
        status = pst_plan_index(u.plan, diag);
    for (size_t i = 0; status == PST_OK && i < pb->n_adapters; i++)
        status = unpack_adapter(&u, i, pb->adapters[i]);
    penstock__plan__plan__free_unpacked(pb, &allocator);
    if (status != PST_OK) {
        pst_plan_free(u.plan);
        return status;
    }
    u.plan->counted = true;
    memcpy(u.plan->digest, digest, sizeof(u.plan->digest));
    *ret = u.plan;
    return PST_OK;
}

/* Restores the body from lines and runs, for files in which equal layers are
 * folded. */
static enum pst_status unfold_body(const Penstock__Plan__PlanFile *file,
                                   struct pst_str *ret, struct pst_diag *diag)
{
    const size_t limit = pst_fold_limit(file->lines.len);
    struct pst_folded folded = {0};
    enum pst_status status =
        pst_fold_unpack_runs(file->runs.data, file->runs.len,
                             limit / sizeof(int64_t), &folded, diag);

    pst_str_addn(&folded.lines, (const char *)file->lines.data,
                 file->lines.len);
    if (status == PST_OK && folded.lines.failed)
        status = pst_diag_nomem(diag, file->lines.len);
    if (status == PST_OK)
        status = pst_unfold(&folded, ret, diag);
    if (status != PST_OK)
        pst_diag_prefix(diag, "%s", PST_PLAN_FILE);
    pst_folded_fini(&folded);
    return status;
}

static enum pst_status unpack_file(const Penstock__Plan__PlanFile *file,
                                   struct pst_plan **ret, struct pst_diag *diag)
{
    ProtobufCBinaryData body = file->body;
    struct pst_str unfolded = {0};
    enum pst_status status = PST_OK;
    char digest[33];

    if (file->version != PST_PLAN_VERSION)
        return pst_diag_set(diag, PST_E_PLAN_VERSION,
                            "%s: plan of another version (%u; this program "
                            "reads %d): split the model again",
                            PST_PLAN_FILE, file->version, PST_PLAN_VERSION);
    if (body.len == 0) {
        status = unfold_body(file, &unfolded, diag);
        body.data = (uint8_t *)unfolded.text;
        body.len = unfolded.len;
    }
    if (status == PST_OK) {
        pst_digest(body.data, body.len, digest);
        status = strcmp(digest, file->digest) == 0
                     ? unpack_body(&body, digest, ret, diag)
                     : pst_diag_set(diag, PST_E_PLAN_DAMAGED,
                                    "%s: damaged, its digest does not fit",
                                    PST_PLAN_FILE);
    }
    pst_str_fini(&unfolded);
    return status;
}

enum pst_status pst_plan_unpack(const void *data, size_t size,
                                struct pst_plan **ret, struct pst_diag *diag)
{
    Penstock__Plan__PlanFile *file;
    enum pst_status status =
        scan(&penstock__plan__plan_file__descriptor, data, size, diag);

    if (status != PST_OK)
        return status;
    file = penstock__plan__plan_file__unpack(&allocator, size, data);
    if (file == NULL)
        return pst_diag_set(diag, PST_E_PLAN_DAMAGED, "%s: not a plan",
                            PST_PLAN_FILE);
    status = unpack_file(file, ret, diag);
    penstock__plan__plan_file__free_unpacked(file, &allocator);
    return status;
}
