// SPDX-License-Identifier: Apache-2.0
#include "stages/exec/program.h"

#include <string.h>

#include "stages/exec/memplan.h"
#include "stages/ops/call.h"

#define NEVER UINT32_MAX

/* What is known of a storage while places are being chosen; by value id. */
struct life {
    int list;     /* that makes it: PST_LIST_*, -1: comes from outside */
    unsigned pos; /* of the node that makes it */
    unsigned last[PST_N_LISTS]; /* position of the last reader, or NEVER */
    bool sent;                  /* leaves the stage as a message */
    bool output; /* read after the list: user output, update, loss */
    bool placed;
    int interval; /* in the workspace of its list, or -1 */
};

struct compiler {
    struct pst_program *p;
    struct life *lives;
    size_t n_values;
    struct pst_interval *intervals; /* of the list at work */
    unsigned n_intervals;
    pst_fixed_fn fixed;
    void *fixed_ctx;
    struct pst_diag *diag;
};

enum pst_status pst_program_new(const struct pst_plan *plan, unsigned stage,
                                const struct pst_program_options *options,
                                struct pst_program **ret, struct pst_diag *diag)
{
    struct pst_program *p = pst_calloc(PST_TAG_EXEC, 1, sizeof(*p));
    enum pst_status status;

    if (p == NULL)
        return pst_diag_nomem(diag, sizeof(*p));
    pst_arena_init(&p->arena, PST_TAG_EXEC);
    p->plan = plan;
    p->stage = stage;
    p->options = *options;
    if (options->train) {
        status = pst_joint_new(plan, stage, &p->joint, diag);
        if (status == PST_OK)
            p->graph = p->joint->graph;
    } else {
        status = pst_graph_copy(plan->stages.at[stage].graph, &p->graph, diag);
    }
    if (status != PST_OK) {
        pst_program_free(p);
        return status;
    }
    *ret = p;
    return PST_OK;
}

void pst_program_free(struct pst_program *program)
{
    if (program == NULL)
        return;
    if (program->joint != NULL)
        pst_joint_free(program->joint);
    else
        pst_graph_free(program->graph);
    pst_arena_fini(&program->arena);
    pst_free(program);
}

struct pst_loc pst_program_loc(const struct pst_program *program,
                               const struct pst_value *value)
{
    struct pst_loc loc =
        program->places[pst_value_storage((struct pst_value *)value)->id];

    if (value->base != NULL)
        loc.offset += (size_t)value->offset * pst_dtype_size(value->meta.dtype);
    return loc;
}

static enum pst_list list_of(const struct pst_program *p,
                             const struct pst_node *node)
{
    if (node->phase == PST_PHASE_F)
        return PST_LIST_F;
    if (node->phase == PST_PHASE_W && p->options.split_iw)
        return PST_LIST_W;
    return PST_LIST_B;
}

/* --- lists --------------------------------------------------------------- */

struct counting {
    size_t uses;
    const struct pst_value *storage, *value;
};

static void count_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct counting *c = ctx;

    (void)arg;
    if (pst_value_storage(*slot) == c->storage)
        c->uses++;
}

/*
 * The node whose result `contribution` is, if its kernel can add straight into
 * the gradient: the result is used nowhere else and is stored as the gradient
 * is (the same elements in row-major order).
 */
static struct pst_node *fusable(struct compiler *c,
                                const struct pst_node *accumulate)
{
    struct pst_operand in[PST_MAX_OPERANDS], out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    const struct pst_value *value = accumulate->args[1].value;
    const struct pst_value *storage = pst_value_storage((void *)value);
    const struct pst_graph *graph = c->p->graph;
    struct counting counting = {.storage = storage, .value = value};
    const struct pst_kernel *kernel;

    if (storage->def == NULL || storage->def_index != 0 ||
        storage->def->n_outs != 1 || storage->def->phase != PST_PHASE_W ||
        value->offset != 0 || !pst_meta_is_contiguous(&value->meta) ||
        pst_meta_numel(&value->meta) != pst_meta_numel(&storage->meta))
        return NULL;
    if (pst_node_kernel(storage->def, c->p->options.isa, &call, &kernel,
                        NULL) != PST_OK ||
        kernel == NULL || !(kernel->flags & PST_K_ACCUMULATE))
        return NULL;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];
        bool view = node->n_outs > 0 && node->outs[0]->base == storage;

        if (!view)
            pst_node_uses(node, count_use, &counting);
    }
    return counting.uses == 1 ? storage->def : NULL;
}

