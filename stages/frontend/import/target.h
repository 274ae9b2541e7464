// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_TARGET_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_TARGET_H
/*
 * What the target of a node means to the importer. It is found by the target's
 * text once (resolve.c); everybody else looks at this. Lives in the document's
 * arena. One thread.
 */
#include <stdbool.h>

struct pst_op;
struct pst_mover;

enum pst_target_kind {
    PST_TARGET_OP,       /* a row */
    PST_TARGET_INPLACE,  /* op is the functional twin */
    PST_TARGET_OUT,      /* op returns what this one writes to `out` */
    PST_TARGET_CONVERT,  /* to.*, type_as: nothing if the dtype is there */
    PST_TARGET_METADATA, /* an assert on sizes and dtype: checked, no node */
    PST_TARGET_ASSERT,   /* of a number: of a size, or read from data */
    PST_TARGET_RANGE,    /* the same with limits */
    PST_TARGET_RANGE_OF_SIZE, /* the same; none below 0 */
    PST_TARGET_SIZE,       /* arithmetic on sizes: the file has its results. op
                              does that to tensors, or is NULL */
    PST_TARGET_SET_GRAD,   /* sub-graph to inline */
    PST_TARGET_CHECKPOINT, /* the same, which is recomputed */
    PST_TARGET_AUTOCAST,   /* the same, with casts if it is enabled */
    PST_TARGET_SAME,    /* results are its tensors: a mark of the exporter's */
    PST_TARGET_MARK,    /* nothing: where something begins or ends */
    PST_TARGET_BATCH,   /* a tensor becomes many in a vmap region */
    PST_TARGET_UNBATCH, /* and one again */
    PST_TARGET_UNPACK,  /* a tensor of a jvp region and its tangent */
    PST_TARGET_COND,    /* two sub-graphs, of which a bool chooses */
    PST_TARGET_SCAN,    /* a sub-graph for each slice, one after the other */
    PST_TARGET_MAP,     /* the same, each by itself */
    PST_TARGET_WHILE,   /* a sub-graph as often as another one says */
    PST_TARGET_RESIZE,  /* a storage is freed or filled again */
    PST_TARGET_FILL,    /* copies into tensors, by other names than copy_ */
    PST_TARGET_COLLECTIVE, /* of a group of one process: copies */
    PST_TARGET_COPY_IN,    /* tensors into what a gather sends and fills */
    PST_TARGET_COPY_OUT,   /* of what a gather has filled, into tensors */
    PST_TARGET_NONE,       /* not supported: reason */
};

/* What an operator does to floating operands under autocast. */
enum pst_autocast {
    PST_AUTOCAST_NONE,
    PST_AUTOCAST_LOW, /* takes them in the region's dtype */
    PST_AUTOCAST_F32,
    PST_AUTOCAST_RESULT, /* in that of its result, by the file */
};

/* How an operator tells whether the model was exported while it trains. */
enum pst_mode_sign {
    PST_SIGN_FLAG, /* by an argument, if it has one */
    PST_SIGN_DROPOUT,
    PST_SIGN_NATIVE_DROPOUT, /* by its presence, if it has no argument */
    PST_SIGN_TRAINS,         /* by its name */
    PST_SIGN_EVALUATES,
};

struct pst_target {
    enum pst_target_kind kind;
    const char *name; /* "aten.add.Tensor" as in the file */
    const struct pst_op *op;
    const char *reason;
    unsigned tier; /* of what is not supported: 2 of an operator whose form
                      is not, 3 refused, 0 unknown */
    bool pairs;    /* operands are complex: pst_import_pairs */
    const struct pst_mover *mover; /* of pairs; NULL: a row of its own */
    bool promotes;                 /* of pairs: real operands become complex */
    bool real_parts; /* of pairs: the result is real, and made of real parts */
    bool reads_number; /* from a tensor: item() */
    enum pst_mode_sign sign;
};

#endif
