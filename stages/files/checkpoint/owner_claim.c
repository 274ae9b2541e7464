// SPDX-License-Identifier: Apache-2.0
#include "stages/files/checkpoint/owner_claim.h"

#include "stages/files/checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

bool pst_checkpoint_is_owned(const char *dir)
{
    struct pst_str path = {0};
    const bool ret =
        pst_owner_path(dir, PST_OWNER_FILE, &path, NULL) != PST_OK ||
        access(path.text, F_OK) == 0;

    pst_str_fini(&path);
    return ret;
}

bool pst_checkpoint_is_part(const char *name, size_t n)
{
    return pst_has_prefix(name, "step-") || pst_has_prefix(name, "former-") ||
           (n == strlen(PST_CHECKPOINT_BEST) &&
            strncmp(name, PST_CHECKPOINT_BEST, n) == 0);
}

bool pst_owner_is_locked(const char *dir)
{
    struct pst_str path = {0};
    bool held = false;
    int fd = -1;

    if (pst_owner_path(dir, PST_OWNER_LOCK, &path, NULL) == PST_OK)
        fd = open(path.text, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
        held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        (void)close(fd);
    }
    pst_str_fini(&path);
    return held;
}

void pst_owner_host(char ret[256])
{
    memset(ret, 0, 256);
    (void)gethostname(ret, 255);
}

static bool is_of_this_host(const struct pst_owner_record *r)
{
    char host[256];

    pst_owner_host(host);
    return strcmp(host, r->host) == 0;
}

