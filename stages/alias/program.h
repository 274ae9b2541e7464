// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_PROGRAM_H
#define PENSTOCK_STAGES_ALIAS_PROGRAM_H
/*
 * A program: a list of ATen operators on named tensors, and its binding to
 * operands that share memory in a certain way. The result is a functional graph
 * whose inputs share no memory.
 *
 * As in PyTorch, operators may write their operands, and views see the writes.
 * Errors have the names of the documentation: E_SELF_OVERLAP (elements of a
 * written tensor share memory), E_OVERLAP (source and target of one write
 * overlap partly), E_ALIAS_NONDIFF (a write that gradients cannot follow),
 * E_LEAF (a leaf that requires a gradient is written), E_SHARED_MUT (several
 * stages write one operand); call.h adds some. text.h reads programs; call.h
 * calls them.
 *
 * One thread. Strings and arguments are borrowed from the caller.
 */
#include "stages/alias/operands.h"
#include "stages/graph/graph.h"

enum pst_alias_program_kind {
    PST_PROGRAM_LITERAL,
    PST_PROGRAM_NAME,  /* name of a tensor: names[0] */
    PST_PROGRAM_NAMES, /* list of tensors; a NULL name is None */
};

struct pst_alias_program_arg {
    const char *keyword; /* NULL: positional */
    enum pst_alias_program_kind kind;
    struct pst_arg literal; /* for LITERAL; not a tensor */
    const char *const *names;
    unsigned n;
};

struct pst_alias_program_op {
    const char *op; /* "aten.add_.Scalar" */
    const struct pst_alias_program_arg *args;
    const char *const *outs; /* NULL entries have no name */
    unsigned n_args, n_outs, stage;
    bool no_grad;
};

struct pst_alias_program {
    /* Operators that the caller runs on its leaves before the call: they make
     * operands with a gradient history. */
    const struct pst_alias_program_op *before;
    const struct pst_alias_program_op *ops;
    const char *const *returns;
    unsigned n_before, n_ops, n_returns;
};

/* An operand of the call. */
struct pst_alias_program_operand {
    /* as.name is the operand's name in the program. The caller sets as.hidden;
     * the binder sets from, to, root, written and moved. */
    struct pst_alias_operand as;
    const char *again; /* another name of the operand, or NULL */
    /* Name of a leaf that requires a gradient; or NULL. */
    const char *leaf;
    /* an operator of `before` makes the operand, under the name as.name; the
     * binder sets the other members of `as` */
    bool from_before;
    /* E_READ_ONLY if the call would write through the operand. Not part of a
     * plan: the binder ignores it. */
    bool read_only;
};

/* A storage of the caller's; operands refer to it by index. */
struct pst_call_storage {
    void *data;
    size_t bytes;
};

/* True if the result depends on a tensor's offset in its storage (as_strided,
 * view.dtype). Then a plan only serves calls with the same offsets. */
bool pst_alias_program_is_absolute(const struct pst_alias_program *program);
/* Returns the range of bytes of its storage that is passed for an operand. */
void pst_alias_program_range(const struct pst_alias_operand *operand,
                             bool absolute, int64_t *ret_begin,
                             int64_t *ret_end);

/* Location of a result. */
struct pst_alias_program_place {
    int operand; /* an operand with its storage; -1: a new storage */
    struct pst_meta meta;
    int64_t offset; /* from the start of the storage, in elements of its
                       dtype */
    int output;     /* graph output with the content; -1: read the storage */
};

struct pst_alias_program_bound {
    struct pst_arena arena;
    struct pst_alias alias;
    /* Inputs are bases, then other operands; leaves are parameters. Outputs are
     * user outputs. */
    struct pst_graph *graph;
    /* copies of the caller's operands, with all fields set by the binder */
    struct pst_alias_program_operand *operands;
    unsigned n_operands;
    bool absolute;
    struct pst_alias_program_place *returns;
    unsigned n_returns;
    /* Parts of storages to write after the call, each with the output that has
     * its new content. */
    struct pst_alias_program_place *writes;
    unsigned n_writes;
    /* Geometry of each operand after the call (t_() changes it), and whether it
     * changed. */
    struct pst_alias_program_place *after;
    bool *moved;
    /* Tensor names -> struct pst_alias_program_place, for lookups. */
    struct pst_map places;
};

/* Binds a program; returns *ret owned. operands[i].as.written is ignored. */
enum pst_status pst_alias_program_bind(
    const struct pst_alias_program *program,
    const struct pst_alias_program_operand *operands, unsigned n_operands,
    struct pst_alias_program_bound **ret, struct pst_diag *diag) PST_MUST_CHECK;
void pst_alias_program_bound_free(struct pst_alias_program_bound *bound);
/* Adapts the locations and ranges of a bound program to operands at other
 * offsets that share memory in the same way. */
void pst_alias_program_move(struct pst_alias_program_bound *bound,
                            const struct pst_alias_program_operand *operands);
/* True if operand i is a new storage, made before the call. */
bool pst_alias_program_is_new(const struct pst_alias_program_bound *bound,
                              unsigned i);
/* Returns the name of the graph's input for base or operand i: "base.0",
 * "operand.3". */
void pst_alias_program_input_name(bool base, unsigned i, char out[32]);

#endif
