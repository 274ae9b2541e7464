// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/eval/best.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/steps/evals.h"
#include "stages/base/str.h"

static enum pst_status path_of(const struct pstd_session *s, const char *name,
                               struct pst_str *ret, struct pst_diag *diag)
{
    pst_str_addf(ret, "%s/%s", s->config.checkpoint, name);
    return ret->failed ? pst_diag_nomem(diag, strlen(s->config.checkpoint))
                       : PST_OK;
}

bool pstd_best_is_anew(const struct pstd_session *s)
{
    return !s->config.resume.on ||
           (s->config.eval_data != NULL && s->other_eval);
}

enum pst_status pstd_best_is_free(const struct pstd_session *s,
                                  struct pst_diag *diag)
{
    struct pst_str dir = {0};
    enum pst_status status = path_of(s, PSTD_BEST_FOLDER, &dir, diag);

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
    enum pst_status status = path_of(s, PSTD_BEST_FOLDER, &dir, diag);

    if (status == PST_OK && access(dir.text, F_OK) == 0 &&
        !pst_checkpoint_is_owned(dir.text))
        status = pst_checkpoint_set_aside(dir.text, above, &former, diag);
    if (status == PST_OK)
        pstd_session_emit_moved(s, dir.text, &former);
    pst_str_fini(&dir);
    return status;
}

/* Removes the evaluations of another run. A file that is not one of ours stays;
 * if this run evaluates, it is refused. */
static enum pst_status forget_all(const struct pstd_session *s,
                                  const char *path, struct pst_diag *diag)
{
    struct pstd_evals past = {0};
    const enum pst_status status = pstd_evals_read(path, &past, diag);

    pstd_evals_fini(&past);
    if (status != PST_OK)
        return s->config.eval_data != NULL ? status : PST_OK;
    return unlink(path) == 0 || errno == ENOENT
               ? PST_OK
               : pst_diag_errno(diag, errno, "cannot remove %s", path);
}

static enum pst_status forget_after(const char *path, uint64_t step,
                                    struct pst_diag *diag)
{
    struct pstd_evals past = {0};
    enum pst_status status = pstd_evals_read(path, &past, diag);
    const size_t before = past.n;

    pstd_evals_forget(&past, step);
    if (status == PST_OK && past.n < before)
        status = pstd_evals_write(path, &past, diag);
    pstd_evals_fini(&past);
    return status;
}

enum pst_status pstd_best_settle(struct pstd_session *s, struct pst_diag *diag)
{
    const bool anew = pstd_best_is_anew(s);
    const uint64_t step = anew ? 0 : s->config.resume.step;
    struct pst_str path = {0};
    enum pst_status status;

    if (!anew && step == 0)
        return PST_OK;
    status = path_of(s, PSTD_BEST_PAST, &path, diag);
    if (status == PST_OK)
        status = anew ? forget_all(s, path.text, diag)
                      : forget_after(path.text, step, diag);
    pst_str_fini(&path);
    return status == PST_OK ? pstd_best_set_aside(s, step, diag) : status;
}
