// SPDX-License-Identifier: Apache-2.0
/*
 * Checks a compiled program: every operand must be the view that the graph has,
 * inside its region. The lists are then interpreted symbolically: the bytes
 * that an operand reads must hold the value that was written there last.
 */
#include <string.h>

#include "stages/compile/compile.h"
#include "stages/ops/core/call.h"
#include "stages/ops/pointwise/chain.h"

/* Bytes that hold the content of a storage. */
struct content_block {
    struct pst_loc at;
    size_t size;
    const struct pst_value *storage;
};

struct check {
    const struct pst_program *p;
    const struct pst_exec_node *x;
    struct PST_VEC(struct content_block) holdings;
    bool *held; /* by id of the storage: true if it is in holdings */
    struct pst_diag *diag;
};

static enum pst_status report_violation(const struct check *c,
                                        const struct pst_value *value,
                                        const char *what)
{
    return pst_diag_set(
        c->diag, PST_E_INTERNAL_BUG,
        "program, stage %u, node %%%s (%s, module \"%s\"): "
        "%%%s %s",
        c->p->stage, c->x->node->n_outs > 0 ? c->x->node->outs[0]->name : "",
        pst_node_origin(c->x->node), c->x->node->call->name, value->name, what);
}

static bool holdings_overlap(const struct content_block *a,
                             const struct content_block *b)
{
    return a->at.region == b->at.region && a->size > 0 && b->size > 0 &&
           a->at.offset < b->at.offset + b->size &&
           b->at.offset < a->at.offset + a->size;
}

static struct content_block holding_of(const struct check *c,
                                       const struct pst_value *value)
{
    const struct pst_value *storage =
        pst_value_storage((struct pst_value *)value);

    return (struct content_block){c->p->places[storage->id],
                                  pst_meta_span(&storage->meta), storage};
}

static enum pst_status add_holding(struct check *c,
                                   const struct content_block *h)
{
    if (!pst_vec_push(PST_TAG_EXEC, &c->holdings, *h))
        return pst_diag_nomem(c->diag, sizeof(*h));
    c->held[h->storage->id] = true;
    return PST_OK;
}

/* True if both blocks hold the same result of list P: equal results, also of
 * two programs of a rank, may share a location. */
static bool is_same_prepared(const struct content_block *a,
                             const struct content_block *b)
{
    return a->storage != NULL && b->storage != NULL &&
           a->storage->def != NULL && b->storage->def != NULL &&
           a->at.region == PST_R_FIXED && b->at.region == PST_R_FIXED &&
           a->at.offset == b->at.offset &&
           pst_prepared_same(a->storage, b->storage);
}

/* Removes the holdings whose bytes h overwrites, and an older holding of the
 * same storage. */
static void drop_overwritten(struct check *c, const struct content_block *h)
{
    size_t n = 0;

    for (size_t i = 0; i < c->holdings.n; i++) {
        const struct content_block *old = &c->holdings.at[i];

        if (old->storage == h->storage ||
            (holdings_overlap(old, h) && !is_same_prepared(old, h)))
            c->held[old->storage->id] = false;
        else
            c->holdings.at[n++] = *old;
    }
    c->holdings.n = n;
}

/* True if the value has no location to check: an absent or empty one, or a
 * GRAD, of which only the accumulators have locations. */
static bool has_no_location(const struct pst_value *value)
{
    return value == NULL || value->kind == PST_VALUE_GRAD ||
           pst_meta_numel(&value->meta) == 0;
}

/* Checks that the operand is the graph's view and lies inside its region. */
static enum pst_status check_window(const struct check *c,
                                    const struct pst_value *value,
                                    const struct pst_operand *operand,
                                    const struct pst_loc *loc)
{
    const struct content_block h = holding_of(c, value);
    const size_t offset =
        value->base != NULL
            ? (size_t)value->offset * pst_dtype_size(value->meta.dtype)
            : 0;

    if (operand->meta != &value->meta)
        return report_violation(c, value, "is read with another shape");
    if (h.at.region == PST_R_NONE || h.at.region >= c->p->n_regions)
        return report_violation(c, value, "has no place");
    if (loc->region != h.at.region || loc->offset != h.at.offset + offset)
        return report_violation(c, value, "is not where its storage is");
    if (offset + pst_meta_span(&value->meta) > h.size)
        return report_violation(c, value, "reaches beyond its storage");
    if (h.at.region != PST_R_FIXED &&
        h.at.offset + h.size > c->p->regions[h.at.region].size)
        return report_violation(c, value, "reaches beyond its region");
    return PST_OK;
}

static const struct pst_value *flat_value(const struct pst_arg *arg, unsigned k)
{
    if (arg->kind == PST_ARG_VALUES)
        return arg->values[k];
    return arg->kind == PST_ARG_VALUE ? arg->value : NULL;
}

typedef enum pst_status (*input_fn)(struct check *c,
                                    const struct pst_value *value, unsigned n,
                                    const void *ctx);

static enum pst_status visit_inputs(struct check *c, input_fn fn,
                                    const void *ctx)
{
    const struct pst_node *node = c->x->node;
    enum pst_status status = PST_OK;
    unsigned n = 0;

    for (unsigned i = 0; i < node->schema->n_args; i++) {
        const unsigned count =
            pst_call_count_arg(node->schema, i, &node->args[i]);

        for (unsigned k = 0; k < count && status == PST_OK; k++, n++) {
            const struct pst_value *value = flat_value(&node->args[i], k);

            if (!has_no_location(value))
                status = fn(c, value, n, ctx);
        }
    }
    return status;
}

