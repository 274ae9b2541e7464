// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/eval/best.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/steps/back.h"
#include "daemon/exec/eval/evaluation.h"
#include "stages/base/str.h"

static enum pst_status make_path(const struct pstd_session *s, const char *name,
                                 struct pst_str *ret, struct pst_diag *diag)
{
    pst_str_addf(ret, "%s/%s", s->config.checkpoint, name);
    return ret->failed ? pst_diag_nomem(diag, strlen(s->config.checkpoint))
                       : PST_OK;
}

/* True if recorded evaluations cannot be compared with those of this run.
 * recorded: the line of their file that identifies data and metric; if the file
 * has none, the options in the checkpoint decide. */
static bool are_incomparable(const struct pstd_session *s,
                             const struct pst_str *recorded)
{
    return recorded->len > 0
               ? strcmp(recorded->text, pst_str_text(&s->evals_of)) != 0
               : s->other_eval;
}

enum pst_status pstd_best_read_past(const struct pstd_session *s,
                                    const char *path, struct pstd_evals *ret,
                                    struct pst_diag *diag)
{
    struct pst_str of = {0};
    enum pst_status status;

    ret->n = 0;
    /* Evaluations of an earlier run, or of one that this run has replaced, are
     * not in its past. */
    if (!s->config.resume.on || s->replaced[0])
        return PST_OK;
    status = pstd_evals_read(path, ret, &of, diag);
    if (status == PST_OK && are_incomparable(s, &of))
        ret->n = 0;
    pst_str_fini(&of);
    return status;
}

/* Lists the checkpoints in best/. A link to a folder that is not there is an
 * error: its disk may come back. */
static enum pst_status list_best(const struct pstd_session *s,
                                 struct pst_checkpoint_rows *ret,
                                 struct pst_diag *diag)
{
    struct pst_str dir = {0};
    struct stat st;
    enum pst_status status = make_path(s, PSTD_BEST_FOLDER, &dir, diag);

    if (status == PST_OK && lstat(dir.text, &st) == 0 && S_ISLNK(st.st_mode) &&
        stat(dir.text, &st) != 0)
        status = pst_diag_errno(diag, errno,
                                "%s, where --keep-best keeps its checkpoint, "
                                "is a link to a folder that cannot be reached",
                                dir.text);
    if (status == PST_OK)
        status = pst_checkpoint_table(dir.text, false, ret, diag);
    pst_str_fini(&dir);
    return status;
}

static bool has_step(const struct pst_checkpoint_rows *rows, uint64_t step)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->at[i].step == step)
            return rows->at[i].state == PST_CHECKPOINT_GOOD ||
                   rows->at[i].state == PST_CHECKPOINT_UNREADABLE;
    return false;
}

enum pst_status pstd_best_find(const struct pstd_session *s,
                               struct pstd_evals *past, uint64_t but,
                               const struct pstd_eval **ret,
                               struct pst_diag *diag)
{
    const bool largest = pstd_metric_largest(&s->config);
    const uint64_t unsaved = s->evaluation->unsaved;
    struct pst_checkpoint_rows rows = {0};
    const struct pstd_eval *kept = NULL;
    const enum pst_status status = list_best(s, &rows, diag);

    for (size_t i = 0; i < past->n && status == PST_OK; i++)
        if ((past->at[i].step == unsaved ||
             has_step(&rows, past->at[i].step)) &&
            pstd_evals_is_better(&past->at[i], kept, largest))
            kept = &past->at[i];
    for (size_t i = 0; i < past->n && status == PST_OK; i++)
        past->at[i].lost = past->at[i].step != but &&
                           pstd_evals_is_better(&past->at[i], kept, largest);
    pst_vec_fini(&rows);
    *ret = kept;
    return status;
}

/* Returns the best of the evaluations whose checkpoint is complete, and neither
 * bad nor damaged; NULL: there is none. */
static const struct pstd_eval *find_good(const struct pstd_evals *past,
                                         const struct pst_checkpoint_rows *rows,
                                         bool largest)
{
    const struct pstd_eval *ret = NULL;

    for (size_t i = 0; i < past->n; i++)
        for (size_t k = 0; k < rows->n; k++)
            if (rows->at[k].step == past->at[i].step &&
                rows->at[k].state == PST_CHECKPOINT_GOOD &&
                pstd_evals_is_better(&past->at[i], ret, largest))
                ret = &past->at[i];
    return ret;
}

