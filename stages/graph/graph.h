// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_GRAPH_H
#define PENSTOCK_STAGES_GRAPH_GRAPH_H
/*
 * The graph: values in SSA form, nodes in order of execution, each node
 * pointing at its operator's row. One thread at a time. Everything lives in
 * the graph's arena and dies with it; tensor data is not in the graph.
 *
 * Aliases: a value that shares storage with another (a view) has `base`, the
 * value that owns the storage (never a view itself), and `offset` in elements
 * from its start; its strides are those in base's storage. After the front
 * end's pass "nodes" no node writes any of its inputs.
 */
#include "stages/base/arena.h"
#include "stages/base/map.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"
#include "stages/graph/tensor.h"

struct pst_chain;
struct pst_op;
struct pst_schema;
struct pst_node;
struct pst_value;

/* Arguments are in schema order with defaults filled in. A Scalar is INT, FLOAT
 * or BOOL; Tensor? is VALUE or NONE; Tensor?[] is VALUES with NULL entries. */
enum pst_arg_kind {
    PST_ARG_NONE,
    PST_ARG_VALUE,
    PST_ARG_VALUES,
    PST_ARG_INT,
    PST_ARG_INTS,
    PST_ARG_FLOAT,
    PST_ARG_FLOATS,
    PST_ARG_BOOL,
    PST_ARG_BOOLS,
    PST_ARG_STRING,
    PST_ARG_DTYPE,   /* i = enum pst_dtype */
    PST_ARG_IGNORED, /* device, layout, memory format, pin_memory */
};

struct pst_arg {
    enum pst_arg_kind kind;
    unsigned n; /* length of a list */
    union {
        struct pst_value *value;
        struct pst_value **values;
        int64_t i;
        const int64_t *ints;
        double f;
        const double *floats;
        bool b;
        const bool *bools;
        const char *s;
    };
    /* Expressions of numbers that depend on symbolic sizes (sizes/symbol.h):
     * one per number of a list, or one for a single number. NULL: no number
     * depends on them; NULL entry: this number does not. */
    const char *const *exprs;
};

enum pst_value_kind {
    PST_VALUE_INPUT,  /* input of the model or of the stage */
    PST_VALUE_PARAM,  /* parameter; fqn is its name in the state */
    PST_VALUE_BUFFER, /* buffer, by fqn; may be updated after the step */
    PST_VALUE_CONST,  /* lifted constant, by fqn */
    PST_VALUE_NODE,   /* result of a node */
    PST_VALUE_SEED,   /* gradient that is passed into the graph */
    PST_VALUE_GRAD,   /* accumulator of a parameter's gradient, by fqn */
};

struct pst_value {
    unsigned id; /* index in graph->values */
    enum pst_value_kind kind;
    const char *name; /* unique in the graph */
    const char *fqn;  /* PARAM, BUFFER, CONST, GRAD; else NULL */
    struct pst_meta meta;
    const char *const *dims; /* expressions of the sizes, as in pst_arg */
    struct pst_node *def;    /* NODE: the node that computes it */
    unsigned def_index;      /* which output of def */
    struct pst_value *base;  /* NULL: own storage */
    int64_t offset;          /* from base's start, in elements of this dtype */
    /* NODE: the input, buffer or constant whose content this value replaces,
     * because the program writes it; else NULL. */
    struct pst_value *version_of;
    bool requires_grad; /* PARAM: wants a gradient */
    bool persistent;    /* BUFFER: part of the state dict */
    /* INPUT: its storage has no bytes when the program begins; when it ends.
     * The program writes such an input before it reads it; the content is lost
     * when the program ends. */
    bool empty_before, empty_after;
    void *aux; /* scratch of the current pass; NULL between passes */
};

/* The action of a training step that runs a node: forward, gradients of inputs,
 * gradients of parameters. */
enum pst_phase { PST_PHASE_F, PST_PHASE_I, PST_PHASE_W, PST_N_PHASES };

/* One input or result and its path among the arguments or results. */
struct pst_call_leaf {
    const char *path; /* "0", "x", "0.key", as in struct pst_output */
    /* VALUE or a literal; IGNORED: a value that this graph does not compute. */
    struct pst_arg arg;
};

