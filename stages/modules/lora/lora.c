// SPDX-License-Identifier: Apache-2.0
#include "stages/modules/lora/lora.h"

#include "stages/base/rng.h"
#include "stages/graph/calls.h"
#include "stages/modules/lora/adapting.h"
#include "stages/ops/core/rows.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TAG PST_TAG_PLAN

static enum pst_status no_memory(const struct pst_adapting *a)
{
    return pst_diag_nomem(a->diag, 0);
}

/* --- values --------------------------------------------------------------- */

static enum pst_status copy_old_values(struct pst_adapting *a)
{
    const struct pst_graph *old = a->old->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < old->values.n && status == PST_OK; i++) {
        const struct pst_value *v = old->values.at[i];
        struct pst_value *copy;

        if (v->kind == PST_VALUE_NODE)
            continue;
        copy =
            pst_graph_add_value(a->graph, v->kind, v->name, v->fqn, &v->meta);
        if (copy == NULL)
            return no_memory(a);
        copy->persistent = v->persistent;
        a->replay.map[i] = copy;
        status = pst_exprs_copy(&a->graph->arena, v->dims, v->meta.rank,
                                &copy->dims, a->diag);
    }
    return status;
}

static enum pst_status add_matrix(struct pst_adapting *a,
                                  const struct pst_lora_pair *pair,
                                  const char *name, int64_t rows, int64_t cols,
                                  struct pst_value **ret)
{
    const int64_t size[] = {rows, cols};
    const struct pst_meta meta = pst_meta_make(PST_F32, 2, size);
    const char *fqn =
        pst_arena_printf(a->arena, "%s.%s.default.weight", pair->module, name);

    if (fqn == NULL)
        return no_memory(a);
    if (pst_model_weight(a->old, fqn) != NULL)
        return pst_diag_set(a->diag, PST_E_LORA_NAME,
                            "the model has \"%.200s\" already", fqn);
    *ret = pst_graph_add_value(a->graph, PST_VALUE_PARAM, fqn, fqn, &meta);
    if (*ret == NULL)
        return no_memory(a);
    (*ret)->requires_grad = true;
    return PST_OK;
}

static enum pst_status add_given(struct pst_adapting *a)
{
    enum pst_status status = copy_old_values(a);

    for (size_t i = 0; i < a->pairs.n && status == PST_OK; i++) {
        struct pst_lora_pair *p = &a->pairs.at[i];
        const int64_t rank = a->loras[p->lora].rank;

        status = add_matrix(a, p, "lora_A", rank, p->linear->in, &p->down);
        if (status == PST_OK)
            status = add_matrix(a, p, "lora_B", p->linear->out, rank, &p->up);
    }
    return status;
}

/* --- nodes ---------------------------------------------------------------- */

/* Begins a call of a submodule of the layer; returns the call around it. */
static const struct pst_module_call *begin_call(
    struct pst_adapting *a, const struct pst_lora_pair *pair,
    const struct pst_module_call *layer, const char *name, const char *type)
{
    struct pst_build *b = &a->build;
    const struct pst_module_call *outer = b->call;
    struct pst_module_call like = {
        .parent = outer,
        .path = pst_arena_printf(a->arena, "%s.%s.default", layer->path, name),
        .index = layer->index,
        .identity =
            pst_arena_printf(a->arena, "%s.%s.default", pair->module, name),
        .type = type};
    struct pst_module_call *call = NULL;

    if (b->status == PST_OK && (like.path == NULL || like.identity == NULL))
        b->status = no_memory(a);
    if (b->status == PST_OK)
        b->status = pst_graph_add_call(a->graph, &like, &call, a->diag);
    b->call = call;
    b->prefix = name;
    return outer;
}

