// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_CALLS_H
#define PENSTOCK_STAGES_GRAPH_CALLS_H
/* The tree of a graph's module calls. One thread at a time. */
#include "stages/graph/graph.h"

/* Largest nesting depth of calls; deeper ones are rejected. */
#define PST_MAX_CALL_DEPTH 256

/* Returns NULL if there is no such call. */
struct pst_module_call *pst_graph_find_call(const struct pst_graph *graph,
                                            const char *path, unsigned index);
/* Finds a call by name: "n@1" is call 1 of "n". NULL if it does not exist or
 * the name has no number. */
struct pst_module_call *pst_graph_named_call(const struct pst_graph *graph,
                                             const char *name);
/* Returns the number in a call's name, and in *ret_length the length of the
 * text before "@"; -1 if there is no number. */
int64_t pst_call_number(const char *name, size_t *ret_length);
/* Returns the innermost call that contains both, or is one of them. */
const struct pst_module_call *pst_common_call(const struct pst_module_call *a,
                                              const struct pst_module_call *b);
/* Returns the call with like's path and index. If there is none, adds it below
 * like->parent (of this graph; NULL: the root), with copies of the strings. The
 * root has path "" and index 0; it takes identity and type of `like` if it has
 * none. */
enum pst_status pst_graph_add_call(struct pst_graph *graph,
                                   const struct pst_module_call *like,
                                   struct pst_module_call **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Adds a call of any graph, and all its ancestors, as pst_graph_add_call does,
 * without signatures. NULL gives the root. */
enum pst_status pst_graph_adopt_call(struct pst_graph *graph,
                                     const struct pst_module_call *other,
                                     struct pst_module_call **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* Sets a call's signature. Leaves are copied; values must be of this graph. */
enum pst_status pst_graph_sign_call(struct pst_graph *graph,
                                    struct pst_module_call *call,
                                    const struct pst_call_signature *signature,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Copies signatures from `from` to the calls of `to` that have none. Values
 * are mapped by id through `map`; a leaf without a counterpart becomes
 * IGNORED. */
enum pst_status pst_graph_carry_signatures(
    const struct pst_graph *from, struct pst_graph *to,
    struct pst_value *const *map, struct pst_diag *diag) PST_MUST_CHECK;
/* Marks leaves as IGNORED if their values are dead. */
void pst_graph_trim_signatures(struct pst_graph *graph);

/* True if the pattern, as of fnmatch(3), matches the name of a parameter or
 * module, or that of a module that contains it: "h.*" covers "h.0.weight". */
bool pst_pattern_covers(const char *pattern, const char *name);

#endif