static bool is_process(int64_t pid)
{
    return pid > 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

bool pst_owner_may_live(const struct pst_owner_record *r)
{
    return r->held && (!is_of_this_host(r) || is_process(r->pid));
}

/* True if the lock belongs to another user, so that it cannot be tested, and
 * the process named in the record is alive and has not recorded its end. */
static bool is_held_unseen(const struct pst_checkpoint_claim *claim,
                           const struct pst_owner_record *r)
{
    struct pst_str path = {0};
    bool unseen = false;

    if (pst_owner_path(claim->dir, PST_OWNER_LOCK, &path, NULL) == PST_OK)
        unseen = access(path.text, R_OK) != 0 && errno == EACCES;
    pst_str_fini(&path);
    return unseen && r->open && is_of_this_host(r) && r->pid != getpid() &&
           is_process(r->pid);
}

enum pst_status pst_owner_refuse_held(const struct pst_checkpoint_claim *claim,
                                      const struct pst_owner_record *r,
                                      bool sure, struct pst_diag *diag)
{
    return pst_diag_set(
        diag, PST_E_CHECKPOINT_IN_USE,
        "the checkpoint folder %s belongs to a job that runs (run %s, process "
        "%lld on %s%s%s): stop that job, or choose another folder%s",
        claim->dir, r->run[0] ? r->run : "?", (long long)r->pid,
        r->host[0] ? r->host : "?", sure ? "" : ", as far as is known here",
        strcmp(r->model, claim->model_digest) != 0 && r->exists
            ? "; of another model"
            : "",
        sure ? "" : "; if it is gone, --adopt takes the folder");
}

/* Finds the last part of the path, of *ret_n bytes; appends the path before
 * that to *ret. */
static const char *split_path(const char *dir, size_t *ret_n,
                              struct pst_str *ret)
{
    size_t end = strlen(dir), begin;

    while (end > 0 && dir[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && dir[begin - 1] != '/';)
        begin--;
    pst_str_addf(ret, "%.*s.", (int)begin, dir);
    *ret_n = end - begin;
    return dir + begin;
}

/* True if the path ends in "best"; appends the path before that to *ret. */
static bool is_named_best(const char *dir, struct pst_str *ret)
{
    size_t n;
    const char *name = split_path(dir, &n, ret);

    return n == strlen(PST_CHECKPOINT_BEST) &&
           strncmp(name, PST_CHECKPOINT_BEST, n) == 0;
}

/* True if the folder is called "best" in its parent, whatever path, such as a
 * link, leads to it; appends the path of that parent to *ret. */
static bool is_best_of_parent(const char *dir, struct pst_str *ret)
{
    struct pst_str path = {0};
    bool same;

    pst_str_addf(ret, "%s/..", dir);
    pst_str_addf(&path, "%s/../" PST_CHECKPOINT_BEST, dir);
    same = !path.failed && pst_path_is_same(dir, path.text);
    pst_str_fini(&path);
    return same;
}

enum pst_status pst_owner_refuse_best(const struct pst_checkpoint_claim *claim,
                                      struct pst_diag *diag)
{
    struct pst_str by_name = {0}, by_place = {0};
    const bool is_best = (is_named_best(claim->dir, &by_name) &&
                          pst_checkpoint_is_owned(pst_str_text(&by_name))) ||
                         (is_best_of_parent(claim->dir, &by_place) &&
                          pst_checkpoint_is_owned(pst_str_text(&by_place)));
    enum pst_status status = PST_OK;

    if (by_name.failed || by_place.failed)
        status = pst_diag_nomem(diag, strlen(claim->dir));
    else if (is_best)
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_FOLDER,
            "%s is where another run keeps its best checkpoint, and that run "
            "removes all others there: to go on from the best one, copy the "
            "folder (cp -r %s DIR) and take --checkpoint DIR --resume",
            claim->dir, claim->dir);
    pst_str_fini(&by_name);
    pst_str_fini(&by_place);
    return status;
}

enum pst_status pst_owner_refuse_step(const struct pst_checkpoint_claim *claim,
                                      struct pst_diag *diag)
{
    char *parent = NULL;
    uint64_t step;
    bool is_complete = false;
    enum pst_status status = PST_OK;

    if (access(claim->dir, F_OK) == 0)
        status = pst_checkpoint_step_of(claim->dir, &parent, &step, diag);
    if (status == PST_OK && parent != NULL)
        status = pst_checkpoint_is_complete(parent, step, &is_complete, diag);
    if (status == PST_OK && is_complete)
        status = pst_diag_set(
            diag, PST_E_CHECKPOINT_FOLDER,
            "%s is the checkpoint of step %" PRIu64 " in %s, and no folder of "
            "checkpoints: --checkpoint %s --resume=%" PRIu64 " continues from "
            "it",
            claim->dir, step, parent, parent, step);
    pst_free(parent);
    return status;
}

/* Refuses if the folder `parent` belongs to a run other than the claim's. */
static enum pst_status refuse_part_of(const struct pst_checkpoint_claim *claim,
                                      const char *parent, struct pst_diag *diag)
{
    struct pst_owner_record r;
    enum pst_status status = pst_owner_record_read(parent, &r, diag);

    if (status != PST_OK ||
        (claim->run && r.run[0] != '\0' && strcmp(claim->run, r.run) == 0) ||
        (!pst_checkpoint_is_owned(parent) && !pst_owner_is_locked(parent)))
        return status;
    return pst_diag_set(
        diag, PST_E_CHECKPOINT_FOLDER,
        "%s would be in the checkpoint folder of another run (%s), which makes "
        "and removes folders of this name itself: choose another folder",
        claim->dir, r.run[0] ? r.run : "?");
}

enum pst_status pst_owner_refuse_part(const struct pst_checkpoint_claim *claim,
                                      struct pst_diag *diag)
{
    struct pst_str parent = {0};
    size_t n;
    const char *name = split_path(claim->dir, &n, &parent);
    enum pst_status status = PST_OK;

    if (parent.failed)
        status = pst_diag_nomem(diag, strlen(claim->dir));
    else if (!claim->resume && pst_checkpoint_is_part(name, n))
        status = refuse_part_of(claim, parent.text, diag);
    pst_str_fini(&parent);
    return status;
}

/* Summary of the checkpoints in the folder. */
struct content {
    uint64_t newest;
    size_t n;
    bool foreign; /* a checkpoint of another model is among them */
};

/* True if the checkpoint is of a model with another computation. */
static bool is_foreign(const struct pst_checkpoint_claim *claim,
                       const struct pst_checkpoint_row *row)
{
    return row->model_digest[0] != '\0' &&
           strcmp(row->model_digest, claim->model_digest) != 0 &&
           (claim->identity == NULL || claim->identity[0] == '\0' ||
            strcmp(row->identity, claim->identity) != 0);
}

static enum pst_status read_content(const struct pst_checkpoint_claim *claim,
                                    const struct pst_owner_record *r,
                                    struct content *ret, struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    bool known = false;
    enum pst_status status =
        pst_checkpoint_table(claim->dir, false, &rows, diag);

    *ret =
        (struct content){.n = rows.n, .newest = rows.n ? rows.at[0].step : 0};
    for (size_t i = 0; i < rows.n; i++) {
        ret->foreign |= is_foreign(claim, &rows.at[i]);
        known |= rows.at[i].model_digest[0] != '\0';
    }
    /* If no checkpoint can be read, only the record shows the model. */
    if (rows.n > 0 && !known)
        ret->foreign = r->exists && strcmp(r->model, claim->model_digest) != 0;
    pst_vec_fini(&rows);
    return status;
}

static enum pst_status refuse_other(const struct pst_checkpoint_claim *claim,
                                    const struct content *c,
                                    struct pst_diag *diag)
{
    if (claim->resume)
        return pst_diag_set(
            diag, PST_E_CHECKPOINT_OTHER_MODEL,
            "the checkpoint folder %s has checkpoints of another model "
            "(newest: "
            "step %" PRIu64 "), from which this one cannot go on: choose "
            "another folder, or take --adopt without --resume, which moves "
            "them into a folder of their own and starts anew",
            claim->dir, c->newest);
    return pst_diag_set(
        diag, PST_E_CHECKPOINT_OTHER_RUN,
        "the checkpoint folder %s belongs to another run%s (newest: step "
        "%" PRIu64 "): %schoose another folder, or take it over with --adopt, "
        "which moves what is there into a folder of its own",
        claim->dir, c->foreign ? " of another model" : "", c->newest,
        c->foreign ? "" : "go on from there with --resume, ");
}

static enum pst_status refuse_run(const struct pst_checkpoint_claim *claim,
                                  const struct pst_owner_record *r,
                                  const struct content *c,
                                  struct pst_diag *diag)
{
    return pst_diag_set(
        diag, PST_E_CHECKPOINT_OTHER_RUN,
        "the checkpoint folder %s belongs to another run (%s, newest: step "
        "%" PRIu64 "; this one is %s): choose another folder, or take it over "
        "with --adopt, which moves what is there into a folder of its own",
        claim->dir, r->run, c->newest, claim->run);
}

/* Refuses the second folder of a run whose first folder has been copied: the
 * run and its copy would resume from each other's checkpoints. r: the record of
 * the second folder. */
static enum pst_status refuse_copy(const struct pst_checkpoint_claim *claim,
                                   const struct pst_owner_record *r,
                                   struct pst_diag *diag)
{
    struct pst_owner_record original;
    enum pst_status status;

    if (claim->first == NULL || claim->run == NULL || r->first[0] == '\0' ||
        strcmp(r->run, claim->run) != 0 ||
        pst_path_is_same(r->first, claim->first))
        return PST_OK;
    status = pst_owner_record_read(r->first, &original, diag);
    if (status != PST_OK || strcmp(original.run, claim->run) != 0 ||
        !pst_path_is_same(original.fallback, claim->dir))
        return status;
    return pst_diag_set(
        diag, PST_E_CHECKPOINT_OTHER_RUN,
        "%s and %s have the same run (%s), as a folder and its copy have, and "
        "%s is the second folder of the former: both would save there. Give "
        "this one a second folder of its own (cp -r %s DIR, then "
        "--checkpoint-fallback DIR), or rename %s if no run uses it any more",
        r->first, claim->first, claim->run, claim->dir, claim->dir, r->first);
}

enum pst_status pst_owner_check_claim(const struct pst_checkpoint_claim *claim,
                                      const struct pst_owner_record *r,
                                      bool *ret_other, struct pst_diag *diag)
{
    struct content c;
    enum pst_status status = read_content(claim, r, &c, diag);
    bool other;

    *ret_other = false;
    if (status != PST_OK)
        return status;
    other = !claim->resume || (claim->run && r->run[0] != '\0' &&
                               strcmp(claim->run, r->run) != 0);
    if (claim->resume ? c.foreign : c.n > 0 && !claim->adopt)
        return refuse_other(claim, &c, diag);
    if (other && c.n > 0 && !claim->adopt)
        return refuse_run(claim, r, &c, diag);
    *ret_other = other && c.n > 0;
    return other ? PST_OK : refuse_copy(claim, r, diag);
}

enum pst_status pst_owner_check_unlocked(
    const struct pst_checkpoint_claim *claim, enum pst_status status,
    struct pst_diag *diag)
{
    struct pst_owner_record r;
    struct pst_diag why;
    bool other;
    enum pst_status refused = pst_owner_record_read(claim->dir, &r, &why);

    if (refused == PST_OK && !claim->adopt && is_held_unseen(claim, &r))
        refused = pst_owner_refuse_held(claim, &r, false, &why);
    if (refused == PST_OK)
        refused = pst_owner_check_claim(claim, &r, &other, &why);
    return refused == PST_OK || refused == PST_ERR_IO
               ? status
               : pst_diag_pass(diag, &why, "%s", why.text);
}
