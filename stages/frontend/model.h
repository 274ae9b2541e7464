// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_MODEL_H
#define PENSTOCK_STAGES_FRONTEND_MODEL_H
/*
 * Reader of the current .pt2 format (torch >= 2.9). The file is untrusted:
 * every size, offset, name and index is checked before use. Nothing is
 * extracted to disk, no pickle is read, no library is loaded. One thread at a
 * time.
 */
#include "stages/base/host/fs.h"
#include "stages/files/lora/adapters.h"
#include "stages/graph/graph.h"
#include "stages/graph/sizes/symbol.h"
#include "stages/passes/pass.h"

struct pst_zip_entry;
struct pst_model;

/* One tensor of the state: a window of a stored record. */
struct pst_weight {
    const char *fqn;
    const char *record;          /* name below data/; the same: one storage */
    struct pst_meta meta;        /* sizes and strides within the record */
    int64_t offset;              /* first element, in elements of the dtype */
    struct pst_zip_entry *entry; /* archive entry of the record */
    const void *data; /* first element, for a model in memory; else NULL */
    const struct pst_model *source; /* model that has the record; NULL: this */
    /* For a model without a file, else NULL: reads the whole tensor,
     * contiguous. */
    enum pst_status (*read)(void *ctx, unsigned number, void *dst,
                            struct pst_diag *diag);
    void *ctx;
    unsigned number;
    bool is_param, requires_grad;
    /* With `read`: nodes that read the weight round it to dtype `rounds` (see
     * struct pst_plan_param). */
    bool rounded;
    enum pst_dtype rounds;
    bool is_complex; /* the last dimension has real and imaginary part */
    bool stored;     /* the record has bytes for the tensor */
    bool absent;     /* zero-length record of a non-empty tensor */
};

/* All names of one tensor. */
struct pst_tie {
    const char *fqn;      /* name of its value in the graph */
    const char **aliases; /* all other names */
    unsigned n_aliases;
};

/* A value of the state whose parts have names. Bytes that parts share are
 * stored once. */
struct pst_state_storage {
    const char *fqn; /* name of the value */
    bool nameless;   /* fqn is not a name of the model */
    const struct pst_named_window *windows;
    unsigned n_windows;
};

struct pst_model {
    struct pst_arena arena;
    const char *name; /* file name, without directory and suffix */
    const char *torch_version;
    bool decomposed;         /* functional: detach, no_grad are lost */
    struct pst_graph *graph; /* functional; owned */
    struct PST_VEC(struct pst_weight) weights;
    struct pst_map weights_by_fqn; /* FQN -> struct pst_weight */
    struct pst_symbols symbols;    /* symbolic sizes: values at export */
    const char *fixed; /* why symbolic sizes cannot be changed, or NULL */
    /*
     * The model was exported in eval mode: some node of dropout, batch norm,
     * instance norm, rrelu or a recurrent layer shows evaluation, and none
     * shows training. Norms without running statistics do not count: they use
     * the statistics of the batch in both modes.
     */
    bool evaluates;
    /* "bf16" or "f16": the dtype of --autocast (import/autocast.def); NULL: the
     * model computes as in the file. n_casts: number of casts by autocast,
     * including regions in the file. */
    const char *autocast;
    size_t n_casts;
    /* For messages: source lines of torch.autograd.Functions whose backward is
     * missing from the file. NULL if no gradient passes through one. */
    const char *lost;
    /* The program writes values other than its state in place, so it matters
     * which values share memory. */
    bool writes;
    struct PST_VEC(struct pst_tie) ties;
    struct PST_VEC(struct pst_state_storage) storages;
    struct pst_adapters adapters;         /* LoRA adapters that were added */
    struct PST_VEC(const char *) modules; /* FQNs of all modules but the root */
    struct PST_VEC(const char *) notes;   /* warnings for the user */
    char digest[33];
    char identity[33]; /* identity.h; "": unknown */
    /* The leaves of the model's arguments in order: inputs of the graph, and
     * literals that the export turned into constants. */
    struct PST_VEC(struct pst_call_leaf) arguments;
    void *file; /* the archive; NULL for a model in memory */
};

/* Allocates an empty model. */
enum pst_status pst_model_new(struct pst_model **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Opens, checks, imports and normalises a model. The graph is functional (no
 * node writes), sub-graphs of wrap_with_set_grad_enabled are inlined, _assert_*
 * and no-op nodes are removed, tied parameters are one value. One message lists
 * all unsupported operators with module, source line and reason.
 */
enum pst_status pst_model_open(const char *path, struct pst_model **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* As pst_model_open, but only runs the passes up to and including `last` (NULL:
 * all). There is no graph before pass "inputs". */
enum pst_status pst_model_open_after(const char *path, const char *last,
                                     struct pst_model **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
/* As pst_model_open, but the model computes as under torch.autocast with this
 * dtype: "bf16", "f16", or NULL for none. Casts in the file stay. Borrows
 * autocast. */
enum pst_status pst_model_open_cast(const char *path, const char *autocast,
                                    struct pst_model **ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
extern const struct pst_pass_table pst_frontend_passes;
void pst_model_close(struct pst_model *model);
const struct pst_weight *pst_model_weight(const struct pst_model *model,
                                          const char *fqn);
/* Reads the values of a weight into dst, converted to the strides and dtype of
 * `to` (of the same shape). Verifies the record's checksum. */
enum pst_status pst_model_read(const struct pst_model *model,
                               const struct pst_weight *weight,
                               const struct pst_meta *to, void *dst,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