/* Emits x M^T as a call of a submodule of the layer. */
static struct pst_value *emit_call(struct pst_adapting *a,
                                   const struct pst_lora_pair *pair,
                                   const struct pst_module_call *layer,
                                   const char *name, struct pst_value *x,
                                   struct pst_value *matrix)
{
    const struct pst_module_call *outer =
        begin_call(a, pair, layer, name, "torch.nn.modules.linear.Linear");
    struct pst_value *ret =
        pst_emit(&a->build, &pst_op_linear, PST_ARGS(pst_v(x), pst_v(matrix)));

    a->build.call = outer;
    return ret;
}

/* Emits dropout, which is off in eval mode, as a call of a submodule of the
 * layer. */
static struct pst_value *emit_dropout(struct pst_adapting *a,
                                      const struct pst_lora_pair *pair,
                                      const struct pst_module_call *layer,
                                      struct pst_value *x, double p)
{
    const struct pst_module_call *outer;
    struct pst_value *ret;

    if (!(p > 0))
        return x;
    outer = begin_call(a, pair, layer, "lora_dropout",
                       "torch.nn.modules.dropout.Dropout");
    ret = pst_emit(&a->build, &pst_op_dropout,
                   PST_ARGS(pst_v(x), pst_f(p), pst_b(true)));
    a->build.call = outer;
    return ret;
}

static struct pst_value *convert_value(struct pst_adapting *a,
                                       struct pst_value *v,
                                       enum pst_dtype dtype)
{
    if (v == NULL || v->meta.dtype == dtype)
        return v;
    a->build.prefix = "lora";
    return pst_emit(&a->build, &pst_op__to_copy,
                    PST_ARGS(pst_v(v), pst_dtype_arg(dtype)));
}

/* Adds the adapter after the layer's result; readers of the result then read
 * the sum. The small matmuls are done in f32, since 16 bits would lose too
 * much. */
static enum pst_status add_adapter(struct pst_adapting *a, size_t frame)
{
    const struct pst_linear *l = &a->linears[frame];
    const struct pst_module_call *layer = a->frames.at.at[frame].call;
    const struct pst_lora_pair *p = &a->pairs.at[a->pair_of[l->weight->id]];
    const struct pst_lora *lora = &a->loras[p->lora];
    const enum pst_dtype dtype =
        l->weight->meta.dtype == PST_F64 ? PST_F64 : PST_F32;
    struct pst_value *x = a->replay.map[l->x->id], *y, *sum;
    struct pst_build *b = &a->build;

    y = a->replay.map[l->y->id];
    pst_build_like(b, l->product);
    b->origin = NULL;
    b->node_id = UINT32_MAX;
    x = convert_value(a, x, dtype);
    x = emit_dropout(a, p, layer, x, lora->dropout);
    sum = emit_call(a, p, layer, "lora_A", x, convert_value(a, p->down, dtype));
    sum = emit_call(a, p, layer, "lora_B", sum, convert_value(a, p->up, dtype));
    b->prefix = "lora";
    sum =
        pst_emit(b, &pst_op_mul_Scalar,
                 PST_ARGS(pst_v(sum), pst_f(lora->alpha / (double)lora->rank)));
    sum = pst_emit(b, &pst_op_add_Tensor, PST_ARGS(pst_v(y), pst_v(sum)));
    sum = convert_value(a, sum, y->meta.dtype);
    if (b->status == PST_OK)
        a->replay.map[l->y->id] = sum;
    return b->status;
}

static enum pst_status put_nodes(struct pst_adapting *a)
{
    const struct pst_graph *old = a->old->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < old->nodes.n && status == PST_OK; i++) {
        const struct pst_node *node = old->nodes.at[i];
        const int frame = pst_frames_of(&a->frames, node->call);

        status = pst_replay_node(&a->replay, node);
        if (frame >= 0 && a->linears[frame].y->def == node && status == PST_OK)
            status = add_adapter(a, (size_t)frame);
    }
    return status;
}

