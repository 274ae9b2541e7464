// SPDX-License-Identifier: Apache-2.0
/* `penstock verify`: compares gradients with finite differences. */
#include "daemon/ctl/ctl.h"

#include <stdio.h>

#include "daemon/common/setup.h"
#include "daemon/ctl/model.h"
#include "daemon/ctl/print.h"
#include "stages/base/host/alive.h"
#include "stages/verify/verify.h"

static enum pst_status print_report(const struct pst_verify_report *report,
                                    bool json, struct pst_diag *diag)
{
    if (!json) {
        pstctl_print(stdout, &report->text);
        return PST_OK;
    }
    return pstctl_json_print(
        json_pack("{s:I s:I s:I s:o s:o}", "compared",
                  (json_int_t)report->compared, "different",
                  (json_int_t)report->different, "unchecked",
                  (json_int_t)report->unchecked, "first",
                  pstctl_json_text(report->first), "text",
                  pstctl_json_text(pst_str_text(&report->text))),
        diag);
}

#define LINE_S 10 /* seconds between lines if standard error is no terminal */

/* Progress on standard error: one live line on a terminal, otherwise a line
 * every LINE_S seconds. */
struct progress {
    bool live, shown;
    double last;
};

static void show_progress(void *ctx, const char *text)
{
    struct progress *p = ctx;

    if (p->live)
        pstctl_printf(stderr, "\r\033[Kverify: %.70s", text);
    else if (pst_now() - p->last < LINE_S)
        return;
    else
        pstctl_printf(stderr, "verify: %s\n", text);
    p->shown = true;
    p->last = pst_now();
    (void)fflush(stderr);
}

static void clear_progress(const struct progress *p)
{
    if (p->live && p->shown)
        pstctl_printf(stderr, "\r\033[K");
}

static enum pst_status run_verify(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct progress progress = {.live = pstctl_is_live(stderr),
                                .last = pst_now()};
    const struct pst_verify_watch watch = {show_progress, &progress};
    struct pst_verify_report report = {0};
    struct pst_exec_options options;
    struct pst_data *data = NULL;
    struct pstd_plan p = {0};
    struct pst_batch batch = {0};
    enum pst_status status = pstctl_plan_open(config, &p, diag);
    struct pst_diag ignored;

    if (status != PST_OK)
        return status;
    if (pstd_replicas(config) > 1)
        status = pst_diag_set(diag, PST_E_RUN_OPTIONS,
                              "verify compares one pipeline with the uncut "
                              "model: give -n P, without replicas");
    if (status == PST_OK)
        status = pstd_refuse_ramp(config, "verify", diag);
    if (status == PST_OK)
        status = pstd_exec_options(
            config, pstd_ranks(config, (unsigned)p.plan->stages.n), true,
            &options, diag);
    if (status == PST_OK)
        status = pstd_open_batch(config, p.plan, &batch, diag);
    if (status == PST_OK && batch.tail != NULL)
        status = pst_diag_set(diag, PST_E_RUN_OPTIONS,
                              "verify compares microbatches of one size: "
                              "--batch must be a multiple of -m");
    if (status == PST_OK && config->data != NULL)
        status = pstd_open_data(config, &batch, true, &data, diag);
    if (status == PST_OK) {
        status = pst_verify(batch.plan, &options,
                            data != NULL ? pst_data_fill : NULL, data, &watch,
                            &report, diag);
        clear_progress(&progress);
        if (status == PST_OK)
            status = print_report(&report, config->json, diag);
        else if (status == PST_ERR_DIFFERENT)
            (void)(print_report(&report, config->json, &ignored) == PST_OK);
        pst_verify_report_fini(&report);
    }
    pst_data_close(data);
    pst_batch_fini(&batch);
    pstd_plan_close(&p);
    return status;
}

static const struct pstd_option_help verify_options[] = {
    PSTCTL_ONE_SIZE,
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_verify = {
    "verify",
    "PLAN|MODEL.pt2",
    1,
    1,
    PSTD_OPT_SPLIT | PSTD_OPT_VERIFY | PSTD_OPT_DATA | PSTD_OPT_JSON,
    "compare a plan with the uncut model, and check its gradients",
    "Runs one step in this process, cut and uncut, in f32 and f64, and checks "
    "the\n"
    "gradients against finite differences in f64. Without --data the inputs "
    "are\n"
    "random. Exit code 2 if something differs.",
    run_verify,
    false,
    verify_options};
