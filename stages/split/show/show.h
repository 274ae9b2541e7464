// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_SHOW_SHOW_H
#define PENSTOCK_STAGES_SPLIT_SHOW_SHOW_H
/* What the forms in which a plan is shown share (pst_plan_print and its like
 * in stages/split/plan.h). Any thread, one at a time. */
#include "stages/base/str.h"
#include "stages/split/plan.h"

/* "1.3 M", right-aligned; `step` is 1000 for counts and 1024 for bytes. */
void pst_show_amount(struct pst_str *out, int width, double x, double step,
                     const char *unit);
/* Numbers in the parameters that a stage reads. */
int64_t pst_show_params(const struct pst_graph *graph);
/* "layers.0 .. layers.5" */
void pst_show_modules(struct pst_str *out, const struct pst_graph *graph);
/* The outermost calls by which a stage's operators can be told apart, runs of
 * them in order; *ret_more: that there is no room for. */
#define PST_SHOW_GROUPS 24
struct pst_show_group {
    const struct pst_module_call *call;
    unsigned operators;
    double flops;
};
unsigned pst_show_groups(const struct pst_graph *graph,
                         struct pst_show_group ret[PST_SHOW_GROUPS],
                         unsigned *ret_more);
/* "layers.3", "(model)" */
void pst_show_group_name(struct pst_str *out,
                         const struct pst_show_group *group);
/* A parameter or buffer of several stages. */
bool pst_show_is_shared(const struct pst_plan_param *param);

#endif
