// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_CALLS_H
#define PENSTOCK_STAGES_GRAPH_CALLS_H
/* The tree of a graph's calls. One thread at a time. */
#include "stages/graph/graph.h"

/* Calls in each other; deeper ones are refused. */
#define PST_MAX_CALL_DEPTH 256

/* NULL: there is none. */
struct pst_module_call *pst_graph_find_call(const struct pst_graph *graph,
                                            const char *path, unsigned index);
/* "n@1": call 1 of "n"; NULL: there is none, or the name has no number. */
struct pst_module_call *pst_graph_named_call(const struct pst_graph *graph,
                                             const char *name);
/* -1: the name has no number; else that and the length of what is before it. */
int64_t pst_call_number(const char *name, size_t *ret_length);
/* The innermost call of a graph that both are or lie in. */
const struct pst_module_call *pst_common_call(const struct pst_module_call *a,
                                              const struct pst_module_call *b);
/* The call of like's path and index. If it is not there it is added, in
 * like->parent (of this graph; NULL: the root), with copies of the texts. The
 * root is path "", index 0; it takes identity and type if it has none. */
enum pst_status pst_graph_add_call(struct pst_graph *graph,
                                   const struct pst_module_call *like,
                                   struct pst_module_call **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The same of a call of any graph, with all that it stands in, without
 * signatures. NULL becomes the root. */
enum pst_status pst_graph_adopt_call(struct pst_graph *graph,
                                     const struct pst_module_call *other,
                                     struct pst_module_call **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Leaves are copied; values must be of this graph. */
enum pst_status pst_graph_sign_call(struct pst_graph *graph,
                                    struct pst_module_call *call,
                                    const struct pst_call_signature *signature,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* The signatures of `from` for the calls that are in `to` too and have none:
 * values become their twins, by their ids; IGNORED where there is none. */
enum pst_status pst_graph_carry_signatures(
    const struct pst_graph *from, struct pst_graph *to,
    struct pst_value *const *twins, struct pst_diag *diag) PST_MUST_CHECK;
/* Leaves whose values are dead become IGNORED. */
void pst_graph_trim_signatures(struct pst_graph *graph);

#endif
