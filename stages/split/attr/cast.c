// SPDX-License-Identifier: Apache-2.0
/*
 * Tensors of a model become others of another dtype. Nodes are inferred anew in
 * their order: where dtypes meet that PyTorch promotes, the result is of the
 * promoted one; any other operator gets its operand in the dtype that it had.
 * What is trained is kept in f32 and rounded where it is read.
 */
#include "stages/split/attr/attr.h"

#include "stages/ops/op.h"
#include "stages/ops/rows.h"

#include <string.h>

#define TAG       PST_TAG_PLAN
#define MAX_SITES 12 /* in a message */

/* What becomes of a value of the state. */
struct target {
    bool is;                  /* it is cast */
    bool was_rounded, rounds; /* its readers round it, before and after */
    enum pst_dtype old, new;  /* as its readers have it */
};

struct caster {
    struct pst_model *model;
    struct pst_graph *graph; /* its */
    const struct pst_plan *plan;
    enum pst_dtype dtype;
    struct pst_build build;
    size_t n_values;        /* before anything was added; by value id: */
    enum pst_dtype *was;    /* dtype of the value before, */
    struct pst_value **now; /* what stands for it, if another one does, */
    struct target *targets; /* and of state what becomes of it */
    struct pst_cast_told told;
    struct pst_str sites; /* calls that stand in the way */
    unsigned n_sites;
    struct pst_diag *diag;
};

static bool is_narrow(enum pst_dtype dtype)
{
    return dtype == PST_BF16 || dtype == PST_F16;
}

static struct target *target_of(const struct caster *c,
                                const struct pst_value *v)
{
    return v->id < c->n_values && c->targets[v->id].is ? &c->targets[v->id]
                                                       : NULL;
}

/* --- refusing ------------------------------------------------------------- */

static void add_site(struct caster *c, const struct pst_node *node)
{
    const struct pst_module_call *call = node->call;

    if (c->n_sites++ >= MAX_SITES)
        return;
    pst_str_addf(&c->sites, "%s%s", c->sites.len > 0 ? ", " : "",
                 node->schema->name);
    if (call->path[0] != '\0')
        pst_str_addf(&c->sites, " in %s", call->path);
    if (call->index > 0)
        pst_str_addf(&c->sites, "@%u", call->index);
    if (node->source[0] != '\0')
        pst_str_addf(&c->sites, " (%s)", node->source);
}

static enum pst_status refuse_sites(struct caster *c, const char *why,
                                    const char *name)
{
    return pst_diag_set(c->diag, PST_ERR_UNSUPPORTED,
                        "\"%.200s\" cannot become %s: %s by %s%s", name,
                        pst_dtype_name(c->dtype), why, pst_str_text(&c->sites),
                        c->n_sites > MAX_SITES ? ", ..." : "");
}

/* A write keeps the dtype of what it writes to, whatever is written. */
static void find_writes(struct caster *c, const struct pst_value *v)
{
    const struct pst_graph *graph = c->graph;

    for (size_t i = 0; i < graph->nodes.n; i++)
        for (unsigned k = 0; k < graph->nodes.at[i]->n_outs; k++)
            if (graph->nodes.at[i]->outs[k]->version_of == v)
                add_site(c, graph->nodes.at[i]);
    for (size_t i = 0; i < graph->outputs.n && c->n_sites == 0; i++)
        if (graph->outputs.at[i].target == v &&
            graph->outputs.at[i].arg.value->def != NULL)
            add_site(c, graph->outputs.at[i].arg.value->def);
}

static enum pst_status check_param(struct caster *c,
                                   const struct pst_plan_param *param)
{
    const char *why = NULL;

    if (param->n_windows > 0)
        why = "other names of the model are parts of it";
    else if (param->is_complex)
        why = "its numbers are complex";
    else if (param->requires_grad && c->dtype == PST_F64)
        why = "only f32 is trained";
    if (why == NULL)
        return PST_OK;
    return pst_diag_set(c->diag, PST_ERR_UNSUPPORTED,
                        "\"%.200s\" cannot become %s: %s", param->fqn,
                        pst_dtype_name(c->dtype), why);
}

/* --- what is cast --------------------------------------------------------- */

