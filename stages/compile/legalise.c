// SPDX-License-Identifier: Apache-2.0
#include "stages/compile/forms.h"
#include "stages/ops/call.h"

/* Views, empty-handed operators (markers, asserts) and those whose results
 * have no elements never run. */
static bool executes(const struct pst_node *node)
{
    if (node->op->flags & (PST_OP_VIEW | PST_OP_MARKER))
        return false;
    if (node->op->n_kernels == 0 || pst_node_is_empty(node))
        return false;
    for (unsigned i = 0; i < node->n_outs; i++)
        if (node->outs[i] != NULL && node->outs[i]->base == NULL)
            return true;
    return node->n_outs == 0; /* accumulate_grad has no result */
}

static void look_rounded(void *ctx, struct pst_value **slot, unsigned arg)
{
    const struct pst_value *storage = pst_value_storage(*slot);
    bool *any = ctx;

    (void)arg;
    if (storage->def != NULL && storage->def->op == &pst_op_round_bf16)
        *any = true;
}

/* Its factors were rounded before: forms are given to all of them or none. */
static bool reads_rounded(const struct pst_node *node)
{
    bool any = false;

    pst_node_uses((struct pst_node *)node, look_rounded, &any);
    return any;
}

enum pst_status pst_node_kernel(const struct pst_node *node,
                                const struct pst_program_options *options,
                                struct pst_call *call,
                                const struct pst_kernel **ret,
                                struct pst_diag *diag)
{
    *ret = NULL;
    if (!executes(node))
        return PST_OK;
    call->args = node->args;
    call->bf16 = options->bf16 && !reads_rounded(node);
    call->n_in = pst_call_count_in(node->schema, node->args);
    call->n_out = node->n_outs;
    if (call->n_in > PST_MAX_OPERANDS || call->n_out > PST_MAX_OPERANDS)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "%s in module '%s' has %u operands, at most %u "
                            "are possible",
                            node->schema->name, node->module, call->n_in,
                            (unsigned)PST_MAX_OPERANDS);
    pst_call_bind_metas(node->schema, node->args, call->in);
    for (unsigned i = 0; i < node->n_outs; i++)
        call->out[i] = (struct pst_operand){.meta = &node->outs[i]->meta};
    *ret = pst_kernel_find(options->device, node->op, call, options->isa, NULL);
    if (*ret == NULL)
        return pst_diag_set(diag, PST_ERR_UNSUPPORTED,
                            "no kernel of %s for these dtypes and shapes "
                            "(module '%s', %s)",
                            node->schema->name, node->module, node->source);
    return PST_OK;
}

struct legaliser {
    struct pst_program *program;
    struct pst_build build;
    struct pst_forms forms;
    const struct pst_op *clone;
    /* Copy made for a value in this phase, by value id. */
    struct pst_value **copies;
    size_t n_copies;
    enum pst_phase phase;
    /* Copies made in phase F for the phases behind it, by value id. */
    struct pst_value **kept;
};

static struct pst_value *contiguous(struct legaliser *l,
                                    struct pst_value *value)
{
    if (pst_meta_is_contiguous(&value->meta))
        return value;
    return pst_emit(&l->build, l->clone, PST_ARGS(pst_v(value)));
}

static void make_contiguous(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct legaliser *l = ctx;
    struct pst_value *value = *slot, *copy;

    (void)arg;
    if (pst_meta_is_contiguous(&value->meta))
        return;
    if (value->id < l->n_copies && l->copies[value->id] != NULL) {
        *slot = l->copies[value->id];
        return;
    }
    copy = contiguous(l, value);
    if (copy == NULL)
        return;
    if (value->id < l->n_copies)
        l->copies[value->id] = copy;
    *slot = copy;
}

static void build_as(struct pst_build *build, const struct pst_node *node)
{
    build->phase = node->phase;
    build->module = node->module;
    build->source = node->source;
    build->call = node->call;
    build->node_id = node->id;
}

/* Copies of one phase are not read by another: they would be kept for it. Those
 * of constants are kept anyway. */
static void enter_phase(struct legaliser *l, enum pst_phase phase)
{
    if (l->phase == phase)
        return;
    l->phase = phase;
    for (size_t i = 0; i < l->n_copies; i++)
        if (!pst_is_constant(l->program, l->program->graph->values.at[i]))
            l->copies[i] = NULL;
}

bool pst_is_updated(const struct pst_graph *graph,
                    const struct pst_value *buffer)
{
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE &&
            graph->outputs.at[i].target == buffer)
            return true;
    return false;
}

/* Forwards of this and later microbatches change the buffer before a backward
 * reads it: that reads a copy from before the change. */
static void keep_buffer(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct legaliser *l = ctx;
    struct pst_value *value = *slot, *copy;

    (void)arg;
    if (value->id >= l->n_copies ||
        !pst_is_updated(l->program->graph, pst_value_storage(value)))
        return;
    copy = l->kept[value->id];
    if (copy == NULL)
        copy = pst_emit(&l->build, l->clone, PST_ARGS(pst_v(value)));
    if (copy == NULL)
        return;
    l->kept[value->id] = copy;
    *slot = copy;
}

