// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_PT2_DOCUMENT_H
#define PENSTOCK_STAGES_FILES_PT2_DOCUMENT_H
/*
 * The JSON documents of a .pt2 as records, parsed once. Every record has the
 * structure that the format requires: types, signs, numbers of keys. Unresolved
 * names and unsupported tensors are detected by the users of the records, since
 * only they can report which node is affected.
 *
 * Records and texts live until pst_document_free. Only the front end changes
 * records: it resolves each node once before it imports any. One thread.
 */
#include "stages/base/arena.h"
#include "stages/base/map.h"
#include "stages/graph/sizes/symbol.h"
#include "stages/graph/tensor.h"

struct pst_target; /* the operator that the front end resolves a node to */

/* --- numbers ------------------------------------------------------------ */

/* An expression over symbolic sizes; equal texts share one record. */
struct pst_doc_expr {
    const char *text; /* text as printed by pst_expr_print */
    /* the symbol, if the expression is only a symbol; else NULL */
    const char *symbol;
    bool has_hint;
    int64_t hint; /* value of the expression at export */
};

/* A number >= 0. If expr is set, its value is computed from the symbols. */
struct pst_doc_size {
    int64_t value;
    const struct pst_doc_expr *expr; /* NULL: the size is a constant */
};

enum pst_doc_number_kind {
    PST_DOC_NUMBER_INT,
    PST_DOC_NUMBER_FLOAT,
    PST_DOC_NUMBER_BOOL,
    PST_DOC_NUMBER_NAME, /* name of a number of the graph; arguments only */
    PST_DOC_NUMBER_EXPR, /* expression; only for numbers of a graph */
};

struct pst_doc_number {
    enum pst_doc_number_kind kind;
    union {
        int64_t i;
        double f;
        bool b;
        const char *name;
        const struct pst_doc_expr *expr;
    };
};

/* --- tensors ------------------------------------------------------------ */

struct pst_doc_tensor {
    const char *name;      /* name of the value, or FQN of a stored tensor */
    int64_t dtype, layout; /* codes used in the file */
    bool requires_grad;
    unsigned rank;
    const struct pst_doc_size *sizes, *strides;
    struct pst_doc_size offset; /* offset in the storage, in elements */
};

/* A tensor's record, interpreted for a graph. */
struct pst_doc_meta {
    /* strides are those in the file, except for complex tensors
     * (pst_doc_meta) */
    struct pst_meta meta;
    int64_t offset; /* offset in the storage, in elements */
    bool symbolic;  /* dims contains an expression */
    bool pairs;     /* the tensor is complex */
    /* Expressions of sizes, strides and offset; NULL: a constant. For complex
     * tensors, strides and from are NULL, since theirs differ from the
     * record's. */
    const char *dims[PST_MAX_RANK], *strides[PST_MAX_RANK], *from;
};

/* Checks dtype, layout and rank, and that sizes, strides and their products are
 * in range. A complex tensor becomes pairs of real numbers, along an additional
 * last dimension. Expressions are evaluated with symbols (NULL: there are
 * none). Texts are borrowed from the record. */