/* Inputs and results of a call, if the export kept them
 * (preserve_module_call_signature). Leaves do not count as uses of their
 * values. */
struct pst_call_signature {
    struct pst_call_leaf *inputs, *outputs;
    unsigned n_inputs, n_outputs;
};

/*
 * A call of a module.
 *
 * Calls form a tree; its root is the call of the model itself. A call is
 * identified by the path of its module and the number of the call among those
 * of that path in the whole model; torch.export writes both into each node's
 * nn_module_stack. The number does not change when the graph is cut, so a stage
 * may have "n@2" alone. calls.h declares functions on calls.
 */
struct pst_module_call {
    unsigned id, depth; /* id: index in graph->calls; the root has depth 0 */
    const struct pst_module_call *parent; /* NULL: the root */
    const char *path;                     /* FQN, "" for the root */
    unsigned index;                       /* number among its path's calls */
    const char *name;                     /* "n@1"; first call: path alone */
    const char *identity; /* equal for all names of one module; "": unknown */
    const char *type;     /* class of the module; "": unknown */
    const struct pst_call_signature *signature; /* NULL: not kept */
    struct pst_module_call *older; /* previous call of the same path */
};

struct pst_node {
    const struct pst_op *op;
    const struct pst_schema *schema;
    struct pst_arg *args; /* schema->n_args entries */
    struct pst_value **outs;
    unsigned n_outs;
    unsigned id; /* kept when the graph is cut; keys random numbers */
    const struct pst_module_call *call; /* innermost call that contains the
                                           node */
    const char *source;                 /* "file.py:12" or "" */
    enum pst_phase phase;
    bool no_grad; /* was under torch.no_grad() */
    /* Region of torch.utils.checkpoint, which is recomputed: "0", "1", ...;
     * regions nested in region 1 are "1.2", "1.3"; NULL: none. */
    const char *region;
    /* For rows with PST_OP_ORIGIN: name of the operator in the file that this
     * node comes from; "" if it is the row's name.
     * is_function: a module of the user calls the operator as a function, so it
     * is unknown whether it passes self.training. */
    const char *origin;
    bool is_function;
    int stage; /* set by the splitter, else -1 */
    /* penstock.chain: the operators that its kernel runs
     * (ops/pointwise/chain.h), in the arena of the program of the node; else
     * NULL. */
    const struct pst_chain *chain;
};

enum pst_output_kind {
    PST_OUTPUT_USER,
    PST_OUTPUT_BUFFER_UPDATE, /* value is copied into `target` after a run */
    PST_OUTPUT_INPUT_UPDATE,  /* value is copied into the input `target` */
};

struct pst_output {
    enum pst_output_kind kind;
    struct pst_arg arg;       /* VALUE, or a literal for user outputs */
    struct pst_value *target; /* updates: buffer or input */
    const char *path;         /* "0", "logits": path in the model's result */
};

struct pst_graph {
    struct pst_arena arena;
    struct PST_VEC(struct pst_value *) values; /* by id */
    struct PST_VEC(struct pst_node *) nodes;   /* in order of execution */
    struct PST_VEC(struct pst_value *) inputs;
    struct PST_VEC(struct pst_value *) params; /* one per tensor, ties merged */
    struct PST_VEC(struct pst_value *) buffers;
    struct PST_VEC(struct pst_value *) consts;
    struct PST_VEC(struct pst_output) outputs;
    /* In the order of entry: the root first, parents before children. */
    struct PST_VEC(struct pst_module_call *) calls;
    struct pst_map newest_calls; /* path -> struct pst_module_call */
    struct pst_map names;        /* value name -> struct pst_value */
    /* SEED and GRAD values, in the order they were added. */
    struct PST_VEC(struct pst_value *) extras;
    unsigned next_node_id;
};

