// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_LORA_LINEAR_H
#define PENSTOCK_STAGES_MODULES_LORA_LINEAR_H
/*
 * Recognises calls that are linear layers: one matmul of the call's input with
 * a parameter, and possibly a bias. Values belong to the graph, which must
 * outlive them. One thread.
 */
#include "stages/modules/frames.h"

struct pst_linear {
    struct pst_value *x, *y; /* input (..., in) and result (..., out) */
    struct pst_value *weight;
    bool transposed; /* the weight is (in, out) */
    int64_t in, out;
    const struct pst_node *product;
    unsigned n_nodes;
    char why[160]; /* why this module cannot be adapted; "" if it can */
};

/* Reads every frame; the result has one entry per frame. */
enum pst_status pst_linears_read(const struct pst_frames *frames,
                                 const struct pst_graph *graph,
                                 struct pst_arena *arena,
                                 struct pst_linear **ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
