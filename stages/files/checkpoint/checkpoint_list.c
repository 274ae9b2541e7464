// SPDX-License-Identifier: Apache-2.0
/* Lists the checkpoints of a folder; decides which old ones are removed. */
#include "stages/base/host/log.h"
#include "stages/files/checkpoint/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FORMER 100000

const char *pst_checkpoint_state_name(enum pst_checkpoint_state state)
{
    static const char *const names[] = {"good", "bad", "damaged", "unreadable"};

    return names[state];
}

static void fill_row(struct pst_checkpoint_row *row,
                     const struct pst_checkpoint *ckpt, const char *dir,
                     const struct pst_diag *why)
{
    if (row->status == PST_OK) {
        row->state = ckpt->info.bad ? PST_CHECKPOINT_BAD : PST_CHECKPOINT_GOOD;
        row->time = ckpt->info.time ? ckpt->info.time : row->time;
        row->course = ckpt->info.course;
        snprintf(row->text, sizeof(row->text), "%s", ckpt->info.reason);
        memcpy(row->model_digest, ckpt->info.model_digest,
               sizeof(row->model_digest));
        memcpy(row->identity, ckpt->info.identity, sizeof(row->identity));
        memcpy(row->digest, ckpt->info.digest, sizeof(row->digest));
        for (unsigned i = 0; i < ckpt->n_shards; i++)
            row->bytes += pst_safetensors_file(ckpt->shards[i])->size;
        return;
    }
    row->error = why->error;
    row->state = row->status == PST_ERR_INPUT ? PST_CHECKPOINT_DAMAGED
                                              : PST_CHECKPOINT_UNREADABLE;
    snprintf(row->text, sizeof(row->text), "%s",
             pst_has_prefix(why->text, dir) ? why->text + strlen(dir) + 1
                                            : why->text);
}

static enum pst_status read_row(const char *dir, uint64_t step, bool verify,
                                struct pst_checkpoint_row *row,
                                struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {.dir = dir, .verify = verify};
    struct pst_checkpoint *ckpt = NULL;
    struct pst_str path = {0};
    struct pst_diag why;
    struct stat st;

    *row = (struct pst_checkpoint_row){.step = step};
    pst_checkpoint_step_dir(dir, step, &path);
    if (!path.failed && stat(path.text, &st) == 0)
        row->time = st.st_mtime;
    pst_str_fini(&path);
    row->pinned = pst_checkpoint_is_pinned(dir, step);
    row->status = pst_checkpoint_open_step(&query, step, &ckpt, &why);
    if (row->status == PST_ERR_NOMEM)
        return pst_diag_pass(diag, &why, "%s", why.text);
    fill_row(row, ckpt, dir, &why);
    if (row->status == PST_OK)
        pst_checkpoint_close(ckpt);
    return PST_OK;
}

enum pst_status pst_checkpoint_table(const char *dir, bool verify,
                                     struct pst_checkpoint_rows *ret,
                                     struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    struct pst_checkpoint_steps steps = {0};
    enum pst_status status = pst_checkpoint_list(dir, &steps, diag);

    if (status == PST_OK && steps.n &&
        !pst_vec_reserve(PST_TAG_ARCHIVE, &rows, steps.n))
        status = pst_diag_nomem(diag, steps.n * sizeof(*rows.at));
    for (size_t i = 0; i < steps.n && status == PST_OK; i++) {
        struct pst_checkpoint_row *row = &rows.at[rows.n];

        status = read_row(dir, steps.at[i], verify, row, diag);
        /* Omits a checkpoint that a job has removed in the meantime. */
        if (row->status == PST_OK || !pst_checkpoint_is_rest(dir, steps.at[i]))
            rows.n++;
    }
    pst_vec_fini(&steps);
    if (status != PST_OK)
        pst_vec_fini(&rows);
    else
        *ret = rows;
    return status;
}

/* Removes all files of the folder except the "saving" mark and, if claimed, the
 * claim. */
static enum pst_status remove_files(const char *path, bool claimed,
                                    struct pst_diag *diag)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    enum pst_status status = PST_OK;
    const struct dirent *e;

    if (dir == NULL) {
        status = errno == ENOENT
                     ? PST_OK
                     : pst_diag_errno(diag, errno, "cannot open %s", path);
        if (fd >= 0)
            (void)close(fd);
        return status;
    }
    while (status == PST_OK && (e = readdir(dir)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, PST_SAVING_FILE) != 0 &&
            !(claimed && strcmp(e->d_name, PST_PIN_FILE) == 0) &&
            unlinkat(dirfd(dir), e->d_name, 0) != 0 && errno != ENOENT)
            status = pst_diag_errno(diag, errno, "cannot remove %s/%s", path,
                                    e->d_name);
    (void)closedir(dir);
    return status;
}