static enum pst_status set_target(struct caster *c, struct pst_value *v,
                                  const struct pst_plan_param *param)
{
    struct target *t = &c->targets[v->id];
    enum pst_status status = check_param(c, param);

    if (status != PST_OK)
        return status;
    c->told.cast++;
    t->is = true;
    t->was_rounded = param->rounded;
    t->old = param->rounded ? param->rounds : v->meta.dtype;
    t->new = c->dtype;
    t->rounds = v->requires_grad && is_narrow(c->dtype);
    v->meta.dtype = t->rounds ? PST_F32 : c->dtype;
    return PST_OK;
}

static struct pst_value *find_value(const struct caster *c, const char *fqn)
{
    for (size_t i = 0; i < c->n_values; i++) {
        struct pst_value *v = c->graph->values.at[i];

        if (pst_value_is_state(v) && strcmp(v->fqn, fqn) == 0)
            return v;
    }
    return NULL;
}

/* Of several tensors what has no such dtype, or keeps its own, is skipped; one
 * that was named is refused. */
static enum pst_status look_at(struct caster *c, struct pst_value *v,
                               const struct pst_plan_param *param,
                               const char *name, bool one, bool *ret_skip)
{
    const bool floats = pst_dtype_kind(param->meta.dtype) == PST_KIND_FLOAT &&
                        !param->is_complex;
    enum pst_status status = PST_OK;

    if (floats)
        find_writes(c, v);
    *ret_skip = !floats || c->n_sites > 0;
    if (one && !floats && !param->is_complex)
        status =
            pst_diag_set(c->diag, PST_ERR_UNSUPPORTED,
                         "\"%.200s\" is %s: only floating tensors are cast",
                         name, pst_dtype_name(param->meta.dtype));
    else if (one && c->n_sites > 0)
        status = refuse_sites(c, "it is written in place", v->fqn);
    else if (one && param->is_complex)
        *ret_skip = false; /* check_param says why not */
    c->n_sites = 0;
    c->sites.len = 0;
    return status;
}

static enum pst_status set_targets(struct caster *c,
                                   const struct pst_attrs *attrs)
{
    const bool one = attrs->tensors == 1;
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < attrs->at.n && status == PST_OK; i++) {
        const struct pst_plan_param *param =
            &c->plan->params.at[attrs->at.at[i].param];
        struct pst_value *v;
        bool skip = false;

        if (i > 0 && attrs->at.at[i].param == attrs->at.at[i - 1].param)
            continue;
        v = find_value(c, param->fqn);
        if (v == NULL)
            return pst_diag_set(c->diag, PST_ERR_INTERNAL, "no value is \"%s\"",
                                param->fqn);
        status = look_at(c, v, param, attrs->at.at[i].name, one, &skip);
        c->told.skipped += skip;
        if (status == PST_OK && !skip)
            status = set_target(c, v, param);
    }
    if (status == PST_OK && c->told.cast == 0)
        return pst_diag_set(c->diag, PST_ERR_INPUT,
                            "none of these tensors is floating");
    return status;
}

/* --- nodes ---------------------------------------------------------------- */

/* v in that dtype, in front of the node. */
static struct pst_value *convert(struct caster *c, const struct pst_node *node,
                                 struct pst_value *v, enum pst_dtype dtype)
{
    struct pst_value *ret;

    pst_build_at(&c->build, node);
    c->build.node_id = UINT32_MAX;
    ret = pst_emit(&c->build, &pst_op__to_copy,
                   PST_ARGS(pst_v(v), pst_dtype_arg(dtype)));
    if (ret == NULL)
        return NULL;
    ret->dims = v->dims;
    ret->def->stage = node->stage;
    ret->def->no_grad = node->no_grad;
    return ret;
}

/* Is the node how its readers rounded a parameter? */
static bool is_rounding(const struct caster *c, const struct pst_node *node)
{
    const struct target *t;

    if (node->op != &pst_op__to_copy || node->args[0].kind != PST_ARG_VALUE ||
        node->args[1].kind != PST_ARG_DTYPE)
        return false;
    t = target_of(c, node->args[0].value);
    return t != NULL && t->was_rounded &&
           (enum pst_dtype)node->args[1].i == t->old;
}