static bool is_accumulate(const struct pst_node *node)
{
    return strcmp(node->schema->name, "penstock.accumulate_grad.default") == 0;
}

/* Marks which nodes are fused into which gradient: by node pointer. */
struct fusion {
    struct pst_node *node;
    struct pst_value *grad;
};

static enum pst_status find_fusions(struct compiler *c, struct fusion **ret,
                                    size_t *ret_n)
{
    const struct pst_graph *graph = c->p->graph;
    struct fusion *f =
        pst_arena_calloc(&c->p->arena, graph->nodes.n + 1, sizeof(*f));
    size_t n = 0;

    if (f == NULL)
        return pst_diag_nomem(c->diag, graph->nodes.n * sizeof(*f));
    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i], *target;

        if (!is_accumulate(node))
            continue;
        target = fusable(c, node);
        if (target != NULL)
            f[n++] = (struct fusion){target, node->args[0].value};
    }
    *ret = f;
    *ret_n = n;
    return PST_OK;
}

static struct pst_value *fused_grad(const struct fusion *fusions, size_t n,
                                    const struct pst_node *node)
{
    for (size_t i = 0; i < n; i++)
        if (fusions[i].node == node)
            return fusions[i].grad;
    return NULL;
}

/* Does this accumulate node's work happen inside another node's kernel? */
static bool is_fused_away(const struct fusion *fusions, size_t n,
                          const struct pst_node *accumulate)
{
    const struct pst_node *def =
        pst_value_storage(accumulate->args[1].value)->def;

    return def != NULL && fused_grad(fusions, n, def) != NULL;
}

static enum pst_status make_exec_node(struct compiler *c, struct pst_node *node,
                                      struct pst_value *fused,
                                      struct pst_exec_node *x, bool *ret_runs)
{
    struct pst_operand in[PST_MAX_OPERANDS], out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    struct pst_arena *arena = &c->p->arena;
    enum pst_status status;

    status =
        pst_node_kernel(node, c->p->options.isa, &call, &x->kernel, c->diag);
    *ret_runs = status == PST_OK && x->kernel != NULL;
    if (!*ret_runs)
        return status;
    x->node = node;
    x->call = call;
    x->call.in = pst_arena_memdup(arena, in, call.n_in * sizeof(*in) + 1);
    x->call.out = pst_arena_memdup(arena, out, call.n_out * sizeof(*out) + 1);
    x->in = pst_arena_calloc(arena, call.n_in + 1, sizeof(*x->in));
    x->out = pst_arena_calloc(arena, call.n_out + 1, sizeof(*x->out));
    if (x->call.in == NULL || x->call.out == NULL || x->in == NULL ||
        x->out == NULL)
        return pst_diag_nomem(c->diag, sizeof(*x));
    x->call.rng.node = node->id;
    if (fused != NULL) {
        x->role = PST_GRAD_FUSED;
        x->grad = fused;
    } else if (is_accumulate(node)) {
        x->role = PST_GRAD_ADD;
        x->grad = node->args[0].value;
    }
    if (x->kernel->scratch != NULL)
        x->call.scratch_size =
            x->kernel->scratch(&x->call, c->p->options.threads);
    return PST_OK;
}

static enum pst_status make_lists(struct compiler *c)
{
    const struct pst_graph *graph = c->p->graph;
    struct fusion *fusions = NULL;
    size_t n_fusions = 0;
    enum pst_status status = find_fusions(c, &fusions, &n_fusions);

    for (int l = 0; l < PST_N_LISTS && status == PST_OK; l++) {
        c->p->lists[l].at = pst_arena_calloc(&c->p->arena, graph->nodes.n + 1,
                                             sizeof(struct pst_exec_node));
        if (c->p->lists[l].at == NULL)
            return pst_diag_nomem(c->diag, graph->nodes.n);
    }
    for (size_t i = 0; i < graph->nodes.n && status == PST_OK; i++) {
        struct pst_node *node = graph->nodes.at[i];
        struct pst_exec_list *list = &c->p->lists[list_of(c->p, node)];
        bool runs;

        if (is_accumulate(node) && is_fused_away(fusions, n_fusions, node))
            continue;
        status = make_exec_node(c, node, fused_grad(fusions, n_fusions, node),
                                &list->at[list->n], &runs);
        if (status == PST_OK && runs) {
            if (list_of(c->p, node) == PST_LIST_F)
                c->p->flops_f += pst_node_flops(node);
            else
                c->p->flops_b += pst_node_flops(node);
            list->n++;
        }
    }
    return status;
}

