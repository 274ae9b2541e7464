// SPDX-License-Identifier: Apache-2.0
/* `penstock report`: writes a page about a job. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/out.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/report/curves.h"
#include "daemon/ctl/report/last_step.h"
#include "daemon/ctl/report/page.h"
#include "stages/base/alloc.h"
#include "stages/base/host/fs.h"

static enum pst_status write_page(const struct pstctl_story *story,
                                  const char *path, struct pst_diag *diag)
{
    struct pst_str page = {0};
    enum pst_status status;

    pstctl_page_render(story, &page);
    status = page.failed ? pst_diag_nomem(diag, page.len)
                         : pst_file_write(path, page.text, page.len, diag);
    pst_str_fini(&page);
    return status;
}

static void print_line(const char *path, double step, double loss)
{
    struct pst_str text = {0};

    pstctl_loss(loss, &text);
    pstctl_printf(stdout, "%s: step %.0f, loss %s\n", path, step,
                  pst_str_text(&text));
    pst_str_fini(&text);
}

static enum pst_status print_written(const struct pstd_config *config,
                                     const struct pstctl_story *s,
                                     const char *path, struct pst_diag *diag)
{
    const size_t n = s->loss.n;
    const double step = n > 0 ? s->loss.at[n - 1].x : 0;

    if (config->json)
        return pstctl_json_print(
            json_pack(
                "{s:o s:o s:I s:o s:I s:I s:I s:I s:I}", "page",
                pstctl_json_text(path), "job", pstctl_json_text(s->job), "step",
                (json_int_t)step, "loss",
                n > 0 ? pstctl_json_real(s->loss.at[n - 1].y) : json_null(),
                "ranks", (json_int_t)s->ranks, "evaluations",
                (json_int_t)s->eval.n, "recorded_steps",
                (json_int_t)s->recorded, "events", (json_int_t)s->events.n,
                "unread_lines", (json_int_t)s->bad),
            diag);
    if (n == 0)
        pstctl_printf(stdout, "%s: the logs contain no step\n", path);
    else
        print_line(path, step, s->loss.at[n - 1].y);
    return PST_OK;
}

static enum pst_status run_report(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pstctl_story *story = pst_calloc(PST_TAG_CLIENT, 1, sizeof(*story));
    const char *dir = config->args[0];
    struct pst_str path = {0};
    enum pst_status status;

    if (story == NULL)
        return pst_diag_nomem(diag, sizeof(*story));
    if (config->output != NULL)
        pst_str_add(&path, config->output);
    else
        pst_str_addf(&path, "%s/report.html", dir);
    status = path.failed ? pst_diag_nomem(diag, path.len)
                         : pstctl_story_read(dir, story, diag);
    if (status == PST_OK)
        status = pstctl_curves_read(dir, story, diag);
    if (status == PST_OK)
        status = pstctl_steps_read(dir, story, diag);
    if (status == PST_OK)
        status = write_page(story, path.text, diag);
    if (status == PST_OK)
        status = print_written(config, story, path.text, diag);
    pstctl_story_fini(story);
    pst_free(story);
    pst_str_fini(&path);
    return status;
}

static const struct pstd_option_help report_options[] = {
    {"output", "page to write; default: DIR/report.html", NULL, NULL},
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_report = {
    "report",
    "DIR",
    1,
    1,
    PSTD_OPT_OUTPUT | PSTD_OPT_JSON,
    "write a job's logs as one HTML page",
    "DIR is the --log-dir folder, also of a job that is running or was killed. "
    "The\n"
    "page has curves, a step, memory, waiting times and events, and needs no "
    "other\n"
    "file.",
    run_report,
    false,
    report_options};
