// SPDX-License-Identifier: Apache-2.0
/*
 * Rewrites the graph of a model whose tensors are cast. Nodes are inferred
 * again in order: where PyTorch promotes operands of several dtypes, the result
 * has the promoted dtype; for any other operator the operand is converted back
 * to its old dtype.
 */
#include "stages/split/attr/cast.h"

#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"
#include "stages/passes/rewrite.h"

#define TAG PST_TAG_PLAN

/* --- nodes ---------------------------------------------------------------- */

static struct pst_value *convert_value(struct pst_caster *c,
                                       const struct pst_node *node,
                                       struct pst_value *v,
                                       enum pst_dtype dtype)
{
    return pst_rewrite_dtype(&c->build, node, v, dtype);
}

/* True if the node rounds a parameter that was kept in f32 before the cast. */
static bool is_rounding(const struct pst_caster *c, const struct pst_node *node)
{
    const struct pst_cast_target *t;

    if (node->op != &pst_op__to_copy || node->args[0].kind != PST_ARG_VALUE ||
        node->args[1].kind != PST_ARG_DTYPE)
        return false;
    t = pst_cast_target_of(c, node->args[0].value);
    return t != NULL && t->was_rounded &&
           (enum pst_dtype)node->args[1].i == t->old;
}

struct operands {
    struct pst_caster *c;
    struct pst_node *node;
    bool replaced; /* an operand was replaced */
    bool changed;  /* an operand has another dtype than before */
    bool mixed;    /* floating-point operands have several dtypes */
    /* promoted dtype of the floating-point operands; PST_N_DTYPES: none yet */
    enum pst_dtype common_dtype;
    /* original dtypes of the operands, in the order of the slots */
    struct PST_VEC(enum pst_dtype) was;
    size_t at;
    bool failed;
};

static void convert_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct operands *o = ctx;
    struct pst_caster *c = o->c;
    struct pst_value *v = *slot;
    const enum pst_dtype was =
        v->id < c->n_values ? c->old_dtype[v->id] : v->meta.dtype;
    const struct pst_cast_target *t;

    (void)arg;
    if (v->id < c->n_values && c->now[v->id] != NULL)
        v = c->now[v->id];
    t = pst_cast_target_of(c, v);
    if (t != NULL && t->rounds)
        v = convert_value(c, o->node, v, t->new);
    if (v == NULL || !pst_vec_push(TAG, &o->was, was)) {
        o->failed = true;
        return;
    }
    o->replaced = o->replaced || v != *slot;
    *slot = v;
    o->changed = o->changed || v->meta.dtype != was;
    if (pst_dtype_kind(v->meta.dtype) != PST_KIND_FLOAT)
        return;
    o->mixed = o->mixed || (o->common_dtype != PST_N_DTYPES &&
                            o->common_dtype != v->meta.dtype);
    o->common_dtype = v->meta.dtype;
}

/* Converts an operand back to its original dtype. */
static void restore_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct operands *o = ctx;
    const enum pst_dtype was = o->was.at[o->at++];

    (void)arg;
    if ((*slot)->meta.dtype == was)
        return;
    *slot = convert_value(o->c, o->node, *slot, was);
    o->c->counts.converted++;
}

/* True if PyTorch promotes operands of different dtypes. */
static bool promotes_operands(const struct pst_op *op)
{
    return pst_op_family(op) == pst_op_family(&pst_op_mul_Tensor) ||
           op == &pst_op_cat || op == &pst_op_stack;
}

static enum pst_status infer_results(const struct pst_node *node,
                                     struct pst_infer *ret,
                                     struct pst_diag *diag)
{
    ret->schema = node->schema;
    ret->args = node->args;
    ret->diag = diag;
    ret->hint = node->n_outs > 0 ? node->outs[0]->meta.dtype : PST_N_DTYPES;
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

/* Converts the new content of a written tensor back to the tensor's dtype. In a
 * model that writes in place, records nodes whose results have another dtype:
 * they prevent the cast. */
static enum pst_status check_results(struct pst_caster *c,
                                     struct pst_node *node)
{
    for (unsigned k = 0; k < node->n_outs; k++) {
        struct pst_value *out = node->outs[k], *back;

        if (out->meta.dtype == c->old_dtype[out->id])
            continue;
        if (c->model->writes)
            pst_cast_add_site(c, node);
        if (out->version_of == NULL)
            continue;
        back = convert_value(c, node, out, c->old_dtype[out->id]);
        if (back == NULL)
            return c->build.status;
        back->version_of = out->version_of;
        out->version_of = NULL;
        c->now[out->id] = back;
    }
    return PST_OK;
}

static enum pst_status cast_node(void *ctx, struct pst_node *node)
{
    struct pst_caster *c = ctx;
    struct operands o = {.c = c, .node = node, .common_dtype = PST_N_DTYPES};
    PST_UNINIT struct pst_infer inferred;
    struct pst_diag ignored;
    enum pst_status status = PST_OK;

    if (is_rounding(c, node)) {
        c->now[node->outs[0]->id] = node->args[0].value;
        node->outs[0]->def = NULL; /* the rounding is removed */
        return PST_OK;
    }
    pst_node_uses(node, convert_operand, &o);
    if (!o.failed && o.changed &&
        ((o.mixed && !promotes_operands(node->op)) ||
         infer_results(node, &inferred, &ignored) != PST_OK))
        pst_node_uses(node, restore_operand, &o);
    pst_vec_fini(&o.was);
    if (c->build.status != PST_OK)
        return c->build.status;
    if (o.failed)
        return pst_diag_nomem(c->diag, sizeof(o));
    if (o.replaced || o.changed)
        status = infer_results(node, &inferred, c->diag);
    if (status == PST_OK && (o.replaced || o.changed))
        set_results(node, &inferred);
    if (!pst_vec_push(TAG, &c->graph->nodes, node))
        return pst_diag_nomem(c->diag, sizeof(node));
    return status == PST_OK ? check_results(c, node) : status;
}

enum pst_status pst_cast_nodes(struct pst_caster *c)
{
    return pst_graph_rewrite(c->graph, cast_node, c);
}

/* --- results of the graph ------------------------------------------------- */

static enum pst_status cast_output(struct pst_caster *c,
                                   struct pst_output *output)
{
    struct pst_value *v, *target = output->target;
    const struct pst_cast_target *t;
    enum pst_dtype want;

    if (output->arg.kind != PST_ARG_VALUE)
        return PST_OK;
    v = output->arg.value;
    want = target != NULL ? target->meta.dtype : PST_N_DTYPES;
    if (c->now[v->id] != NULL)
        v = c->now[v->id];
    t = pst_cast_target_of(c, v);
    if (t != NULL && t->rounds)
        return pst_diag_set(c->diag, PST_E_CAST_IMPOSSIBLE,
                            "\"%.200s\" cannot become %s: the model returns it",
                            v->fqn, pst_dtype_name(c->dtype));
    if (want != PST_N_DTYPES && v->meta.dtype != want)
        v = convert_value(c, v->def, v, want);
    output->arg.value = v;
    return v != NULL ? PST_OK : c->build.status;
}

static void renew_leaves(const struct pst_caster *c,
                         struct pst_call_leaf *leaves, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct pst_arg *arg = &leaves[i].arg;

        if (arg->kind == PST_ARG_VALUE && c->now[arg->value->id] != NULL)
            arg->value = c->now[arg->value->id];
    }
}

enum pst_status pst_cast_outputs(struct pst_caster *c)
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
