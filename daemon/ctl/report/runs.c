// SPDX-License-Identifier: Apache-2.0
/* `penstock runs`: finds the runs below folders, and compares them. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/report/find_runs.h"
#include "stages/base/alloc.h"

#define TAG   PST_TAG_CLIENT
#define DEPTH 8 /* levels of folders that are searched */

/* --- finding -------------------------------------------------------------- */

static int skip_hidden(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* True for the name of a folder that a run makes within its checkpoint folder.
 */
static bool is_checkpoint_part(const char *name)
{
    return pst_has_prefix(name, "step-") || pst_has_prefix(name, "former-") ||
           strcmp(name, "best") == 0;
}

/* Searches a folder for a run. A pipe or a device in place of a file does not
 * stop the search for other runs: the folder is left out, and the command fails
 * with the first such error at its end; further ones are printed at once. */
static enum pst_status search_files(struct pstctl_add_finding *f,
                                    const char *dir, bool *ret,
                                    struct pst_diag *diag)
{
    const enum pst_status status = pstctl_found_search(f, dir, ret, diag);

    if (status == PST_OK || diag->error != PST_E_FILE_WRONG_KIND)
        return status;
    *ret = true;
    if (f->refused.status == PST_OK)
        f->refused = *diag;
    else
        pstctl_printf(stderr, "warning: %s\n", diag->text);
    return PST_OK;
}

static enum pst_status search_folder(struct pstctl_add_finding *f,
                                     const char *dir, unsigned depth,
                                     struct pst_diag *diag)
{
    struct dirent **entries = NULL;
    const int n = scandir(dir, &entries, skip_hidden, alphasort);
    bool found = false;
    enum pst_status status = PST_OK;

    if (n < 0)
        /* not readable by this user, or removed meanwhile */
        return depth > 0 ? PST_OK
                         : pst_diag_errno(diag, errno, "cannot read %s", dir);
    status = search_files(f, dir, &found, diag);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        struct pst_str path = {0};
        struct stat info;

        pst_str_addf(&path, "%s%s%s", dir, pst_has_suffix(dir, "/") ? "" : "/",
                     name);
        if (status == PST_OK && path.failed)
            status = pst_diag_nomem(diag, path.len);
        if (status == PST_OK && depth < DEPTH &&
            !(found && is_checkpoint_part(name)) &&
            lstat(path.text, &info) == 0 && S_ISDIR(info.st_mode))
            status = search_folder(f, path.text, depth + 1, diag);
        pst_str_fini(&path);
        free(entries[i]); // NOLINT: of scandir()
    }
    free(entries); // NOLINT: of scandir()
    return status;
}

/* --- comparing ------------------------------------------------------------ */

/* True for options that name files and folders: they differ in every run. */
static bool is_path_option(const char *name)
{
    static const char *const names[] = {
        "log-dir",     "checkpoint", "checkpoint-fallback",
        "tensorboard", "prom",       "resume",
        "adopt",       "dump",       "dump-fault",
        "job"};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool option_differs(const struct pstctl_add_finding *f,
                           const struct pstd_option *row)
{
    for (size_t i = 1; i < f->runs.n; i++)
        if (strcmp(pstctl_found_value(&f->runs.at[0], row),
                   pstctl_found_value(&f->runs.at[i], row)) != 0)
            return true;
    return false;
}

struct columns {
    const struct pstd_option *at[PSTD_MAX_OPTIONS];
    size_t n;
};

static void find_columns(const struct pstctl_add_finding *f,
                         struct columns *ret)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    ret->n = 0;
    for (size_t i = 0; i < n; i++)
        if ((rows[i].groups & (PSTD_OPT_TRAIN | PSTD_OPT_RANKS)) &&
            !is_path_option(rows[i].name) && option_differs(f, &rows[i]))
            ret->at[ret->n++] = &rows[i];
}

/* --- printing ------------------------------------------------------------- */

static enum pst_status print_json(const struct pstctl_add_finding *f,
                                  const struct columns *c,
                                  struct pst_diag *diag)
{
    json_t *runs = json_array(), *names = json_array();

