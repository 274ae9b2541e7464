// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_LORA_ADAPTERS_H
#define PENSTOCK_STAGES_FILES_LORA_ADAPTERS_H
/*
 * Low-rank adapters: a layer y = x W^T (+ bias) becomes y + alpha / rank *
 * ((x A^T) B^T), and A (rank, in) and B (out, rank) are trained in W's place.
 * Layers of one W have one A and B, and each is in the list.
 * One thread.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/vec.h"
#include "stages/graph/tensor.h"

#include <stdbool.h>

struct pst_adapter {
    const char *module;    /* FQN of the layer */
    const char *weight;    /* the tensor W, by the name that the state has */
    const char *down, *up; /* A, B */
    double alpha;
    bool transposed; /* W is (in, out), as in transformers' Conv1D */
    /* Something without the adapter reads W too, so that no W alone does what
     * both did. */
    bool shared;
};

/* Adapters that are asked for. */
struct pst_lora {
    const char *pattern; /* of FQNs of modules; with * and ? */
    int64_t rank;
    double alpha;
};

struct pst_adapters PST_VEC(struct pst_adapter);

/* Appends a copy whose texts live in the arena. */
enum pst_status pst_adapters_add(struct pst_adapters *list,
                                 struct pst_arena *arena,
                                 const struct pst_adapter *adapter,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* That of a weight; NULL: it has none. */
const struct pst_adapter *pst_adapters_of(const struct pst_adapters *list,
                                          const char *weight);
/* The shapes of W, A and B, as far as there are such tensors (NULL: there is
 * none): PST_ERR_INPUT if they are none of an adapter. */
enum pst_status pst_adapter_check(const struct pst_adapter *adapter,
                                  const struct pst_meta *weight,
                                  const struct pst_meta *down,
                                  const struct pst_meta *up,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
