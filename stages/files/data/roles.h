// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_ROLES_H
#define PENSTOCK_STAGES_FILES_DATA_ROLES_H
/*
 * Roles of the inputs of a model of tokens: an input gets tokens, targets, or
 * numbers computed from the positions of the tokens. The same rule holds for
 * files of tokens and for a prompt (docs/files.md). Any thread.
 */
#include "stages/graph/tensor.h"

enum pst_role {
    PST_ROLE_NONE, /* unknown */
    PST_ROLE_TOKENS,
    PST_ROLE_TARGETS,   /* the next tokens */
    PST_ROLE_POSITIONS, /* positions within a document */
    PST_ROLE_DOCUMENTS, /* numbers of documents */
    /* (..., T, T), bool or float: the tokens that each token may attend to */
    PST_ROLE_MASK,
    /* shape of the tokens, integer or bool: 1 for a token, 0 for padding */
    PST_ROLE_ONES,
};

struct pst_role_input {
    const char *name;
    struct pst_meta meta;
    enum pst_role role; /* set by pst_roles_find */
};

/* Names given by the user; NULL: none. */
struct pst_role_names {
    const char *tokens, *targets, *positions, *documents, *mask;
    /* windows are packed, so that `mask` has to separate documents */
    bool packed;
    /* Whether the data has targets. If not, an input gets that role only by
     * name, never by its number and shape. */
    bool has_targets;
};

/*
 * Sets the role of each input: by the names given, else by usual names, else by
 * its number and shape. An input with the usual name of another role never gets
 * tokens or targets unless it is given for them. PST_E_DATA_NO_TENSOR: a given
 * input does not exist; PST_E_DATA_SHAPE: it does not fit.
 */
enum pst_status pst_roles_find(const struct pst_role_names *given,
                               struct pst_role_input *inputs, size_t n,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the index of the first input with the role; -1: none. */
int pst_roles_index(const struct pst_role_input *inputs, size_t n,
                    enum pst_role role);

#endif
