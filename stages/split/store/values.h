// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_STORE_VALUES_H
#define PENSTOCK_STAGES_SPLIT_STORE_VALUES_H
/*
 * Where the start values of a plan's parameters come from (values.c): its own
 * files if it was loaded; else what was given for them (give.c), else the
 * model's file. Private to the splitter. One thread at a time.
 */
#include "stages/base/str.h"
#include "stages/files/given.h"
#include "stages/split/plan.h"

/* What was given for one parameter. */
struct pst_given_param {
    const struct pst_safetensors_entry *whole;    /* or NULL */
    const struct pst_safetensors_entry **windows; /* by window, with NULLs; NULL
                                                     if none was given */
    bool nan; /* a note says that it has a NaN */
};

struct pst_plan_given {
    struct pst_given *files;
    struct pst_given_param *params; /* by index */
};

/* The first ten of them, for a message. */
struct pst_name_list {
    size_t n;
    struct pst_str text;
};
void pst_name_list_add(struct pst_name_list *list, const char *name);

/* A note for the user, kept in the plan; takes text. */
enum pst_status pst_plan_note(struct pst_plan *plan, struct pst_str *text,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* False of a model that was exported without weights, as long as none were
 * given for this parameter. */
bool pst_plan_has_values(const struct pst_plan *plan, unsigned i);
/* PST_ERR_INPUT that names those without. */
enum pst_status pst_plan_check_values(const struct pst_plan *plan,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Whether pst_plan_read_part can have it: else all of it is read at once. */
bool pst_plan_reads_parts(const struct pst_plan *plan, unsigned i);
/* `bytes` from byte `begin` on, both multiples of the element's size. */
enum pst_status pst_plan_read_part(struct pst_plan *plan, unsigned i,
                                   size_t begin, size_t bytes, void *dst,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
