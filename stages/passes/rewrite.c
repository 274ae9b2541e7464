// SPDX-License-Identifier: Apache-2.0
#include "stages/passes/rewrite.h"

#include "stages/ops/core/rows.h"

enum pst_status pst_graph_rewrite(struct pst_graph *graph,
                                  pst_rewrite_node_fn each, void *ctx)
{
    const size_t n = graph->nodes.n;
    struct pst_node **old = graph->nodes.at;
    enum pst_status status = PST_OK;

    graph->nodes.at = NULL;
    graph->nodes.n = graph->nodes.cap = 0;
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = each(ctx, old[i]);
    pst_free(old);
    return status;
}

struct pst_value *pst_rewrite_dtype(struct pst_build *build,
                                    const struct pst_node *node,
                                    struct pst_value *v, enum pst_dtype dtype)
{
    struct pst_value *ret;

    pst_build_at(build, node);
    build->node_id = UINT32_MAX;
    ret = pst_emit(build, &pst_op__to_copy,
                   PST_ARGS(pst_v(v), pst_dtype_arg(dtype)));
    if (ret == NULL)
        return NULL;
    ret->dims = v->dims;
    ret->def->stage = node->stage;
    ret->def->no_grad = node->no_grad;
    return ret;
}
