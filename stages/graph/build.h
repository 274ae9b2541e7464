// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_BUILD_H
#define PENSTOCK_STAGES_GRAPH_BUILD_H
/*
 * Appends nodes to a graph.
 *
 * Errors are sticky: after a failure every emit does nothing and returns NULL,
 * so callers check once at the end of a sequence. Nodes inherit call, source,
 * phase, id, no_grad, region and, if their operator keeps it, origin from the
 * builder.
 */
#include "stages/graph/graph.h"

struct pst_schema;
struct pst_sizes;

struct pst_build {
    struct pst_graph *graph;
    enum pst_status status;
    struct pst_diag *diag;
    /* Copied into every emitted node. */
    const struct pst_module_call *call; /* call in graph; NULL: the root */
    const char *source;
    enum pst_phase phase;
    bool no_grad;
    const char *region; /* NULL: none */
    const char *origin; /* name in the user's file; NULL: the row's name */
    bool is_function;
    unsigned node_id;   /* UINT32_MAX: next free one of the graph */
    const char *prefix; /* prefix of result names; NULL: from the operator */
    /* Names of the first n_names results; a NULL entry: named by prefix. */
    const char *const *names;
    unsigned n_names;
    /* Dtype recorded in the file, for factories without a dtype argument;
     * PST_N_DTYPES: none, f32 is used. */
    enum pst_dtype hint;
    struct pst_sizes *sizes; /* NULL: no expressions (sizes/extent.h) */
};

void pst_build_init(struct pst_build *build, struct pst_graph *graph,
                    struct pst_diag *diag);
/* Sets call, source, phase, region and id of the next nodes to those of `node`,
 * which may belong to another graph. */
void pst_build_at(struct pst_build *build, const struct pst_node *node);
/* As pst_build_at; also copies no_grad, origin and is_function. */
void pst_build_like(struct pst_build *build, const struct pst_node *node);

/* Puts arguments in schema order, coerces them and fills in defaults; ret holds
 * schema->n_args entries. */
enum pst_status pst_build_args(struct pst_build *build,
                               const struct pst_schema *schema,
                               const struct pst_arg *args, unsigned n_args,
                               struct pst_arg *ret) PST_MUST_CHECK;

/* Infers and appends a node and returns it (its results are node->outs); NULL
 * after an error. Missing trailing arguments get their defaults. args are
 * copied. */
struct pst_node *pst_emit_node(struct pst_build *build, const struct pst_op *op,
                               const struct pst_arg *args, unsigned n_args);
/* Returns the first result or NULL. Operators with a decomposition
 * (pst_op_is_rewrite) are emitted as the nodes of the decomposition. */
struct pst_value *pst_emit(struct pst_build *build, const struct pst_op *op,
                           const struct pst_arg *args, unsigned n_args);
/* Argument list for pst_emit(build, &op, PST_ARGS(a, b)). */
#define PST_ARGS(...)                                                          \
    (const struct pst_arg[]){__VA_ARGS__},                                     \
        (unsigned)PST_COUNT(((const struct pst_arg[]){__VA_ARGS__}))

static inline struct pst_arg pst_none(void)
{
    return (struct pst_arg){.kind = PST_ARG_NONE};
}
/* Makes an argument of a value; NULL becomes NONE. */
static inline struct pst_arg pst_v(struct pst_value *value)
{
    if (value == NULL)
        return pst_none();
    return (struct pst_arg){.kind = PST_ARG_VALUE, .value = value};
}
static inline struct pst_arg pst_i(int64_t i)
{
    return (struct pst_arg){.kind = PST_ARG_INT, .i = i};
}
static inline struct pst_arg pst_f(double f)
{
    return (struct pst_arg){.kind = PST_ARG_FLOAT, .f = f};
}
static inline struct pst_arg pst_b(bool b)
{
    return (struct pst_arg){.kind = PST_ARG_BOOL, .b = b};
}
static inline struct pst_arg pst_ints(const int64_t *ints, unsigned n)
{
    return (struct pst_arg){.kind = PST_ARG_INTS, .n = n, .ints = ints};
}
static inline struct pst_arg pst_values(struct pst_value **values, unsigned n)
{
    return (struct pst_arg){.kind = PST_ARG_VALUES, .n = n, .values = values};
}
static inline struct pst_arg pst_dtype_arg(enum pst_dtype dtype)
{
    return (struct pst_arg){.kind = PST_ARG_DTYPE, .i = dtype};
}
static inline struct pst_arg pst_text(const char *s)
{
    return (struct pst_arg){.kind = PST_ARG_STRING, .s = s};
}

#endif
