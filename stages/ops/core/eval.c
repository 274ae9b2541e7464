// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/core/call.h"

#include <stdio.h>
#include <string.h>

#define TAG   PST_TAG_EXEC
#define ALIGN 64

struct pst_eval {
    const struct pst_graph *graph;
    const void **data; /* by value id; views point into their base */
    /* By value id: memory that this struct allocated; NULL: none. */
    void **owned;
    struct pst_pool *pool; /* pool of the kernels; NULL: one thread */
    size_t n;
};

/* State of one node while it runs. */
struct frame {
    struct pst_eval *eval;
    struct pst_node *node;
    struct pst_call call;
    struct pst_fault fault;
    void **temps;           /* contiguous copies of inputs, one slot each */
    struct pst_meta *metas; /* metas of these copies */
    void *scratch;
    struct pst_diag *diag;
};

enum pst_status pst_eval_new(const struct pst_graph *graph,
                             struct pst_eval **ret, struct pst_diag *diag)
{
    struct pst_eval *eval = pst_calloc(TAG, 1, sizeof(*eval));

    if (eval == NULL)
        return pst_diag_nomem(diag, sizeof(*eval));
    eval->graph = graph;
    eval->n = graph->values.n;
    eval->data = pst_calloc(TAG, eval->n + 1, sizeof(*eval->data));
    eval->owned = pst_calloc(TAG, eval->n + 1, sizeof(*eval->owned));
    if (eval->data == NULL || eval->owned == NULL) {
        pst_eval_free(eval);
        return pst_diag_nomem(diag, graph->values.n * sizeof(void *));
    }
    *ret = eval;
    return PST_OK;
}

void pst_eval_free(struct pst_eval *eval)
{
    if (eval == NULL)
        return;
    for (size_t i = 0; eval->owned != NULL && i < eval->n; i++)
        pst_free(eval->owned[i]);
    pst_free(eval->owned);
    pst_free(eval->data);
    pst_free(eval);
}

void pst_eval_set_pool(struct pst_eval *eval, struct pst_pool *pool)
{
    eval->pool = pool;
}

enum pst_status pst_eval_set(struct pst_eval *eval, struct pst_value *value,
                             const void *data, struct pst_diag *diag)
{
    if (value->id >= eval->n || eval->graph->values.at[value->id] != value)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "\"%s\" is not a value of this graph", value->name);
    eval->data[value->id] = data;
    return PST_OK;
}

const void *pst_eval_get(const struct pst_eval *eval,
                         const struct pst_value *value)
{
    const struct pst_value *base = value->base;
    const char *data;

    if (base == NULL || eval->data[value->id] != NULL)
        return eval->data[value->id];
    data = eval->data[base->id];
    if (data == NULL)
        return NULL;
    return data + (size_t)value->offset * pst_dtype_size(value->meta.dtype);
}

/* --- one node ----------------------------------------------------------- */

/* Sets in[k].data to the value, in the order of pst_call_bind_metas. */
static enum pst_status bind_value(struct frame *f, unsigned k,
                                  const struct pst_value *value)
{
    if (value == NULL)
        return PST_OK;
    f->call.in[k].data = (void *)pst_eval_get(f->eval, value);
    if (f->call.in[k].data == NULL)
        return pst_diag_set(f->diag, PST_E_OP_MISSING_DATA,
                            "\"%s\" has no data", value->name);
    return PST_OK;
}

static enum pst_status bind_inputs(struct frame *f)
{
    const struct pst_schema *schema = f->node->schema;
    enum pst_status status = PST_OK;
    unsigned k = 0;

    pst_call_bind_metas(schema, f->node->args, f->call.in);
    for (unsigned i = 0; i < schema->n_args; i++) {
        const struct pst_arg *arg = &f->node->args[i];
        const unsigned n = pst_call_count_arg(schema, i, arg);

        for (unsigned j = 0; j < n && status == PST_OK; j++, k++) {
            if (arg->kind == PST_ARG_VALUE)
                status = bind_value(f, k, arg->value);
            else if (arg->kind == PST_ARG_VALUES)
                status = bind_value(f, k, arg->values[j]);
        }
    }
    return status;
}

static enum pst_status make_contiguous(struct frame *f)
{
    for (unsigned k = 0; k < f->call.n_in; k++) {
        struct pst_operand *in = &f->call.in[k];
        struct pst_meta *meta = &f->metas[k];

        if (in->data == NULL || pst_meta_is_contiguous(in->meta))
            continue;
        *meta = *in->meta;
        pst_meta_set_contiguous(meta);
        f->temps[k] = pst_alloc(TAG, pst_meta_bytes(meta));
        if (f->temps[k] == NULL)
            return pst_diag_nomem(f->diag, pst_meta_bytes(meta));
        pst_copy_strided(in->meta, in->data, meta, f->temps[k]);
        in->meta = meta;
        in->data = f->temps[k];
    }
    return PST_OK;
}

