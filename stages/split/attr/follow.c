// SPDX-License-Identifier: Apache-2.0
/* Casts another export of a model in the way in which a running job has cast
 * the model. */
#include "stages/split/attr/follow.h"

#include "stages/ops/core/op.h"

#include <string.h>

static const enum pst_dtype dtypes[PST_MAX_FOLLOWS] = {PST_F32, PST_BF16,
                                                       PST_F16, PST_F64};

/* Returns the dtype in which nodes read the parameter. */
static enum pst_dtype read_dtype(const struct pst_plan_param *p)
{
    return p->rounded ? p->rounds : p->meta.dtype;
}

static const struct pst_plan_param *find_param(const struct pst_plan *plan,
                                               const struct pst_plan_param *of)
{
    int i = pst_plan_find_param(plan, of->fqn);

    for (unsigned k = 0; k < of->n_aliases && i < 0; k++)
        i = pst_plan_find_param(plan, of->aliases[k]);
    return i >= 0 ? &plan->params.at[i] : NULL;
}

const struct pst_plan_param *pst_cast_like(const struct pst_plan *like,
                                           const struct pst_plan_param *of)
{
    const struct pst_plan_param *now =
        of->kind != PST_VALUE_CONST ? find_param(like, of) : NULL;
    struct pst_meta meta = of->meta;

    if (now == NULL || !now->changed || read_dtype(now) == read_dtype(of) ||
        pst_dtype_kind(of->meta.dtype) != PST_KIND_FLOAT ||
        pst_dtype_kind(now->meta.dtype) != PST_KIND_FLOAT)
        return NULL;
    meta.dtype = now->meta.dtype;
    return pst_meta_same(&meta, &now->meta) ? now : NULL;
}

/* Lists the tensors of `plan` that must be cast to `dtype`. */
static enum pst_status list_tensors(const struct pst_plan *plan,
                                    const struct pst_plan *like,
                                    enum pst_dtype dtype, struct pst_attrs *ret,
                                    struct pst_diag *diag)
{
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *p = &plan->params.at[i];
        const struct pst_plan_param *now = pst_cast_like(like, p);
        const struct pst_attr attr = {.name = p->fqn, .param = (unsigned)i};

        if (now == NULL || read_dtype(now) != dtype || p->n_stages == 0)
            continue;
        if (!pst_vec_push(PST_TAG_PLAN, &ret->at, attr))
            return pst_diag_nomem(diag, sizeof(attr));
        ret->tensors++;
    }
    return PST_OK;
}

/* For each tensor whose counterpart in `like` was cast: sets requires_grad if
 * the counterpart is `rounded` (kept in f32, and rounded where it is read), so
 * that pst_model_cast treats this one the same way. */
static void set_gradients(struct pst_model *model, struct pst_plan *plan,
                          const struct pst_plan *like)
{
    for (size_t i = 0; i < model->graph->values.n; i++) {
        struct pst_value *v = model->graph->values.at[i];
        const struct pst_plan_param *now;
        int k;

        if (!pst_value_is_state(v))
            continue;
        k = pst_plan_find_param(plan, v->fqn);
        now = k >= 0 ? pst_cast_like(like, &plan->params.at[k]) : NULL;
        if (now != NULL)
            v->requires_grad = plan->params.at[k].requires_grad = now->rounded;
    }
}

enum pst_status pst_model_follow_casts(struct pst_model *model,
                                       struct pst_plan *plan,
                                       const struct pst_plan *like,
                                       struct pst_casting *ret[PST_MAX_FOLLOWS],
                                       struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    set_gradients(model, plan, like);
    for (unsigned d = 0; d < PST_MAX_FOLLOWS && status == PST_OK; d++) {
        struct pst_attrs attrs = {0};
        struct pst_cast_counts counts;

        status = list_tensors(plan, like, dtypes[d], &attrs, diag);
        if (status == PST_OK && attrs.tensors > 0)
            status = pst_model_cast(model, plan, &attrs, dtypes[d], &counts,
                                    &ret[d], diag);
        pst_attrs_fini(&attrs);
    }
    return status;
}
