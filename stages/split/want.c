// SPDX-License-Identifier: Apache-2.0
/* Chooses the model inputs whose gradients steps of training keep. */
#include "stages/split/plan.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define TAG PST_TAG_PLAN

static bool is_float(const struct pst_plan_input *input)
{
    return pst_dtype_kind(input->meta.dtype) == PST_KIND_FLOAT;
}

/* Marks the inputs with that name, or those that a glob matches. */
static enum pst_status mark_inputs(struct pst_plan *plan, const char *name,
                                   struct pst_diag *diag)
{
    bool any = false;

    for (size_t i = 0; i < plan->inputs.n; i++) {
        const struct pst_plan_input *input = &plan->inputs.at[i];
        const bool is_exact = strcmp(input->name, name) == 0;

        if (is_exact && !is_float(input))
            return pst_diag_set(diag, PST_E_LIBRARY_GRADIENT,
                                "input '%.200s' has no gradient: it is %s",
                                name, pst_dtype_name(input->meta.dtype));
        if (!is_exact &&
            (!is_float(input) || fnmatch(name, input->name, 0) != 0))
            continue;
        plan->wants[i] = any = true;
    }
    return any ? PST_OK
               : pst_diag_set(diag, PST_E_LIBRARY_NAME,
                              "the model has no floating-point input '%.200s'",
                              name);
}

/* Orders parts by input, then by stage (last first), then by their order in the
 * stage. */
static int compare_parts(const void *a, const void *b)
{
    const struct pst_input_part *x = a, *y = b;

    if (x->input != y->input)
        return x->input < y->input ? -1 : 1;
    if (x->stage != y->stage)
        return x->stage > y->stage ? -1 : 1;
    return x->output < y->output ? -1 : x->output > y->output;
}

/* Appends the parts of a stage; later stages must have been listed. */
static enum pst_status list_parts(struct pst_plan *plan, unsigned stage,
                                  struct pst_diag *diag)
{
    const struct pst_joint *joint;
    enum pst_status status = pst_joint_find(plan, stage, &joint, diag);

    for (size_t i = 0; status == PST_OK && i < joint->parts.n; i++)
        if (!pst_vec_push(TAG, &plan->parts, joint->parts.at[i]))
            status = pst_diag_nomem(diag, sizeof(plan->parts.at[0]));
    return status;
}

static void drop_wanted(struct pst_plan *plan)
{
    if (plan->wants != NULL)
        pst_joint_free_cached(plan);
    plan->wants = NULL;
    plan->parts.n = 0;
    plan->parts_known = false;
}

enum pst_status pst_plan_keep_gradients(struct pst_plan *plan,
                                        const char *const *names, size_t n,
                                        struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    drop_wanted(plan);
    if (n == 0)
        return PST_OK;
    pst_joint_free_cached(plan);
    plan->wants = pst_arena_calloc(&plan->arena, plan->inputs.n + 1, 1);
    if (plan->wants == NULL)
        return pst_diag_nomem(diag, plan->inputs.n);
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = mark_inputs(plan, names[i], diag);
    for (unsigned s = (unsigned)plan->stages.n; s-- > 0 && status == PST_OK;)
        status = list_parts(plan, s, diag);
    if (status != PST_OK) {
        drop_wanted(plan);
        return status;
    }
    if (plan->parts.n > 0)
        qsort(plan->parts.at, plan->parts.n, sizeof(plan->parts.at[0]),
              compare_parts);
    plan->parts_known = true;
    return PST_OK;
}