struct operands {
    struct caster *c;
    struct pst_node *node;
    bool other;          /* one is another value than before, */
    bool changed;        /* or has another dtype */
    bool mixed;          /* floating ones have several dtypes */
    enum pst_dtype only; /* that of those so far, PST_N_DTYPES: none */
    /* Before its dtypes were changed: slots in order. */
    struct PST_VEC(enum pst_dtype) was;
    size_t at;
    bool failed;
};

static void renew(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct operands *o = ctx;
    struct caster *c = o->c;
    struct pst_value *v = *slot;
    const enum pst_dtype was =
        v->id < c->n_values ? c->was[v->id] : v->meta.dtype;
    const struct target *t;

    (void)arg;
    if (v->id < c->n_values && c->now[v->id] != NULL)
        v = c->now[v->id];
    t = target_of(c, v);
    if (t != NULL && t->rounds)
        v = convert(c, o->node, v, t->new);
    if (v == NULL || !pst_vec_push(TAG, &o->was, was)) {
        o->failed = true;
        return;
    }
    o->other = o->other || v != *slot;
    *slot = v;
    o->changed = o->changed || v->meta.dtype != was;
    if (pst_dtype_kind(v->meta.dtype) != PST_KIND_FLOAT)
        return;
    o->mixed =
        o->mixed || (o->only != PST_N_DTYPES && o->only != v->meta.dtype);
    o->only = v->meta.dtype;
}

/* Gives an operand the dtype back that it had. */
static void restore(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct operands *o = ctx;
    const enum pst_dtype was = o->was.at[o->at++];

    (void)arg;
    if ((*slot)->meta.dtype == was)
        return;
    *slot = convert(o->c, o->node, *slot, was);
    o->c->told.converted++;
}

/* Does PyTorch bring operands of several dtypes together? */
static bool promotes(const struct pst_op *op)
{
    return pst_op_family(op) == pst_op_family(&pst_op_mul_Tensor) ||
           op == &pst_op_cat || op == &pst_op_stack;
}

static enum pst_status infer(const struct pst_node *node, struct pst_infer *ret,
                             struct pst_diag *diag)
{
    *ret = (struct pst_infer){.schema = node->schema,
                              .args = node->args,
                              .diag = diag,
                              .hint = PST_N_DTYPES};
    if (node->n_outs > 0)
        ret->hint = node->outs[0]->meta.dtype;
    return pst_op_infer(node->op, ret);
}

static void set_results(const struct pst_node *node,
                        const struct pst_infer *inferred)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        struct pst_value *out = node->outs[k];

        out->meta = inferred->out[k];
        out->base = NULL;
        out->offset = 0;
        if (inferred->alias_of[k] != NULL) {
            out->base = pst_value_storage(inferred->alias_of[k]);
            out->offset = pst_view_offset(inferred->alias_of[k],
                                          out->meta.dtype, inferred->offset[k]);
        }
    }
}

/* New contents of what is written keep its dtype. */
static enum pst_status check_results(struct caster *c, struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        struct pst_value *out = node->outs[k], *back;

        if (out->meta.dtype == c->was[out->id])
            continue;
        if (c->model->writes)
            add_site(c, node);
        if (out->version_of == NULL)
            continue;
        back = convert(c, node, out, c->was[out->id]);
        if (back == NULL)
            return c->build.status;
        back->version_of = out->version_of;
        out->version_of = NULL;
        c->now[out->id] = back;
    }
    return PST_OK;
}

static enum pst_status cast_node(struct caster *c, struct pst_node *node)
{
    struct operands o = {.c = c, .node = node, .only = PST_N_DTYPES};
    struct pst_infer inferred;
    struct pst_diag ignored;
    enum pst_status status = PST_OK;

    if (is_rounding(c, node)) {
        c->now[node->outs[0]->id] = node->args[0].value;
        node->outs[0]->def = NULL; /* it is gone */
        return PST_OK;
    }
    pst_node_uses(node, renew, &o);
    if (!o.failed && o.changed &&
        ((o.mixed && !promotes(node->op)) ||
         infer(node, &inferred, &ignored) != PST_OK))
        pst_node_uses(node, restore, &o);
    pst_vec_fini(&o.was);
    if (c->build.status != PST_OK)
        return c->build.status;
    if (o.failed)
        return pst_diag_nomem(c->diag, sizeof(o));
    if (o.other || o.changed)
        status = infer(node, &inferred, c->diag);
    if (status == PST_OK && (o.other || o.changed))
        set_results(node, &inferred);
    if (!pst_vec_push(TAG, &c->graph->nodes, node))
        return pst_diag_nomem(c->diag, sizeof(node));
    return status == PST_OK ? check_results(c, node) : status;
}

