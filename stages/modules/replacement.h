// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_REPLACEMENT_H
#define PENSTOCK_STAGES_MODULES_REPLACEMENT_H
/* State of a replacement (replace.h), and the nodes of the new graph. Private
 * to this folder. */
#include "stages/modules/frames.h"
#include "stages/modules/renaming.h"
#include "stages/modules/unify.h"
#include "stages/passes/replay.h"

struct pst_replacer {
    const struct pst_model *old;
    const char *path; /* the old module; one of its names */
    int call;         /* number of one call of it; -1: all */
    bool aliases;     /* also replace calls under its other names */
    const struct pst_model *module; /* the new module */
    struct pst_model *model;        /* under construction */
    struct pst_graph *graph;        /* graph of `model` */
    struct pst_renaming names;
    struct pst_frames frames;
    struct pst_replay replay;   /* copies the old graph */
    struct pst_value **current; /* by old value id: current value of a buffer */
    const struct pst_graph *file; /* graph of the new module */
    struct pst_replay inner;      /* copies the file's graph */
    struct pst_value **state;     /* by value id of the file: its state in the
                                     new graph */
    /* like `state`, but for a buffer that is updated: its current value */
    struct pst_value **holds;
    struct pst_frame_leaves arguments, results; /* leaves of the file */
    bool *done;              /* by frame: its nodes are in the new graph */
    struct pst_sizes sizes;  /* sizes of the new model */
    struct pst_build sizing; /* has the sizes; emits no nodes */
    bool fixed; /* a call has a symbolic size where the file has a number */
    struct pst_diag *diag;
};

/* Emits all nodes of the new graph, whose inputs and state exist. */
enum pst_status pst_replacer_place(struct pst_replacer *r) PST_MUST_CHECK;

#endif
