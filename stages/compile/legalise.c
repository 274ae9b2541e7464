// SPDX-License-Identifier: Apache-2.0
/* Inserts copies: of buffers that change before they are read, of values that
 * leave the stage, of operands that a kernel cannot read with strides. */
#include "stages/compile/compile.h"
#include "stages/graph/build.h"
#include "stages/ops/core/call.h"
#include "stages/ops/core/rows.h"

struct legaliser {
    struct pst_program *program;
    struct pst_build build;
    bool *updated; /* buffers, by value id */
    /* The newest copy of each value, by the value's id; values that the pass
     * adds have none. */
    struct copy {
        struct pst_value *value;
        unsigned turn; /* the legaliser's `turn` when the copy was made */
    } * copies;
    size_t n_copies;
    enum pst_phase phase; /* phase of the current node */
    unsigned turn;        /* number of phase changes so far */
};

static enum pst_status legaliser_init(struct legaliser *l,
                                      struct pst_compiler *c,
                                      struct pst_diag *diag)
{
    *l = (struct legaliser){.program = c->p, .phase = PST_PHASE_F};
    pst_build_init(&l->build, c->p->graph, diag);
    l->build.prefix = "contiguous";
    l->n_copies = c->p->graph->values.n;
    l->copies = pst_calloc(PST_TAG_EXEC, l->n_copies + 1, sizeof(*l->copies));
    if (l->copies == NULL)
        return pst_diag_nomem(diag, l->n_copies * sizeof(*l->copies));
    return PST_OK;
}

static void legaliser_fini(struct legaliser *l)
{
    pst_free(l->copies);
}

static struct pst_value *emit_clone(struct legaliser *l,
                                    struct pst_value *value)
{
    return pst_emit(&l->build, &pst_op_clone, PST_ARGS(pst_v(value)));
}

enum pst_status pst_find_updated(const struct pst_program *program, bool **ret,
                                 struct pst_diag *diag)
{
    const struct pst_graph *graph = program->graph;
    bool *updated = pst_arena_calloc((struct pst_arena *)&program->arena,
                                     graph->values.n + 1, 1);

    if (updated == NULL)
        return pst_diag_nomem(diag, graph->values.n);
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE)
            updated[graph->outputs.at[i].target->id] = true;
    *ret = updated;
    return PST_OK;
}

/* --- buffers -------------------------------------------------------------- */

static bool is_updated(const struct legaliser *l, struct pst_value *value)
{
    const struct pst_value *storage = pst_value_storage(value);

    return storage->id < l->n_copies && l->updated[storage->id];
}

/* Lets a backward node read a copy of an updated buffer, made before the
 * update: this forward and later ones change the buffer before the backward. */
static void keep_buffer(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct legaliser *l = ctx;
    struct pst_value *value = *slot, *copy;

    (void)arg;
    if (value->id >= l->n_copies || !is_updated(l, value))
        return;
    copy = l->copies[value->id].value;
    if (copy == NULL)
        copy = emit_clone(l, value);
    if (copy == NULL)
        return;
    l->copies[value->id].value = copy;
    *slot = copy;
}

static enum pst_status keep_buffers(void *ctx, struct pst_node *node,
                                    struct pst_call *call,
                                    const struct pst_kernel *kernel)
{
    struct legaliser *l = ctx;

    (void)call;
    (void)kernel;
    if (node->phase == PST_PHASE_F)
        return PST_OK;
    l->build.phase = PST_PHASE_F;
    pst_node_uses(node, keep_buffer, l);
    return PST_OK;
}

static bool updates_buffers(const struct pst_graph *graph)
{
    for (size_t i = 0; i < graph->outputs.n; i++)
        if (graph->outputs.at[i].kind == PST_OUTPUT_BUFFER_UPDATE)
            return true;
    return false;
}

enum pst_status pst_pass_buffers(struct pst_compiler *c, struct pst_diag *diag)
{
    struct legaliser l;
    enum pst_status status;

    if (!updates_buffers(c->p->graph))
        return PST_OK;
    status = legaliser_init(&l, c, diag);

    if (status == PST_OK)
        status = pst_find_updated(c->p, &l.updated, diag);
    if (status == PST_OK)
        status = pst_rewrite_nodes(c->p, &l.build, keep_buffers, &l);
    legaliser_fini(&l);
    return status;
}