static enum pst_status copy_outputs(struct pst_adapting *a)
{
    const struct pst_graph *old = a->old->graph;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < old->outputs.n && status == PST_OK; i++) {
        struct pst_output output = old->outputs.at[i];

        if (output.target != NULL)
            output.target = a->replay.map[output.target->id];
        if (output.arg.kind == PST_ARG_VALUE)
            output.arg.value = a->replay.map[output.arg.value->id];
        status = pst_graph_add_output(a->graph, &output, a->diag);
    }
    for (size_t i = 0; i < old->calls.n && status == PST_OK; i++) {
        struct pst_module_call *copy;

        status =
            pst_graph_adopt_call(a->graph, old->calls.at[i], &copy, a->diag);
    }
    if (status == PST_OK)
        status =
            pst_graph_carry_signatures(old, a->graph, a->replay.map, a->diag);
    return status == PST_OK ? pst_graph_verify(a->graph, a->diag) : status;
}

static enum pst_status prepare_replay(struct pst_adapting *a)
{
    a->replay.map =
        pst_arena_calloc(a->arena, a->old->graph->values.n + 1, sizeof(void *));
    if (a->replay.map == NULL)
        return no_memory(a);
    a->graph->next_node_id = a->old->graph->next_node_id;
    pst_build_init(&a->replay.build, a->graph, a->diag);
    pst_build_init(&a->build, a->graph, a->diag);
    a->sizes.symbols = &a->model->symbols;
    a->build.sizes = &a->sizes;
    return PST_OK;
}

/* --- the model ------------------------------------------------------------ */

/* Start values of a matrix. A is uniform in +-1/sqrt(in), as from
 * kaiming_uniform_ with a = sqrt(5). */
struct start {
    struct pst_rng_key key;
    struct pst_meta meta;
};

static enum pst_status read_down(void *ctx, unsigned number, void *dst,
                                 struct pst_diag *diag)
{
    const struct start *s = ctx;
    const int64_t n = pst_meta_numel(&s->meta);
    const double bound = 1.0 / sqrt((double)s->meta.size[1]);
    uint32_t stream[4];

    (void)number, (void)diag;
    pst_rng_stream(&s->key, stream);
    for (int64_t i = 0; i < n; i++) {
        const double x =
            (2.0 * pst_rng_f64_of(stream, (uint64_t)i) - 1.0) * bound;

        ((float *)dst)[i] = (float)x;
    }
    return PST_OK;
}

static enum pst_status read_up(void *ctx, unsigned number, void *dst,
                               struct pst_diag *diag)
{
    const struct start *s = ctx;

    (void)number, (void)diag;
    memset(dst, 0, pst_meta_bytes(&s->meta));
    return PST_OK;
}

static enum pst_status add_weight(struct pst_adapting *a,
                                  const struct pst_weight *w)
{
    return pst_vec_push(TAG, &a->model->weights, *w) ? PST_OK : no_memory(a);
}

static enum pst_status add_start(struct pst_adapting *a,
                                 const struct pst_value *v, bool down)
{
    struct start *s = pst_arena_alloc(a->arena, sizeof(*s));
    const struct pst_weight w = {.fqn = v->fqn,
                                 .meta = v->meta,
                                 .is_param = true,
                                 .requires_grad = true,
                                 .stored = true,
                                 .read = down ? read_down : read_up,
                                 .ctx = s};

    if (s == NULL)
        return no_memory(a);
    s->meta = v->meta;
    s->key = (struct pst_rng_key){.seed = a->seed,
                                  .step = pst_hash(v->fqn, strlen(v->fqn), 0)};
    return add_weight(a, &w);
}

