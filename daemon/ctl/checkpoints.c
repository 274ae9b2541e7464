// SPDX-License-Identifier: Apache-2.0
/* `penstock checkpoints`: lists and manages a checkpoint folder. */
#include "daemon/ctl/ctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/ctl/print.h"
#include "stages/base/plural.h"
#include "stages/files/checkpoint/checkpoint.h"
#include "stages/files/checkpoint/owner.h"
#include "stages/files/checkpoint/pair.h"

static enum pst_status parse_step(const char *option, const char *text,
                                  uint64_t *ret, struct pst_diag *diag)
{
    int64_t step;

    if (!pst_parse_i64(text, &step) || step <= 0)
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "--%s: \"%s\" is not a number of a step", option,
                            text);
    *ret = (uint64_t)step;
    return PST_OK;
}

static enum pst_status pin_steps(const char *dir, const struct pstd_list *list,
                                 bool pinned, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < list->n && status == PST_OK; i++) {
        uint64_t step = 0;

        status = parse_step(pinned ? "pin" : "unpin", list->at[i], &step, diag);
        if (status == PST_OK)
            status = pst_checkpoint_pin(dir, step, pinned, diag);
    }
    return status;
}

void pstctl_print_second_note(const char *dir,
                              const struct pst_checkpoint_info *info)
{
    struct pst_str text = {0};

    /* A second folder that seems to be gone is not reported: this command can
     * only access the files named on the command line, so the folder may just
     * be closed to it. */
    if (pst_checkpoint_describe_second(dir, info, false, &text))
        pstctl_printf(stderr, "note: %s\n", pst_str_text(&text));
    pst_str_fini(&text);
}

/* Marks good checkpoints that are no longer in the past of the run, since the
 * run has gone back to an earlier step (lineage.h). */
static void describe_left(const char *dir, struct pst_checkpoint_rows *rows)
{
    struct pst_checkpoint_second second = {0};
    struct pst_diag ignored;

    if (pst_checkpoint_read_second(dir, &second, &ignored) != PST_OK)
        return;
    for (size_t i = 0; i < rows->n; i++) {
        struct pst_checkpoint_row *row = &rows->at[i];

        if (row->state == PST_CHECKPOINT_GOOD && row->text[0] == '\0' &&
            pst_checkpoint_is_left(&second.rewinds, row->course, row->step))
            (void)snprintf(row->text, sizeof(row->text),
                           "not in the past of the run any more");
    }
    pst_free(second.dir);
}

/* Removes the listed checkpoints. Refuses while a run uses the folder. */
static enum pst_status remove_steps(const char *dir,
                                    const struct pstd_list *list,
                                    struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    struct pst_checkpoint_second second = {0};
    struct pst_diag ignored;
    int lock = -1;

    if (list->n == 0)
        return PST_OK;
    if (pst_checkpoint_read_second(dir, &second, &ignored) != PST_OK)
        second.rewinds.n = 0;
    pst_free(second.dir);
    status = pst_checkpoint_lock(dir, &lock, diag);
    for (size_t i = 0; i < list->n && status == PST_OK; i++) {
        uint64_t step = 0;

        status = parse_step("remove", list->at[i], &step, diag);
        if (status == PST_OK)
            status = pst_checkpoint_remove(dir, step, &second.rewinds, diag);
    }
    if (lock >= 0)
        (void)close(lock);
    return status;
}

