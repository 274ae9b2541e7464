// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_PT2_DOCUMENT_H
#define PENSTOCK_STAGES_FILES_PT2_DOCUMENT_H
/*
 * The JSON documents of a .pt2 as records. They are parsed once. Every record
 * has the form that the format asks for: types, signs, numbers of keys. Whether
 * names resolve and tensors can be had is judged where they are used, because
 * only there a message can say by whom.
 *
 * Records and texts live until pst_document_free. Nobody changes them but the
 * front end, which resolves each node once before it imports any. One thread.
 */
#include "stages/base/arena.h"
#include "stages/base/map.h"
#include "stages/graph/symbol.h"
#include "stages/graph/tensor.h"

struct pst_target; /* the front end's word on what a node is */

/* --- numbers ------------------------------------------------------------ */

/* An expression over free sizes; equal texts are one record. */
struct pst_doc_expr {
    const char *text;   /* as pst_expr_print has it */
    const char *symbol; /* it is this symbol alone; else NULL */
    bool has_hint;
    int64_t hint; /* its value at export */
};

/* >= 0; of an expression the value follows from the symbols. */
struct pst_doc_size {
    int64_t value;
    const struct pst_doc_expr *expr; /* NULL: a number */
};

enum pst_doc_number_kind {
    PST_DOC_NUMBER_INT,
    PST_DOC_NUMBER_FLOAT,
    PST_DOC_NUMBER_BOOL,
    PST_DOC_NUMBER_NAME, /* of a number of the graph; arguments only */
    PST_DOC_NUMBER_EXPR, /* numbers of a graph only */
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
    const char *name;      /* of the value, or FQN of what is stored */
    int64_t dtype, layout; /* codes of the file */
    bool requires_grad;
    unsigned rank;
    const struct pst_doc_size *sizes, *strides;
    struct pst_doc_size offset; /* elements */
};

/* What a tensor's record means to a graph. */
struct pst_doc_meta {
    struct pst_meta meta; /* strides as written; complex: see below */
    int64_t offset;       /* elements */
    bool symbolic;        /* some of dims are not NULL */
    bool pairs;           /* it is complex */
    /* Where sizes, strides and offset come from; NULL: they are numbers. Of
     * complex tensors the last two are NULL: they are not the record's. */
    const char *dims[PST_MAX_RANK], *strides[PST_MAX_RANK], *from;
};

/* Checks dtype, layout, rank and that sizes, strides and their products are in
 * range; complex numbers become pairs of real ones, along one more dimension,
 * the last. Expressions get their values from symbols (NULL: there are none).
 * Texts are the record's. */
enum pst_status pst_doc_meta(const struct pst_doc_tensor *tensor,
                             const struct pst_symbols *symbols,
                             struct pst_doc_meta *ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
/* complex64 or complex128, and the dtype of its two parts. */
bool pst_doc_is_complex(int64_t dtype, enum pst_dtype *ret_part);
/* "complex64" for code 10, for messages. */
const char *pst_doc_dtype_name(int64_t dtype);

/* --- arguments ---------------------------------------------------------- */

/* kind, tag in the file, member of struct pst_doc_arg that has it */
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
    X(SYM_INTS, "as_sym_ints")                 /* the same */                  \
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
        PST_DOC_OTHER, /* a tag of no use to us: see tag */
};

struct pst_doc_graph;

