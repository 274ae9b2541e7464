// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_SCHEMA_H
#define PENSTOCK_STAGES_GRAPH_SCHEMA_H
/*
 * Parsed operator schemas, from the text of PyTorch's registry, e.g.
 * "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor".
 *
 * Parsed once per process (pst_registry in stages/ops); read-only afterwards.
 */
#include "stages/graph/graph.h"

enum pst_type {
    PST_TYPE_TENSOR,           /* Tensor */
    PST_TYPE_TENSORS,          /* Tensor[] */
    PST_TYPE_OPTIONAL_TENSORS, /* Tensor?[] */
    PST_TYPE_INT,              /* int, SymInt */
    PST_TYPE_INTS, /* int[], SymInt[], int[2] (a single int is repeated) */
    PST_TYPE_FLOAT,
    PST_TYPE_FLOATS,
    PST_TYPE_BOOL,
    PST_TYPE_BOOLS,
    PST_TYPE_SCALAR,
    PST_TYPE_STRING,
    PST_TYPE_DTYPE,   /* ScalarType */
    PST_TYPE_IGNORED, /* Device, Layout, MemoryFormat; bool? pin_memory */
};

struct pst_param {
    const char *name;
    enum pst_type type;
    bool optional; /* Tensor?, int? ...: None is allowed */
    bool has_default;
    bool shared;        /* Tensor(a) */
    bool written;       /* Tensor(a!) */
    unsigned fixed;     /* int[2]: 2, else 0 */
    struct pst_arg def; /* default value; kind NONE means Python's None */
};

struct pst_schema {
    const char *name; /* "aten.add.Tensor" (.default added) */
    unsigned n_args;
    struct pst_param *args;
    unsigned n_returns; /* Tensor[] counts as 1 */
    bool list_return;   /* returns Tensor[] of any length */
    bool shares_result; /* the only result may share an argument's storage */
};

/* Allocates from arena. */
enum pst_status pst_schema_parse(const char *text, struct pst_arena *arena,
                                 struct pst_schema *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the index of the argument with that name, or -1. */
int pst_schema_arg(const struct pst_schema *schema, const char *name);
/* Returns the node's argument of that name; NULL if there is none. */
const struct pst_arg *pst_node_arg(const struct pst_node *node,
                                   const char *name);
/* Coerces *arg to the parameter's type where PyTorch would (an int for a float
 * or Scalar, an int for int[k], an empty list for any list); the error names
 * operator and argument. Lists come from arena. */
enum pst_status pst_schema_coerce(const struct pst_schema *schema, unsigned i,
                                  struct pst_arg *arg, struct pst_arena *arena,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* True if coerce would accept *arg unchanged. */
bool pst_schema_fits(const struct pst_schema *schema, unsigned i,
                     const struct pst_arg *arg);

#endif