static enum pst_status fill_weights(struct pst_adapting *a)
{
    struct pst_model *to = a->model;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < a->old->weights.n && status == PST_OK; i++) {
        struct pst_weight w = a->old->weights.at[i];

        if (w.source == NULL)
            w.source = a->old;
        w.requires_grad = false;
        status = add_weight(a, &w);
    }
    for (size_t i = 0; i < a->pairs.n && status == PST_OK; i++) {
        status = add_start(a, a->pairs.at[i].down, true);
        if (status == PST_OK)
            status = add_start(a, a->pairs.at[i].up, false);
    }
    for (size_t i = 0; i < to->weights.n && status == PST_OK; i++)
        if (!pst_map_put(&to->weights_by_fqn, to->weights.at[i].fqn,
                         &to->weights.at[i]))
            status = no_memory(a);
    return status;
}

static enum pst_status add_module(struct pst_adapting *a, const char *module,
                                  const char *name)
{
    const char *path = pst_arena_printf(a->arena, "%s.%s", module, name);

    return path != NULL && pst_vec_push(TAG, &a->model->modules, path)
               ? PST_OK
               : no_memory(a);
}

struct reads {
    const struct pst_adapting *a;
    bool *others; /* by value id: read outside of the adapted layers */
};

static void mark_used(void *ctx, struct pst_value **slot, unsigned arg)
{
    (void)arg;
    ((struct reads *)ctx)->others[(*slot)->id] = true;
}

static enum pst_status mark_other_reads(struct pst_adapting *a, struct reads *r)
{
    const struct pst_graph *old = a->old->graph;

    r->others = pst_arena_calloc(a->arena, old->values.n + 1, sizeof(bool));
    if (r->others == NULL)
        return no_memory(a);
    for (size_t i = 0; i < old->nodes.n; i++)
        if (pst_frames_of(&a->frames, old->nodes.at[i]->call) < 0)
            pst_node_uses(old->nodes.at[i], mark_used, r);
    for (size_t i = 0; i < old->outputs.n; i++)
        if (old->outputs.at[i].arg.kind == PST_ARG_VALUE)
            r->others[old->outputs.at[i].arg.value->id] = true;
    return PST_OK;
}

static enum pst_status fill_adapters(struct pst_adapting *a)
{
    static const char *const names[] = {"lora_A",       "lora_A.default",
                                        "lora_B",       "lora_B.default",
                                        "lora_dropout", "lora_dropout.default"};
    struct reads reads = {.a = a};
    enum pst_status status = mark_other_reads(a, &reads);

    for (size_t i = 0; i < a->modules.n && status == PST_OK; i++) {
        const char *module = a->modules.at[i].path;
        const struct pst_lora_pair *p = &a->pairs.at[a->modules.at[i].pair];
        const size_t n =
            PST_COUNT(names) - (a->loras[p->lora].dropout > 0 ? 0 : 2);
        const struct pst_adapter adapter = {
            .module = module,
            .weight = p->linear->weight->fqn,
            .down = p->down->fqn,
            .up = p->up->fqn,
            .alpha = a->loras[p->lora].alpha,
            .transposed = p->linear->transposed,
            .shared = reads.others[p->linear->weight->id]};

        status =
            pst_adapters_add(&a->model->adapters, a->arena, &adapter, a->diag);
        for (size_t k = 0; k < n && status == PST_OK; k++)
            status = add_module(a, module, names[k]);
    }
    return status;
}

static void add_digest(struct pst_str *text, const struct pst_lora *lora)
{
    pst_str_addf(text, " lora %s %" PRId64 " %.17g", lora->pattern, lora->rank,
                 lora->alpha);
    if (lora->dropout > 0)
        pst_str_addf(text, " dropout %.17g", lora->dropout);
}

static enum pst_status fill_head(struct pst_adapting *a)
{
    const struct pst_model *old = a->old;
    struct pst_model *to = a->model;
    struct pst_str text = {0};
    bool whole;

