// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/plan/evaluation.h"

#include <string.h>

#include "daemon/common/model/eval_model.h"
#include "daemon/common/setup.h"
#include "stages/base/str.h"
#include "stages/sched/generate.h"
#include "stages/split/convert/evaluate.h"
#include "stages/tune/choose.h"

static enum pst_status read_start(void *ctx, unsigned i, void *dst,
                                  struct pst_diag *diag)
{
    return pst_plan_read_param(ctx, i, dst, diag);
}

static enum pst_status plan_memory(const struct pstd_config *config,
                                   struct pst_batch *batch,
                                   const struct pst_str *places,
                                   const struct pst_exec_options *training,
                                   struct pst_memory *ret,
                                   struct pst_diag *diag)
{
    struct pst_exec_options options = {0};
    enum pst_status status =
        places->failed
            ? pst_diag_nomem(diag, places->len)
            : pstd_exec_options(config, training->ranks, false, &options, diag);

    if (status != PST_OK)
        return status;
    options.replicas = training->replicas;
    options.place = pst_str_text(places);
    options.recompute = NULL;
    options.shard_by = training->shard_by; /* the mode that "auto" has chosen */
    options.keep_outputs = false;
    options.no_undo = true;
    options.memory_limit = 0;
    return pst_exec_plan(batch->plan, &options, ret, diag);
}

enum pst_status pstctl_evaluation_memory(const struct pstd_config *config,
                                         const struct pst_batch *batch,
                                         const struct pst_schedule *sched,
                                         const struct pst_exec_options *options,
                                         struct pst_memory *ret,
                                         struct pst_diag *diag)
{
    struct pst_batch other = {.microbatches = batch->microbatches};
    struct pstd_eval_model model = {0};
    struct pst_eval_cut cut = {0};
    struct pst_str places = {0};
    bool of_model;
    enum pst_status status =
        config->eval_model != NULL
            ? pstd_eval_model_open(config->eval_model, batch->plan, false,
                                   read_start, batch->plan, &model, &cut, diag)
            : pst_eval_cut_init(&cut, batch->plan, false, read_start,
                                batch->plan, diag);

    pst_sched_print_place(sched, &places);
    other.plan = cut.plan;
    if (status == PST_OK && config->eval_model != NULL)
        status = pstd_eval_model_batch(config, batch, cut.plan, &other, diag);
    of_model = status != PST_OK && config->eval_model != NULL;
    if (of_model)
        pstd_eval_model_prefix(config->eval_model, diag);
    if (status == PST_OK)
        status = plan_memory(config, &other, &places, options, ret, diag);
    if (status != PST_OK && !of_model)
        pst_diag_prefix(diag, "--eval-data");
    pst_str_fini(&places);
    pst_batch_fini(&other);
    pst_eval_cut_fini(&cut);
    pstd_eval_model_close(&model);
    return status;
}
