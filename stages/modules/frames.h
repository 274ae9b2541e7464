// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_FRAMES_H
#define PENSTOCK_STAGES_MODULES_FRAMES_H
/*
 * Calls of a graph that are to be replaced, with the inputs and results of
 * each. Values belong to the graph, which must outlive the frames. One thread.
 */
#include "stages/graph/graph.h"

/* An input or result of a call or of a file: a tensor or a literal. */
struct pst_leaf {
    const char *path;
    struct pst_arg arg; /* IGNORED: a tensor that is not computed */
};
struct pst_frame_leaves {
    struct PST_VEC(struct pst_leaf) at;
};

struct pst_frame {
    const struct pst_module_call *call;
    bool is_signed;
    bool no_grad; /* all nodes are under torch.no_grad() */
    int stage;    /* stage of its nodes; -1: none is assigned */
    /* Inputs and results of the call's signature. Without a signature these are
     * tensors only: inputs in order of first use, results in order of
     * computation. */
    struct pst_frame_leaves ins, outs;
    struct PST_VEC(unsigned) ids; /* ids of its nodes, in order */
};

struct pst_frames {
    struct pst_arena arena;
    struct PST_VEC(struct pst_frame) at; /* in order of entry */
    /* By call id: index of the frame that the call is or lies in, or -1. */
    int *frame_of;
};

/* Makes a frame of each call for which `wanted` returns true; calls inside a
 * frame belong to that frame. own: returns true for state of the module itself,
 * which is not an input. */
typedef bool (*pst_frame_call_fn)(void *ctx,
                                  const struct pst_module_call *call);
typedef bool (*pst_frame_own_fn)(void *ctx, const struct pst_value *state);
enum pst_status pst_frames_init(struct pst_frames *frames,
                                const struct pst_graph *graph,
                                pst_frame_call_fn wanted, pst_frame_own_fn own,
                                void *ctx,
                                struct pst_diag *diag) PST_MUST_CHECK;
void pst_frames_fini(struct pst_frames *frames);

static inline int pst_frames_of(const struct pst_frames *frames,
                                const struct pst_module_call *call)
{
    return frames->frame_of[call->id];
}

/* match.c: maps every tensor argument of the file (in order, in ins) to a leaf
 * of the frame, and every result of the frame to a result of the file (in outs;
 * -1 if it is unused). arguments, results: of the file. strict: literals of the
 * file must equal those of the call. */
struct pst_match {
    int *ins, *outs;
};
enum pst_status pst_frame_match(const struct pst_frame *frame,
                                const struct pst_frame_leaves *arguments,
                                const struct pst_frame_leaves *results,
                                bool strict, struct pst_arena *arena,
                                struct pst_match *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
