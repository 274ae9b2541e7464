// SPDX-License-Identifier: Apache-2.0
/* Checks that no option writes to a path where checkpoints of this run, or of
 * another one, are or will be. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/files/checkpoint/owner.h"

#define MOST_PARTS                                                             \
    256 /* missing parts and links of a path that are resolved                 \
         */

static bool resolve(const char *path, unsigned most, struct pst_str *ret);

/* Appends the path of the folder that a path is in. Returns the last part of
 * the path, which may end in slashes. */
static const char *add_parent(const char *path, struct pst_str *ret)
{
    size_t end = strlen(path), begin;

    while (end > 0 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';)
        begin--;
    end = begin;
    while (end > 1 && path[end - 1] == '/')
        end--;
    pst_str_addn(ret, end > 0 ? path : ".", end > 0 ? end : 1);
    return path + begin;
}

/* Resolves a link whose target is missing. *ret_link: the path is a link. */
static bool resolve_link(const char *path, unsigned most, struct pst_str *ret,
                         bool *ret_link)
{
    char target[PATH_MAX];
    const ssize_t n = readlink(path, target, sizeof(target) - 1);
    struct pst_str next = {0};
    bool ok;

    *ret_link = n > 0;
    if (n <= 0)
        return false;
    target[n] = '\0';
    if (target[0] != '/') {
        (void)add_parent(path, &next);
        pst_str_add(&next, "/");
    }
    pst_str_add(&next, target);
    ok = !next.failed && resolve(next.text, most - 1, ret);
    pst_str_fini(&next);
    return ok;
}

/* Resolves the folder of a missing file, and appends the file's name. */
static bool resolve_missing(const char *path, unsigned most,
                            struct pst_str *ret)
{
    struct pst_str parent = {0};
    const char *name = add_parent(path, &parent);
    const size_t n = strcspn(name, "/");
    const bool ok = n > 0 && !parent.failed && strcmp(parent.text, path) != 0 &&
                    resolve(parent.text, most - 1, ret);

    pst_str_fini(&parent);
    if (!ok)
        return false;
    if (n == 2 && name[0] == '.' && name[1] == '.') {
        while (ret->len > 1 && ret->text[--ret->len] != '/')
            ;
        ret->text[ret->len] = '\0';
    } else if (n != 1 || name[0] != '.') {
        pst_str_add(ret, ret->len > 1 ? "/" : "");
        pst_str_addn(ret, name, n);
    }
    return true;
}

/* Appends the path without links, as realpath does, but accepts a path whose
 * last parts do not exist yet. */
static bool resolve(const char *path, unsigned most, struct pst_str *ret)
{
    char *real = realpath(path, NULL);
    bool is_link, ok;

    if (real != NULL) {
        pst_str_add(ret, real);
        free(real); // NOLINT: realpath allocates with malloc
        return true;
    }
    if (most == 0)
        return false;
    ok = resolve_link(path, most, ret, &is_link);
    return is_link ? ok : resolve_missing(path, most, ret);
}

/* True if the path is a file directly in `dir`, or is in one of the folders
 * that a run creates there. is_folder: the path is a folder; it may be beside
 * those folders. */
static bool is_among(const char *path, const char *dir, bool is_folder)
{
    struct pst_str of_path = {0}, of_dir = {0};
    const char *rest;
    bool ret = false;

    if (resolve(path, MOST_PARTS, &of_path) &&
        resolve(dir, MOST_PARTS, &of_dir) && !of_path.failed &&
        !of_dir.failed && pst_has_prefix(of_path.text, of_dir.text)) {
        rest = of_path.text + of_dir.len;
        if (*rest == '/' && rest[1] != '\0') {
            const size_t n = strcspn(++rest, "/");

            ret = pst_checkpoint_is_part(rest, n) ||
                  (rest[n] == '\0' && !is_folder);
        }
    }
    pst_str_fini(&of_path);
    pst_str_fini(&of_dir);
    return ret;
}

/* Does the same for the folder of the best checkpoint in `dir`, which may be a
 * link. */
static bool is_among_best(const char *path, const char *dir, bool is_folder)
{
    struct pst_str best = {0};
    bool ret;

    pst_str_addf(&best, "%s/" PST_CHECKPOINT_BEST, dir);
    ret = !best.failed && (is_among(path, best.text, is_folder) ||
                           (is_folder && pst_path_is_same(path, best.text)));
    pst_str_fini(&best);
    return ret;
}

static enum pst_status check_place(const struct pstd_option *row,
                                   const char *path, const char *dir,
                                   bool is_folder, struct pst_diag *diag)
{
    if (dir == NULL || (!is_among(path, dir, is_folder) &&
                        !is_among_best(path, dir, is_folder)))
        return PST_OK;
    return pst_diag_set(
        diag, PST_E_OPTION_VALUE,
        "--%s %s: the run makes and removes files there itself, "
        "among its checkpoints in %s: choose a place outside "
        "of that folder, or another folder in it",
        row->name, path, dir);
}

/* For a resume without --checkpoint-fallback: reads which fallback folder
 * --checkpoint records. Ignores errors: the resume reports them. */
static void find_second(const struct pstd_config *config,
                        struct pst_checkpoint_run *ret)
{
    struct pst_diag ignored;

    if (config->checkpoint != NULL && config->checkpoint_fallback == NULL &&
        config->resume.on &&
        pst_checkpoint_read_run(config->checkpoint, ret, &ignored) != PST_OK)
        ret->fallback = NULL;
}

enum pst_status pstd_check_places(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pst_checkpoint_run run = {0};
    const char *second = config->checkpoint_fallback;
    enum pst_status status = PST_OK;
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    find_second(config, &run);
    if (second == NULL)
        second = run.fallback;
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        const bool is_file = (rows[i].groups & PSTD_OPT_WRITTEN) != 0 &&
                             (rows[i].groups & PSTD_OPT_OUTPUT) == 0;
        const char *path;

        if (rows[i].type != PSTD_PATH)
            continue;
        path = *(const char *const *)(const void *)((const char *)config +
                                                    rows[i].at);
        if (path == NULL || (!is_file && path != config->log_dir &&
                             path != config->tensorboard))
            continue;
        status =
            check_place(&rows[i], path, config->checkpoint, !is_file, diag);
        if (status == PST_OK)
            status = check_place(&rows[i], path, second, !is_file, diag);
    }
    pst_free(run.fallback);
    return status;
}