enum pst_status pst_graph_new(struct pst_graph **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
void pst_graph_free(struct pst_graph *graph);

/* Adds a value of any kind but NODE to its list. Copies name and fqn; a name
 * that is taken gets a suffix "_1", "_2". NULL if out of memory. */
struct pst_value *pst_graph_add_value(struct pst_graph *graph,
                                      enum pst_value_kind kind,
                                      const char *name, const char *fqn,
                                      const struct pst_meta *meta);
/* Finds a value by name; NULL if there is none or its node was removed. */
struct pst_value *pst_graph_find(const struct pst_graph *graph,
                                 const char *name);
/* True if pst_graph_dce removed the value: only the id is left. */
static inline bool pst_value_is_dead(const struct pst_value *value)
{
    return value->kind == PST_VALUE_NODE && value->def == NULL;
}
/* Copies n strings (NULL stays NULL) into the arena; *ret is NULL if there are
 * none. */
enum pst_status pst_exprs_copy(struct pst_arena *arena,
                               const char *const *exprs, unsigned n,
                               const char *const **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* True if both are equal and contain no tensors or expressions. */
bool pst_arg_same(const struct pst_arg *a, const struct pst_arg *b);
/* Copies the lists and strings of an argument into the arena; values are
 * shared. */
enum pst_status pst_arg_copy(struct pst_arena *arena, const struct pst_arg *arg,
                             struct pst_arg *ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_graph_add_output(struct pst_graph *graph,
                                     const struct pst_output *output,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the operator's name in the user's model. */
const char *pst_node_origin(const struct pst_node *node);
/* Calls fn on every value slot of the arguments, in order; fn may replace
 * *slot. NULL entries of Tensor?[] are skipped. */
typedef void (*pst_use_fn)(void *ctx, struct pst_value **slot, unsigned arg);
void pst_node_uses(struct pst_node *node, pst_use_fn fn, void *ctx);
/* As pst_node_uses, for one argument; i: its number. */
void pst_arg_uses(struct pst_arg *arg, unsigned i, pst_use_fn fn, void *ctx);

/* True if the size of an operand, or a number among the arguments, depends on
 * symbolic sizes. */
bool pst_node_is_free(const struct pst_node *node);

/* True if the node has results and none of them has an element. */
bool pst_node_is_empty(const struct pst_node *node);

/* True for parameters, buffers and constants, which are read through fqn. */
static inline bool pst_value_is_state(const struct pst_value *value)
{
    return value->kind == PST_VALUE_PARAM || value->kind == PST_VALUE_BUFFER ||
           value->kind == PST_VALUE_CONST;
}

/* Returns the value that owns the storage: itself or its base. */
static inline struct pst_value *pst_value_storage(struct pst_value *value)
{
    return value->base != NULL ? value->base : value;
}

/* Returns the offset of a view of `of` that starts `by` elements (of the view)
 * after its start. `of` must start at a multiple of that element size. */
static inline int64_t pst_view_offset(const struct pst_value *of,
                                      enum pst_dtype dtype, int64_t by)
{
    return of->offset * (int64_t)pst_dtype_size(of->meta.dtype) /
               (int64_t)pst_dtype_size(dtype) +
           by;
}

/* Checks SSA order, ids, names, arity and kinds of arguments against the
 * schema, inferred metas against the recorded ones, and aliases. */
enum pst_status pst_graph_verify(const struct pst_graph *graph,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* As pst_graph_verify but without inference, for a graph whose operands were
 * converted for kernels (rounded, packed). */
enum pst_status pst_graph_verify_lowered(const struct pst_graph *graph,
                                         struct pst_diag *diag) PST_MUST_CHECK;

/* Deep copy; (*ret)->values have the ids of the original. */
enum pst_status pst_graph_copy(const struct pst_graph *graph,
                               struct pst_graph **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Removes unused nodes that have no effect. Asserts on data stay; drop_idle
 * also removes nodes that never run, such as markers. Values keep their ids. */
void pst_graph_dce(struct pst_graph *graph, bool drop_idle);

/* Prints text for people, which pst_graph_parse parses back to an equal
 * graph. */
void pst_graph_print(const struct pst_graph *graph, struct pst_str *out);
enum pst_status pst_graph_parse(const char *text, struct pst_graph **ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
