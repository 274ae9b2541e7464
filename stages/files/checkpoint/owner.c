// SPDX-License-Identifier: Apache-2.0
#include "stages/files/checkpoint/owner.h"

#include "stages/files/checkpoint/manifest.h"
#include "stages/files/checkpoint/owner_claim.h"

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

struct pst_checkpoint_owner {
    char *dir;
    int fd; /* -1: the file system has no locks */
    struct pst_owner_record record;
    struct pst_owner_record
        before; /* record of the process that held the folder last */
};

/* Locks the folder. *ret_held: another process has the lock, perhaps in a file
 * of another user that can only be read. *ret: the descriptor; -1: the file
 * system has no locks. */
static enum pst_status lock_folder(const char *dir, int *ret, bool *ret_held,
                                   struct pst_diag *diag)
{
    struct pst_str path = {0};
    enum pst_status status = pst_owner_path(dir, PST_OWNER_LOCK, &path, diag);
    int fd = -1, err = 0;

    *ret_held = false;
    if (status == PST_OK) {
        /* NFS implements the lock as a byte-range lock, which needs a writable
         * file. */
        fd = open(path.text, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0) {
            err = errno;
            *ret_held = pst_owner_is_locked(dir);
        }
        if (fd < 0 && !*ret_held)
            status = pst_diag_errno(
                diag, err,
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

/* Makes the folder and its parents, and syncs its entry, so that it survives a
 * power failure. */
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
        return pst_owner_check_unlocked(claim, status, diag);
    if (status == PST_OK)
        status = pst_owner_record_read(claim->dir, &o->record, diag);
    /* If another user holds the folder, its record may be unreadable, too. */
    if (held && (status == PST_OK || status == PST_ERR_IO))
        return pst_owner_refuse_held(claim, &o->record, true, diag);
    if (status != PST_OK)
        return status;
    if (o->fd < 0 && !claim->adopt && pst_owner_may_live(&o->record))
        return pst_owner_refuse_held(claim, &o->record, false, diag);
    status = pst_owner_check_claim(claim, &o->record, &other, diag);
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
    status = pst_owner_store_folder(claim->fallback, o->record.fallback, diag);
    if (status == PST_OK)
        status = pst_owner_store_folder(claim->first, o->record.first, diag);
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
    pst_owner_host(o->record.host);
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
    enum pst_status status = pst_owner_refuse_best(claim, diag);

    *former = (struct pst_checkpoint_former){0};
    if (status == PST_OK)
        status = pst_owner_refuse_step(claim, diag);
    if (status == PST_OK)
        status = pst_owner_refuse_part(claim, diag);
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

    if (o->fd >= 0 &&
        pst_owner_path(o->dir, PST_OWNER_LOCK, &path, NULL) == PST_OK)
        same = fstat(o->fd, &held) == 0 && stat(path.text, &seen) == 0 &&
               held.st_dev == seen.st_dev && held.st_ino == seen.st_ino;
    pst_str_fini(&path);
    return same;
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
        (o->fd < 0 || !pst_owner_is_locked(o->dir)))
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

    pst_owner_host(host);
    if (!o || o->fd < 0 || !o->before.open || o->before.host[0] == '\0' ||
        strcmp(o->before.host, host) == 0)
        return false;
    *ret_host = o->before.host;
    *ret_pid = o->before.pid;
    return true;
}

/* True if the folder of `o` is not the one that the record of `of` names as the
 * run's other folder. */
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

/* Closing the descriptor here does not release the lock, which belongs to the
 * open file: the owner still has it open. */
void pst_checkpoint_abandon(struct pst_checkpoint_owner *o)
{
    if (!o)
        return;
    if (o->fd >= 0)
        (void)close(o->fd);
    pst_free(o->dir);
    pst_free(o);
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
    pst_checkpoint_abandon(o);
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
    if (status == PST_OK && (held || (fd < 0 && pst_owner_may_live(&r))))
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