static enum pst_status make_outputs(struct frame *f)
{
    for (unsigned k = 0; k < f->call.n_out; k++) {
        const struct pst_value *out = f->node->outs[k];
        const size_t bytes = pst_meta_span(&out->meta);

        f->call.out[k].meta = &out->meta;
        if (f->eval->owned[out->id] == NULL) /* else kept from an earlier run */
            f->eval->owned[out->id] = pst_alloc(TAG, PST_MAX(bytes, (size_t)1));
        f->eval->data[out->id] = f->eval->owned[out->id];
        f->call.out[k].data = f->eval->owned[out->id];
        if (f->call.out[k].data == NULL)
            return pst_diag_nomem(f->diag, bytes);
    }
    return PST_OK;
}

/* Selects the best kernel or, if `reference`, the last portable one that
 * supports the call. */
static const struct pst_kernel *choose_kernel(struct frame *f, bool reference)
{
    const struct pst_op *op = f->node->op;
    const struct pst_kernels kernels = pst_op_kernels(&pst_device_cpu, op);
    const struct pst_kernel *found = NULL;

    if (!reference)
        return pst_kernel_choose(op, &f->call, pst_cpu_isa(), NULL);
    for (unsigned i = kernels.n; i-- > 0 && found == NULL;) {
        const struct pst_kernel *want = &kernels.at[i];

        found = pst_kernel_choose(op, &f->call, PST_ISA_ANY, want->name);
        if (found != want && i > 0)
            found = NULL;
    }
    return found;
}

static enum pst_status run_kernel(struct frame *f, bool reference)
{
    const struct pst_kernel *kernel;
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < f->call.n_out; k++)
        f->call.out[k].meta = &f->node->outs[k]->meta;
    kernel = choose_kernel(f, reference);
    if (kernel == NULL)
        return pst_diag_set(f->diag, PST_E_OP_NO_KERNEL,
                            "%s has no kernel for these dtypes",
                            pst_node_origin(f->node));
    if ((kernel->flags & PST_K_STRIDED) == 0)
        status = make_contiguous(f);
    if (status == PST_OK)
        status = make_outputs(f);
    if (status != PST_OK)
        return status;
    if (pst_node_is_empty(f->node))
        return PST_OK;
    if (kernel->scratch != NULL) {
        f->call.scratch_size =
            kernel->scratch(&f->call, pst_pool_threads(f->call.pool));
        f->scratch = pst_alloc(TAG, f->call.scratch_size + ALIGN);
        if (f->scratch == NULL)
            return pst_diag_nomem(f->diag, f->call.scratch_size);
        f->call.scratch =
            (void *)(((uintptr_t)f->scratch + ALIGN - 1) & -(uintptr_t)ALIGN);
    }
    kernel->run(&f->call);
    if (f->fault.set) {
        char text[240];

        pst_fault_describe(&f->fault, f->node, text, sizeof(text));
        return pst_diag_set(f->diag, PST_E_OP_DATA, "%s", text);
    }
    return PST_OK;
}

static enum pst_status run_node(struct pst_eval *eval, struct pst_node *node,
                                bool reference, const struct pst_rng_key *key,
                                struct pst_diag *diag)
{
    struct frame f = {.eval = eval, .node = node, .diag = diag};
    enum pst_status status = PST_ERR_NOMEM;

    f.call.n_in = pst_call_count_in(node->schema, node->args);
    f.call.n_out = node->n_outs;
    f.call.args = node->args;
    f.call.fault = &f.fault;
    f.call.pool = eval->pool;
    if (key != NULL)
        f.call.rng = *key;
    f.call.rng.node = node->id;
    f.call.in = pst_calloc(TAG, f.call.n_in + 1, sizeof(*f.call.in));
    f.call.out = pst_calloc(TAG, f.call.n_out + 1, sizeof(*f.call.out));
    f.temps = pst_calloc(TAG, f.call.n_in + 1, sizeof(*f.temps));
    f.metas = pst_calloc(TAG, f.call.n_in + 1, sizeof(*f.metas));
    if (f.call.in == NULL || f.call.out == NULL || f.temps == NULL ||
        f.metas == NULL)
        pst_diag_nomem(diag, f.call.n_in * sizeof(*f.call.in));
    else
        status = bind_inputs(&f);
    if (status == PST_OK)
        status = run_kernel(&f, reference);
    for (unsigned k = 0; f.temps != NULL && k < f.call.n_in; k++)
        pst_free(f.temps[k]);
    pst_free(f.temps);
    pst_free(f.metas);
    pst_free(f.scratch);
    pst_free(f.call.in);
    pst_free(f.call.out);
    return status;
}

enum pst_status pst_eval_node(struct pst_eval *eval, struct pst_node *node,
                              bool reference, const struct pst_rng_key *key,
                              struct pst_diag *diag)
{
    enum pst_status status;

    if (!pst_op_runs(node->op) ||
        (node->n_outs > 0 && node->outs[0]->base != NULL))
        return PST_OK; /* views, asserts and markers do not run */
    status = run_node(eval, node, reference, key, diag);
    if (status != PST_OK)
        pst_diag_prefix(diag, "node %%%s (%s, %s)",
                        node->n_outs > 0 ? node->outs[0]->name
                                         : node->schema->name,
                        node->call->path, node->source);
    return status;
}

enum pst_status pst_eval_run(struct pst_eval *eval, bool reference,
                             const struct pst_rng_key *key,
                             struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < eval->graph->nodes.n && status == PST_OK; i++)
        status =
            pst_eval_node(eval, eval->graph->nodes.at[i], reference, key, diag);
    return status;
}
