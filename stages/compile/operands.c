// SPDX-License-Identifier: Apache-2.0
/* Binds every operand of every kernel to its location. */
#include "stages/compile/compile.h"
#include "stages/ops/core/call.h"

static enum pst_status bind_operand(struct pst_compiler *c,
                                    const struct pst_exec_node *x,
                                    const struct pst_value *value,
                                    struct pst_loc *ret, struct pst_diag *diag)
{
    *ret = (struct pst_loc){PST_R_NONE, 0};
    if (value == NULL)
        return PST_OK;
    if (!c->lives[pst_value_storage((struct pst_value *)value)->id].placed)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "value %s, used by %s of module '%s', has no place",
                            value->name, pst_node_origin(x->node),
                            x->node->call->name);
    *ret = pst_program_loc(c->p, value);
    return PST_OK;
}

static enum pst_status bind_operands(struct pst_compiler *c,
                                     struct pst_exec_node *x,
                                     struct pst_diag *diag)
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
            status = bind_operand(c, x, value, &x->in[n], diag);
        }
    }
    for (unsigned k = 0; k < x->node->n_outs && status == PST_OK; k++)
        status = bind_operand(
            c, x, pst_is_gradient(x, k) ? x->grad : x->node->outs[k],
            &x->out[k], diag);
    return status;
}

/* The contributions to a gradient that are bound so far. */
struct bound {
    unsigned uses; /* number of contributions */
    size_t offset; /* accumulator of the last contribution */
};

/* Binds every contribution to its accumulator, and sets first_touch for the
 * first contribution to each accumulator. Contributions to one accumulator
 * follow each other. */
static void bind_gradients(struct pst_compiler *c, struct bound *bound)
{
    struct pst_program *p = c->p;
    struct pst_exec_list *list =
        &p->lists[p->options.split_iw ? PST_LIST_W : PST_LIST_B];

    for (unsigned i = 0; i < list->n; i++) {
        struct pst_exec_node *x = &list->at[i];
        struct pst_loc *to = x->role == PST_GRAD_ADD ? &x->in[0] : &x->out[0];
        struct bound *before;

        if (x->role == PST_GRAD_NONE)
            continue;
        before = &bound[x->grad->id];
        x->use = before->uses++;
        to->offset = c->fixed(c->fixed_ctx, x->grad, x->use);
        x->first_touch = x->use == 0 || before->offset != to->offset;
        before->offset = to->offset;
    }
}

enum pst_status pst_pass_operands(struct pst_compiler *c, struct pst_diag *diag)
{
    struct pst_program *p = c->p;
    struct bound *bound =
        pst_calloc(PST_TAG_EXEC, c->n_values + 1, sizeof(*bound));
    enum pst_status status = PST_OK;

    if (bound == NULL)
        return pst_diag_nomem(diag, c->n_values * sizeof(*bound));
    for (int l = 0; l < PST_N_LISTS; l++)
        for (unsigned i = 0; i < p->lists[l].n && status == PST_OK; i++)
            status = bind_operands(c, &p->lists[l].at[i], diag);
    if (status == PST_OK)
        bind_gradients(c, bound);
    pst_free(bound);
    return status;
}

/* --- copies --------------------------------------------------------------- */

static bool same_place(struct pst_loc a, struct pst_loc b)
{
    return a.region == b.region && a.offset == b.offset;
}

enum pst_status pst_pass_inplace(struct pst_compiler *c, struct pst_diag *diag)
{
    struct pst_program *p = c->p;

    (void)diag;
    p->copied = 0;
    for (int l = 0; l < PST_N_LISTS; l++)
        for (unsigned i = 0; i < p->lists[l].n; i++) {
            const struct pst_exec_node *x = &p->lists[l].at[i];

            if ((x->kernel->flags & PST_K_COPIES) &&
                !same_place(x->out[0], x->in[0]))
                p->copied += pst_meta_bytes(&x->node->outs[0]->meta);
        }
    for (size_t i = 0; i < p->graph->outputs.n; i++) {
        const struct pst_output *o = &p->graph->outputs.at[i];

        if (o->kind == PST_OUTPUT_BUFFER_UPDATE &&
            !same_place(pst_program_loc(p, o->arg.value),
                        pst_program_loc(p, o->target)))
            p->copied += pst_meta_bytes(&o->target->meta);
    }
    return PST_OK;
}
