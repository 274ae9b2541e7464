// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_FRAMES_H
#define PENSTOCK_STAGES_MODULES_FRAMES_H
/*
 * Calls of a graph that are to give way, and what passes into and out of each.
 * Values are of the graph, which must outlive them. One thread.
 */
#include "stages/graph/graph.h"

/* A tensor or literal that a call, or a file, takes or returns. */
struct pst_leaf {
    const char *path;
    struct pst_arg arg; /* IGNORED: a tensor that nothing computes */
};
struct pst_leaves {
    struct PST_VEC(struct pst_leaf) at;
};

struct pst_frame {
    const struct pst_module_call *call;
    bool is_signed;
    bool no_grad; /* all nodes are under torch.no_grad() */
    int stage;    /* of its nodes, -1: none was given */
    /* As the signature has them; or tensors: by their first use, results in
     * the order in which they are made. */
    struct pst_leaves ins, outs;
    struct PST_VEC(unsigned) ids; /* of its nodes, in order */
};

struct pst_frames {
    struct pst_arena arena;
    struct PST_VEC(struct pst_frame) at; /* in order of entry */
    /* By id of a call of the graph: the frame that it is or lies in, or -1. */
    int *of;
};

/* Frames of all calls for which wanted is true; those in another's are none of
 * their own. own: state by these names is the module's own, no input. */
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
    return frames->of[call->id];
}

/* match.c: for every tensor that the file takes (in order, at ins) the leaf of
 * the frame, and for every result of the frame the file's (at outs; -1 where
 * nobody wants it). arguments, results: of the file. strict: its literals have
 * to be the call's. */
struct pst_match {
    int *ins, *outs;
};
enum pst_status pst_frame_match(const struct pst_frame *frame,
                                const struct pst_leaves *arguments,
                                const struct pst_leaves *results, bool strict,
                                struct pst_arena *arena, struct pst_match *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;

#endif