/* Renames the manifest to the "saving" mark. If the step is a checkpoint,
 * claims its removal first, which a pin prevents; leftovers of a save need no
 * claim. */
static enum pst_status begin_removal(const char *dir, uint64_t step,
                                     const char *manifest, const char *mark,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (!pst_checkpoint_is_rest(dir, step))
        status = pst_checkpoint_claim_removal(dir, step, diag);
    if (status == PST_OK && rename(manifest, mark) != 0 && errno != ENOENT) {
        status = pst_diag_errno(diag, errno, "cannot remove %s", manifest);
        pst_checkpoint_drop_claim(dir, step);
    }
    return status;
}

/* Removes a checkpoint, unless it is pinned. The manifest is first renamed to
 * the "saving" mark, which is removed last: if the process is killed in
 * between, the remaining files do not look like a checkpoint. */
enum pst_status pst_checkpoint_delete(const char *dir, uint64_t step,
                                      struct pst_diag *diag)
{
    struct pst_str path = {0}, manifest = {0}, mark = {0};
    enum pst_status status = PST_OK;
    struct stat st;

    pst_checkpoint_step_dir(dir, step, &path);
    pst_str_addf(&manifest, "%s/" PST_MANIFEST_FILE, pst_str_text(&path));
    pst_str_addf(&mark, "%s/" PST_SAVING_FILE, pst_str_text(&path));
    if (path.failed || manifest.failed || mark.failed)
        status = pst_diag_nomem(diag, strlen(dir));
    else if (lstat(path.text, &st) == 0 && S_ISLNK(st.st_mode))
        status = pst_diag_set(diag, PST_E_CHECKPOINT_KEPT,
                              "%s is a symbolic link: remove it yourself",
                              path.text);
    else
        status = begin_removal(dir, step, manifest.text, mark.text, diag);
    if (status == PST_OK)
        status =
            remove_files(path.text, pst_checkpoint_is_claimed(dir, step), diag);
    if (status == PST_OK)
        status = pst_remove_tree(path.text, diag);
    pst_str_fini(&path);
    pst_str_fini(&manifest);
    pst_str_fini(&mark);
    return status;
}

static void report_kept(const struct pst_checkpoint_rule *rule, const char *dir,
                        uint64_t step, const char *text)
{
    pst_debug("archive", "old checkpoint: %s", text);
    if (rule->stays)
        rule->stays(rule->ctx, dir, step, text);
}

static bool is_good(const struct pst_checkpoint_rule *rule,
                    const struct pst_checkpoint_row *row)
{
    for (size_t i = 0; i < rule->n_damaged; i++) {
        if (rule->damaged[i] == row->step)
            return false;
    }
    return row->state == PST_CHECKPOINT_GOOD;
}

/* Stores the name of a file in a step's folder that no save has written, such
 * as a checkpoint of another program; false: there is none. */
