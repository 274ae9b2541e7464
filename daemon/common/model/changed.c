// SPDX-License-Identifier: Apache-2.0
#include "daemon/common/model/changed.h"

#include <string.h>

#include "stages/base/alloc.h"
#include "stages/sched/generate.h"
#include "stages/split/store/pack.h"

#define TAG PST_TAG_DAEMON

static const struct pst_plan_param *find_param(const struct pst_plan *plan,
                                               const char *fqn)
{
    const int i = pst_plan_find_param(plan, fqn);

    return i >= 0 ? &plan->params.at[i] : NULL;
}

static const struct pst_meta *find_meta(const struct pst_plan *plan,
                                        const char *fqn)
{
    const struct pst_plan_param *param = find_param(plan, fqn);

    return param != NULL ? &param->meta : NULL;
}

/* Checks that the two matrices of each adapter still have the same dtype: a
 * cast changes the dtype of frozen parameters, but only rounds the values of
 * trained ones. */
static enum pst_status check_adapters(const struct pst_plan *plan,
                                      struct pst_diag *diag)
{
    const struct pst_adapters *adapters = pst_plan_adapters(plan);

    for (size_t i = 0; i < adapters->n; i++) {
        const struct pst_adapter *a = &adapters->at[i];
        const struct pst_meta *down = find_meta(plan, a->down);
        const struct pst_meta *up = find_meta(plan, a->up);

        if (down != NULL && up != NULL && down->dtype != up->dtype)
            return pst_diag_set(diag, PST_E_LORA_CONFIG,
                                "the two matrices of the adapter of "
                                "\"%.200s\" would be of %s and %s: freeze "
                                "both or neither of them before a cast, and "
                                "cast both",
                                a->module, pst_dtype_name(down->dtype),
                                pst_dtype_name(up->dtype));
    }
    return PST_OK;
}

enum pst_status pstd_changed_complete(struct pstd_changed_plan *ret,
                                      const struct pst_batch *before,
                                      const struct pst_plan *base,
                                      pstd_is_fresh_fn is_fresh, void *ctx,
                                      struct pst_diag *diag)
{
    struct pst_plan *to = ret->plan;
    enum pst_status status;

    for (size_t i = 0; i < to->params.n; i++) {
        struct pst_plan_param *param = &to->params.at[i];
        const struct pst_plan_param *was = find_param(before->plan, param->fqn);

        param->changed = is_fresh(ctx, param->fqn) ||
                         (was != NULL && (was->changed || was->requires_grad));
    }
    memcpy(to->base_digest, base->model_digest, sizeof(to->base_digest));
    memcpy(to->base_identity, base->identity, sizeof(to->base_identity));
    status = check_adapters(to, diag);
    if (status == PST_OK)
        status = pst_plan_check_packed(to, diag);
    if (status != PST_OK)
        return status;
    ret->batch = (struct pst_batch){.plan = to,
                                    .microbatches = before->microbatches,
                                    .n_tail = before->n_tail};
    return before->tail != NULL ? pst_plan_bind(to, pst_plan_rows(before->tail),
                                                &ret->batch.tail, diag)
                                : PST_OK;
}

enum pst_status pstd_changed_keep_placement(const struct pst_engine *from,
                                            struct pst_exec_options *options,
                                            struct pst_str *places,
                                            struct pst_diag *diag)
{
    const struct pst_schedule *sched = pst_engine_schedule(from);
    const struct pst_sched_row *row;

    /* Estimated times do not affect the placement by a schedule that is read
     * from a file, or that places the stages itself. */
    if (pst_sched_find_row(sched->name, &row, NULL) != PST_OK)
        return PST_OK;
    options->schedule = sched->name; /* the one that "auto" has chosen */
    if (!row->any_place)
        return PST_OK;
    pst_sched_print_place(sched, places);
    options->place = pst_str_text(places);
    return places->failed ? pst_diag_nomem(diag, places->len) : PST_OK;
}

static enum pst_status read_kept(void *ctx, unsigned i, void *dst,
                                 struct pst_diag *diag)
{
    const struct pstd_changed_plan *changed = ctx;

    if (changed->kept[i] == NULL)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "start values of \"%s\" are gone",
                            changed->plan->params.at[i].fqn);
    memcpy(dst, changed->kept[i],
           pst_meta_bytes(&changed->plan->params.at[i].meta));
    return PST_OK;
}

enum pst_status pstd_changed_copy_params(struct pstd_changed_plan *ret,
                                         struct pst_diag *diag)
{
    struct pst_plan *plan = ret->plan;
    enum pst_status status = PST_OK;

    ret->kept = pst_calloc(TAG, plan->params.n + 1, sizeof(void *));
    if (ret->kept == NULL)
        status = pst_diag_nomem(diag, plan->params.n * sizeof(void *));
    for (unsigned i = 0; i < plan->params.n && status == PST_OK; i++) {
        const size_t bytes = pst_meta_bytes(&plan->params.at[i].meta);

        if (plan->params.at[i].n_stages > 0)
            continue;
        ret->kept[i] = pst_alloc(TAG, PST_MAX(bytes, (size_t)1));
        status = ret->kept[i] == NULL
                     ? pst_diag_nomem(diag, bytes)
                     : pst_plan_read_param(plan, i, ret->kept[i], diag);
    }
    plan->model = NULL;
    plan->read = read_kept;
    plan->read_ctx = ret;
    return status;
}

enum pst_status pstd_changed_gather(struct pstd_changed_plan *ret,
                                    struct pst_engine *from,
                                    const struct pst_plan *before,
                                    pst_old_name_fn old_value, void *ctx,
                                    struct pst_diag *diag)
{
    const struct pst_plan *plan = ret->plan;
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < plan->params.n && status == PST_OK; i++) {
        const char *name = old_value(ctx, plan->params.at[i].fqn);
        const int was = name != NULL ? pst_plan_find_param(before, name) : -1;

        if (plan->params.at[i].n_stages == 0 && was >= 0 &&
            pst_engine_has_parts(from, (unsigned)was))
            status = pst_engine_gather_param(from, (unsigned)was, ret->kept[i],
                                             diag);
    }
    return status;
}

void pstd_changed_fini(struct pstd_changed_plan *changed)
{
    pst_batch_fini(&changed->batch);
    for (size_t i = 0; changed->kept != NULL && i < changed->plan->params.n;
         i++)
        pst_free(changed->kept[i]);
    pst_free(changed->kept);
    pst_plan_free(changed->plan);
}