static void time_text(int64_t seconds, char ret[32])
{
    const time_t t = (time_t)seconds;
    struct tm parts;

    if (gmtime_r(&t, &parts) == NULL ||
        strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        (void)snprintf(ret, 32, "?");
}

static enum pst_status print_json(const char *dir,
                                  const struct pst_checkpoint_rows *rows,
                                  struct pst_diag *diag)
{
    json_t *list = json_array();

    for (size_t i = 0; i < rows->n; i++) {
        const struct pst_checkpoint_row *row = &rows->at[i];
        char when[32];

        time_text(row->time, when);
        (void)json_array_append_new(
            list,
            json_pack("{s:I, s:s, s:I, s:s, s:b, s:o, s:s, s:o}", "step",
                      (json_int_t)row->step, "time", when, "bytes",
                      (json_int_t)row->bytes, "state",
                      pst_checkpoint_state_name(row->state), "pinned",
                      (int)row->pinned, "reason", pstctl_json_text(row->text),
                      "error_id", pst_error_id(row->error), "model",
                      pstctl_json_text(row->model_digest)));
    }
    return pstctl_json_print(json_pack("{s:o, s:o}", "dir",
                                       pstctl_json_text(dir), "checkpoints",
                                       list),
                             diag);
}

static void print_table(const struct pst_checkpoint_rows *rows)
{
    if (rows->n > 0)
        pstctl_printf(stdout, "%10s  %-20s  %12s  %-10s  %-6s  %s\n", "step",
                      "time", "MiB", "state", "pinned", "reason");
    for (size_t i = 0; i < rows->n; i++) {
        const struct pst_checkpoint_row *row = &rows->at[i];
        char when[32];

        time_text(row->time, when);
        pstctl_printf(stdout, "%10llu  %-20s  %12.3f  %-10s  %-6s  %s\n",
                      (unsigned long long)row->step, when,
                      (double)row->bytes / (1 << 20),
                      pst_checkpoint_state_name(row->state),
                      row->pinned ? "yes" : "", row->text);
    }
}

/* Returns the status of `checkpoints --verify`: that of the worst checkpoint.
 */
static enum pst_status report_worst(const char *dir,
                                    const struct pst_checkpoint_rows *rows,
                                    struct pst_diag *diag)
{
    const struct pst_checkpoint_row *worst = NULL;
    unsigned n = 0;

    for (size_t i = 0; i < rows->n; i++) {
        if (rows->at[i].status == PST_OK)
            continue;
        n++;
        if (worst == NULL || rows->at[i].state > worst->state)
            worst = &rows->at[i];
    }
    if (worst == NULL)
        return PST_OK;
    return pst_diag_carry(diag, worst->error, worst->status,
                          "%u of %zu checkpoint%s in %s cannot be used: %s", n,
                          rows->n, pst_plural(rows->n), dir, worst->text);
}

static enum pst_status run_checkpoints(const struct pstd_config *config,
                                       struct pst_diag *diag)
{
    const char *dir = config->args[0];
    struct pst_checkpoint_rows rows = {0};
    enum pst_status status = PST_OK;

    if (access(dir, F_OK) != 0)
        return pst_diag_set(diag, PST_E_CHECKPOINT_NONE,
                            "%s: there is no such folder of checkpoints", dir);
    status = pin_steps(dir, &config->pin, true, diag);
    if (status == PST_OK)
        status = pin_steps(dir, &config->unpin, false, diag);
    if (status == PST_OK)
        status = remove_steps(dir, &config->remove, diag);
    if (status == PST_OK)
        status = pst_checkpoint_table(dir, config->verify, &rows, diag);
    if (status == PST_OK)
        describe_left(dir, &rows);
    if (status == PST_OK && config->json)
        status = print_json(dir, &rows, diag);
    else if (status == PST_OK)
        print_table(&rows);
    if (status == PST_OK && config->verify)
        status = report_worst(dir, &rows, diag);
    pst_vec_fini(&rows);
    return status;
}

static const struct pstd_option_help checkpoints_options[] = {
    {"verify", "read every byte; exit code 65 if a checkpoint is damaged", NULL,
     NULL},
    {NULL, NULL, NULL, NULL},
};

const struct pstctl_command pstctl_checkpoints = {
    "checkpoints",
    "DIR",
    1,
    1,
    PSTD_OPT_CHECKPOINTS | PSTD_OPT_JSON,
    "list, verify, pin and remove the checkpoints of a folder",
    "Lists the newest first: step, time, size, and whether it is good "
    "(--resume\n"
    "takes the newest good one), bad (the run could not continue from it;\n"
    "--resume=STEP still takes it), damaged (its files differ from its "
    "manifest) or\n"
    "unreadable. The run went back with --resume=STEP from those that are not "
    "in\n"
    "its past any more.",
    run_checkpoints,
    false,
    checkpoints_options};
