// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_LORA_ADAPTERS_H
#define PENSTOCK_STAGES_FILES_LORA_ADAPTERS_H
/*
 * Low-rank adapters (LoRA): a layer y = x W^T (+ bias) becomes y + alpha / rank
 * * ((x A^T) B^T); A (rank, in) and B (out, rank) are trained instead of W.
 * Layers that share W share A and B; each of these layers has its own entry in
 * the list. One thread.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/vec.h"
#include "stages/graph/tensor.h"

#include <stdbool.h>

struct pst_adapter {
    const char *module;    /* FQN of the layer */
    const char *weight;    /* name of the tensor W in the state */
    const char *down, *up; /* names of the tensors A and B */
    double alpha;
    bool transposed; /* W is (in, out), as in transformers' Conv1D */
    /* W is also read without the adapter, so that W cannot be replaced by a
     * merged weight */
    bool shared;
};

/* Adapters that the user requests. */
struct pst_lora {
    const char *pattern; /* glob for FQNs of modules, with * and ? */
    int64_t rank;
    double alpha;
    double dropout; /* probability that an element of x is dropped; 0: none */
};

struct pst_adapters PST_VEC(struct pst_adapter);

/* Appends a copy whose texts are in the arena. */
enum pst_status pst_adapters_add(struct pst_adapters *list,
                                 struct pst_arena *arena,
                                 const struct pst_adapter *adapter,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the adapter of a weight; NULL: it has none. */
const struct pst_adapter *pst_adapters_of(const struct pst_adapters *list,
                                          const char *weight);
/* Checks that the shapes of W, A and B fit each other; a shape that is NULL is
 * not checked. PST_ERR_INPUT if they do not fit. */
enum pst_status pst_adapter_check(const struct pst_adapter *adapter,
                                  const struct pst_meta *weight,
                                  const struct pst_meta *down,
                                  const struct pst_meta *up,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
