// SPDX-License-Identifier: Apache-2.0
/* Commands that run a plan forward in this process: `eval` and `infer`. */
#include "daemon/ctl/ctl.h"

#include <math.h>
#include <stdio.h>

#include "daemon/common/model/doubts.h"
#include "daemon/common/setup.h"
#include "daemon/ctl/infer/forward.h"
#include "daemon/ctl/infer/outputs.h"
#include "daemon/ctl/print.h"
#include "stages/base/plural.h"
#include "stages/ops/core/rows.h"
#include "stages/split/bind/rows.h"

static enum pst_status compute_mean(struct pstctl_forward *f, double *ret,
                                    struct pst_diag *diag)
{
    pst_mean_begin(f->mean);
    for (uint64_t step = 0; step < pst_mean_steps(f->mean); step++) {
        struct pst_step_result r;
        enum pst_status status = pst_engine_step(f->engine, step, pst_mean_fill,
                                                 f->mean, 0, &r, diag);

        if (status != PST_OK)
            return status;
        pst_mean_take(f->mean, &r);
    }
    return pst_mean_end(f->mean, ret, diag);
}

static void print_loss(const struct pstctl_forward *f, double loss,
                       uint64_t rows)
{
    const unsigned long long steps = pst_mean_steps(f->mean);
    struct pst_str text = {0};

    pst_str_add(&text, "loss ");
    pstctl_loss_digits(loss, 6, &text);
    pst_str_addf(&text, " over %llu row%s in %llu batch%s",
                 (unsigned long long)rows, rows == 1 ? "" : "s", steps,
                 pst_plural_es(steps));
    if (pstd_has_perplexity(f->plan) && isfinite(exp(loss))) {
        pst_str_addf(&text, " (perplexity %.4g", exp(loss));
        if (isfinite(pst_mean_bits_per_byte(f->mean)))
            pst_str_addf(&text, ", %.4f bits per byte",
                         pst_mean_bits_per_byte(f->mean));
        pst_str_add(&text, ")");
    }
    pstctl_printf(stdout, "%s\n", pst_str_text(&text));
    pst_str_fini(&text);
}

static enum pst_status print_mean(const struct pstd_config *config,
                                  const struct pstctl_forward *f, double loss,
                                  struct pst_diag *diag)
{
    uint64_t left;
    const uint64_t rows = pst_mean_rows(f->mean, &left);
    const double bits = pst_mean_bits_per_byte(f->mean);

    if (left > 0)
        pstctl_printf(stderr,
                      "note: the last %llu rows of %s do not fill a "
                      "microbatch, and are left out\n",
                      (unsigned long long)left, config->data);
    if (config->json)
        return pstctl_json_print(
            json_pack("{s:o s:I s:I s:I s:o*}", "loss", pstctl_json_real(loss),
                      "batches", (json_int_t)pst_mean_steps(f->mean), "rows",
                      (json_int_t)rows, "step", (json_int_t)f->step,
                      "bits_per_byte", isfinite(bits) ? json_real(bits) : NULL),
            diag);
    print_loss(f, loss, rows);
    return PST_OK;
}

static void print_doubt(void *ctx, const char *text)
{
    (void)ctx;
    pstctl_printf(stderr, "penstock: warning: %s\n", text);
}

static enum pst_status run_eval(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    struct pstctl_forward f = {0};
    double loss = NAN;
    enum pst_status status = pstctl_forward_open(
        config, pstd_ramp_first(&config->microbatches), true, &f, diag);

    if (status == PST_OK) {
        pstd_doubts_check_data(config, config->data, &f.batch, f.data, 0,
                               print_doubt, NULL);
        status = compute_mean(&f, &loss, diag);
    }
    if (status == PST_OK)
        status = print_mean(config, &f, loss, diag);
    pstctl_forward_close(&f);
    return status;
}

/* Returns the name of the input whose rows are counted as samples, for a
 * message, if inputs have different numbers of rows in a microbatch; else NULL.
 */