static enum pst_status cast_nodes(struct caster *c)
{
    struct pst_graph *graph = c->graph;
    const size_t n = graph->nodes.n;
    struct pst_node **nodes =
        pst_arena_memdup(&graph->arena, graph->nodes.at,
                         PST_MAX(n, (size_t)1) * sizeof(struct pst_node *));
    enum pst_status status = PST_OK;

    if (nodes == NULL)
        return pst_diag_nomem(c->diag, n * sizeof(struct pst_node *));
    graph->nodes.n = 0;
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = cast_node(c, nodes[i]);
    return status;
}

/* --- what the graph returns ----------------------------------------------- */

static enum pst_status cast_output(struct caster *c, struct pst_output *output)
{
    struct pst_value *v, *target = output->target;
    const struct target *t;
    enum pst_dtype want;

    if (output->arg.kind != PST_ARG_VALUE)
        return PST_OK;
    v = output->arg.value;
    want = target != NULL ? target->meta.dtype : PST_N_DTYPES;
    if (c->now[v->id] != NULL)
        v = c->now[v->id];
    t = target_of(c, v);
    if (t != NULL && t->rounds)
        return pst_diag_set(c->diag, PST_ERR_UNSUPPORTED,
                            "\"%.200s\" cannot become %s: the model returns it",
                            v->fqn, pst_dtype_name(c->dtype));
    if (want != PST_N_DTYPES && v->meta.dtype != want)
        v = convert(c, v->def, v, want);
    output->arg.value = v;
    return v != NULL ? PST_OK : c->build.status;
}

static void renew_leaves(const struct caster *c, struct pst_call_leaf *leaves,
                         unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct pst_arg *arg = &leaves[i].arg;

        if (arg->kind == PST_ARG_VALUE && c->now[arg->value->id] != NULL)
            arg->value = c->now[arg->value->id];
    }
}

static enum pst_status cast_outputs(struct caster *c)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < c->graph->outputs.n && status == PST_OK; i++)
        status = cast_output(c, &c->graph->outputs.at[i]);
    for (size_t i = 0; i < c->graph->calls.n && status == PST_OK; i++) {
        const struct pst_call_signature *s = c->graph->calls.at[i]->signature;

        if (s == NULL)
            continue;
        renew_leaves(c, s->inputs, s->n_inputs);
        renew_leaves(c, s->outputs, s->n_outputs);
    }
    return status;
}

/* --- values --------------------------------------------------------------- */

struct pst_casting {
    const struct pst_plan *plan;
    struct target *of; /* by parameter */
    pst_param_fn old;
    void *old_ctx;
};

/* Numbers that the old dtype has and the new one. */
static enum pst_status read_cast(void *ctx, unsigned param, void *dst,
                                 struct pst_diag *diag)
{
    const struct pst_casting *casting = ctx;
    const struct pst_meta *meta = &casting->plan->params.at[param].meta;
    const struct target *t = &casting->of[param];
    enum pst_status status = casting->old(casting->old_ctx, param, dst, diag);

    for (int64_t i = 0; i < pst_meta_numel(meta) && status == PST_OK; i++) {
        double x = pst_load_f64(meta->dtype, dst, i);

        pst_store_f64(t->old, &x, 0, x);
        x = pst_load_f64(t->old, &x, 0);
        pst_store_f64(t->new, &x, 0, x);
        x = pst_load_f64(t->new, &x, 0);
        pst_store_f64(meta->dtype, dst, i, x);
    }
    return status;
}

/* The model's weights are numbered as the plan's parameters are. */
static void redirect(const struct caster *c, struct pst_casting *casting)
{
    for (size_t i = 0; i < c->n_values; i++) {
        const struct pst_value *v = c->graph->values.at[i];

        if (c->targets[i].is)
            casting->of[pst_plan_find_param(c->plan, v->fqn)] = c->targets[i];
    }
    for (size_t i = 0; i < c->model->weights.n; i++) {
        struct pst_weight *w = &c->model->weights.at[i];
        const struct target *t = &casting->of[w->number];

        if (!t->is)
            continue;
        w->rounded = t->rounds;
        w->rounds = t->new;
        casting->old = w->read;
        casting->old_ctx = w->ctx;
        w->read = read_cast;
        w->ctx = casting;
    }
}

