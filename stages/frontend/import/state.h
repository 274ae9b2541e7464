// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_STATE_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_STATE_H
/*
 * State of importing the model's tensors: names (state.c) and bytes that they
 * share (windows.c). Private to these two files; one thread.
 */
#include "stages/frontend/import/nodes.h"

struct pst_state_base;

/* One tensor: all names for one window of one record. */
struct pst_state_group {
    enum pst_value_kind kind;
    struct pst_weight const *weight; /* the weight of its canonical name */
    const char *placeholder;         /* NULL: not among the graph's inputs */
    bool used, requires_grad, persistent;
    unsigned n_members;
    struct pst_value *value;
    struct pst_state_base *base; /* NULL: shares no bytes */
    int64_t offset;              /* first element in base's value */
};

/* Bytes shared by several groups. */
struct pst_state_base {
    const struct pst_weight *weight; /* weight that covers all of the bytes */
    bool nameless;
    bool persistent;
    struct pst_value *value;
};

struct pst_state_member {
    const struct pst_weight *weight;
    const char *placeholder;
    struct pst_state_group *group;
};

struct pst_state {
    struct pst_import *import;
    struct pst_map groups; /* identity -> struct pst_state_group */
    struct PST_VEC(struct pst_state_member) members;
    struct pst_arena arena;
};

/* windows.c: makes bases for buffers that have bytes in common, and for such
 * constants. Other tensors that share bytes stay separate. */
enum pst_status pst_state_find_bases(struct pst_state *s) PST_MUST_CHECK;
/* Records in the model, for each base, the names of its windows. The bases must
 * have values. */
enum pst_status pst_state_name_windows(struct pst_state *s) PST_MUST_CHECK;

#endif