static enum pst_status keep_buffers(struct legaliser *l, struct pst_node *node)
{
    if (node->phase == PST_PHASE_F || !executes(node))
        return PST_OK;
    build_as(&l->build, node);
    l->build.phase = PST_PHASE_F;
    pst_node_uses(node, keep_buffer, l);
    return l->build.status;
}

static enum pst_status legalise_node(struct legaliser *l, struct pst_node *node)
{
    struct pst_operand in[PST_MAX_OPERANDS], out[PST_MAX_OPERANDS];
    struct pst_call call = {.in = in, .out = out};
    const struct pst_kernel *kernel;
    enum pst_status status = keep_buffers(l, node);
    bool changed;

    if (status == PST_OK)
        status = pst_node_kernel(node, &l->program->options, &call, &kernel,
                                 l->build.diag);
    if (status != PST_OK || kernel == NULL)
        return status;
    enter_phase(l, node->phase);
    build_as(&l->build, node);
    status = pst_forms_give(&l->forms, node, &call, kernel, &changed);
    if (status == PST_OK && changed)
        status = pst_node_kernel(node, &l->program->options, &call, &kernel,
                                 l->build.diag);
    if (status != PST_OK || kernel == NULL || (kernel->flags & PST_K_STRIDED))
        return status;
    l->build.prefix = "contiguous";
    pst_node_uses(node, make_contiguous, l);
    return l->build.status;
}

/* Gradients leave the stage contiguous. */
static enum pst_status legalise_grads(struct legaliser *l)
{
    struct pst_joint *joint = l->program->joint;

    for (size_t i = 0; joint != NULL && i < joint->input_grads.n; i++) {
        struct pst_value *value = joint->input_grads.at[i].value;

        if (value->def != NULL)
            build_as(&l->build, value->def);
        l->build.phase = PST_PHASE_I;
        value = contiguous(l, value);
        if (value == NULL)
            return l->build.status;
        joint->input_grads.at[i].value = value;
    }
    return PST_OK;
}

/* An output that looks into a buffer is read after the buffers are updated:
 * it gets a copy of what was there before. */
static enum pst_status legalise_outputs(struct legaliser *l)
{
    struct pst_graph *graph = l->program->graph;

    for (size_t i = 0; i < graph->outputs.n; i++) {
        struct pst_arg *arg = &graph->outputs.at[i].arg;
        struct pst_value *copy;

        if (arg->kind != PST_ARG_VALUE ||
            !pst_is_updated(graph, pst_value_storage(arg->value)))
            continue;
        build_as(&l->build, &(struct pst_node){.module = "",
                                               .source = "",
                                               .id = graph->next_node_id});
        copy = pst_emit(&l->build, l->clone, PST_ARGS(pst_v(arg->value)));
        if (copy == NULL)
            return l->build.status;
        arg->value = copy;
    }
    return PST_OK;
}

/* Nodes are appended to a new list; emit puts what is made in front of them. */
static enum pst_status legalise_nodes(struct legaliser *l)
{
    struct pst_graph *graph = l->program->graph;
    const size_t n = graph->nodes.n;
    struct pst_node **old = graph->nodes.at;
    enum pst_status status = PST_OK;

    graph->nodes.at = NULL;
    graph->nodes.n = graph->nodes.cap = 0;
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        status = legalise_node(l, old[i]);
        if (status == PST_OK &&
            !pst_vec_push(PST_TAG_GRAPH, &graph->nodes, old[i]))
            status = pst_diag_nomem(l->build.diag, sizeof(*old));
    }
    pst_free(old);
    return status;
}

enum pst_status pst_legalise(struct pst_program *program, struct pst_diag *diag)
{
    struct pst_graph *graph = program->graph;
    struct legaliser l = {.program = program, .phase = PST_PHASE_F};
    enum pst_status status = PST_OK;

    pst_build_init(&l.build, graph, diag);
    l.build.prefix = "contiguous";
    l.clone = pst_op_find("aten.clone.default");
    l.n_copies = graph->values.n;
    l.copies = pst_calloc(PST_TAG_EXEC, l.n_copies, sizeof(*l.copies));
    l.kept = pst_calloc(PST_TAG_EXEC, l.n_copies, sizeof(*l.kept));
    if (l.copies == NULL || l.kept == NULL || l.clone == NULL)
        status = pst_diag_nomem(diag, l.n_copies * sizeof(*l.copies));
    if (status == PST_OK)
        status = pst_mark_constants(program, diag);
    if (status == PST_OK)
        status = pst_forms_init(&l.forms, program, &l.build);
    if (status == PST_OK)
        status = legalise_nodes(&l);
    if (status == PST_OK)
        status = legalise_grads(&l);
    if (status == PST_OK)
        status = legalise_outputs(&l);
    pst_forms_fini(&l.forms);
    pst_free(l.copies);
    pst_free(l.kept);
    return status;
}