void pst_casting_free(struct pst_casting *casting)
{
    if (casting == NULL)
        return;
    pst_free(casting->of);
    pst_free(casting);
}

static enum pst_status new_casting(const struct caster *c,
                                   struct pst_casting **ret)
{
    struct pst_casting *casting = pst_calloc(TAG, 1, sizeof(*casting));

    if (casting != NULL)
        casting->of =
            pst_calloc(TAG, c->plan->params.n + 1, sizeof(*casting->of));
    if (casting == NULL || casting->of == NULL) {
        pst_casting_free(casting);
        return pst_diag_nomem(c->diag, c->plan->params.n);
    }
    casting->plan = c->plan;
    *ret = casting;
    return PST_OK;
}

/* --- the model ------------------------------------------------------------ */

static enum pst_status prepare(struct caster *c)
{
    struct pst_arena *arena = &c->graph->arena;
    const size_t n = c->graph->values.n;

    c->n_values = n;
    c->was = pst_arena_calloc(arena, n + 1, sizeof(*c->was));
    c->now = pst_arena_calloc(arena, n + 1, sizeof(*c->now));
    c->targets = pst_arena_calloc(arena, n + 1, sizeof(*c->targets));
    if (c->was == NULL || c->now == NULL || c->targets == NULL)
        return pst_diag_nomem(c->diag, n);
    for (size_t i = 0; i < n; i++)
        c->was[i] = c->graph->values.at[i]->meta.dtype;
    pst_build_init(&c->build, c->graph, c->diag);
    return PST_OK;
}

static enum pst_status cast(struct caster *c, const struct pst_attrs *attrs)
{
    enum pst_status status = prepare(c);

    if (status == PST_OK)
        status = set_targets(c, attrs);
    if (status == PST_OK)
        status = cast_nodes(c);
    if (status == PST_OK && c->n_sites > 0)
        status = refuse_sites(
            c,
            "the model writes values in place, and others would change dtype",
            attrs->at.at[0].name);
    if (status == PST_OK)
        status = cast_outputs(c);
    return status == PST_OK ? pst_graph_verify(c->graph, c->diag) : status;
}

static enum pst_status mark(struct caster *c, const struct pst_attrs *attrs)
{
    struct pst_model *model = c->model;
    struct pst_str text = {0};
    enum pst_status status = PST_OK;

    pst_str_addf(&text, "%s cast %s", model->digest, pst_dtype_name(c->dtype));
    for (size_t i = 0; i < attrs->at.n; i++)
        pst_str_addf(&text, " %s", attrs->at.at[i].name);
    if (text.failed)
        status = pst_diag_nomem(c->diag, text.len);
    else
        pst_digest(text.text, text.len, model->digest);
    model->identity[0] = '\0';
    pst_str_fini(&text);
    return status;
}

enum pst_status pst_model_cast(struct pst_model *model,
                               const struct pst_plan *plan,
                               const struct pst_attrs *attrs,
                               enum pst_dtype dtype,
                               struct pst_cast_told *ret_told,
                               struct pst_casting **ret, struct pst_diag *diag)
{
    struct caster c = {.model = model,
                       .graph = model->graph,
                       .plan = plan,
                       .dtype = dtype,
                       .diag = diag};
    struct pst_casting *casting = NULL;
    enum pst_status status = new_casting(&c, &casting);

    if (status == PST_OK && pst_dtype_kind(dtype) != PST_KIND_FLOAT)
        status = pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                              "nothing is cast to %s, which is not floating",
                              pst_dtype_name(dtype));
    if (status == PST_OK)
        status = cast(&c, attrs);
    if (status == PST_OK)
        status = mark(&c, attrs);
    pst_str_fini(&c.sites);
    if (status != PST_OK) {
        pst_casting_free(casting);
        return status;
    }
    redirect(&c, casting);
    *ret_told = c.told;
    *ret = casting;
    return PST_OK;
}
