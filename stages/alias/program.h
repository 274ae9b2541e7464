// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_ALIAS_PROGRAM_H
#define PENSTOCK_STAGES_ALIAS_PROGRAM_H
/*
 * A list of ATen operators on named tensors, and what becomes of it when it is
 * called with operands that share memory in a certain way: a functional graph
 * whose inputs do not.
 *
 * As in PyTorch, operators may write their operands, and views see it. Errors
 * bear the names that the documentation has: E_SELF_OVERLAP (elements of what
 * is written share memory), E_OVERLAP (source and target of one write meet
 * partly), E_ALIAS_NONDIFF (a write that gradients cannot follow), E_LEAF (a
 * leaf that wants a gradient is written), E_SHARED_MUT (several stages write
 * one operand).
 *
 * One thread. Texts and arguments are borrowed from the caller.
 */
#include "stages/alias/operands.h"
#include "stages/graph/graph.h"

enum pst_program_kind {
    PST_PROGRAM_LITERAL,
    PST_PROGRAM_NAME,  /* of a tensor: names[0] */
    PST_PROGRAM_NAMES, /* a list; NULL: None */
};

struct pst_program_arg {
    const char *keyword; /* NULL: by its position */
    enum pst_program_kind kind;
    struct pst_arg literal; /* no values */
    const char *const *names;
    unsigned n;
};

struct pst_program_op {
    const char *op; /* "aten.add_.Scalar" */
    const struct pst_program_arg *args;
    const char *const *outs; /* NULL: nobody names it */
    unsigned n_args, n_outs, stage;
    bool no_grad;
};

struct pst_program {
    /* Run by the caller before the call, on its leaves: they make operands
     * that have a history of gradients. */
    const struct pst_program_op *before;
    const struct pst_program_op *ops;
    const char *const *returns;
    unsigned n_before, n_ops, n_returns;
};

/* An operand of the call. */
struct pst_program_operand {
    /* name: how the program calls it. What follows `hidden` in struct
     * pst_alias_operand's list but for that is filled in. */
    struct pst_alias_operand as;
    const char *again; /* another name for it, or NULL */
    /* A leaf that wants a gradient goes by this name; or NULL. */
    const char *leaf;
    bool from_before; /* made there, under as.name; `as` is filled in */
};

/* Memory of a storage of the caller's, by the numbers in the operands. */
struct pst_call_storage {
    void *data;
    size_t bytes;
};

/* Do its operators know where in its storage a tensor lies (as_strided,
 * view.dtype)? Then the same way of sharing memory elsewhere in a storage is
 * another one. */
bool pst_program_is_absolute(const struct pst_program *program);
/* Bytes of its storage that are passed for an operand. */
void pst_program_range(const struct pst_alias_operand *operand, bool absolute,
                       int64_t *ret_begin, int64_t *ret_end);

/* Where a result lies. */
struct pst_program_place {
    int operand; /* one whose storage it is; -1: it has a new one */
    struct pst_meta meta;
    int64_t offset; /* elements of its dtype, from the start of the storage */
    int output;     /* of the graph; -1: none, all is in the storage */
};

struct pst_program_bound {
    struct pst_arena arena;
    struct pst_alias alias;
    /* Inputs in the order of their kinds: bases, then operands that stay; and
     * parameters, for leaves. Outputs are the user's. */
    struct pst_graph *graph;
    struct pst_program_operand *operands; /* a copy, with what is filled in */
    unsigned n_operands;
    bool absolute;
    struct pst_program_place *returns;
    unsigned n_returns;
    /* Windows of storages that are to be filled after the call. */
    struct pst_program_place *writes;
    unsigned n_writes;
    /* Geometry of each operand after the call (t_() changes it), and whether
     * it has changed. */
    struct pst_program_place *after;
    bool *moved;
    /* Names of tensors -> struct pst_program_place, for whoever asks. */
    struct pst_map places;
};

/* operands[i].as.written is not looked at. Returned owned. */
enum pst_status pst_program_bind(const struct pst_program *program,
                                 const struct pst_program_operand *operands,
                                 unsigned n_operands,
                                 struct pst_program_bound **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pst_program_bound_free(struct pst_program_bound *bound);
/* Sets places and ranges to where the operands are now, which share memory in
 * the same way. */
void pst_program_move(struct pst_program_bound *bound,
                      const struct pst_program_operand *operands);
/* Is operand i new storage that was made before the call? */
bool pst_program_is_new(const struct pst_program_bound *bound, unsigned i);
/* The graph's input of base b or of operand i: "base.0", "operand.3". */
void pst_program_input_name(bool base, unsigned i, char out[32]);

#endif
