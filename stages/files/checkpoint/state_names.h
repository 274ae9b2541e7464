// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_CHECKPOINT_STATE_NAMES_H
#define PENSTOCK_STAGES_FILES_CHECKPOINT_STATE_NAMES_H
/*
 * The keys of a model's state_dict, and the tensor with the values of each:
 * tied names share a tensor, names of parts of a storage are views of it. They
 * let a checkpoint or a plan become one file that PyTorch loads. One thread.
 */
#include "stages/base/arena.h"
#include "stages/base/map.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"
#include "stages/files/lora/merge.h"

/* Prefix of names in peft's files. */
#define PST_PEFT_PREFIX "base_model.model."

struct pst_state_name {
    const char *key;    /* key in the state_dict */
    const char *tensor; /* "param.FQN" or "buffer.FQN", as in checkpoints */
    bool is_complex;    /* pairs of f32 that are complex64 in the state_dict */
    /* the values are a view of that tensor; false: the whole tensor */
    bool is_window;
    struct pst_meta meta; /* meta of the view; the dtype is the tensor's */
    int64_t offset;       /* offset of the view, in elements */
};

/* A parameter whose optimizer states began later than the run. */
struct pst_state_since {
    const char *param; /* first name of the parameter */
    uint64_t updates;  /* updates of the run before the states began */
};

struct pst_state_names {
    struct pst_arena arena;
    struct PST_VEC(struct pst_state_name) all;
    struct pst_map keys;
    /* with tensors named as in pst_state_name.tensor */
    struct pst_adapters adapters;
    /* Names of tensors whose values training has changed, those of adapters
     * included; known only for models with adapters. */
    struct PST_VEC(const char *) changed;
    struct PST_VEC(struct pst_state_since) since;
    bool merges; /* weights are written with their adapters merged */
};

void pst_state_names_init(struct pst_state_names *names);
void pst_state_names_fini(struct pst_state_names *names);
/* Adds a key; copies the texts. PST_ERR_INPUT if the key exists already. */
enum pst_status pst_state_names_add(struct pst_state_names *names,
                                    const struct pst_state_name *name,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Adds a parameter to `since`; copies its name. */
enum pst_status pst_state_names_add_since(struct pst_state_names *names,
                                          const char *param, uint64_t updates,
                                          struct pst_diag *diag) PST_MUST_CHECK;

/* Writes a safetensors file with exactly these keys, piece by piece: a view
 * with gaps needs its whole span in memory, other tensors a few MiB. The file
 * at path is replaced once everything is written. *ret_bytes: bytes of data. */
enum pst_status pst_state_write(const char *path,
                                const struct pst_state_names *names,
                                pst_state_find_fn find, void *ctx,
                                uint64_t *ret_bytes,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Keeps only the keys that the model had before adapters were added; weights
 * will be written with their adapters merged. PST_ERR_INPUT: there are no
 * adapters; PST_ERR_UNSUPPORTED: a weight is also read without its adapter. */
enum pst_status pst_state_names_merge(struct pst_state_names *names,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Counts the tensors that training has changed and that pst_state_names_peft
 * leaves out, and appends the first names. */
size_t pst_state_names_left_out(const struct pst_state_names *names,
                                struct pst_str *out);
/* Counts pairs of layers that have one adapter and all tensors in common, and
 * appends the first. The two may be names of one module. peft knows it by its
 * first name only, so that calls by the second name have no adapter in peft. */
size_t pst_state_names_shared_adapters(const struct pst_state_names *names,
                                       struct pst_str *out);
/* Keeps only adapters and the modules that peft saves whole (modules_to_save):
 * those without an adapter of which a parameter was trained. Renames the keys
 * as peft does. *ret_config: the text of adapter_config.json, to be freed by
 * pst_str_fini. PST_ERR_INPUT: there are no adapters. */
enum pst_status pst_state_names_peft(struct pst_state_names *names,
                                     pst_state_find_fn find, void *ctx,
                                     struct pst_str *ret_config,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