    for (size_t k = 0; k < c->n; k++)
        (void)json_array_append_new(names, json_string(c->at[k]->name));
    for (size_t i = 0; i < f->runs.n; i++) {
        const struct pstctl_run *r = &f->runs.at[i];
        json_t *options = json_object();

        for (size_t k = 0; k < r->n_options; k++)
            (void)json_object_set_new(options, r->names[k],
                                      pstctl_json_text(r->values[k]));
        (void)json_array_append_new(
            runs, json_pack("{s:o s:s s:I s:o s:o s:o}", "path",
                            pstctl_json_text(r->path), "run", r->id, "steps",
                            (json_int_t)r->step, "loss",
                            pstctl_json_real(r->loss), "best_eval",
                            pstctl_json_real(r->best), "options", options));
    }
    return pstctl_json_print(
        json_pack("{s:o s:o}", "runs", runs, "differing", names), diag);
}

static void add_number(double x, struct pst_str *out)
{
    if (isfinite(x))
        pst_str_addf(out, "%.6g", x);
    else
        pst_str_add(out, "-");
}

/* Appends cell k of the row of a run (NULL: the head of the table). */
static void add_cell(const struct pstctl_run *r, const struct columns *c,
                     size_t k, struct pst_str *out)
{
    static const char *const heads[] = {"run", "steps", "loss", "best eval"};

    if (r == NULL)
        pst_str_add(out, k < PST_COUNT(heads)
                             ? heads[k]
                             : c->at[k - PST_COUNT(heads)]->name);
    else if (k == 0)
        pst_str_add_visible(out, r->path);
    else if (k == 1)
        pst_str_addf(out, "%" PRIu64, r->step);
    else if (k == 2 || k == 3)
        add_number(k == 2 ? r->loss : r->best, out);
    else
        pst_str_add_visible(out,
                            pstctl_found_value(r, c->at[k - PST_COUNT(heads)]));
    if (out->len == 0)
        pst_str_add(out, "-");
}

static void print_table(const struct pstctl_add_finding *f,
                        const struct columns *c)
{
    const size_t n = c->n + 4;
    size_t widths[PSTD_MAX_OPTIONS + 4] = {0};

    for (int print = 0; print < 2; print++) {
        for (size_t i = 0; i <= f->runs.n; i++) {
            struct pst_str line = {.visible = 1};

            for (size_t k = 0; k < n; k++) {
                struct pst_str cell = {0};

                add_cell(i == 0 ? NULL : &f->runs.at[i - 1], c, k, &cell);
                if (print == 0)
                    widths[k] = PST_MAX(widths[k], cell.len);
                else
                    pst_str_addf(&line, "%s%-*s", k > 0 ? "  " : "",
                                 k + 1 < n ? (int)widths[k] : 0,
                                 pst_str_text(&cell));
                pst_str_fini(&cell);
            }
            pst_str_add(&line, "\n");
            if (print == 1)
                pstctl_print(stdout, &line);
            pst_str_fini(&line);
        }
    }
}

static enum pst_status run_runs(const struct pstd_config *config,
                                struct pst_diag *diag)
{
    struct pstctl_add_finding found = {0};
    struct columns columns;
    enum pst_status status = PST_OK;

    pst_arena_init(&found.arena, TAG);
    for (size_t i = 0; i < config->n_args && status == PST_OK; i++)
        status = search_folder(&found, config->args[i], 0, diag);
    if (status == PST_OK && found.runs.n == 0 && found.refused.status == PST_OK)
        status = pst_diag_set(diag, PST_E_HISTORY_NONE,
                              "there is no run in %s, or in a folder below it",
                              config->args[0]);
    if (status == PST_OK && found.runs.n > 0) {
        find_columns(&found, &columns);
        if (config->json)
            status = print_json(&found, &columns, diag);
        else
            print_table(&found, &columns);
    }
    if (status == PST_OK && found.refused.status != PST_OK)
        status = pst_diag_pass(diag, &found.refused, "%s", found.refused.text);
    pstctl_found_fini(&found);
    return status;
}

const struct pstctl_command pstctl_runs = {
    "runs",
    "DIR...",
    1,
    64,
    PSTD_OPT_JSON,
    "compare the runs below folders",
    "Finds the folders of --log-dir and --checkpoint in and below each DIR, "
    "and "
    "prints\n"
    "for each run its steps, its newest loss, the best evaluation, and those "
    "of "
    "its\n"
    "options in which the runs differ. A run with both folders is one row. If "
    "several\n"
    "runs used a folder, the newest one is shown.",
    run_runs,
    false,
    NULL};
