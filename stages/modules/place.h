// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_PLACE_H
#define PENSTOCK_STAGES_MODULES_PLACE_H
/* A replacement under way (replace.h): what it works on, and the nodes of the
 * new graph. Private to this folder. */
#include "stages/modules/frames.h"
#include "stages/modules/renaming.h"
#include "stages/modules/unify.h"
#include "stages/passes/replay.h"

struct pst_replacer {
    const struct pst_model *old;
    const char *path;               /* of the module that goes */
    int call;                       /* index of one call of it; -1: all */
    bool aliases;                   /* also at its other names */
    const struct pst_model *module; /* that comes */
    struct pst_model *model;        /* in the making */
    struct pst_graph *graph;        /* its graph */
    struct pst_renaming names;
    struct pst_frames frames;
    struct pst_replay replay;     /* of the old graph */
    struct pst_value **current;   /* by old value id: what a buffer holds now */
    const struct pst_graph *file; /* the new module's */
    struct pst_replay inner;      /* of it */
    struct pst_value **state;     /* by its value id: what its state is here */
    struct pst_value **holds;     /* and what a buffer holds now */
    struct pst_leaves arguments, results; /* the file's */
    bool *done;                           /* by frame */
    struct pst_sizes sizes;               /* of the model */
    struct pst_build sizing;              /* that knows them; no nodes */
    bool fixed; /* some are free at a call, and not in the file */
    struct pst_diag *diag;
};

/* All nodes of the new graph, whose given values are there. */
enum pst_status pst_replacer_place(struct pst_replacer *r) PST_MUST_CHECK;

#endif