static bool find_foreign(const char *dir, uint64_t step, char ret[256])
{
    static const char *const ours[] = {".", "..", PST_SAVING_FILE,
                                       PST_PIN_FILE};
    struct pst_str path = {0};
    const struct dirent *e;
    bool found = false;
    DIR *d;
    int fd = -1;

    pst_checkpoint_step_dir(dir, step, &path);
    if (!path.failed)
        fd = open(path.text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    d = fd >= 0 ? fdopendir(fd) : NULL;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
    while (d != NULL && !found && (e = readdir(d)) != NULL) {
        found = !pst_has_prefix(e->d_name, "rank-") &&
                !pst_has_prefix(e->d_name, PST_MANIFEST_FILE) &&
                /* older versions, killed while pinning, left it */
                !pst_has_prefix(e->d_name, PST_PIN_FILE ".tmp-");
        for (size_t i = 0; i < PST_COUNT(ours); i++)
            found = found && strcmp(e->d_name, ours[i]) != 0;
        if (found)
            snprintf(ret, 256, "%s", e->d_name);
    }
    if (d != NULL)
        (void)closedir(d);
    else if (fd >= 0)
        (void)close(fd);
    pst_str_fini(&path);
    return found;
}

/* Removes a step's folder, unless it has files that no save has written, or was
 * pinned in the meantime. */
static void remove_step(const struct pst_checkpoint_rule *rule, const char *dir,
                        uint64_t step)
{
    char name[256];
    struct pst_diag diag;
    enum pst_status status;

    status = find_foreign(dir, step, name)
                 ? pst_diag_set(&diag, PST_E_CHECKPOINT_KEPT,
                                "step-%08" PRIu64 " has '%s', which is no part "
                                "of a checkpoint: it stays",
                                step, name)
                 : pst_checkpoint_delete(dir, step, &diag);
    if (status != PST_OK && !pst_checkpoint_is_pinned(dir, step))
        report_kept(rule, dir, step, diag.text);
}

/* Removes old checkpoints: good ones that are not among the `keep` newest good
 * ones, and others that are not among the `keep` newest of all. One that cannot
 * be read may be intact: it stays and is not counted. */
static void prune_rows(const char *dir, uint64_t step,
                       const struct pst_checkpoint_rule *rule,
                       const struct pst_checkpoint_rows *rows)
{
    const unsigned keep = rule->keep;
    unsigned good = 0, all = 0;

    for (size_t i = 0; i < rows->n; i++) {
        const struct pst_checkpoint_row *row = &rows->at[i];
        const bool whole = is_good(rule, row);

        if (row->state == PST_CHECKPOINT_UNREADABLE)
            report_kept(rule, dir, row->step, row->text);
        if (row->step > step || row->state == PST_CHECKPOINT_UNREADABLE)
            continue;
        all++;
        good += whole;
        if (row->step == step || row->pinned || (whole ? good : all) <= keep)
            pst_checkpoint_drop_claim(dir, row->step);
        else
            remove_step(rule, dir, row->step);
    }
}

/* Removes leftovers of unfinished saves, except folders with files that no save
 * has written. */
static void prune_rests(const char *dir, uint64_t step,
                        const struct pst_checkpoint_rule *rule)
{
    struct pst_checkpoint_steps steps = {0};
    enum pst_status status;
    struct pst_diag diag;

    status = pst_checkpoint_list_all(dir, step, &steps, &diag);
    for (size_t i = 0; i < steps.n && status == PST_OK; i++)
        if (pst_checkpoint_is_rest(dir, steps.at[i]))
            remove_step(rule, dir, steps.at[i]);
    if (status != PST_OK)
        pst_debug("archive", "old checkpoints: %s", diag.text);
    pst_vec_fini(&steps);
}

/* Removes old checkpoints and leftovers. A checkpoint that cannot be removed is
 * only reported, since the new one is safe already; the next save tries
 * again. */
void pst_checkpoint_prune(const char *dir, uint64_t step,
                          const struct pst_checkpoint_rule *rule)
{
    struct pst_checkpoint_rows rows = {0};
    struct pst_diag diag;
    enum pst_status status = pst_checkpoint_table(dir, false, &rows, &diag);

    if (status == PST_OK && rule->keep > 0)
        prune_rows(dir, step, rule, &rows);
    if (status == PST_OK)
        prune_rests(dir, step, rule);
    else
        report_kept(rule, dir, step, diag.text);
    pst_vec_fini(&rows);
}

enum pst_status pst_checkpoint_remove(
    const char *dir, uint64_t step,
    const struct pst_checkpoint_rewinds *rewinds, struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    enum pst_status status = pst_checkpoint_check_exists(dir, step, diag);
    const struct pst_checkpoint_row *newest = NULL, *row = NULL;

    if (status == PST_OK)
        status = pst_checkpoint_table(dir, false, &rows, diag);
    for (size_t i = 0; i < rows.n && status == PST_OK; i++) {
        if (!newest && rows.at[i].state == PST_CHECKPOINT_GOOD &&
            !(rewinds && pst_checkpoint_is_left(rewinds, rows.at[i].course,
                                                rows.at[i].step))) {
            status = read_row(dir, rows.at[i].step, true, &rows.at[i], diag);
            if (rows.at[i].state == PST_CHECKPOINT_GOOD)
                newest = &rows.at[i];
        }
        if (rows.at[i].step == step)
            row = &rows.at[i];
    }
    if (status == PST_OK && row && row->pinned)
        status = pst_checkpoint_refuse_pinned(dir, step, diag);
    else if (status == PST_OK && row && row == newest)
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_KEPT,
            "the checkpoint of step %" PRIu64 " is the newest good one in %s: "
            "without it the run cannot go on from where it is; remove the "
            "whole folder if that is what you want",
            step, dir);
    if (status == PST_OK)
        status = pst_checkpoint_delete(dir, step, diag);
    pst_vec_fini(&rows);
    return status;
}

/* Creates a new DIR/former-N; ret is its name. */
static enum pst_status make_former(const char *dir, char ret[64],
                                   struct pst_diag *diag)
{
    for (unsigned i = 1; i < MAX_FORMER; i++) {
        struct pst_str path = {0};
        bool made;
        int err;

        snprintf(ret, 64, "former-%u", i);
        pst_str_addf(&path, "%s/%s", dir, ret);
        made = !path.failed && mkdir(path.text, 0777) == 0;
        err = path.failed ? ENOMEM : errno;
        pst_str_fini(&path);
        if (made)
            return PST_OK;
        if (err != EEXIST)
            return pst_diag_errno(diag, err, "cannot make %s/%s", dir, ret);
    }
    return pst_diag_set(diag, PST_E_FILE_EXISTS,
                        "%s: no free name for a folder", dir);
}

