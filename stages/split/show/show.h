// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_SHOW_SHOW_H
#define PENSTOCK_STAGES_SPLIT_SHOW_SHOW_H
/* Helpers shared by the printed forms of a plan (pst_plan_print and similar in
 * stages/split/plan.h). Any thread, one at a time. */
#include "stages/base/str.h"
#include "stages/split/plan.h"

/* Appends an amount, right-aligned, such as "1.3 M"; `step` is 1000 for counts
 * and 1024 for bytes. */
void pst_show_amount(struct pst_str *out, int width, double x, double step,
                     const char *unit);
/* Returns the number of elements of the parameters that a stage reads. */
int64_t pst_show_params(const struct pst_graph *graph);
/* Appends the range of the graph's modules: "layers.0 .. layers.5". */
void pst_show_modules(struct pst_str *out, const struct pst_graph *graph);
/* Groups a stage's operators by module call, in order: the calls directly
 * inside the innermost call that contains all operators. Returns the number of
 * groups; *ret_more: number of groups beyond PST_SHOW_GROUPS. */
#define PST_SHOW_GROUPS 24
struct pst_show_group {
    const struct pst_module_call *call;
    unsigned operators;
    double flops;
};
unsigned pst_show_groups(const struct pst_graph *graph,
                         struct pst_show_group ret[PST_SHOW_GROUPS],
                         unsigned *ret_more);
/* Appends the group's name: "layers.3", "(model)". */
void pst_show_group_name(struct pst_str *out,
                         const struct pst_show_group *group);
/* True for a parameter or buffer that several stages read. */
bool pst_show_is_shared(const struct pst_plan_param *param);

#endif