/* Sets *ret if --log-dir is a folder of this run: --checkpoint,
 * --checkpoint-fallback, or a folder that names the run that is resumed. */
static enum pst_status is_own_folder(const struct pstd_config *config,
                                     bool *ret, struct pst_diag *diag)
{
    struct pst_checkpoint_run mine = {0}, there = {0};
    enum pst_status status = PST_OK;

    *ret = (config->checkpoint != NULL &&
            pst_path_is_same(config->log_dir, config->checkpoint)) ||
           (config->checkpoint_fallback != NULL &&
            pst_path_is_same(config->log_dir, config->checkpoint_fallback));
    if (*ret || config->checkpoint == NULL || !config->resume.on)
        return PST_OK;
    status = pst_checkpoint_read_run(config->checkpoint, &mine, diag);
    if (status == PST_OK)
        status = pst_checkpoint_read_run(config->log_dir, &there, diag);
    *ret = mine.name[0] != '\0' && strcmp(mine.name, there.name) == 0;
    pst_free(mine.fallback);
    pst_free(there.fallback);
    return status;
}

enum pst_status pstd_check_log_dir(const struct pstd_config *config,
                                   struct pst_diag *diag)
{
    enum pst_status status;
    bool own = false;

    if (config->log_dir == NULL || !pst_checkpoint_is_owned(config->log_dir))
        return PST_OK;
    status = is_own_folder(config, &own, diag);
    if (status != PST_OK || own)
        return status;
    return pst_diag_set(diag, PST_E_OPTION_VALUE,
                        "--log-dir %s: this is the checkpoint folder of "
                        "another run, whose steps.history would be replaced: "
                        "choose another folder",
                        config->log_dir);
}