/* --- lifetimes ----------------------------------------------------------- */

struct use {
    struct compiler *c;
    enum pst_list list;
    unsigned pos;
};

static void note_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct use *u = ctx;
    struct life *life = &u->c->lives[pst_value_storage(*slot)->id];

    (void)arg;
    life->last[u->list] = u->pos;
}

static struct life *life_of(struct compiler *c, const struct pst_value *value)
{
    return &c->lives[pst_value_storage((struct pst_value *)value)->id];
}

static void note_ends(struct compiler *c)
{
    const struct pst_program *p = c->p;
    const struct pst_graph *graph = p->graph;

    for (size_t i = 0; i < p->plan->edges.n; i++) {
        const struct pst_edge *edge = &p->plan->edges.at[i];

        if (edge->from_stage == p->stage)
            life_of(c, graph->outputs.at[edge->from_output].arg.value)->sent =
                true;
    }
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].arg.kind == PST_ARG_VALUE)
            life_of(c, graph->outputs.at[i].arg.value)->output = true;
    for (size_t i = 0; p->joint != NULL && i < p->joint->input_grads.n; i++)
        life_of(c, p->joint->input_grads.at[i].value)->sent = true;
}

static void note_lives(struct compiler *c)
{
    for (size_t i = 0; i < c->n_values; i++) {
        c->lives[i].list = c->lives[i].interval = -1;
        for (int l = 0; l < PST_N_LISTS; l++)
            c->lives[i].last[l] = NEVER;
    }
    for (int l = 0; l < PST_N_LISTS; l++) {
        for (unsigned i = 0; i < c->p->lists[l].n; i++) {
            struct pst_exec_node *x = &c->p->lists[l].at[i];
            struct use use = {c, (enum pst_list)l, i};

            pst_node_uses((struct pst_node *)x->node, note_use, &use);
            for (unsigned k = 0; k < x->node->n_outs; k++) {
                struct life *life = &c->lives[x->node->outs[k]->id];

                if (x->node->outs[k]->base != NULL)
                    continue;
                life->list = l;
                life->pos = i;
            }
        }
    }
    note_ends(c);
}

/* --- places -------------------------------------------------------------- */

static void place(struct compiler *c, const struct pst_value *value,
                  enum pst_region region, size_t offset)
{
    c->p->places[value->id] = (struct pst_loc){region, offset};
    c->lives[value->id].placed = true;
}

static void append(struct compiler *c, const struct pst_value *value,
                   enum pst_region region)
{
    place(c, value, region, c->p->size[region]);
    c->p->size[region] += pst_mem_round(pst_meta_span(&value->meta));
}

static bool read_by(const struct life *life, enum pst_list list)
{
    return life->last[list] != NEVER;
}

static void place_outside(struct compiler *c, const struct pst_value *value)
{
    struct pst_program *p = c->p;
    const struct life *life = &c->lives[value->id];

    switch (value->kind) {
    case PST_VALUE_INPUT:
        append(c, value, PST_R_IN_F);
        p->inputs_kept |= read_by(life, PST_LIST_B) || life->sent;
        p->inputs_kept |= read_by(life, PST_LIST_W);
        p->inputs_kept_w |= read_by(life, PST_LIST_W);
        break;
    case PST_VALUE_SEED:
        for (size_t i = 0; i < p->joint->seeds.n; i++)
            if (p->joint->seeds.at[i].seed == value &&
                p->joint->seeds.at[i].edge >= 0) {
                append(c, value, PST_R_IN_B);
                p->seeds_kept_w |= read_by(life, PST_LIST_W);
            }
        if (!life->placed)
            place(c, value, PST_R_FIXED, c->fixed(c->fixed_ctx, value));
        break;
    default:
        place(c, value, PST_R_FIXED, c->fixed(c->fixed_ctx, value));
        break;
    }
}

/* Region of a value that a node of this stage makes. */
static enum pst_region region_of(const struct life *life)
{
    bool w = read_by(life, PST_LIST_W);

    if (life->list == PST_LIST_F) {
        if (read_by(life, PST_LIST_B) || w)
            return PST_R_STASH;
        return life->sent ? PST_R_OUT_F : PST_R_WORK;
    }
    if (life->list == PST_LIST_B && w)
        return PST_R_KEEP;
    return life->sent ? PST_R_OUT_B : PST_R_WORK;
}

