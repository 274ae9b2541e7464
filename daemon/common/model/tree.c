// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/tree.h"

#include "stages/base/alloc.h"
#include "stages/split/convert/join.h"

#include <stdlib.h>

static int by_id(const void *a, const void *b)
{
    const struct pst_node *const *x = a, *const *y = b;

    return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

struct checker {
    bool *made; /* by value id: computed by an earlier node */
    bool ok;    /* each value is computed before it is used */
};

static void check_use(void *ctx, struct pst_value **slot, unsigned arg)
{
    struct checker *c = ctx;

    (void)arg;
    c->ok = c->ok && ((*slot)->def == NULL || c->made[(*slot)->id]);
}

/* Sorts nodes by id, which is their order in the uncut model: in the joined
 * graph the stages follow one another, and may divide a call. Keeps the order
 * of the joined graph if ids are no order of execution, for instance because a
 * module was swapped. */
static enum pst_status sort_nodes(struct pst_graph *graph,
                                  struct pst_diag *diag)
{
    const size_t n = graph->nodes.n;
    struct pst_node **kept = pst_calloc(PST_TAG_CLIENT, n + 1, sizeof(*kept));
    struct checker c = {.ok = true};

    c.made = pst_calloc(PST_TAG_CLIENT, graph->values.n + 1, sizeof(*c.made));
    if (kept == NULL || c.made == NULL) {
        pst_free(kept);
        pst_free(c.made);
        return pst_diag_nomem(diag, n * sizeof(*kept));
    }
    for (size_t i = 0; i < n; i++)
        kept[i] = graph->nodes.at[i];
    if (n > 0)
        qsort(graph->nodes.at, n, sizeof(*kept), by_id);
    for (size_t i = 0; i < n; i++) {
        struct pst_node *node = graph->nodes.at[i];

        pst_node_uses(node, check_use, &c);
        for (unsigned k = 0; k < node->n_outs; k++)
            c.made[node->outs[k]->id] = true;
    }
    for (size_t i = 0; i < n && !c.ok; i++)
        graph->nodes.at[i] = kept[i];
    pst_free(kept);
    pst_free(c.made);
    return PST_OK;
}

static enum pst_status make_tree(struct pst_plan *plan, struct pstd_tree *t,
                                 struct pst_diag *diag)
{
    enum pst_status status = pst_plan_join(plan, &t->joined, diag);
    struct pst_graph *graph;

    for (size_t i = 0; i < plan->params.n && status == PST_OK; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        const struct pst_tie tie = {p->fqn, p->aliases, p->n_aliases};

        if (p->n_aliases > 0 && !pst_vec_push(PST_TAG_CLIENT, &t->ties, tie))
            status = pst_diag_nomem(diag, sizeof(tie));
    }
    if (status != PST_OK)
        return status;
    graph = t->joined->stages.at[0].graph;
    status = sort_nodes(graph, diag);
    if (status == PST_OK)
        status =
            pst_modules_new(graph, t->ties.at, t->ties.n, &t->modules, diag);
    return status == PST_OK ? pst_tree_new(t->modules, &t->tree, diag) : status;
}

enum pst_status pstd_tree_make(struct pst_plan *plan, struct pstd_tree *ret,
                               struct pst_diag *diag)
{
    struct pstd_tree t = {0};
    const enum pst_status status = make_tree(plan, &t, diag);

    if (status == PST_OK)
        *ret = t;
    else
        pstd_tree_fini(&t);
    return status;
}

void pstd_tree_fini(struct pstd_tree *t)
{
    pst_tree_free(t->tree);
    pst_modules_free(t->modules);
    pst_vec_fini(&t->ties);
    pst_plan_free(t->joined);
}