struct pst_doc_arg {
    enum pst_doc_arg_kind kind;
    unsigned n;      /* of lists */
    const char *tag; /* as in the file */
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

/* Has it a number as PyTorch's SymInt and its like have it? */
bool pst_doc_is_number(const struct pst_doc_arg *arg);
/* The name of such a number; NULL: it is a literal, or something else. */
const char *pst_doc_number_name(const struct pst_doc_arg *arg);

/* --- places ------------------------------------------------------------- */

/* A call of a module. */
struct pst_doc_frame {
    const char *key;  /* "L__self__h.0", "139784@1" */
    const char *path; /* FQN, "" of the root */
    const char *type; /* of its class */
    unsigned call;    /* which one of that module */
};

/* Outermost first. A frame that does not lie below the one before it (a module
 * called from a foreign one) and those behind it do not count. */
struct pst_doc_stack {
    const struct pst_doc_frame *frames;
    unsigned n, n_nested;
};

/* What of a node's gradient the file does not have. */
enum pst_lost {
    PST_LOST_NOTHING,
    PST_LOST_PERHAPS,  /* a forward that is no module's: an autograd.Function's,
                          or that of a module that the model does not have */
    PST_LOST_NO_GRAD,  /* the decomposed form of a region under no_grad */
    PST_LOST_FUNCTION, /* the backward of an autograd.Function */
};

/* Where a node comes from; nodes in a row often share one. */
struct pst_doc_place {
    const char *module; /* FQN of the innermost module, "" at the top */
    unsigned call;      /* which call of that module */
    const char *source; /* "file.py:12" or "" */
    /* The module's class is one of torch.nn, whose forward asks self.training
     * whether to drop; and one of its dropouts. */
    bool library, dropout;
    enum pst_lost lost;
    const struct pst_doc_stack *stack; /* NULL: none was told yet */
};

extern const struct pst_doc_place pst_doc_nowhere;

/* --- graphs ------------------------------------------------------------- */

struct pst_doc_input {
    const char *name; /* of the argument; "" of those without */
    struct pst_doc_arg arg;
};

struct pst_doc_node {
    const char *name;   /* "?" if it has none */
    const char *target; /* "aten.add.Tensor", without "torch.ops." */
    struct pst_doc_input *inputs;
    unsigned n_inputs, n_outputs;
    struct pst_doc_arg *outputs;
    const struct pst_doc_place *place; /* its own, else of the one before */
    const struct pst_target *resolved; /* NULL: the front end was not there */
};

struct pst_doc_graph {
    const struct pst_doc_arg *inputs, *outputs;
    unsigned n_inputs, n_outputs;
    struct pst_doc_node *nodes;
    size_t n_nodes;
    struct pst_map tensors;     /* name -> struct pst_doc_tensor */
    struct pst_map numbers;     /* name -> struct pst_doc_number */
    struct pst_doc_graph *next; /* of the document, inner ones included */
};

/* The argument of that name if it is of that kind, else NULL. */
const struct pst_doc_arg *pst_doc_arg(const struct pst_doc_node *node,
                                      const char *name,
                                      enum pst_doc_arg_kind kind);
/* Argument i; NULL if there are fewer or it is of another kind. */
const struct pst_doc_arg *pst_doc_arg_at(const struct pst_doc_node *node,
                                         unsigned i,
                                         enum pst_doc_arg_kind kind);
/* NULL if there is none of that name, or name is NULL. */
const struct pst_doc_tensor *pst_doc_tensor(const struct pst_doc_graph *graph,
                                            const char *name);
const struct pst_doc_number *pst_doc_number(const struct pst_doc_graph *graph,
                                            const char *name);
/* Puts "node "add" (aten.add.Tensor) in MODULE at FILE:LINE: " before the
 * message, unless a node (of a sub-graph) stands there already. */
void pst_doc_blame(const struct pst_doc_node *node, struct pst_diag *diag);

/* --- signatures --------------------------------------------------------- */

/* kind, tag in the file, key of `target` */
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
        PST_DOC_SPEC_OTHER, /* see tag */
};

/* What an input or output of the graph is to the model. */
struct pst_doc_spec {
    enum pst_doc_spec_kind kind;
    const char *tag;
    const char *target;     /* FQN of the state, name of the input; else NULL */
    struct pst_doc_arg arg; /* OTHER if the kind has none */
    bool persistent;        /* of a buffer */
};

/* Arguments or results as containers. */
struct pst_doc_tree {
    const char *type; /* NULL: a leaf */
    unsigned n;
    const char *const *keys; /* NULL: numbered */
    const struct pst_doc_tree *children;
};

struct pst_doc_call_signature {
    const struct pst_doc_arg *inputs, *outputs; /* none of the root */
    unsigned n_inputs, n_outputs;
    const struct pst_doc_tree *in_tree, *out_tree; /* NULL: not told */
    const char *const *arg_names; /* NULL: none; or with holes */
    unsigned n_arg_names;
};

/* An entry of module_call_graph: a module, or a further call of one whose
 * signature was kept. */
struct pst_doc_call {
    const char *fqn;                                /* without "@1" */
    unsigned index;                                 /* of the call */
    const struct pst_doc_call_signature *signature; /* NULL: not kept */
};

/* --- documents ---------------------------------------------------------- */

struct pst_doc_range {
    const struct pst_doc_expr *expr;
    int64_t min, max; /* INT64_MIN, INT64_MAX: none */
};

struct pst_document {
    struct pst_arena arena;
    const char *torch_version; /* "" if it is not told */
    bool training, functional; /* who has verified it */
    struct pst_doc_graph *graph;
    struct pst_doc_graph *graphs; /* all of them */
    const struct pst_doc_spec *inputs, *outputs;
    size_t n_inputs, n_outputs;
    const struct pst_doc_call *calls;
    size_t n_calls;
    const struct pst_doc_range *ranges;
    size_t n_ranges;
    const char *const *guards; /* Python */
    size_t n_guards;
};

/* Longest document that is read. */
#define PST_DOC_MAX_BYTES ((uint64_t)512 << 20)

/* The program: models/NAME.json, len bytes, NUL behind them. `what` names it in
 * messages. */
enum pst_status pst_document_parse(const char *what, const char *text,
                                   size_t len, struct pst_document **ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pst_document_free(struct pst_document *document);

/* One tensor of a table of what is stored. */
struct pst_doc_payload {
    const char *fqn, *path;
    bool is_param, raw;
    const struct pst_doc_tensor *tensor; /* NULL: it is none */
};

struct pst_doc_payloads {
    struct pst_arena arena;
    struct pst_doc_payload *at;
    size_t n;
};

/* data/FOLDER/NAME_FOLDER_config.json. Release with pst_payloads_fini, after a
 * failure too. */
enum pst_status pst_payloads_parse(const char *what, const char *text,
                                   size_t len, struct pst_doc_payloads *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
void pst_payloads_fini(struct pst_doc_payloads *payloads);

#endif
