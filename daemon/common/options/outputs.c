// SPDX-License-Identifier: Apache-2.0
/* Checks that no output option would overwrite a file that is needed, and that
 * the files can be made. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/options/sets.h"
#include "daemon/common/setup.h"
#include "stages/base/str.h"
#include "stages/files/data/list.h"
#include "stages/files/given.h"

/* An output option, and the file that its path names now. */
struct output {
    const struct pstd_option *row;
    const char *path;
    struct stat file;
};

/* Returns the text of a row, NULL if it has none. */
static const char *get_text(const struct pstd_config *config,
                            const struct pstd_option *row)
{
    return *(const char *const *)(const void *)((const char *)config + row->at);
}

/* True for files whose loss would damage the plan, checkpoint or other folder
 * that they are in. */
static bool is_protected(const char *path)
{
    static const struct {
        const char *sign; /* file that shows which kind of folder it is */
        const char *part; /* prefix of the names that belong to it; "": all */
    } folders[] = {{"plan.pb", ""},
                   {"manifest.json", ""},
                   {"owner.json", "owner.json"},
                   {"owner.json", "steps.history"},
                   {"owner.json", "evaluations"},
                   {"owner.json", "lock"}};
    char *real = realpath(path, NULL);
    char *name = real != NULL ? strrchr(real, '/') : NULL;
    bool ret = false;

    for (size_t i = 0; name != NULL && i < PST_COUNT(folders); i++) {
        struct pst_str beside = {0};

        pst_str_addf(&beside, "%.*s/%s", (int)(name - real), real,
                     folders[i].sign);
        ret = ret || (pst_has_prefix(name + 1, folders[i].part) &&
                      access(pst_str_text(&beside), F_OK) == 0);
        pst_str_fini(&beside);
    }
    free(real); // NOLINT: realpath allocates with malloc
    return ret;
}

static enum pst_status check_input(const struct output *out, const char *input,
                                   struct pst_diag *diag)
{
    struct stat in;

    if (stat(input, &in) != 0 || out->file.st_dev != in.st_dev ||
        out->file.st_ino != in.st_ino)
        return PST_OK;
    return pst_diag_set(diag, PST_E_OPTION_VALUE,
                        "--%s %s: this is a file that is read, and would be "
                        "written over",
                        out->row->name, out->path);
}

/* Checks a file of data or, if it is an index or a pattern, all of its files.
 */
static enum pst_status check_tensors(const struct output *out, const char *path,
                                     struct pst_diag *diag)
{
    enum pst_status status = check_input(out, path, diag);
    struct pst_given *given;

    /* Ignores errors: opening the files later reports them. */
    if ((!pst_has_suffix(path, PST_DATA_SHARD_INDEX) &&
         !pst_data_list_is_pattern(path)) ||
        pst_given_open(path, &given, NULL) != PST_OK)
        return status;
    for (size_t i = 0; i < pst_given_files(given) && status == PST_OK; i++)
        status = check_input(out, pst_given_file(given, i)->path, diag);
    pst_given_close(given);
    return status;
}

static enum pst_status check_data(const struct output *out, const char *text,
                                  struct pst_diag *diag)
{
    struct pst_data_list list;
    enum pst_status status = PST_OK;

    /* Ignores errors: opening the data later reports them. */
    if (pst_data_list_read(text, &list, NULL) != PST_OK)
        return PST_OK;
    for (size_t i = 0; i < list.files.n && status == PST_OK; i++)
        status = check_tensors(out, list.files.at[i], diag);
    pst_data_list_fini(&list);
    return status;
}

/* Refuses an output that is one of the paths, separated by ':'. */
static enum pst_status check_inputs(const struct output *out, const char *text,
                                    struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    while (text != NULL && status == PST_OK) {
        const size_t n = pstd_path_length(text);
        struct pst_str path = {0};

        pst_str_addn(&path, text, n);
        status = path.failed ? pst_diag_nomem(diag, n)
                             : check_input(out, pst_str_text(&path), diag);
        pst_str_fini(&path);
        text = text[n] == ':' ? text + n + 1 : NULL;
    }
    return status;
}

/* A pstd_set_fn that refuses an output that is a file of the set. */
static enum pst_status check_set(void *ctx, const struct pstd_set *set,
                                 struct pst_diag *diag)
{
    return check_data(ctx, set->files, diag);
}

