// SPDX-License-Identifier: Apache-2.0
#include "stages/files/checkpoint/owner.h"

#include "stages/files/checkpoint/manifest.h"
#include "stages/files/checkpoint/owner_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_FILE "lock"

struct pst_checkpoint_owner {
    char *dir;
    int fd; /* -1: the file system has no locks */
    struct pst_owner_record record;
    struct pst_owner_record
        before; /* record of the process that held the folder last */
};

bool pst_checkpoint_is_owned(const char *dir)
{
    struct pst_str path = {0};
    const bool ret =
        pst_owner_path(dir, PST_OWNER_FILE, &path, NULL) != PST_OK ||
        access(path.text, F_OK) == 0;

    pst_str_fini(&path);
    return ret;
}

/* Locks the folder. *ret_held: another process has the lock. *ret: the
 * descriptor; -1: the file system has no locks. */
static enum pst_status lock_folder(const char *dir, int *ret, bool *ret_held,
                                   struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status = pst_owner_path(dir, LOCK_FILE, &path, diag);
    int fd = -1;

    *ret_held = false;
    if (status == PST_OK) {
        /* NFS implements the lock as a byte-range lock, which needs a writable
         * file. */
        fd = open(path.text, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0)
            status = pst_diag_errno(
                diag, errno,
                "cannot open %s, which a run must be able to "
                "write (mend that, or choose another --checkpoint folder)",
                path.text);
    }
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        *ret_held = errno == EWOULDBLOCK;
        if (!*ret_held && errno != ENOLCK && errno != EOPNOTSUPP &&
            errno != ENOSYS && errno != EINVAL)
            status = pst_diag_errno(diag, errno, "cannot lock %s", path.text);
        (void)close(fd);
        fd = -1;
    }
    if (status == PST_OK)
        *ret = fd;
    pst_str_fini(&path);
    return status;
}

static void this_host(char ret[256])
{
    memset(ret, 0, 256);
    (void)gethostname(ret, 255);
}

/* True if the process that wrote the record may be alive, for folders without
 * locks. A process of another host cannot be checked, so it counts as alive. */
static bool may_live(const struct pst_owner_record *r)
{
    char host[256];

    this_host(host);
    if (!r->held)
        return false;
    if (strcmp(host, r->host) != 0)
        return true;
    return r->pid > 0 && (kill((pid_t)r->pid, 0) == 0 || errno == EPERM);
}

static enum pst_status refuse_held(const struct pst_checkpoint_claim *claim,
                                   const struct pst_owner_record *r, bool sure,
                                   struct pst_diag *diag)
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

