// SPDX-License-Identifier: Apache-2.0
/* Cuts another export of a model into the stages of the model's plan. */
#include "stages/split/convert/evaluate.h"

#include <string.h>

#include "stages/graph/schema.h"
#include "stages/ops/core/op.h"
#include "stages/split/split.h"
#include "stages/split/store/values.h"

#define TAG PST_TAG_PLAN

/* --- names ---------------------------------------------------------------- */

/* Returns the index of the plan's tensor with one of these names; -1: none. */
static int find_like(const struct pst_plan *like,
                     const struct pst_plan_param *param)
{
    int ret = pst_plan_find_param(like, param->fqn);

    for (unsigned k = 0; k < param->n_aliases && ret < 0; k++)
        ret = pst_plan_find_param(like, param->aliases[k]);
    return ret;
}

struct search {
    const struct pst_plan *like;
    const char *missing;
};

static void find_missing_state(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct search *s = ctx;
    const struct pst_value *v = *slot;

    (void)arg;
    if ((v->kind == PST_VALUE_PARAM || v->kind == PST_VALUE_BUFFER) &&
        pst_plan_find_param(s->like, v->fqn) < 0)
        s->missing = v->fqn;
}

/* Checks that the file is an export of the same model. Comes before the check
 * of the loss, since its message explains a wrong file better. */
static enum pst_status check_model(const struct pst_model *model,
                                   const struct pst_plan *like,
                                   struct pst_diag *diag)
{
    struct search s = {.like = like};

    for (size_t i = model->graph->nodes.n; i-- > 0;)
        pst_node_uses(model->graph->nodes.at[i], find_missing_state, &s);
    return s.missing == NULL
               ? PST_OK
               : pst_diag_set(diag, PST_E_EVAL_MODEL,
                              "the evaluation model reads \"%.200s\", which "
                              "the model that is trained does not have",
                              s.missing);
}

/* True if p, of the evaluation model, is to take the f32 average of q, which
 * the plan trains in bf16. */
static bool is_average(const struct pst_plan_param *q,
                       const struct pst_plan_param *p)
{
    struct pst_meta meta = q->meta;

    meta.dtype = PST_F32;
    return q->requires_grad && q->meta.dtype == PST_BF16 &&
           pst_meta_same(&meta, &p->meta);
}

/* Checks that the state has the plan's names, shapes and dtypes. Dtypes that
 * are adapted to the plan may differ. Constants are not compared: each export
 * has its own. */
static enum pst_status check_names(const struct pst_plan *whole,
                                   const struct pst_plan *like,
                                   struct pst_diag *diag)
{
    char there[PST_META_TEXT], here[PST_META_TEXT];

    for (size_t i = 0; i < whole->params.n; i++) {
        const struct pst_plan_param *p = &whole->params.at[i], *q;
        int k;

        if (p->kind == PST_VALUE_CONST || p->n_stages == 0)
            continue;
        k = find_like(like, p);
        q = k >= 0 ? &like->params.at[k] : NULL;
        if (q == NULL || q->kind != p->kind || q->n_stages == 0)
            return pst_diag_set(diag, PST_E_EVAL_MODEL,
                                "the evaluation model reads \"%.200s\", which "
                                "the model that is trained does not read",
                                p->fqn);
        if (!pst_meta_same(&q->meta, &p->meta) &&
            pst_cast_like(like, p) == NULL && !is_average(q, p))
            return pst_diag_set(diag, PST_E_EVAL_MODEL,
                                "\"%.200s\" is %s in the evaluation model, and "
                                "%s in the model that is trained",
                                p->fqn, pst_meta_text(&p->meta, here),
                                pst_meta_text(&q->meta, there));
    }
    return PST_OK;
}

/* Reads parameters and buffers from the plan, constants from the file. */
static enum pst_status read_start(void *ctx, unsigned i, void *dst,
                                  struct pst_diag *diag)
{
    const struct pst_eval_cut *cut = ctx;
    const struct pst_plan_param *p = &cut->whole->params.at[i];
    const int k = p->kind == PST_VALUE_CONST ? -1 : find_like(cut->like, p);

    if (k >= 0 && pst_meta_same(&cut->like->params.at[k].meta, &p->meta))
        return cut->read(cut->read_ctx, (unsigned)k, dst, diag);
    if (k >= 0 && (pst_cast_like(cut->like, p) != NULL ||
                   is_average(&cut->like->params.at[k], p)))
        return pst_param_read_as(cut->like, (unsigned)k, cut->read,
                                 cut->read_ctx, p->meta.dtype, dst, diag);
    return pst_plan_read_param(cut->whole, i, dst, diag);
}

/* --- stages --------------------------------------------------------------- */

struct placer {
    const struct pst_plan *whole, *like;
    struct pst_graph *graph;
    /* first stage that has all operands of the current node that other nodes
     * compute */
    int least;
    /* a tensor of the state among the current node's operands; or NULL */
    const char *state;
    /* tensors that the node reads */
    struct PST_VEC(const struct pst_plan_param *) reads;
    bool failed;
    struct pst_diag *diag;
};

static void record_operand(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct placer *p = ctx;
    const struct pst_value *v = *slot;
    int i;

    (void)arg;
    if (v->def != NULL)
        p->least = PST_MAX(p->least, v->def->stage);
    if (!pst_value_is_state(v))
        return;
    i = pst_plan_find_param(p->whole, v->fqn);
    if (i < 0 || p->whole->params.at[i].kind == PST_VALUE_CONST)
        return;
    i = find_like(p->like, &p->whole->params.at[i]);
    p->state = v->fqn;
    if (i >= 0 && !pst_vec_push(TAG, &p->reads, &p->like->params.at[i]))
        p->failed = true;
}