static const char *counted_input(const struct pst_plan *plan)
{
    for (size_t i = 0; i < plan->inputs.n; i++) {
        const struct pst_plan_input *in = &plan->inputs.at[i];

        if (in->chunk >= 0 && in->meta.size[in->chunk] != pst_plan_rows(plan))
            return pst_row_input(plan)->name;
    }
    return NULL;
}

static enum pst_status print_samples(const struct pstd_config *config,
                                     const struct pstctl_forward *f,
                                     uint64_t samples, struct pst_diag *diag)
{
    const char *input = counted_input(f->batch.plan);
    const unsigned long long n = samples;

    if (config->json)
        return pstctl_json_print(json_pack("{s:I s:s* s:I s:s}", "samples",
                                           (json_int_t)samples, "input", input,
                                           "step", (json_int_t)f->step,
                                           "output", config->output),
                                 diag);
    if (input != NULL)
        pstctl_printf(stdout, "outputs for %llu row%s of input \"%s\" in %s\n",
                      n, pst_plural(n), input, config->output);
    else
        pstctl_printf(stdout, "outputs for %llu sample%s in %s\n", n,
                      pst_plural(n), config->output);
    return PST_OK;
}

/* Runs `infer --data`: writes the outputs for the file's rows. */
static enum pst_status infer_data(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pstctl_forward f = {0};
    uint64_t samples = 0;
    enum pst_status status;

    if (config->output == NULL || config->prompt != NULL ||
        config->prompt_file != NULL)
        return pst_diag_set(diag, PST_E_COMMAND_ARGUMENTS,
                            "--data needs --output FILE.safetensors and "
                            "excludes a prompt");
    if (pstctl_check_output(config->output, NULL, diag) != PST_OK)
        return diag->status;
    if (config->shuffle)
        return pst_diag_set(
            diag, PST_E_COMMAND_ARGUMENTS,
            "outputs are in the order of the data: --shuffle is "
            "for training");
    status = pstctl_forward_open(config, pstd_ramp_first(&config->microbatches),
                                 false, &f, diag);
    if (status == PST_OK)
        status =
            pstctl_write_outputs(config, &f.batch, f.engine, &samples, diag);
    if (status == PST_OK)
        status = print_samples(config, &f, samples, diag);
    pstctl_forward_close(&f);
    return status;
}

static enum pst_status run_infer(const struct pstd_config *config,
                                 struct pst_diag *diag)
{
    return config->data != NULL ? infer_data(config, diag)
                                : pstctl_infer_text(config, diag);
}

static const struct pstd_option_help eval_options[] = {
    PSTCTL_ONE_SIZE,
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_eval = {
    "eval",
    "PLAN|MODEL.pt2 --data FILE",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_DATA | PSTD_OPT_LOAD | PSTD_OPT_EVAL |
        PSTD_OPT_JSON,
    "compute the mean loss of a model on data",
    "Runs in this process, in the mode of model.eval(), with the newest "
    "checkpoint\n"
    "of --checkpoint or the start values of the plan.",
    run_eval,
    false,
    eval_options};
static const struct pstd_option_help infer_options[] = {
    PSTCTL_ONE_SIZE,
    {"output", "file to write the outputs to (.safetensors)", NULL, NULL},
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_infer = {
    "infer",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_LOAD | PSTD_OPT_INFER | PSTD_OPT_DATA |
        PSTD_OPT_OUTPUT | PSTD_OPT_JSON,
    "compute outputs for data, or continue a text",
    "Runs in this process, in the mode of model.eval(), with the newest "
    "checkpoint\n"
    "of --checkpoint or the start values of the plan.\n"
    "With --data and --output it writes the model's outputs for all samples, "
    "in\n"
    "order. Otherwise a language model continues a text: its tokens are bytes; "
    "a\n"
    "model with more than 256 tokens reads and prints token numbers. A decoder "
    "that\n"
    "keeps its cache in buffers reads each token once.",
    run_infer,
    false,
    infer_options};