/* Renames a folder. Its ".." changes, for which the owner needs write
 * permission to the folder: adds that permission if necessary. */
static int rename_folder(const char *from, const char *to)
{
    struct stat st;

    if (rename(from, to) == 0)
        return 0;
    if (errno != EACCES || lstat(from, &st) != 0 || !S_ISDIR(st.st_mode) ||
        chmod(from, 0700) != 0)
        return -1;
    if (rename(from, to) != 0) {
        const int err = errno;

        (void)chmod(from, st.st_mode & 07777);
        errno = err;
        return -1;
    }
    (void)chmod(to, st.st_mode & 07777);
    return 0;
}

static enum pst_status move_step(const char *dir, uint64_t step,
                                 const char *folder, struct pst_diag *diag)
{
    struct pst_str from = {0}, to = {0};
    enum pst_status status = PST_OK;

    pst_checkpoint_step_dir(dir, step, &from);
    pst_str_addf(&to, "%s/%s/step-%08" PRIu64, dir, folder, step);
    if (from.failed || to.failed)
        status = pst_diag_nomem(diag, strlen(dir));
    else if (rename_folder(from.text, to.text) != 0)
        status = pst_diag_errno(diag, errno, "cannot move %s to %s", from.text,
                                to.text);
    pst_str_fini(&from);
    pst_str_fini(&to);
    return status;
}

static bool is_incomplete(const char *dir, uint64_t step)
{
    bool complete;

    return pst_checkpoint_is_complete(dir, step, &complete, NULL) == PST_OK &&
           !complete;
}

/* True if the run has left the checkpoint. One whose manifest cannot be read
 * stays: nobody resumes from it. */
static bool is_left(const char *dir, uint64_t step,
                    const struct pst_checkpoint_rewinds *rewinds)
{
    struct pst_str path = {0};
    struct pst_manifest m;
    struct pst_diag ignored;
    bool left = pst_checkpoint_is_left(rewinds, 0, step);

    if (!left)
        return false;
    pst_manifest_init(&m);
    pst_checkpoint_step_dir(dir, step, &path);
    left = !path.failed &&
           pst_manifest_read(path.text, &m, &ignored) == PST_OK &&
           pst_checkpoint_is_left(rewinds, m.info.course, step);
    pst_manifest_fini(&m);
    pst_str_fini(&path);
    return left;
}

/* Moves checkpoints of steps above `above` (0: of all steps) into a new
 * DIR/former-N. lost: only those without a manifest; rewinds: only those that
 * the run has left; NULL: all. */
static enum pst_status set_aside(const char *dir, uint64_t above, bool lost,
                                 const struct pst_checkpoint_rewinds *rewinds,
                                 struct pst_checkpoint_former *ret,
                                 struct pst_diag *diag)
{
    struct pst_checkpoint_former former = {0};
    struct pst_checkpoint_steps steps = {0};
    enum pst_status status = pst_checkpoint_list(dir, &steps, diag);

    for (size_t i = 0; i < steps.n && status == PST_OK; i++) {
        if (above > 0 && steps.at[i] <= above)
            break;
        if (lost && !is_incomplete(dir, steps.at[i]))
            continue;
        if (rewinds && !is_left(dir, steps.at[i], rewinds))
            continue;
        if (former.n == 0) {
            former.step = steps.at[i];
            status = make_former(dir, former.folder, diag);
        }
        if (status == PST_OK)
            status = move_step(dir, steps.at[i], former.folder, diag);
        former.n++;
    }
    if (status == PST_OK && former.n > 0)
        status = pst_fsync_dir(dir, diag);
    pst_vec_fini(&steps);
    if (status == PST_OK)
        *ret = former;
    return status;
}

enum pst_status pst_checkpoint_set_aside(const char *dir, uint64_t above,
                                         struct pst_checkpoint_former *ret,
                                         struct pst_diag *diag)
{
    return set_aside(dir, above, false, NULL, ret, diag);
}

enum pst_status pst_checkpoint_set_left_aside(
    const char *dir, const struct pst_checkpoint_rewinds *rewinds,
    struct pst_checkpoint_former *ret, struct pst_diag *diag)
{
    *ret = (struct pst_checkpoint_former){0};
    return rewinds->n > 0 ? set_aside(dir, 0, false, rewinds, ret, diag)
                          : PST_OK;
}

enum pst_status pst_checkpoint_set_lost_aside(const char *dir, uint64_t above,
                                              struct pst_checkpoint_former *ret,
                                              struct pst_diag *diag)
{
    return set_aside(dir, above, true, NULL, ret, diag);
}