static void place_across(struct compiler *c)
{
    const struct pst_graph *graph = c->p->graph;

    for (size_t i = 0; i < graph->values.n; i++) {
        struct pst_value *value = graph->values.at[i];
        struct life *life = &c->lives[i];
        enum pst_region region;

        if (value->base != NULL)
            continue;
        if (value->kind != PST_VALUE_NODE) {
            place_outside(c, value);
            continue;
        }
        if (life->list < 0)
            continue; /* its node is fused away or dead */
        region = region_of(life);
        if (region == PST_R_WORK)
            continue;
        append(c, value, region);
        if (region == PST_R_STASH && read_by(life, PST_LIST_W))
            c->p->stash_kept_w = true;
    }
}

/* May this node write its result over its first operand? */
static struct life *overwritten(struct compiler *c, enum pst_list list,
                                const struct pst_exec_node *x, unsigned pos)
{
    const struct pst_value *out = x->node->outs[0], *in;
    struct life *life;

    if (!(x->kernel->flags & PST_K_INPLACE_0) || x->node->n_outs != 1 ||
        x->node->args[0].kind != PST_ARG_VALUE || x->role != PST_GRAD_NONE)
        return NULL;
    in = x->node->args[0].value;
    life = life_of(c, in);
    if (life->list != (int)list || life->interval < 0 || life->output ||
        life->last[list] != pos || in->offset != 0 ||
        in->meta.dtype != out->meta.dtype ||
        !pst_meta_same_shape(&in->meta, &out->meta) ||
        !pst_meta_is_contiguous(&in->meta) ||
        pst_meta_bytes(&pst_value_storage((void *)in)->meta) !=
            pst_meta_bytes(&out->meta))
        return NULL;
    for (unsigned k = 1; k < x->call.n_in; k++) /* no second view of it */
        if (k < x->node->schema->n_args &&
            x->node->args[k].kind == PST_ARG_VALUE &&
            pst_value_storage(x->node->args[k].value) ==
                pst_value_storage((void *)in))
            return NULL;
    return life;
}

static unsigned death(const struct compiler *c, const struct life *life,
                      enum pst_list list, unsigned pos)
{
    if (life->output)
        return c->p->lists[list].n;
    return read_by(life, list) ? life->last[list] : pos;
}

static void add_interval(struct compiler *c, size_t size, unsigned begin,
                         unsigned end)
{
    c->intervals[c->n_intervals++] =
        (struct pst_interval){.size = size, .begin = begin, .end = end};
}

static enum pst_status place_work(struct compiler *c, enum pst_list l)
{
    struct pst_exec_list *list = &c->p->lists[l];
    enum pst_status status;

    c->n_intervals = 0;
    for (unsigned i = 0; i < list->n; i++) {
        struct pst_exec_node *x = &list->at[i];
        struct life *under =
            x->node->n_outs == 1 ? overwritten(c, l, x, i) : NULL;

        for (unsigned k = 0; k < x->node->n_outs; k++) {
            struct pst_value *out = x->node->outs[k];
            struct life *life = &c->lives[out->id];

            if (out->base != NULL || life->placed || x->role != PST_GRAD_NONE)
                continue;
            life->interval = (int)c->n_intervals;
            if (under != NULL) {
                life->interval = under->interval;
                c->intervals[life->interval].end = death(c, life, l, i);
                continue;
            }
            add_interval(c, pst_meta_bytes(&out->meta), i,
                         death(c, life, l, i));
        }
        x->scratch.offset = c->n_intervals; /* until packed: its interval */
        if (x->call.scratch_size > 0)
            add_interval(c, x->call.scratch_size, i, i);
    }
    status = pst_mem_pack(c->intervals, c->n_intervals, &list->work, c->diag);
    if (status != PST_OK)
        return status;
    for (unsigned i = 0; i < list->n; i++) {
        struct pst_exec_node *x = &list->at[i];

        for (unsigned k = 0; k < x->node->n_outs; k++) {
            struct life *life = &c->lives[x->node->outs[k]->id];

            if (x->node->outs[k]->base == NULL && life->interval >= 0)
                place(c, x->node->outs[k], PST_R_WORK,
                      c->intervals[life->interval].offset);
        }
        if (x->call.scratch_size > 0)
            x->scratch = (struct pst_loc){
                PST_R_WORK, c->intervals[x->scratch.offset].offset};
    }
    c->p->size[PST_R_WORK] = PST_MAX(c->p->size[PST_R_WORK], list->work);
    return PST_OK;
}

/* --- operands ------------------------------------------------------------ */