    to->name = old->name;
    to->torch_version = old->torch_version;
    to->decomposed = old->decomposed;
    to->evaluates = old->evaluates;
    to->autocast = old->autocast;
    to->n_casts = old->n_casts;
    to->lost = old->lost;
    to->writes = old->writes;
    to->fixed = old->fixed;
    pst_str_addf(&text, "%s seed %" PRIu64, old->digest, a->seed);
    for (size_t i = 0; i < a->n_loras; i++)
        add_digest(&text, &a->loras[i]);
    whole = !text.failed;
    pst_digest(pst_str_text(&text), text.len, to->digest);
    pst_str_fini(&text);
    for (size_t i = 0; i < old->notes.n && whole; i++)
        whole = pst_vec_push(TAG, &to->notes, old->notes.at[i]);
    for (size_t i = 0; i < old->arguments.n && whole; i++)
        whole = pst_vec_push(TAG, &to->arguments, old->arguments.at[i]);
    for (size_t i = 0; i < old->ties.n && whole; i++)
        whole = pst_vec_push(TAG, &to->ties, old->ties.at[i]);
    for (size_t i = 0; i < old->storages.n && whole; i++)
        whole = pst_vec_push(TAG, &to->storages, old->storages.at[i]);
    for (size_t i = 0; i < old->modules.n && whole; i++)
        whole = pst_vec_push(TAG, &to->modules, old->modules.at[i]);
    for (size_t i = 0; i < old->adapters.n && whole; i++)
        whole = pst_vec_push(TAG, &to->adapters, old->adapters.at[i]);
    return whole ? pst_symbols_copy(&old->symbols, &to->symbols, a->diag)
                 : no_memory(a);
}

static enum pst_status add_note(struct pst_adapting *a)
{
    int64_t n = 0;
    const char *note;

    for (size_t i = 0; i < a->pairs.n; i++)
        n += pst_meta_numel(&a->pairs.at[i].down->meta) +
             pst_meta_numel(&a->pairs.at[i].up->meta);
    note = pst_arena_printf(a->arena,
                            "%zu linear layer%s %s an adapter, with %" PRId64
                            " parameters in all; other parameters are frozen "
                            "unless --unfreeze names them",
                            a->pairs.n, a->pairs.n == 1 ? "" : "s",
                            a->pairs.n == 1 ? "has" : "have", n);
    return note != NULL && pst_vec_push(TAG, &a->model->notes, note)
               ? PST_OK
               : no_memory(a);
}

static enum pst_status adapt_model(struct pst_adapting *a)
{
    enum pst_status status = pst_adapting_choose(a);

    if (status == PST_OK)
        status = fill_head(a);
    if (status == PST_OK)
        status = prepare_replay(a);
    if (status == PST_OK)
        status = add_given(a);
    if (status == PST_OK)
        status = put_nodes(a);
    if (status == PST_OK)
        status = copy_outputs(a);
    if (status == PST_OK)
        status = fill_weights(a);
    if (status == PST_OK)
        status = fill_adapters(a);
    if (status == PST_OK)
        status = add_note(a);
    if (status == PST_OK && a->model->fixed == NULL && a->sizes.fixed != NULL)
        a->model->fixed = "sizes of a layer with an adapter do not follow";
    return status;
}

enum pst_status pst_model_adapt(const struct pst_model *model,
                                const struct pst_lora *loras, size_t n,
                                uint64_t seed, struct pst_model **ret,
                                struct pst_diag *diag)
{
    struct pst_adapting a = {
        .old = model, .loras = loras, .n_loras = n, .seed = seed, .diag = diag};
    enum pst_status status = pst_model_new(&a.model, diag);

    if (status != PST_OK)
        return status;
    a.arena = &a.model->arena;
    status = pst_graph_new(&a.model->graph, diag);
    a.graph = a.model->graph;
    if (status == PST_OK)
        status = adapt_model(&a);
    pst_frames_fini(&a.frames);
    pst_vec_fini(&a.pairs);
    pst_vec_fini(&a.modules);
    if (status == PST_OK)
        *ret = a.model;
    else
        pst_model_close(a.model);
    return status;
}