/* True if the path ends in "best"; appends the path before that to *ret. */
static bool is_named_best(const char *dir, struct pst_str *ret)
{
    size_t end = strlen(dir), begin;

    while (end > 0 && dir[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && dir[begin - 1] != '/';)
        begin--;
    pst_str_addf(ret, "%.*s.", (int)begin, dir);
    return end - begin == strlen(PST_CHECKPOINT_BEST) &&
           strncmp(dir + begin, PST_CHECKPOINT_BEST, end - begin) == 0;
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

/* Refuses the folder in which another run keeps its best checkpoint: that run
 * removes all others there. */
static enum pst_status refuse_best(const struct pst_checkpoint_claim *claim,
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

/* Refuses the folder of a single checkpoint: the run that it belongs to removes
 * it, and all that is in it, when newer ones take its place. */
static enum pst_status refuse_step(const struct pst_checkpoint_claim *claim,
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

/* Refuses a folder that this run may not take. *ret_other: it has checkpoints
 * of another run, which --adopt moves away. */
static enum pst_status check_claim(const struct pst_checkpoint_claim *claim,
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

/* Checks a folder that cannot be locked because of an I/O error, such as one
 * that cannot be written. The run continues without such a folder, but not if
 * the folder would be refused. status: the I/O error's, returned if not. */
static enum pst_status check_unlocked(const struct pst_checkpoint_claim *claim,
                                      enum pst_status status,
                                      struct pst_diag *diag)
{
    struct pst_owner_record r;
    struct pst_diag why;
    bool other;
    enum pst_status refused = pst_owner_record_read(claim->dir, &r, &why);

    if (refused == PST_OK)
        refused = check_claim(claim, &r, &other, &why);
    return refused == PST_OK || refused == PST_ERR_IO
               ? status
               : pst_diag_pass(diag, &why, "%s", why.text);
}

void pst_checkpoint_name_run(char ret[33])
{
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        /* without a random name, the lock and the model digest still protect
         * the folder */
        memset(bytes, 0, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

/* Makes the folder and its parents so that it is still there after a power
 * failure. */
static enum pst_status make_durable(const char *dir, struct pst_diag *diag)
{
    struct pst_str parent = {0};
    enum pst_status status = pst_mkdirs(dir, 0777, diag);

    pst_str_addf(&parent, "%s/..", dir);
    if (status == PST_OK)
        status = parent.failed ? pst_diag_nomem(diag, strlen(dir))
                               : pst_fsync_dir(parent.text, diag);
    pst_str_fini(&parent);
    return status;
}

static enum pst_status make_folder(const struct pst_checkpoint_claim *claim,
                                   struct pst_diag *diag)
{
    struct stat st;

    if (stat(claim->dir, &st) == 0 && S_ISDIR(st.st_mode))
        return PST_OK;
    if (claim->resume && !claim->make && errno == ENOENT)
        return pst_diag_set(diag, PST_E_CHECKPOINT_NONE,
                            "no checkpoint in %s: the folder is not there",
                            claim->dir);
    return make_durable(claim->dir, diag);
}

/* Stores the path of a folder, if any, as absolute path, since a resume may
 * start in another directory. */
static enum pst_status store_folder(const char *dir, char ret[PATH_MAX],
                                    struct pst_diag *diag)
{
    char cwd[PATH_MAX] = "";
    int n;

    if (!dir)
        dir = "";
    else if (dir[0] != '/' && !getcwd(cwd, sizeof(cwd)))
        return pst_diag_errno(diag, errno, "no path for %s", dir);
    n = snprintf(ret, PATH_MAX, "%s%s%s", cwd, cwd[0] ? "/" : "", dir);
    return n >= 0 && n < PATH_MAX
               ? PST_OK
               : pst_diag_set(diag, PST_E_FILE_LONG_PATH,
                              "%s: the path is too long", dir);
}

/* Names the folder if it has no name. Forgets the run's other folder if the run
 * or the path of that folder is new. */
static void identify_folder(struct pst_checkpoint_owner *o)
{
    struct pst_owner_record *now = &o->record;
    const struct pst_owner_record *was = &o->before;

    if (now->id[0] == '\0')
        pst_checkpoint_name_run(now->id);
    if (strcmp(now->run, was->run) != 0 ||
        strcmp(now->fallback, was->fallback) != 0 ||
        strcmp(now->first, was->first) != 0)
        now->other[0] = '\0';
}

static enum pst_status acquire_folder(const struct pst_checkpoint_claim *claim,
                                      struct pst_checkpoint_owner *o,
                                      struct pst_checkpoint_former *former,
                                      struct pst_diag *diag)
{
    char before[33];
    bool held = false, other = false;
    enum pst_status status = lock_folder(claim->dir, &o->fd, &held, diag);

    if (status == PST_ERR_IO)
        return check_unlocked(claim, status, diag);
    if (status == PST_OK)
        status = pst_owner_record_read(claim->dir, &o->record, diag);
    if (status != PST_OK)
        return status;
    if (held)
        return refuse_held(claim, &o->record, true, diag);
    if (o->fd < 0 && !claim->adopt && may_live(&o->record))
        return refuse_held(claim, &o->record, false, diag);
    status = check_claim(claim, &o->record, &other, diag);
    if (status == PST_OK && other)
        status = pst_checkpoint_set_aside(claim->dir, 0, former, diag);
    if (status != PST_OK)
        return status;
    o->before = o->record;
    memcpy(before, o->record.run, sizeof(before));
    if (claim->run)
        snprintf(o->record.run, sizeof(o->record.run), "%s", claim->run);
    else if (!claim->resume || o->record.run[0] == '\0')
        pst_checkpoint_name_run(o->record.run);
    status = store_folder(claim->fallback, o->record.fallback, diag);
    if (status == PST_OK)
        status = store_folder(claim->first, o->record.first, diag);
    if (status != PST_OK)
        return status;
    identify_folder(o);
    if (strcmp(before, o->record.run) != 0) {
        o->record.rewinds = (struct pst_checkpoint_rewinds){0};
        o->record.replaces[0] = '\0';
    }
    if (claim->rewinds)
        o->record.rewinds = *claim->rewinds;
    snprintf(o->record.model, sizeof(o->record.model), "%s",
             claim->model_digest);
    this_host(o->record.host);
    o->record.pid = getpid();
    o->record.held = o->fd < 0;
    o->record.open = true;
    status = pst_owner_record_write(claim->dir, &o->record, diag);
    if (status != PST_OK && strcmp(before, o->record.run) != 0)
        pst_owner_record_remove(
            claim->dir); /* the record of another run must not remain */
    return status;
}

enum pst_status pst_checkpoint_acquire(const struct pst_checkpoint_claim *claim,
                                       struct pst_checkpoint_owner **ret,
                                       struct pst_checkpoint_former *former,
                                       struct pst_diag *diag)
{
    struct pst_checkpoint_owner *o;
    enum pst_status status = refuse_best(claim, diag);

    *former = (struct pst_checkpoint_former){0};
    if (status == PST_OK)
        status = refuse_step(claim, diag);
    if (status == PST_OK)
        status = make_folder(claim, diag);
    if (status != PST_OK)
        return status;
    o = pst_calloc(PST_TAG_ARCHIVE, 1, sizeof(*o));
    if (!o)
        return pst_diag_nomem(diag, sizeof(*o));
    o->fd = -1;
    o->dir = pst_strdup(PST_TAG_ARCHIVE, claim->dir);
    status = o->dir ? acquire_folder(claim, o, former, diag)
                    : pst_diag_nomem(diag, strlen(claim->dir));
    if (status != PST_OK) {
        /* another process may hold the folder, so it must not be released */
        o->record.held = o->record.open = false;
        pst_checkpoint_release(o);
        return status;
    }
    *ret = o;
    return PST_OK;
}

/* True if the lock that we hold is the one that other processes find in the
 * folder. */
static bool is_lock_current(const struct pst_checkpoint_owner *o)
{
    struct pst_str path = {0};
    struct stat held, seen;
    bool same = false;

    if (o->fd >= 0 && pst_owner_path(o->dir, LOCK_FILE, &path, NULL) == PST_OK)
        same = fstat(o->fd, &held) == 0 && stat(path.text, &seen) == 0 &&
               held.st_dev == seen.st_dev && held.st_ino == seen.st_ino;
    pst_str_fini(&path);
    return same;
}

/* True if a live process has the lock; needs a file system with locks. */
static bool is_locked(const char *dir)
{
    struct pst_str path = {0};
    bool held = false;
    int fd = -1;

    if (pst_owner_path(dir, LOCK_FILE, &path, NULL) == PST_OK)
        fd = open(path.text, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        (void)close(fd);
    }
    pst_str_fini(&path);
    return held;
}

enum pst_status pst_checkpoint_check_owner(const struct pst_checkpoint_owner *o,
                                           struct pst_diag *diag)
{
    struct pst_owner_record r;
    enum pst_status status;

    if (!o || is_lock_current(o))
        return PST_OK;
    status = pst_owner_record_read(o->dir, &r, diag);
    if (status != PST_OK)
        return status;
    if ((r.run[0] == '\0' || strcmp(r.run, o->record.run) == 0) &&
        (o->fd < 0 || !is_locked(o->dir)))
        return PST_OK;
    return pst_diag_set(
        diag, PST_E_CHECKPOINT_OTHER_RUN,
        "the checkpoint folder %s is no longer that of this run (%s): it was "
        "moved away, and what is there now belongs to %s, process %lld on %s. "
        "Nothing is written or removed there; move the folders back",
        o->dir, o->record.run,
        strcmp(r.run, o->record.run) != 0 ? "another run" : "its continuation",
        (long long)r.pid, r.host[0] ? r.host : "?");
}

enum pst_status pst_checkpoint_restore_owner(struct pst_checkpoint_owner *o,
                                             struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status;
    bool held = false;
    int fd = -1;

    if (!o)
        return PST_OK;
    status = pst_owner_path(o->dir, PST_OWNER_FILE, &path, diag);
    if (status == PST_OK && access(path.text, F_OK) == 0) {
        pst_str_fini(&path);
        return PST_OK;
    }
    pst_str_fini(&path);
    if (status == PST_OK && access(o->dir, F_OK) != 0 && errno == ENOENT)
        status = make_durable(o->dir, diag);
    if (status == PST_OK)
        status = lock_folder(o->dir, &fd, &held, diag);
    /* This process holds the lock itself if only owner.json was removed. */
    if (status == PST_OK && held && !is_lock_current(o))
        status = pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                              "the checkpoint folder %s was removed, and "
                              "another run has taken the one that is there now",
                              o->dir);
    if (status == PST_OK && fd >= 0) {
        if (o->fd >= 0)
            (void)close(o->fd); /* closes a file that is already unlinked */
        o->fd = fd;
    }
    return status == PST_OK ? pst_owner_record_write(o->dir, &o->record, diag)
                            : status;
}

bool pst_checkpoint_may_be_in_use(const struct pst_checkpoint_owner *o,
                                  const char **ret_host, int64_t *ret_pid)
{
    char host[256];

    this_host(host);
    if (!o || o->fd < 0 || !o->before.open || o->before.host[0] == '\0' ||
        strcmp(o->before.host, host) == 0)
        return false;
    *ret_host = o->before.host;
    *ret_pid = o->before.pid;
    return true;
}

/* True if the folder of `o` is another one than that of which `of` knows. */
static bool is_replaced(const struct pst_checkpoint_owner *o,
                        const struct pst_checkpoint_owner *of)
{
    return of->record.other[0] != '\0' &&
           strcmp(of->record.other, o->record.id) != 0;
}

const char *pst_checkpoint_replaced_folder(
    const struct pst_checkpoint_owner *first,
    const struct pst_checkpoint_owner *second)
{
    if (!first || !second)
        return NULL;
    return is_replaced(second, first)   ? second->dir
           : is_replaced(first, second) ? first->dir
                                        : NULL;
}

static void record_other(struct pst_checkpoint_owner *o,
                         const struct pst_checkpoint_owner *other)
{
    if (strcmp(o->record.other, other->record.id) == 0)
        return;
    memcpy(o->record.other, other->record.id, sizeof(o->record.other));
    /* If this fails, the next save tries again. */
    if (pst_owner_record_write(o->dir, &o->record, NULL) != PST_OK)
        o->record.other[0] = '\0';
}

void pst_checkpoint_record_pair(struct pst_checkpoint_owner *first,
                                struct pst_checkpoint_owner *second)
{
    if (!first || !second)
        return;
    first->record.replaces[0] = second->record.replaces[0] = '\0';
    record_other(first, second);
    record_other(second, first);
}

enum pst_status pst_checkpoint_record_rewinds(
    struct pst_checkpoint_owner *o,
    const struct pst_checkpoint_rewinds *rewinds, struct pst_diag *diag)
{
    if (!o)
        return PST_OK;
    o->record.rewinds = *rewinds;
    return pst_owner_record_write(o->dir, &o->record, diag);
}

enum pst_status pst_checkpoint_record_replaced(struct pst_checkpoint_owner *o,
                                               const char *dir, bool unnamed,
                                               struct pst_diag *diag)
{
    struct pst_owner_record r;
    const char *name;
    enum pst_status status = pst_owner_record_read(dir, &r, diag);

    if (status != PST_OK)
        return status == PST_ERR_IO ? PST_OK : status;
    name = strcmp(r.run, o->record.run) == 0 ? "" : r.run;
    if (r.run[0] == '\0' && unnamed)
        name = PST_OWNER_NONE;
    if (strcmp(o->record.replaces, name) == 0)
        return PST_OK;
    snprintf(o->record.replaces, sizeof(o->record.replaces), "%s", name);
    return pst_owner_record_write(o->dir, &o->record, diag);
}

void pst_checkpoint_release(struct pst_checkpoint_owner *o)
{
    if (!o)
        return;
    if (o->record.held || (o->record.open && is_lock_current(o))) {
        o->record.held = o->record.open = false;
        /* If this fails, the next run is asked to use --adopt. */
        if (pst_owner_record_write(o->dir, &o->record, NULL) != PST_OK)
            errno = 0;
    }
    if (o->fd >= 0)
        (void)close(o->fd);
    pst_free(o->dir);
    pst_free(o);
}

enum pst_status pst_checkpoint_read_run(const char *dir,
                                        struct pst_checkpoint_run *ret,
                                        struct pst_diag *diag)
{
    struct pst_owner_record r;
    enum pst_status status = pst_owner_record_read(dir, &r, diag);

    if (status != PST_OK)
        return status;
    *ret = (struct pst_checkpoint_run){0};
    memcpy(ret->name, r.run, sizeof(ret->name));
    ret->course = pst_checkpoint_course(&r.rewinds);
    if (r.fallback[0] == '\0')
        return PST_OK;
    ret->fallback = pst_strdup(PST_TAG_ARCHIVE, r.fallback);
    return ret->fallback ? PST_OK : pst_diag_nomem(diag, strlen(r.fallback));
}

enum pst_status pst_checkpoint_lock(const char *dir, int *ret,
                                    struct pst_diag *diag)
{
    struct pst_owner_record r;
    bool held = false;
    int fd = -1;
    enum pst_status status = lock_folder(dir, &fd, &held, diag);

    if (status == PST_OK)
        status = pst_owner_record_read(dir, &r, diag);
    if (status == PST_OK && (held || (fd < 0 && may_live(&r))))
        status = pst_diag_set(diag, PST_E_CHECKPOINT_LOCKED,
                              "a job writes checkpoints to %s (process %lld on "
                              "%s): try again when it has ended",
                              dir, (long long)r.pid, r.host);
    if (status != PST_OK) {
        if (fd >= 0)
            (void)close(fd);
        return status;
    }
    *ret = fd;
    return PST_OK;
}
