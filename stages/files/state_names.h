// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_STATE_NAMES_H
#define PENSTOCK_STAGES_FILES_STATE_NAMES_H
/*
 * The keys of a model's state_dict, and what has the values of each: tied names
 * share a tensor, names of parts of a storage are windows on it. With it a
 * checkpoint or a plan becomes one file that PyTorch loads. One thread.
 */
#include "stages/base/arena.h"
#include "stages/base/map.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"
#include "stages/files/lora/merge.h"

/* What names of peft's files begin with. */
#define PST_PEFT_PREFIX "base_model.model."

struct pst_state_name {
    const char *key;    /* of the state_dict */
    const char *tensor; /* "param.FQN", "buffer.FQN": as in checkpoints */
    bool is_complex;    /* pairs of f32 that are complex64 in the state_dict */
    bool is_window;     /* on that tensor; else all of it */
    struct pst_meta meta; /* of a window; the dtype is the tensor's */
    int64_t offset;       /* elements */
};

/* A parameter whose optimizer states began later than the run. */
struct pst_state_since {
    const char *param; /* its first name */
    uint64_t updates;  /* of the run before that */
};

struct pst_state_names {
    struct pst_arena arena;
    struct PST_VEC(struct pst_state_name) all;
    struct pst_map keys;
    struct pst_adapters adapters; /* of tensors, named as `tensor` is */
    /* Tensors that training has other values of than the model had; known of
     * models with adapters, which are among them. */
    struct PST_VEC(const char *) changed;
    struct PST_VEC(struct pst_state_since) since;
    bool merges; /* weights are written with what their adapters add */
};

void pst_state_names_init(struct pst_state_names *names);
void pst_state_names_fini(struct pst_state_names *names);
/* Texts are copied; PST_ERR_INPUT if the key is there already. */
enum pst_status pst_state_names_add(struct pst_state_names *names,
                                    const struct pst_state_name *name,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* The name is copied. */
enum pst_status pst_state_names_add_since(struct pst_state_names *names,
                                          const char *param, uint64_t updates,
                                          struct pst_diag *diag) PST_MUST_CHECK;

/* Writes a safetensors file with exactly these keys, piece by piece: of windows
 * with gaps all of the span is in memory, of others a few MiB. What is at path
 * is replaced when all is written. *ret_bytes: of data. */
enum pst_status pst_state_write(const char *path,
                                const struct pst_state_names *names,
                                pst_state_find_fn find, void *ctx,
                                uint64_t *ret_bytes,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Leaves the keys that the model had before it was given adapters, whose
 * weights are to be written with what these add. PST_ERR_INPUT: there are none;
 * PST_ERR_UNSUPPORTED: something reads such a weight without its adapter. */
enum pst_status pst_state_names_merge(struct pst_state_names *names,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Those of them that are no adapters': how many, and the first keys. */
size_t pst_state_names_left_out(const struct pst_state_names *names,
                                struct pst_str *out);
/* Pairs of names of layers that have one adapter and all tensors in common: how
 * many, and the first. They may be one module, which peft knows by its first
 * name alone: what the model computes by the other has no adapter there. */
size_t pst_state_names_twins(const struct pst_state_names *names,
                             struct pst_str *out);
/* Leaves the adapters, by peft's keys; *ret_config: its adapter_config.json, to
 * be freed by pst_str_fini. PST_ERR_INPUT: there are none. */
enum pst_status pst_state_names_peft(struct pst_state_names *names,
                                     pst_state_find_fn find, void *ctx,
                                     struct pst_str *ret_config,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
