// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_MODULES_LORA_ADAPTING_H
#define PENSTOCK_STAGES_MODULES_LORA_ADAPTING_H
/* Selects the layers that get adapters (lora.h). Private to this folder. One
 * thread. */
#include "stages/frontend/model.h"
#include "stages/graph/sizes/extent.h"
#include "stages/modules/lora/linear.h"
#include "stages/passes/replay.h"

/* One adapter. All calls of modules (frames, stages/modules/frames.h) with the
 * same weight share it. */
struct pst_lora_pair {
    const struct pst_linear *linear; /* linear layer of its first frame */
    const char *module;
    int lora;
    struct pst_value *down, *up; /* the parameters A and B */
};

/* A module that has adapter number `pair`. */
struct pst_lora_module {
    const char *path;
    size_t pair;
};

struct pst_adapting {
    const struct pst_model *old;
    const struct pst_lora *loras;
    size_t n_loras;
    uint64_t seed;
    struct pst_model *model; /* under construction */
    struct pst_graph *graph;
    struct pst_arena *arena; /* arena of the new model */
    int *chosen;             /* by call id: index in loras, or -1 */
    struct pst_frames frames;
    struct pst_linear *linears; /* linear layer of each frame */
    struct PST_VEC(struct pst_lora_pair) pairs;
    struct PST_VEC(struct pst_lora_module) modules; /* without duplicates */
    int *pair_of; /* adapter of a weight, by value id; -1: none */
    struct pst_replay replay;
    struct pst_build build; /* for new nodes, with size expressions */
    struct pst_sizes sizes;
    struct pst_diag *diag;
};

/* Fills frames, linears, pairs, modules and pair_of. The caller releases
 * frames, also after an error. */
enum pst_status pst_adapting_choose(struct pst_adapting *a) PST_MUST_CHECK;

#endif