static enum pst_status bind_operand(struct compiler *c,
                                    const struct pst_exec_node *x,
                                    const struct pst_value *value,
                                    struct pst_loc *ret)
{
    *ret = (struct pst_loc){PST_R_NONE, 0};
    if (value == NULL)
        return PST_OK;
    if (!life_of(c, value)->placed)
        return pst_diag_set(c->diag, PST_ERR_INTERNAL,
                            "value %s, used by %s of module '%s', has no place",
                            value->name, x->node->schema->name,
                            x->node->module);
    *ret = pst_program_loc(c->p, value);
    return PST_OK;
}

static enum pst_status bind(struct compiler *c, struct pst_exec_node *x)
{
    enum pst_status status = PST_OK;
    unsigned n = 0;

    for (unsigned i = 0; i < x->node->schema->n_args && status == PST_OK; i++) {
        const struct pst_arg *arg = &x->node->args[i];
        unsigned count = pst_call_count_arg(x->node->schema, i, arg);

        for (unsigned k = 0; k < count && status == PST_OK; k++, n++) {
            const struct pst_value *value = NULL;

            if (arg->kind == PST_ARG_VALUE)
                value = arg->value;
            else if (arg->kind == PST_ARG_VALUES)
                value = arg->values[k];
            status = bind_operand(c, x, value, &x->in[n]);
        }
    }
    for (unsigned k = 0; k < x->node->n_outs && status == PST_OK; k++)
        status = bind_operand(
            c, x, x->role == PST_GRAD_FUSED ? x->grad : x->node->outs[k],
            &x->out[k]);
    return status;
}

/* The first contribution to a gradient in list order assigns. */
static void mark_first_touches(struct pst_program *p)
{
    enum pst_list l = p->options.split_iw ? PST_LIST_W : PST_LIST_B;

    for (unsigned i = 0; i < p->lists[l].n; i++) {
        struct pst_exec_node *x = &p->lists[l].at[i];

        x->first_touch = x->role != PST_GRAD_NONE;
        for (unsigned k = 0; k < i && x->first_touch; k++)
            if (p->lists[l].at[k].role != PST_GRAD_NONE &&
                p->lists[l].at[k].grad == x->grad)
                x->first_touch = false;
    }
}

static enum pst_status refuse_stale_buffers(struct compiler *c)
{
    const struct pst_graph *graph = c->p->graph;

    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_output *o = &graph->outputs.at[i];
        const struct life *life;

        if (o->kind != PST_OUTPUT_BUFFER_UPDATE)
            continue;
        life = life_of(c, o->target);
        if (read_by(life, PST_LIST_B) || read_by(life, PST_LIST_W))
            return pst_diag_set(c->diag, PST_ERR_UNSUPPORTED,
                                "the backward pass of stage %u reads buffer "
                                "'%s' as it was before its update: not "
                                "supported yet",
                                c->p->stage, o->target->fqn);
    }
    return PST_OK;
}

static enum pst_status compile(struct compiler *c)
{
    struct pst_program *p = c->p;
    enum pst_status status;
    size_t n_nodes = p->graph->nodes.n;

    c->n_values = p->graph->values.n;
    c->lives = pst_arena_calloc(&p->arena, c->n_values + 1, sizeof(*c->lives));
    p->places =
        pst_arena_calloc(&p->arena, c->n_values + 1, sizeof(*p->places));
    /* At most one interval per result and one of scratch per node. */
    c->intervals = pst_arena_calloc(&p->arena, c->n_values + n_nodes + 1,
                                    sizeof(*c->intervals));
    if (c->lives == NULL || p->places == NULL || c->intervals == NULL)
        return pst_diag_nomem(c->diag, c->n_values * sizeof(*c->lives));
    status = make_lists(c);
    if (status != PST_OK)
        return status;
    note_lives(c);
    status = refuse_stale_buffers(c);
    if (status != PST_OK)
        return status;
    place_across(c);
    for (int l = 0; l < PST_N_LISTS && status == PST_OK; l++)
        status = place_work(c, (enum pst_list)l);
    for (int l = 0; l < PST_N_LISTS; l++)
        for (unsigned i = 0; i < p->lists[l].n && status == PST_OK; i++)
            status = bind(c, &p->lists[l].at[i]);
    mark_first_touches(p);
    return status;
}

enum pst_status pst_program_compile(struct pst_program *program,
                                    pst_fixed_fn fixed, void *ctx,
                                    struct pst_diag *diag)
{
    struct compiler c = {
        .p = program, .fixed = fixed, .fixed_ctx = ctx, .diag = diag};
    enum pst_status status = pst_legalise(program, diag);

    return status == PST_OK ? compile(&c) : status;
}
