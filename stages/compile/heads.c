// SPDX-License-Identifier: Apache-2.0
/*
 * Heads of language models (stages/passes/heads.h) as one operator: the stage
 * computes logits once, in its backward, and with them the loss and all
 * gradients of the head, so no more than a chunk of the logits ever exists.
 */
#include "stages/passes/heads.h"

#include "stages/compile/compile.h"
#include "stages/graph/build.h"
#include "stages/ops/core/rows.h"

/* --- the forward graph ---------------------------------------------------- */

/* True if the program may compute heads as one operator: the device has a
 * kernel for it (a fallback on the host does not count), and the logits need
 * not be kept. */
static bool may_fold(const struct pst_program *p)
{
    struct pst_device own = *p->options.device;

    own.fallback = NULL;
    return !p->options.whole_logits &&
           (p->options.train || !p->options.keep_outputs) &&
           pst_op_kernels(&own, &pst_op_linear_cross_entropy_backward).n > 0;
}

/* Marks the values that other stages read. */
static void mark_sent(const struct pst_program *p,
                      const struct pst_graph *graph, bool *sent)
{
    for (size_t i = 0; i < p->plan->edges.n; i++) {
        const struct pst_edge *edge = &p->plan->edges.at[i];

        if (edge->from_stage == p->stage)
            sent[graph->outputs.at[edge->from_output].arg.value->id] = true;
    }
}

/* Removes outputs that are logits; for programs that do not keep outputs. */
static void drop_logits(struct pst_graph *graph, const bool *logits)
{
    for (size_t i = 0; i < graph->outputs.n; i++) {
        struct pst_arg *arg = &graph->outputs.at[i].arg;

        if (arg->kind == PST_ARG_VALUE && logits[arg->value->id])
            *arg = pst_none();
    }
}

static enum pst_status fold_heads(const struct pst_program *p,
                                  const struct pst_heads *heads,
                                  struct pst_graph *graph,
                                  struct pst_diag *diag)
{
    bool *logits = pst_calloc(PST_TAG_EXEC, graph->values.n + 1, 1);
    enum pst_status status;

    if (logits == NULL)
        return pst_diag_nomem(diag, graph->values.n);
    for (size_t i = 0; i < heads->list.n; i++)
        pst_heads_mark(graph, &heads->list.at[i], logits);
    status = pst_heads_fold(graph, heads, diag);
    if (status == PST_OK && !p->options.keep_outputs)
        drop_logits(graph, logits);
    if (status == PST_OK)
        pst_graph_dce(graph, false);
    pst_free(logits);
    return status;
}

enum pst_status pst_fold_heads(const struct pst_program *p,
                               struct pst_graph **ret, struct pst_diag *diag)
{
    const struct pst_graph *from = p->plan->stages.at[p->stage].graph;
    struct pst_heads heads = {0};
    struct pst_graph *graph = NULL;
    enum pst_status status = PST_OK;
    bool *sent;

    *ret = NULL;
    if (!may_fold(p))
        return PST_OK;
    sent = pst_calloc(PST_TAG_EXEC, from->values.n + 1, 1);
    if (sent == NULL)
        return pst_diag_nomem(diag, from->values.n);
    mark_sent(p, from, sent);
    status = pst_heads_find(from, sent, &heads, diag);
    if (status == PST_OK && heads.list.n > 0)
        status = pst_graph_copy(from, &graph, diag);
    if (status == PST_OK && graph != NULL)
        status = fold_heads(p, &heads, graph, diag);
    if (status != PST_OK)
        pst_graph_free(graph);
    else
        *ret = graph;
    pst_heads_fini(&heads);
    pst_free(sent);
    return status;
}

/* --- the joint graph ------------------------------------------------------ */

/* The nodes of a head in the joint graph: its loss, and the nodes that compute
 * the gradients of its input and of its parameters. NULL: there is no such
 * node. */
struct parts {
    struct pst_node *loss, *input, *weight;
    /* the node that computes gradients and loss in the backward */
    struct pst_node *merged;
    const struct pst_node *at; /* `merged` takes the place of this node */
};