static enum pst_status check_input(struct check *c,
                                   const struct pst_value *value, unsigned n,
                                   const void *ctx)
{
    enum pst_status status =
        check_window(c, value, &c->x->call.in[n], &c->x->in[n]);

    (void)ctx;
    if (status == PST_OK &&
        !c->held[pst_value_storage((struct pst_value *)value)->id])
        status = report_violation(c, value, "has been written over");
    return status;
}

/* Bytes that a kernel writes. */
struct written {
    struct content_block bytes; /* storage NULL: scratch */
    unsigned k;                 /* number of the result */
};

/* Checks that the bytes in ctx (struct written) do not overlap operand n. They
 * may be exactly the operand's bytes if the kernel can overwrite it. */
static enum pst_status check_no_overlap(struct check *c,
                                        const struct pst_value *value,
                                        unsigned n, const void *ctx)
{
    const struct written *to = ctx;
    const struct content_block *written = &to->bytes,
                               read = holding_of(c, value);

    if (!holdings_overlap(written, &read) ||
        (written->storage != NULL &&
         pst_call_may_overwrite(&c->x->call, c->x->kernel, to->k, n) &&
         read.at.offset == written->at.offset && read.size == written->size))
        return PST_OK;
    return report_violation(c, value, "is written over while it is read");
}

static enum pst_status check_output(struct check *c, unsigned k)
{
    const struct pst_value *out = c->x->node->outs[k];
    const struct written to = {holding_of(c, out), k};
    enum pst_status status;

    if (has_no_location(out) || out->base != NULL || pst_is_gradient(c->x, k))
        return PST_OK;
    status = check_window(c, out, &c->x->call.out[k], &c->x->out[k]);
    if (status == PST_OK)
        status = visit_inputs(c, check_no_overlap, &to);
    if (status != PST_OK)
        return status;
    drop_overwritten(c, &to.bytes);
    return add_holding(c, &to.bytes);
}

static enum pst_status check_node(struct check *c)
{
    const struct content_block scratch = {c->x->scratch,
                                          c->x->call.scratch_size, NULL};
    enum pst_status status = visit_inputs(c, check_input, NULL);

    if (status == PST_OK && scratch.size > 0)
        status =
            visit_inputs(c, check_no_overlap, &(struct written){scratch, 0});
    if (scratch.size > 0)
        drop_overwritten(c, &scratch);
    for (unsigned k = 0; k < c->x->node->n_outs && status == PST_OK; k++)
        status = check_output(c, k);
    for (unsigned k = 0; k < c->x->node->n_outs && status == PST_OK; k++) {
        const struct pst_value *out = c->x->node->outs[k];
        const struct content_block h = holding_of(c, out);

        if (has_no_location(out) || out->base != NULL ||
            pst_is_gradient(c->x, k))
            continue;
        if (!c->held[out->id] || holdings_overlap(&scratch, &h))
            status = report_violation(c, out,
                                      "shares its bytes with another result");
    }
    return status;
}

/* Removes the holdings in the workspace: its values do not outlive an action.
 */
static void drop_work_holdings(struct check *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->holdings.n; i++)
        if (c->holdings.at[i].at.region == PST_R_WORK)
            c->held[c->holdings.at[i].storage->id] = false;
        else
            c->holdings.at[n++] = c->holdings.at[i];
    c->holdings.n = n;
}

/* Checks that the outputs that a list has computed are not overwritten before
 * its end. */
static enum pst_status check_results(const struct check *c, const bool *made)
{
    const struct pst_graph *graph = c->p->graph;

    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_arg *arg = &graph->outputs.at[i].arg;
        const struct pst_value *storage;

        if (arg->kind != PST_ARG_VALUE || has_no_location(arg->value))
            continue;
        storage = pst_value_storage(arg->value);
        if (made[storage->id] && !c->held[storage->id])
            return pst_diag_set(c->diag, PST_E_INTERNAL_BUG,
                                "program, stage %u: output %zu, %%%s, has been "
                                "written over",
                                c->p->stage, i, storage->name);
    }
    return PST_OK;
}

static enum pst_status check_list(struct check *c, enum pst_list l, bool *made)
{
    const struct pst_exec_list *list = &c->p->lists[l];
    enum pst_status status = PST_OK;

    memset(made, 0, c->p->graph->values.n);
    for (unsigned i = 0; i < list->n && status == PST_OK; i++) {
        c->x = &list->at[i];
        status = check_node(c);
        for (unsigned k = 0; k < c->x->node->n_outs; k++)
            made[c->x->node->outs[k]->id] = !pst_is_gradient(c->x, k);
    }
    if (status == PST_OK && l != PST_LIST_P)
        status = check_results(c, made);
    drop_work_holdings(c);
    return status;
}

enum pst_status pst_program_check(const struct pst_program *program,
                                  struct pst_diag *diag)
{
    const struct pst_graph *graph = program->graph;
    struct check c = {.p = program, .diag = diag};
    enum pst_status status = PST_OK;
    bool *made = pst_calloc(PST_TAG_EXEC, graph->values.n + 1, 1);

    c.held = pst_calloc(PST_TAG_EXEC, graph->values.n + 1, 1);
    if (c.held == NULL || made == NULL)
        status = pst_diag_nomem(diag, graph->values.n);
    for (size_t i = 0; i < graph->values.n && status == PST_OK; i++) {
        const struct pst_value *value = graph->values.at[i];
        const struct content_block h = holding_of(&c, value);

        if (value->kind != PST_VALUE_NODE && !has_no_location(value))
            /* without drop_overwritten(): values of FIXED may share bytes */
            status = add_holding(&c, &h);
    }
    for (int l = 0; l < PST_N_LISTS && status == PST_OK; l++)
        status = check_list(&c, (enum pst_list)l, made);
    pst_vec_fini(&c.holdings);
    pst_free(c.held);
    pst_free(made);
    return status;
}
