// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_STATE_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_STATE_H
/*
 * The model's state while it is made: names (state.c) and the bytes that they
 * share (windows.c). Private to these two; one thread.
 */
#include "stages/frontend/import/nodes.h"

struct pst_state_base;

/* One tensor: names of one window on one record. */
struct pst_state_group {
    enum pst_value_kind kind;
    struct pst_weight const *weight; /* of the name that stands for it */
    const char *placeholder;         /* NULL: not among the graph's inputs */
    bool used, requires_grad, persistent;
    unsigned n_members;
    struct pst_value *value;
    struct pst_state_base *base; /* its bytes; NULL: its own */
    int64_t offset;              /* in base's value */
};

/* Bytes that several groups look into. */
struct pst_state_base {
    const struct pst_weight *weight; /* all of the bytes, in their order */
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

/* windows.c: finds buffers, and constants, of which bytes are the same, and
 * gives their groups bases. Whatever else shares bytes stays as it is. */
enum pst_status pst_state_find_bases(struct pst_state *s) PST_MUST_CHECK;
/* Tells the model which names look into which bases; values must be made. */
enum pst_status pst_state_name_windows(struct pst_state *s) PST_MUST_CHECK;

#endif
