// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_TARGET_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_TARGET_H
/*
 * The importer's classification of a node, derived once from its target string
 * (resolve.c). Lives in the document's arena. One thread.
 */
#include <stdbool.h>

struct pst_op;
struct pst_mover;

enum pst_target_kind {
    PST_TARGET_OP,       /* the operator `op` */
    PST_TARGET_INPLACE,  /* in-place variant of op */
    PST_TARGET_OUT,      /* `out` variant of op */
    PST_TARGET_CONVERT,  /* to.*, type_as: no node if nothing is converted */
    PST_TARGET_METADATA, /* assertion on sizes and dtype: checked, no node */
    PST_TARGET_ASSERT,   /* asserts that a number is true */
    PST_TARGET_RANGE,    /* asserts limits of a number */
    PST_TARGET_RANGE_OF_SIZE, /* asserts limits of a size, which are >= 0 */
    PST_TARGET_SIZE, /* arithmetic on sizes; the file has the results; op: the
                      * same operator on tensors, or NULL */
    PST_TARGET_SET_GRAD,   /* sub-graph to inline, with or without gradients */
    PST_TARGET_CHECKPOINT, /* sub-graph to inline and to recompute */
    PST_TARGET_AUTOCAST,   /* sub-graph to inline, with casts if enabled */
    PST_TARGET_SAME,       /* an exporter's mark, which returns its operands */
    PST_TARGET_MARK,       /* ignored: marks a beginning or end */
    PST_TARGET_BATCH,      /* turns a dimension into lanes (vmap) */
    PST_TARGET_UNBATCH,    /* turns lanes into a dimension */
    PST_TARGET_UNPACK,     /* splits a jvp tensor into primal and tangent */
    PST_TARGET_COND,       /* two sub-graphs, selected by a bool */
    PST_TARGET_SCAN,       /* a sub-graph per slice, in sequence */
    PST_TARGET_MAP,        /* a sub-graph per slice, independently */
    PST_TARGET_WHILE,      /* a sub-graph, while another returns true */
    PST_TARGET_RESIZE,     /* frees a storage, or grows it again */
    PST_TARGET_FILL, /* copies into tensors, by an operator other than copy_ */
    PST_TARGET_COLLECTIVE, /* collective over a group of one process: a copy */
    PST_TARGET_COPY_IN,    /* copies tensors into the buffers of an
                              all-gather */
    PST_TARGET_COPY_OUT,   /* copies the result of an all-gather into tensors */
    PST_TARGET_NONE,       /* not supported; `reason` says why */
};

/* The effect of autocast on an operator's floating-point operands
 * (autocast.def). */
enum pst_autocast {
    PST_AUTOCAST_KEEP,
    PST_AUTOCAST_LOW,
    PST_AUTOCAST_F32,
    PST_AUTOCAST_OPTION,
    PST_AUTOCAST_WIDEST,
    PST_AUTOCAST_RESULT,
};

/* The column of autocast.def that applies. */
enum pst_autocast_lists {
    PST_AUTOCAST_OFF,
    PST_AUTOCAST_REGION, /* a region of the file */
    PST_AUTOCAST_CUDA,   /* --autocast bf16 */
    PST_AUTOCAST_CPU,    /* --autocast f16 */
};

/* How an operator shows whether the model was exported in training mode. */
enum pst_mode_sign {
    PST_SIGN_FLAG, /* by a bool argument, if it has one */
    PST_SIGN_DROPOUT,
    PST_SIGN_NATIVE_DROPOUT, /* by its argument; without one, by its presence */
    PST_SIGN_TRAINS,         /* by its name */
    PST_SIGN_EVALUATES,
};

struct pst_target {
    enum pst_target_kind kind;
    const char *name; /* "aten.add.Tensor" as in the file */
    const struct pst_op *op;
    const char *reason;
    unsigned tier; /* if unsupported: 0 unknown operator, 2 unsupported variant
                    * of an operator, 3 rejected */
    bool pairs;    /* operands are complex: pst_import_pairs */
    const struct pst_mover *mover; /* if op itself runs on pairs; or NULL */
    bool promotes;                 /* if pairs: makes real operands complex */
    bool real_parts;               /* if pairs: op gets only the real parts */
    bool reads_number;             /* reads a number from a tensor: item() */
    enum pst_mode_sign sign;
};

#endif
