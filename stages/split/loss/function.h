// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_LOSS_FUNCTION_H
#define PENSTOCK_STAGES_SPLIT_LOSS_FUNCTION_H
/*
 * --loss-fn: function.c parses options and finds inputs, emit.c has the
 * functions and emits their nodes. Private to this folder.
 */
#include "stages/graph/build.h"
#include "stages/split/loss/loss.h"

/* Options of --loss-fn, after the colon. */
struct pst_loss_options {
    const char *output; /* path or number of the output; NULL: not given */
    const char *target;
    const char *reduction; /* "mean" or "sum" */
    int64_t ignore_index;
    /* dimension of the classes; INT64_MIN: not given, see class_dim() */
    int64_t dim;
    bool probabilities; /* the target has a probability for each class */
    double smoothing;   /* label smoothing */
    double number;      /* pos_weight, beta or delta of the function */
};

struct pst_loss_adder {
    struct pst_splitter *s;
    const struct pst_loss_function *function;
    struct pst_loss_options options;
    struct pst_build build;
    const char *path;    /* path of the output that the loss is applied to */
    struct pst_value *x; /* the output that the loss is applied to */
    struct pst_value *target;
};

/* Bits for the options that a function takes, besides output, target and
 * reduction. */
enum {
    PST_LOSS_IGNORE = 1,
    PST_LOSS_SMOOTHING = 2,
    PST_LOSS_DIM = 4,
    PST_LOSS_TARGETS = 8,
    PST_LOSS_POS_WEIGHT = 16,
    PST_LOSS_BETA = 32,
    PST_LOSS_DELTA = 64
};

struct pst_loss_function {
    const char *name;
    unsigned takes;
    /* the output has C classes; false: the loss is elementwise */
    bool classes;
    struct pst_value *(*emit)(struct pst_loss_adder *a);
};

/* Reshapes the output from (..., C) to (N, C) and the target to (N), since the
 * operators expect the classes in dimension 1. */
void pst_loss_flatten(struct pst_loss_adder *a, unsigned dim);
/* Finds the function of that name. */
enum pst_status pst_loss_choose(struct pst_loss_adder *a,
                                const char *name) PST_MUST_CHECK;

#endif