enum pst_status pstd_best_remove_older(const struct pstd_session *s,
                                       const struct pstd_evals *past,
                                       struct pst_diag *diag)
{
    const struct pst_checkpoint_rule one = {.keep = 1}, rests = {.keep = 0};
    struct pst_checkpoint_rows rows = {0};
    struct pst_str dir = {0};
    const struct pstd_eval *good;
    enum pst_status status = make_path(s, PSTD_BEST_FOLDER, &dir, diag);

    if (status == PST_OK)
        status = list_best(s, &rows, diag);
    if (status == PST_OK) {
        good = find_good(past, &rows, pstd_metric_largest(&s->config));
        if (good != NULL)
            pst_checkpoint_prune(dir.text, good->step, &one);
        if (s->evaluation->unsaved == 0)
            pst_checkpoint_prune(dir.text, UINT64_MAX, &rests);
    }
    pst_vec_fini(&rows);
    pst_str_fini(&dir);
    return status;
}

enum pst_status pstd_best_check_folder(const struct pstd_session *s,
                                       struct pst_diag *diag)
{
    struct pst_str dir = {0};
    enum pst_status status = make_path(s, PSTD_BEST_FOLDER, &dir, diag);

    if (status == PST_OK && pst_checkpoint_is_owned(dir.text))
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_FOLDER,
            "%s is the --checkpoint folder of a run (it has owner.json), and "
            "--keep-best would remove the checkpoints of that run: move the "
            "folder to another place, from where that run goes on, or choose "
            "another --checkpoint folder",
            dir.text);
    pst_str_fini(&dir);
    return status;
}

enum pst_status pstd_best_set_aside(struct pstd_session *s, uint64_t above,
                                    struct pst_diag *diag)
{
    struct pst_checkpoint_former former = {0};
    struct pst_str dir = {0};
    enum pst_status status = make_path(s, PSTD_BEST_FOLDER, &dir, diag);

    if (status == PST_OK)
        status = pstd_back_best(dir.text, above, &former, diag);
    if (status == PST_OK)
        pstd_session_emit_moved(s, dir.text, &former);
    pst_str_fini(&dir);
    return status;
}

/* Removes recorded evaluations that this run cannot continue: of another run,
 * or with other options. A file of another format stays; that is an error if
 * this run evaluates. */
static enum pst_status remove_all(const struct pstd_session *s,
                                  const char *path, struct pst_diag *diag)
{
    struct pstd_evals past = {0};
    const enum pst_status status = pstd_evals_read(path, &past, NULL, diag);

    pstd_evals_fini(&past);
    if (status != PST_OK)
        return s->config.eval_data != NULL ? status : PST_OK;
    return unlink(path) == 0 || errno == ENOENT
               ? PST_OK
               : pst_diag_errno(diag, errno, "cannot remove %s", path);
}

/* Sets *ret if the evaluations in the folder are not in this run's past. Warns
 * if they differ although the checkpoint's options do not (s->other_eval):
 * after that checkpoint was saved, other evaluations, or none, were made. */
static enum pst_status check_comparable(struct pstd_session *s,
                                        const char *path, bool *ret,
                                        struct pst_diag *diag)
{
    struct pstd_evals past = {0};
    struct pst_str of = {0}, text = {0};
    enum pst_status status = PST_OK;

    *ret = !s->config.resume.on || s->replaced[0];
    if (*ret || s->config.eval_data == NULL)
        return PST_OK;
    status = pstd_evals_read(path, &past, &of, diag);
    *ret = status == PST_OK && are_incomparable(s, &of);
    if (*ret && !s->other_eval && past.n > 0) {
        pst_str_addf(&text,
                     "earlier evaluations of this run are forgotten, since "
                     "they are of %s, and this run has %s",
                     pst_str_text(&of), pst_str_text(&s->evals_of));
        pstd_session_emit_doubt(s, pst_str_text(&text));
    }
    pstd_evals_fini(&past);
    pst_str_fini(&of);
    pst_str_fini(&text);
    return status;
}

enum pst_status pstd_best_clean(struct pstd_session *s, struct pst_diag *diag)
{
    struct pst_str path = {0};
    uint64_t step = 0;
    bool anew = false;
    enum pst_status status = make_path(s, PSTD_EVALS_FILE, &path, diag);

    if (status == PST_OK)
        status = check_comparable(s, path.text, &anew, diag);
    if (!anew)
        step = s->config.resume.step > 0 ? s->config.resume.step : s->missed;
    if (status == PST_OK && anew)
        status = remove_all(s, path.text, diag);
    else if (status == PST_OK && step > 0)
        status = pstd_back_evals(path.text, step, diag);
    pst_str_fini(&path);
    return status == PST_OK && (anew || step > 0)
               ? pstd_best_set_aside(s, step, diag)
               : status;
}