/* Refuses an output that is one of the files that an option names. */
static enum pst_status check_option(const struct output *out,
                                    const struct pstd_config *config,
                                    const struct pstd_option *row,
                                    struct pst_diag *diag)
{
    struct output mine = *out; /* the context of check_set is not const */
    const char *text;

    if (row->type != PSTD_PATH && row->type != PSTD_PATHS &&
        row->type != PSTD_FILES && row->type != PSTD_SETS &&
        row->type != PSTD_SOURCE)
        return PST_OK;
    text = get_text(config, row);
    if (text == NULL || row == out->row)
        return PST_OK;
    if (row->type == PSTD_FILES)
        return check_data(out, text, diag);
    if (row->type == PSTD_PATHS)
        return check_inputs(out, text, diag);
    if (row->type == PSTD_SETS)
        return pstd_sets_each("--eval-data", text, check_set, &mine, diag);
    if (row->type == PSTD_PATH)
        return check_tensors(out, text, diag);
    text = pstd_option_path(row, text);
    return text != NULL ? check_input(out, text, diag) : PST_OK;
}

static enum pst_status check_output(const struct output *out,
                                    const struct pstd_config *config,
                                    struct pst_diag *diag)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);
    enum pst_status status = PST_OK;

    if (is_protected(out->path))
        return pst_diag_set(diag, PST_E_OPTION_VALUE,
                            "--%s %s: this is a file of a plan or a "
                            "checkpoint, and would be written over",
                            out->row->name, out->path);
    for (size_t i = 0; i < n && status == PST_OK; i++)
        status = check_option(out, config, &rows[i], diag);
    for (size_t i = 0; i < config->n_args && status == PST_OK; i++)
        status = check_input(out, config->args[i], diag);
    for (size_t i = 0; i < config->read.n && status == PST_OK; i++)
        status = check_input(out, config->read.at[i], diag);
    for (size_t i = 0; i < config->swap.n && status == PST_OK; i++) {
        const char *file = strchr(config->swap.at[i], '=');

        if (file != NULL)
            status = check_input(out, file + 1, diag);
    }
    return status;
}

enum pst_status pstd_check_outputs(const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < n && status == PST_OK; i++) {
        struct output out = {.row = &rows[i]};

        if (!(rows[i].groups & PSTD_OPT_WRITTEN))
            continue;
        out.path = get_text(config, &rows[i]);
        /* Only existing files are checked: a new one replaces nothing; folders
         * and devices are refused or accepted by the commands. */
        if (out.path != NULL && stat(out.path, &out.file) == 0 &&
            S_ISREG(out.file.st_mode))
            status = check_output(&out, config, diag);
    }
    return status == PST_OK ? pstd_check_places(config, diag) : status;
}

/* Returns 0 if a file can be made in the folder, else an errno. */
static int find_obstacle(const char *folder)
{
    struct stat st;

    if (stat(folder, &st) != 0)
        return errno;
    if (!S_ISDIR(st.st_mode))
        return ENOTDIR;
    return access(folder, W_OK | X_OK) != 0 ? errno : 0;
}

static enum pst_status check_folder(const struct pstd_option *row,
                                    const char *path, struct pst_diag *diag)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    struct pst_str folder = {0};
    enum pst_status status = PST_OK;
    int error;

    if (slash != NULL)
        pst_str_addn(&folder, path, (size_t)PST_MAX(slash - path, 1));
    else
        pst_str_add(&folder, ".");
    if (folder.failed)
        return pst_diag_nomem(diag, strlen(path));
    error = find_obstacle(folder.text);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        status = pst_diag_errno(diag, EISDIR, "--%s %s", row->name, path);
    else if (error != 0)
        status = pst_diag_errno(diag, error,
                                "--%s %s: the run could not make this file in "
                                "%s",
                                row->name, path, folder.text);
    pst_str_fini(&folder);
    return status;
}

enum pst_status pstd_check_folders(const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    const uint64_t want = PSTD_OPT_WRITTEN | PSTD_OPT_TRAIN;
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const char *path =
            (rows[i].groups & want) == want ? get_text(config, &rows[i]) : NULL;

        if (path != NULL)
            status = check_folder(&rows[i], path, diag);
    }
    return status;
}