struct merger {
    struct pst_program *p;
    struct pst_graph *graph;
    struct pst_build build;
    bool *from_loss; /* by value id: computed from a loss */
    size_t n_from_loss;
};

static bool same_head(const struct pst_node *loss, const struct pst_node *part)
{
    /* Both have the arguments input, weight, bias, target, mask; in `part` two
     * gradients come before them. */
    for (unsigned i = 0; i < 5; i++)
        if (loss->args[i].kind != part->args[2 + i].kind ||
            (loss->args[i].kind == PST_ARG_VALUE &&
             loss->args[i].value != part->args[2 + i].value))
            return false;
    return loss->id == part->id;
}

static struct parts find_parts(const struct pst_graph *graph,
                               struct pst_node *loss)
{
    struct parts ret = {.loss = loss};

    for (size_t i = 0; i < graph->nodes.n; i++) {
        struct pst_node *node = graph->nodes.at[i];

        if (node->op == &pst_op_linear_cross_entropy_input &&
            same_head(loss, node))
            ret.input = node;
        if (node->op == &pst_op_linear_cross_entropy_weight &&
            same_head(loss, node))
            ret.weight = node;
    }
    return ret;
}

/* Makes `value`, which another node computed, result k of `node`. */
static void set_result(struct pst_node *node, unsigned k,
                       struct pst_value *value)
{
    node->outs[k]->def = NULL;
    node->outs[k] = value;
    value->def = node;
    value->def_index = k;
}

/* Sets h->merged: if one list runs all gradients of the head, a new node that
 * replaces `input` and `weight` and is not yet in the graph; else `input`. */
static enum pst_status merge_parts(struct merger *m, struct parts *h)
{
    const bool both = h->weight != NULL &&
                      (h->input == NULL || pst_list_of(m->p, h->input) ==
                                               pst_list_of(m->p, h->weight));

    h->at = h->input != NULL ? h->input : h->weight;
    h->merged = h->input;
    if (!both)
        return PST_OK;
    pst_build_at(&m->build, h->at);
    m->build.prefix = h->at->outs[0]->name;
    h->merged = pst_emit_node(&m->build, &pst_op_linear_cross_entropy_backward,
                              h->weight->args, h->weight->schema->n_args);
    if (h->merged == NULL)
        return m->build.status;
    m->graph->nodes.n--;
    h->merged->phase = h->at->phase;
    set_result(h->merged, 0, h->weight->outs[0]);
    set_result(h->merged, 1, h->weight->outs[1]);
    if (h->input != NULL) {
        set_result(h->merged, 2, h->input->outs[0]);
        h->input->outs[1]->def = NULL;
        h->input->outs[2]->def = NULL;
    }
    return PST_OK;
}

struct look {
    const struct merger *m;
    bool from_loss;
};

static void record_from_loss(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct look *look = ctx;

    (void)arg;
    look->from_loss = look->from_loss || ((*slot)->id < look->m->n_from_loss &&
                                          look->m->from_loss[(*slot)->id]);
}

static bool reads_from_loss(const struct merger *m, const struct pst_node *node)
{
    struct look look = {.m = m};

    pst_node_uses((struct pst_node *)node, record_from_loss, &look);
    return look.from_loss;
}

static bool depends_on_loss(const struct merger *m, const struct pst_node *node)
{
    return node->n_outs > 0 && m->from_loss[node->outs[0]->id];
}

/* Marks the values computed from the loss, which the backward shall compute
 * instead of the forward. Returns false if that is impossible: another stage, a
 * buffer or a backward node before `at` reads one of them, or a node that
 * computes one is random or has effects. */
