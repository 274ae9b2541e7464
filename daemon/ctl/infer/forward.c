// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/infer/forward.h"

#include "daemon/common/setting.h"
#include "daemon/common/setup.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/model.h"
#include "daemon/ctl/print.h"
#include "stages/run/state/carried.h"
#include "stages/split/convert/evaluate.h"

static void report_skipped(void *ctx, const char *dir, uint64_t step,
                           const char *text)
{
    (void)ctx;
    (void)dir;
    (void)step;
    pstctl_printf(stderr, "penstock: warning: checkpoint passed over: %s\n",
                  text);
}

static void report_plugin(void *ctx, const struct pstd_setting_change *change)
{
    (void)ctx;
    pstctl_printf(stderr, "penstock: warning: %s\n", change->text);
}

/* Loads the checkpoint of step f->step, whose plan was opened: a running job
 * may have saved a newer one since then, with a changed model. If that
 * checkpoint is damaged or was removed, loads the newest good one. */
static enum pst_status load_checkpoint(const struct pstd_config *config,
                                       struct pstctl_forward *f,
                                       struct pst_diag *diag)
{
    struct pst_load_choice choice = {.dir = config->checkpoint,
                                     .step = f->step,
                                     .any_model = config->other_model,
                                     .averaged = config->use_ema,
                                     .skipped = report_skipped};
    struct pst_checkpoint_info info;
    enum pst_status status =
        pst_engine_load(f->engine, &choice, &info, NULL, diag);

    if (choice.step != PST_CHECKPOINT_LATEST &&
        (status == PST_ERR_INPUT || status == PST_ERR_IO ||
         status == PST_ERR_NOT_FOUND)) {
        choice.step = PST_CHECKPOINT_LATEST;
        status = pst_engine_load(f->engine, &choice, &info, NULL, diag);
    }
    if (status != PST_OK)
        return status;
    f->step = info.step;
    pstctl_print_second_note(config->checkpoint, &info);
    pstd_setting_compare_plugins(f->plan, info.options, report_plugin, NULL);
    return PST_OK;
}

/* Opens --data for the mean loss over all its rows, or over those of the first
 * --batches steps. */
static enum pst_status open_mean(const struct pstd_config *config,
                                 struct pstctl_forward *f,
                                 struct pst_diag *diag)
{
    const uint64_t rows = (uint64_t)PST_MAX(pst_batch_rows(&f->batch), 1);
    const struct pst_mean_options options = {
        .microbatches = f->batch.microbatches,
        .rows =
            config->batches > UINT64_MAX / rows ? 0 : config->batches * rows,
        .by = pstd_mean_by(config)};
    struct pst_mean_source source;
    enum pst_status status = PST_OK;

    if (f->batch.plan->loss < 0)
        return pst_diag_set(diag, PST_E_LOSS_MISSING_MEAN,
                            "the plan has no loss to take the mean of: split "
                            "the .pt2 with --loss or --loss-fn");
    status = pstd_open_eval_data(config, &f->batch, true, &f->data, diag);
    if (status != PST_OK)
        return status;
    source = pst_mean_source_of(f->data);
    status = pst_mean_new(f->batch.plan, &source, &options, &f->mean, diag);
    if (status == PST_OK)
        status = pstd_token_bytes_read(config, f->batch.plan, &f->bytes, diag);
    return status == PST_OK ? pstd_token_bytes_count(&f->bytes, f->batch.plan,
                                                     f->data, f->mean, diag)
                            : status;
}

static enum pst_status make_engine(const struct pstd_config *config,
                                   struct pstctl_forward *f, bool mean,
                                   struct pst_exec_options *options,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (mean) {
        status = open_mean(config, f, diag);
        options->keep_outputs = false;
        options->weigh = pst_mean_weigh;
        options->weigh_ctx = f->mean;
    } else {
        pstd_set_batch(options, &f->batch);
    }
    return status == PST_OK ? pst_engine_new(f->plan, f->transport, options,
                                             &f->engine, diag)
                            : status;
}

enum pst_status pstctl_forward_open(const struct pstd_config *config,
                                    unsigned microbatches, bool mean,
                                    struct pstctl_forward *f,
                                    struct pst_diag *diag)
{
    const struct pst_eval_options eval = {
        .keep = config->keep_random.at,
        .n_keep = config->keep_random.n,
        .averages = config->checkpoint != NULL && config->use_ema,
        .has_cache = config->prompt != NULL || config->prompt_file != NULL};
    struct pst_exec_options options;
    enum pst_status status = pstctl_plan_open(config, &f->p, diag);

    if (status == PST_OK)
        status = pstd_refuse_ramp(config, "an evaluation", diag);
    if (status == PST_OK)
        status = pstd_exec_options(config, 1, false, &options, diag);
    if (status == PST_OK)
        status = pst_transport_self.open("1", &f->transport, diag);
    if (status != PST_OK)
        return status;
    options.microbatches = microbatches;
    options.no_undo = true; /* a failed step ends the command */
    f->step = config->checkpoint != NULL ? PST_CHECKPOINT_LATEST : 0;
    if (config->checkpoint != NULL && !config->other_model)
        status = pst_carried_open_newest(f->p.plan, config->checkpoint,
                                         &f->step, &f->carried, diag);
    /* The plan is converted to eval mode before its batch is made: rows of an
     * evaluation need not meet the requirements of training. */
    if (status == PST_OK)
        status =
            pst_plan_eval(f->carried != NULL ? f->carried->plan : f->p.plan,
                          &eval, &f->eval, diag);
    if (status == PST_OK) {
        pstctl_print_notes(f->eval);
        status = pstd_open_batch(config, f->eval, &f->batch, diag);
    }
    f->plan = f->batch.plan;
    if (status == PST_OK)
        status = make_engine(config, f, mean, &options, diag);
    if (status == PST_OK && config->checkpoint != NULL)
        status = load_checkpoint(config, f, diag);
    return status;
}

void pstctl_forward_close(struct pstctl_forward *f)
{
    pst_engine_free(f->engine);
    pst_mean_free(f->mean);
    pstd_token_bytes_fini(&f->bytes);
    pst_data_close(f->data);
    if (f->transport != NULL)
        f->transport->ops->close(f->transport);
    pst_batch_fini(&f->batch);
    pst_plan_free(f->eval);
    pst_carried_close(f->carried);
    pstd_plan_close(&f->p);
}