static bool is_read_in(const struct pst_plan_param *param, unsigned stage)
{
    for (unsigned k = 0; k < param->n_stages; k++)
        if (param->stages[k] == stage)
            return true;
    return false;
}

/* Assigns a node to the first stage that has all its operands. */
static enum pst_status place_node(struct placer *p, struct pst_node *node)
{
    p->least = 0;
    p->state = NULL;
    p->reads.n = 0;
    pst_node_uses(node, record_operand, p);
    if (p->failed)
        return pst_diag_nomem(p->diag, sizeof(void *));
    for (unsigned s = (unsigned)p->least; s < p->like->stages.n; s++) {
        size_t i = 0;

        while (i < p->reads.n && is_read_in(p->reads.at[i], s))
            i++;
        if (i == p->reads.n) {
            node->stage = (int)s;
            return PST_OK;
        }
    }
    return pst_diag_set(p->diag, PST_E_EVAL_MODEL,
                        "the evaluation model reads \"%.200s\" after what "
                        "stage %d computes, and no stage from there on has it "
                        "in the plan",
                        p->state, p->least);
}

/* --- empty stages --------------------------------------------------------- */

/* For each value, the first stage that reads it. */
struct first_readers {
    int *first; /* by value id */
    int stage;
};

static void record_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct first_readers *l = ctx;

    (void)arg;
    l->first[(*slot)->id] = PST_MIN(l->first[(*slot)->id], l->stage);
}

static bool reads_state(const struct pst_node *node)
{
    for (unsigned i = 0; i < node->schema->n_args; i++)
        if (node->args[i].kind == PST_ARG_VALUE &&
            pst_value_is_state(node->args[i].value))
            return true;
    return false;
}

/* Moves into an empty stage the last node that may run there, such as a loss or
 * an activation. Nodes were assigned to the earliest possible stage. */
static void fill_stage(struct pst_graph *graph, int stage, int *first,
                       unsigned n_stages)
{
    struct first_readers l = {.first = first};

    for (size_t i = 0; i < graph->values.n; i++)
        first[i] = (int)n_stages;
    for (size_t i = graph->nodes.n; i-- > 0;) {
        struct pst_node *node = graph->nodes.at[i];
        bool fits = node->stage < stage && !reads_state(node);

        for (unsigned k = 0; k < node->n_outs && fits; k++)
            fits = first[node->outs[k]->id] >= stage;
        if (fits) {
            node->stage = stage;
            return;
        }
        l.stage = node->stage;
        pst_node_uses(node, record_use, &l);
    }
}

static bool is_empty(const struct pst_graph *graph, int stage)
{
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (graph->nodes.at[i]->stage == stage)
            return false;
    return true;
}

static enum pst_status fill_stages(struct placer *p)
{
    const size_t n = p->like->stages.n;
    int *first = pst_calloc(TAG, p->graph->values.n + 1, sizeof(*first));

    if (first == NULL)
        return pst_diag_nomem(p->diag, p->graph->values.n);
    for (size_t s = n; s-- > 0;)
        if (is_empty(p->graph, (int)s))
            fill_stage(p->graph, (int)s, first, (unsigned)n);
    pst_free(first);
    return PST_OK;
}

static enum pst_status place_all(struct pst_eval_cut *cut,
                                 struct pst_diag *diag)
{
    struct placer p = {.whole = cut->whole,
                       .like = cut->like,
                       .graph = cut->model->graph,
                       .diag = diag};
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < p.graph->nodes.n && status == PST_OK; i++)
        status = place_node(&p, p.graph->nodes.at[i]);
    pst_vec_fini(&p.reads);
    return status == PST_OK ? fill_stages(&p) : status;
}

/* --- the plan ------------------------------------------------------------- */

static enum pst_status split_whole(struct pst_eval_cut *cut,
                                   struct pst_model *model,
                                   struct pst_diag *diag)
{
    const struct pst_plan *like = cut->like;
    const char *loss_fn = pst_plan_root(like)->loss_fn;
    /* The policy does not matter: the stages come from the plan. "flops"
     * ignores markers. */
    struct pst_split_options options = {
        .policy = "flops", .stages = 1, .loss_fn = loss_fn};

    if (loss_fn == NULL)
        options.loss =
            like->loss >= 0 ? like->outputs.at[like->loss].path : "none";
    return pst_split(model, &options, &cut->whole, diag);
}

enum pst_status pst_eval_cut_other(struct pst_eval_cut *ret,
                                   struct pst_plan *plan, pst_param_fn fn,
                                   void *ctx, struct pst_model *model,
                                   struct pst_diag *diag)
{
    enum pst_status status;

    ret->like = plan;
    ret->read = fn;
    ret->read_ctx = ctx;
    status = check_model(model, plan, diag);
    if (status == PST_OK)
        status = split_whole(ret, model, diag);
    if (status == PST_OK)
        status = check_names(ret->whole, plan, diag);
    if (status == PST_OK)
        status = pst_plan_eval(ret->whole, NULL, &ret->joined, diag);
    if (status == PST_OK)
        status =
            pst_plan_model(ret->joined, read_start, ret, &ret->model, diag);
    if (status == PST_OK)
        status = pst_model_follow_casts(ret->model, ret->joined, plan,
                                        ret->casts, diag);
    if (status == PST_OK)
        status = place_all(ret, diag);
    if (status == PST_OK)
        status = pst_split_again(ret->model, plan, ret->joined->loss,
                                 &ret->plan, diag);
    if (status == PST_OK)
        pst_plan_chunk_as(plan, ret->plan);
    return status;
}