static bool mark_from_loss(struct merger *m, const struct parts *h)
{
    const struct pst_graph *graph = m->graph;
    bool before = true;

    for (size_t i = 0; i < m->n_from_loss; i++)
        m->from_loss[i] = false;
    m->from_loss[h->loss->outs[0]->id] = true;
    m->from_loss[h->loss->outs[1]->id] = true;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];

        before = before && node != h->at;
        if (!reads_from_loss(m, node) || (!before && node != h->at))
            continue;
        if (node->phase != PST_PHASE_F || node->n_outs == 0 ||
            (node->op->flags & (PST_OP_RANDOM | PST_OP_EFFECT)) != 0)
            return false;
        for (unsigned k = 0; k < node->n_outs; k++)
            m->from_loss[node->outs[k]->id] = true;
    }
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const struct pst_output *o = &graph->outputs.at[i];

        if (o->kind != PST_OUTPUT_USER && o->arg.kind == PST_ARG_VALUE &&
            m->from_loss[o->arg.value->id])
            return false;
    }
    for (size_t i = 0; i < m->p->plan->edges.n; i++) {
        const struct pst_edge *edge = &m->p->plan->edges.at[i];

        if (edge->from_stage == m->p->stage &&
            m->from_loss[graph->outputs.at[edge->from_output].arg.value->id])
            return false;
    }
    return true;
}

static enum pst_status push_node(struct merger *m, struct pst_node *node)
{
    return pst_vec_push(PST_TAG_GRAPH, &m->graph->nodes, node)
               ? PST_OK
               : pst_diag_nomem(m->build.diag, sizeof(struct pst_node *));
}

/* Appends h->merged and, if `late`, the nodes that compute from its loss. old:
 * the n nodes that the graph had before. */
static enum pst_status push_merged(struct merger *m, const struct parts *h,
                                   struct pst_node *const *old, size_t n,
                                   bool late)
{
    enum pst_status status = push_node(m, h->merged);

    for (size_t i = 0; i < n && late && status == PST_OK; i++) {
        if (old[i] == h->loss || !depends_on_loss(m, old[i]))
            continue;
        old[i]->phase = h->merged->phase;
        status = push_node(m, old[i]);
    }
    return status;
}

static enum pst_status rebuild_graph(struct merger *m, const struct parts *h,
                                     bool late)
{
    struct pst_graph *graph = m->graph;
    struct pst_node **old = graph->nodes.at;
    const size_t n = graph->nodes.n;
    enum pst_status status = PST_OK;

    graph->nodes.at = NULL;
    graph->nodes.n = graph->nodes.cap = 0;
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        struct pst_node *node = old[i];

        if (node == h->at)
            status = push_merged(m, h, old, n, late);
        else if (late && (node == h->loss || depends_on_loss(m, node)))
            continue;
        else if (node != h->weight || h->merged == h->input)
            status = push_node(m, node);
    }
    pst_free(old);
    return status;
}

static enum pst_status merge_head(struct merger *m, struct pst_node *loss)
{
    struct parts h = find_parts(m->graph, loss);
    enum pst_status status;
    bool late;

    if (h.input == NULL && h.weight == NULL)
        return PST_OK;
    m->n_from_loss = m->graph->values.n;
    m->from_loss = pst_calloc(PST_TAG_EXEC, m->n_from_loss + 1, 1);
    if (m->from_loss == NULL)
        return pst_diag_nomem(m->build.diag, m->n_from_loss);
    status = merge_parts(m, &h);
    if (status == PST_OK && h.merged != NULL) {
        late = mark_from_loss(m, &h);
        if (late)
            for (unsigned k = 0; k < 2; k++)
                set_result(h.merged, h.merged->n_outs - 2 + k, loss->outs[k]);
        status = rebuild_graph(m, &h, late);
    }
    pst_free(m->from_loss);
    return status;
}

/* Merges the heads in the order of their losses, so that a value computed from
 * several losses comes after the last of them. */
enum pst_status pst_pass_heads(struct pst_compiler *c, struct pst_diag *diag)
{
    struct merger m = {.p = c->p, .graph = c->p->graph};
    struct PST_VEC(struct pst_node *) losses = {0};
    enum pst_status status = PST_OK;

    pst_build_init(&m.build, c->p->graph, diag);
    for (size_t i = 0; i < m.graph->nodes.n; i++)
        if (m.graph->nodes.at[i]->op == &pst_op_linear_cross_entropy &&
            !pst_vec_push(PST_TAG_EXEC, &losses, m.graph->nodes.at[i]))
            status = pst_diag_nomem(diag, sizeof(struct pst_node *));
    for (size_t i = 0; i < losses.n && status == PST_OK; i++)
        status = merge_head(&m, losses.at[i]);
    pst_vec_fini(&losses);
    return status;
}
