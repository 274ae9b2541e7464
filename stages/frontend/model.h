// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_MODEL_H
#define PENSTOCK_STAGES_FRONTEND_MODEL_H
/*
 * Reader of the modern .pt2 (torch >= 2.9). The file is untrusted: every size,
 * offset, name and index is checked before use. Nothing is extracted to
 * disk, no pickle is read, no library is loaded. One thread at a time.
 */
#include "stages/base/host/fs.h"
#include "stages/files/lora/adapters.h"
#include "stages/graph/graph.h"
#include "stages/graph/symbol.h"
#include "stages/passes/pass.h"

struct pst_zip_entry;
struct pst_model;

/* One tensor of the state: a window on a stored record. */
struct pst_weight {
    const char *fqn;
    const char *record;          /* name below data/, identity of the storage */
    struct pst_meta meta;        /* sizes and strides within the record */
    int64_t offset;              /* elements */
    struct pst_zip_entry *entry; /* that record; pst_model_read reads it */
    const void *data; /* first element, of a model that is in memory only */
    const struct pst_model *home; /* whose file has the record; NULL: its own */
    /* Not NULL: gives all of it, contiguous, of a model that has no file. */
    enum pst_status (*read)(void *ctx, unsigned number, void *dst,
                            struct pst_diag *diag);
    void *ctx;
    unsigned number;
    bool is_param, requires_grad;
    /* With `read`: its readers round it so (struct pst_plan_param). */
    bool rounded;
    enum pst_dtype rounds;
    bool is_complex; /* its last dimension has the two parts of a number */
    bool stored;     /* the record has bytes for it */
    bool absent;     /* zero-length record of a non-empty tensor */
};

/* Names that are one and the same tensor. */
struct pst_tie {
    const char *fqn;      /* the name used by the graph's value */
    const char **aliases; /* all other names */
    unsigned n_aliases;
};

/* A value of the state that several names of the model look into, other than
 * all of it: the bytes that they share are kept once. */
struct pst_state_storage {
    const char *fqn; /* of the value */
    bool nameless;   /* fqn is none of the model's names */
    const struct pst_named_window *windows;
    unsigned n_windows;
};

struct pst_model {
    struct pst_arena arena;
    const char *name; /* of the file, without folder and suffix */
    const char *torch_version;
    bool decomposed;         /* functional form: detach and no_grad are lost */
    struct pst_graph *graph; /* functional; owned */
    struct PST_VEC(struct pst_weight) weights;
    struct pst_map weights_by_fqn; /* -> struct pst_weight */
    struct pst_symbols symbols;    /* free sizes, at their export */
    const char *fixed; /* why other sizes cannot be had all the same, or NULL */
    /*
     * The file says that the model was exported in eval mode: a node of
     * dropout, batch norm, instance norm, rrelu or a recurrent layer says that
     * the model does not train, and none says that it does. Norms without
     * running statistics say nothing: they take the batch's in both modes.
     */
    bool evaluates;
    /* Where a torch.autograd.Function stood whose backward the file does not
     * have, for messages; NULL: none that a gradient goes through. */
    const char *lost;
    /* The program writes what is not its state in place, so that it matters
     * which values share memory. */
    bool writes;
    struct PST_VEC(struct pst_tie) ties;
    struct PST_VEC(struct pst_state_storage) storages;
    struct pst_adapters adapters;         /* that it was given */
    struct PST_VEC(const char *) modules; /* FQNs without the root's */
    struct PST_VEC(const char *) notes;   /* warnings for the user */
    char digest[33];
    char identity[33]; /* identity.h; "": not known */
    /* The leaves of its arguments in their order: inputs of the graph, and
     * literals that the export took for constants. */
    struct PST_VEC(struct pst_call_leaf) arguments;
    void *file; /* the archive; NULL of a model in memory */
};

/* Empty, in the heap. */
enum pst_status pst_model_new(struct pst_model **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Opens, checks, imports and normalises: after this the graph is functional
 * (no node writes), sub-graphs of wrap_with_set_grad_enabled are inlined,
 * _assert_* and no-op nodes are gone, tied parameters are one value.
 * All unsupported operators are named in one message: operator, module,
 * source line, reason.
 */
enum pst_status pst_model_open(const char *path, struct pst_model **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* The same up to and with the pass called last (NULL: all). Before pass
 * "inputs" there is no graph. */
enum pst_status pst_model_open_after(const char *path, const char *last,
                                     struct pst_model **ret,
                                     struct pst_diag *diag) PST_MUST_CHECK;
extern const struct pst_pass_table pst_frontend_passes;
void pst_model_close(struct pst_model *model);
const struct pst_weight *pst_model_weight(const struct pst_model *model,
                                          const char *fqn);
/* The values of a weight, as `to` has them (of the same shape, any strides and
 * dtype), into dst. The record's checksum is verified. */
enum pst_status pst_model_read(const struct pst_model *model,
                               const struct pst_weight *weight,
                               const struct pst_meta *to, void *dst,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
