// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_LAYOUT_GROUPS_RULES_H
#define PENSTOCK_STAGES_LAYOUT_GROUPS_RULES_H
/* The rules of groups of parameters (groups.h) as structs. One thread. */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/vec.h"

#include <stdbool.h>

#define PST_RULES_MAX 64

enum pst_term_kind {
    PST_TERM_PATTERN,
    PST_TERM_NDIM,
    PST_TERM_TYPE,
    PST_TERM_WORD
};
enum pst_term_word {
    PST_TERM_NORMS,
    PST_TERM_BIASES,
    PST_TERM_EMBEDDINGS,
    PST_TERM_LAST_MATRIX,
    PST_TERM_OTHERS
};

struct pst_term {
    enum pst_term_kind kind;
    bool or_next;     /* the rule needs this term or the next one */
    const char *glob; /* PATTERN, TYPE */
    enum pst_term_word word;
    int64_t least, most; /* NDIM: range of the number of dimensions */
    bool outside;        /* NDIM: holds outside of the range */
};

struct pst_rule_setting {
    const char *name, *value;
};

struct pst_rule {
    const char *text;
    struct PST_VEC(struct pst_term) terms;
    struct PST_VEC(struct pst_rule_setting) settings;
    bool is_default; /* the optimizer's own rule, not the user's */
    bool holds;      /* set by groups.c: the rule holds for some parameter */
};

struct pst_rules PST_VEC(struct pst_rule);

/* Reads rules separated by ';' (may be NULL), after "others:optimizer=OTHERS"
 * and the rule of no_decay ("A,B"; both may be NULL). Texts are in the arena.
 * PST_ERR_USAGE: a rule cannot be read. Release with pst_rules_fini also on
 * failure. */
enum pst_status pst_rules_read(struct pst_rules *ret, struct pst_arena *arena,
                               const char *others, const char *no_decay,
                               const char *text,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_rules_fini(struct pst_rules *rules);

#endif