enum pst_status pst_doc_meta(const struct pst_doc_tensor *tensor,
                             const struct pst_symbols *symbols,
                             struct pst_doc_meta *ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
/* True for complex64 and complex128; *ret_part is the dtype of the two
 * parts. */
bool pst_doc_is_complex(int64_t dtype, enum pst_dtype *ret_part);
/* Returns "complex64" for code 10, for messages. */
const char *pst_doc_dtype_name(int64_t dtype);

/* --- arguments ---------------------------------------------------------- */

/* Kind, tag in the file, and members of struct pst_doc_arg that are set; "-" if
 * there are none. */
#define PST_DOC_ARG_LIST(X)                                                    \
    X(NONE, "as_none")                         /* - */                         \
    X(TENSOR, "as_tensor")                     /* name */                      \
    X(TENSORS, "as_tensors")                   /* names */                     \
    X(OPTIONAL_TENSORS, "as_optional_tensors") /* names, NULL: None */         \
    X(INT, "as_int")                           /* number */                    \
    X(FLOAT, "as_float")                       /* number */                    \
    X(BOOL, "as_bool")                         /* number */                    \
    X(SYM_INT, "as_sym_int")                   /* number */                    \
    X(SYM_FLOAT, "as_sym_float")               /* number */                    \
    X(SYM_BOOL, "as_sym_bool")                 /* number */                    \
    X(INTS, "as_ints")                         /* numbers: INT and NAME */     \
    X(SYM_INTS, "as_sym_ints")                 /* numbers: INT and NAME */     \
    X(FLOATS, "as_floats")                     /* numbers: FLOAT */            \
    X(BOOLS, "as_bools")                       /* numbers: BOOL */             \
    X(STRING, "as_string")                     /* name: the text */            \
    X(SCALAR_TYPE, "as_scalar_type")           /* code */                      \
    X(MEMORY_FORMAT, "as_memory_format")       /* code */                      \
    X(LAYOUT, "as_layout")                     /* code */                      \
    X(DEVICE, "as_device")                     /* - */                         \
    X(GRAPH, "as_graph")                       /* graph */                     \
    X(OPERATOR, "as_operator")                 /* name: a target */            \
    X(COMPLEX, "as_complex")                   /* parts */

enum pst_doc_arg_kind {
#define PST_DOC_ARG_ROW(kind, tag) PST_DOC_##kind,
    PST_DOC_ARG_LIST(PST_DOC_ARG_ROW)
#undef PST_DOC_ARG_ROW
        PST_DOC_OTHER, /* an unsupported tag, which is in `tag` */
};

struct pst_doc_graph;

struct pst_doc_arg {
    enum pst_doc_arg_kind kind;
    unsigned n;      /* number of elements of a list */
    const char *tag; /* tag in the file */
    union {
        const char *name;
        const char *const *names;
        int64_t code;
        struct pst_doc_number number;
        const struct pst_doc_number *numbers;
        double parts[2]; /* real, imaginary */
        struct pst_doc_graph *graph;
    };
};

/* True if the argument is a SymInt, SymFloat or SymBool: a literal number or
 * the name of one. */
bool pst_doc_is_number(const struct pst_doc_arg *arg);
/* Returns the name of the number that the argument has; NULL: it is a literal,
 * or the argument has no number. */
const char *pst_doc_number_name(const struct pst_doc_arg *arg);

/* --- places ------------------------------------------------------------- */

/* A call of a module. */
struct pst_doc_frame {
    const char *key;  /* such as "L__self__h.0", "139784@1" */
    const char *path; /* FQN; "" for the root */
    const char *type; /* name of the module's class */
    unsigned call;    /* index among the calls of the module */
};

/* The frames of a module stack, outermost first. n_nested counts the leading
 * frames of which each is a submodule of the previous one; a module called from
 * an unrelated module ends them. */
struct pst_doc_stack {
    const struct pst_doc_frame *frames;
    unsigned n, n_nested;
};

/* The reason why the file may lack the gradient of a node. */
enum pst_lost {
    PST_LOST_NOTHING,
    /* the node is in a forward that belongs to no module: that of an
     * autograd.Function, or of a module that the model does not have */
    PST_LOST_PERHAPS,
    /* the node is from the decomposition of a no_grad region */
    PST_LOST_NO_GRAD,
    /* the node is in an autograd.Function, whose backward is missing */
    PST_LOST_FUNCTION,
};

/* The source location of a node; consecutive nodes often share one. */
struct pst_doc_place {
    const char *module; /* FQN of the innermost module, "" at the top */
    unsigned call;      /* index among the calls of that module */
    const char *source; /* such as "file.py:12"; "" if unknown */
    /* library: the module's class is from torch.nn, whose forward checks
     * self.training before dropout; dropout: the class is one of torch.nn's
     * dropouts */
    bool library, dropout;
    enum pst_lost lost;
    const struct pst_doc_stack *stack; /* NULL: unknown */
};

extern const struct pst_doc_place pst_doc_nowhere;

/* --- graphs ------------------------------------------------------------- */

struct pst_doc_input {
    const char *name; /* name of the argument; "" if it has none */
    struct pst_doc_arg arg;
};

struct pst_doc_node {
    const char *name;   /* "?" if the node has none */
    const char *target; /* "aten.add.Tensor", without "torch.ops." */
    struct pst_doc_input *inputs;
    unsigned n_inputs, n_outputs;
    struct pst_doc_arg *outputs;
    /* place of the node, or of the previous node that has one */
    const struct pst_doc_place *place;
    /* operator; NULL: not resolved by the front end yet */
    const struct pst_target *resolved;
};

struct pst_doc_graph {
    const struct pst_doc_arg *inputs, *outputs;
    unsigned n_inputs, n_outputs;
    struct pst_doc_node *nodes;
    size_t n_nodes;
    struct pst_map tensors; /* name -> struct pst_doc_tensor */
    struct pst_map numbers; /* name -> struct pst_doc_number */
    /* next graph of the document; inner graphs are listed, too */
    struct pst_doc_graph *next;
};

/* Returns the argument of that name if it has that kind, else NULL. */
const struct pst_doc_arg *pst_doc_arg(const struct pst_doc_node *node,
                                      const char *name,
                                      enum pst_doc_arg_kind kind);
/* Returns argument i; NULL if there are fewer, or if it has another kind. */
const struct pst_doc_arg *pst_doc_arg_at(const struct pst_doc_node *node,
                                         unsigned i,
                                         enum pst_doc_arg_kind kind);
/* Return the tensor or number of that name; NULL if there is none, or if name
 * is NULL. */
const struct pst_doc_tensor *pst_doc_tensor(const struct pst_doc_graph *graph,
                                            const char *name);
const struct pst_doc_number *pst_doc_number(const struct pst_doc_graph *graph,
                                            const char *name);
/* Prefixes the message with "node "add" (aten.add.Tensor) in MODULE at
 * FILE:LINE: ", unless it already names a node (of a sub-graph). */
void pst_doc_prefix_node(const struct pst_doc_node *node,
                         struct pst_diag *diag);

/* --- signatures --------------------------------------------------------- */

/* Kind, tag in the file, and key whose text becomes `target`. */
#define PST_DOC_SPEC_LIST(X)                                                   \
    X(PARAMETER, "parameter", "parameter_name")                                \
    X(BUFFER, "buffer", "buffer_name")                                         \
    X(CONSTANT, "tensor_constant", "tensor_constant_name")                     \
    X(CUSTOM_OBJECT, "custom_obj", NULL)                                       \
    X(TOKEN, "token", NULL)                                                    \
    X(USER_INPUT, "user_input", NULL)                                          \
    X(CONSTANT_INPUT, "constant_input", NULL)                                  \
    X(USER_OUTPUT, "user_output", NULL)                                        \
    X(BUFFER_MUTATION, "buffer_mutation", "buffer_name")                       \
    X(PARAMETER_MUTATION, "parameter_mutation", "parameter_name")              \
    X(INPUT_MUTATION, "user_input_mutation", "user_input_name")

enum pst_doc_spec_kind {
#define PST_DOC_SPEC_ROW(kind, tag, key) PST_DOC_SPEC_##kind,
    PST_DOC_SPEC_LIST(PST_DOC_SPEC_ROW)
#undef PST_DOC_SPEC_ROW
    /* a kind that is not supported; `tag` is its name */
    PST_DOC_SPEC_OTHER,
};

/* The role of an input or output of the graph. */
struct pst_doc_spec {
    enum pst_doc_spec_kind kind;
    const char *tag;
    /* FQN of the state, or name of the input; else NULL */
    const char *target;
    /* kind OTHER if this kind of spec has no argument */
    struct pst_doc_arg arg;
    bool persistent; /* buffers: part of the state_dict */
};

/* Structure (pytree) of arguments or results. */
struct pst_doc_tree {
    const char *type; /* type of the container; NULL: a leaf */
    unsigned n;
    const char *const *keys; /* NULL: children are numbered */
    const struct pst_doc_tree *children;
};

struct pst_doc_call_signature {
    const struct pst_doc_arg *inputs, *outputs; /* not set for the root */
    unsigned n_inputs, n_outputs;
    const struct pst_doc_tree *in_tree, *out_tree; /* NULL: unknown */
    const char *const *arg_names; /* NULL: unknown; elements may be NULL */
    unsigned n_arg_names;
};

/* An entry of module_call_graph: a module, or a further call of a module whose
 * signature was preserved. */
struct pst_doc_call {
    const char *fqn; /* FQN of the module, without "@1" */
    /* index among the calls of the module */
    unsigned index;
    /* NULL: the signature was not preserved */
    const struct pst_doc_call_signature *signature;
};

/* --- documents ---------------------------------------------------------- */

struct pst_doc_range {
    const struct pst_doc_expr *expr;
    int64_t min, max; /* INT64_MIN, INT64_MAX: unbounded */
};

struct pst_document {
    struct pst_arena arena;
    const char *torch_version; /* "" if unknown */
    /* verifiers of the export that the program passed */
    bool training, functional;
    struct pst_doc_graph *graph;
    struct pst_doc_graph *graphs; /* all graphs, as a linked list */
    const struct pst_doc_spec *inputs, *outputs;
    size_t n_inputs, n_outputs;
    const struct pst_doc_call *calls;
    size_t n_calls;
    const struct pst_doc_range *ranges;
    size_t n_ranges;
    const char *const *guards; /* conditions as Python source */
    size_t n_guards;
};

/* Maximum size of a document. */
#define PST_DOC_MAX_BYTES ((uint64_t)512 << 20)

/* Parses the program, models/NAME.json: len bytes, followed by NUL. `what`
 * names it in messages. */
enum pst_status pst_document_parse(const char *what, const char *text,
                                   size_t len, struct pst_document **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pst_document_free(struct pst_document *document);

/* A stored tensor. */
struct pst_doc_payload {
    const char *fqn, *path;
    bool is_param, raw;
    const struct pst_doc_tensor *tensor; /* NULL: the payload is not a tensor */
};

struct pst_doc_payloads {
    struct pst_arena arena;
    struct pst_doc_payload *at;
    size_t n;
};

/* Parses data/FOLDER/NAME_FOLDER_config.json. Release with pst_payloads_fini,
 * also after a failure. */
enum pst_status pst_payloads_parse(const char *what, const char *text,
                                   size_t len, struct pst_doc_payloads *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pst_payloads_fini(struct pst_doc_payloads *payloads);

#endif