/* --- outputs -------------------------------------------------------------- */

/* True if the value is the seed of the loss, or a view of it. */
static bool is_loss_seed(const struct pst_joint *joint, struct pst_value *value)
{
    const struct pst_value *storage = pst_value_storage(value);

    for (size_t i = 0; i < joint->seeds.n; i++)
        if (joint->seeds.at[i].edge < 0 && joint->seeds.at[i].seed == storage)
            return true;
    return false;
}

/* Makes the gradients that leave the stage contiguous. One that is the seed of
 * the loss is copied: it has the weight of its microbatch, and the backward of
 * the next one may set the seed before the gradient is sent. */
static enum pst_status legalise_grads(struct legaliser *l)
{
    struct pst_joint *joint = l->program->joint;

    for (size_t i = 0; joint != NULL && i < joint->input_grads.n; i++) {
        struct pst_value *value = joint->input_grads.at[i].value;

        if (pst_meta_is_contiguous(&value->meta) && !is_loss_seed(joint, value))
            continue;
        if (value->def != NULL)
            pst_build_at(&l->build, value->def);
        l->build.phase = PST_PHASE_I;
        value = emit_clone(l, value);
        if (value == NULL)
            return l->build.status;
        joint->input_grads.at[i].value = value;
    }
    return PST_OK;
}

/* Copies outputs that are views of an updated buffer: outputs are read after
 * the update and must have the content from before it. */
static enum pst_status legalise_outputs(struct legaliser *l)
{
    struct pst_graph *graph = l->program->graph;

    for (size_t i = 0; i < graph->outputs.n; i++) {
        struct pst_arg *arg = &graph->outputs.at[i].arg;
        struct pst_value *copy;

        if (arg->kind != PST_ARG_VALUE || !is_updated(l, arg->value))
            continue;
        pst_build_at(&l->build, &(struct pst_node){.source = "",
                                                   .id = graph->next_node_id});
        copy = emit_clone(l, arg->value);
        if (copy == NULL)
            return l->build.status;
        arg->value = copy;
    }
    return PST_OK;
}

enum pst_status pst_pass_outputs(struct pst_compiler *c, struct pst_diag *diag)
{
    struct legaliser l;
    enum pst_status status = legaliser_init(&l, c, diag);

    if (status == PST_OK)
        status = pst_find_updated(c->p, &l.updated, diag);
    if (status == PST_OK)
        status = legalise_grads(&l);
    if (status == PST_OK)
        status = legalise_outputs(&l);
    legaliser_fini(&l);
    return status;
}

/* --- operands ------------------------------------------------------------- */

/* Returns an existing copy of the value, or NULL. A copy that another phase
 * made is not reused, since it would have to be stored until now; copies of
 * constants are stored anyway. */
static struct pst_value *find_copy(const struct legaliser *l,
                                   const struct pst_value *value)
{
    const struct copy *copy = &l->copies[value->id];

    return copy->turn == l->turn || pst_is_constant(l->program, value)
               ? copy->value
               : NULL;
}

static void make_contiguous(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct legaliser *l = ctx;
    struct pst_value *value = *slot, *copy;
    const bool known = value->id < l->n_copies;

    (void)arg;
    if (pst_meta_is_contiguous(&value->meta))
        return;
    copy = known ? find_copy(l, value) : NULL;
    if (copy == NULL)
        copy = emit_clone(l, value);
    if (copy == NULL)
        return;
    if (known)
        l->copies[value->id] = (struct copy){copy, l->turn};
    *slot = copy;
}

static enum pst_status copy_operands(void *ctx, struct pst_node *node,
                                     struct pst_call *call,
                                     const struct pst_kernel *kernel)
{
    struct legaliser *l = ctx;

    (void)call;
    if (kernel->flags & PST_K_STRIDED)
        return PST_OK;
    l->turn += node->phase != l->phase;
    l->phase = node->phase;
    pst_node_uses(node, make_contiguous, l);
    return PST_OK;
}

enum pst_status pst_pass_copies(struct pst_compiler *c, struct pst_diag *diag)
{
    struct legaliser l;
    enum pst_status status = legaliser_init(&l, c, diag);

    if (status == PST_OK)
        status = pst_rewrite_nodes(c->p, &l.build, copy_operands, &l);
    legaliser_fini(&l);
    return status;
}
