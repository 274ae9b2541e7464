// SPDX-License-Identifier: Apache-2.0
/* Groups the operators of a stage by calls of modules. */
#include "stages/split/show/show.h"

#include "stages/graph/calls.h"
#include "stages/ops/core/op.h"

/* Returns the call directly inside `outer` that contains the call, or the call
 * itself. */
static const struct pst_module_call *child_of(
    const struct pst_module_call *call, const struct pst_module_call *outer)
{
    while (call->depth > outer->depth + 1)
        call = call->parent;
    return call;
}

unsigned pst_show_groups(const struct pst_graph *graph,
                         struct pst_show_group ret[PST_SHOW_GROUPS],
                         unsigned *ret_more)
{
    const struct pst_module_call *outer = NULL, *last = NULL;
    unsigned n = 0;

    *ret_more = 0;
    for (size_t i = 0; i < graph->nodes.n; i++)
        outer = outer == NULL
                    ? graph->nodes.at[i]->call
                    : pst_common_call(outer, graph->nodes.at[i]->call);
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const struct pst_node *node = graph->nodes.at[i];
        const struct pst_module_call *call = child_of(node->call, outer);

        if (call != last && n < PST_SHOW_GROUPS)
            ret[n++] = (struct pst_show_group){.call = call};
        else if (call != last)
            ++*ret_more;
        last = call;
        if (*ret_more > 0)
            continue;
        ret[n - 1].operators++;
        ret[n - 1].flops += pst_node_flops(node);
    }
    return n;
}

void pst_show_group_name(struct pst_str *out,
                         const struct pst_show_group *group)
{
    pst_str_addf(out, "%s",
                 group->call->parent != NULL ? group->call->name : "(model)");
}
