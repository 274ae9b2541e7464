// SPDX-License-Identifier: Apache-2.0
/*
 * Pins checkpoints, and decides between a pin and a removal that happen at the
 * same time, in two processes or on two hosts.
 *
 * Both create the same name in the step's folder, and only one of them can: a
 * pin is the file "pinned", a removal begins with a folder of that name, the
 * claim. A removal that finds the file does not begin; a pin that finds the
 * folder is refused. The claim is removed after the manifest and the shards: a
 * process that creates a pin after that checks again, and finds that the
 * checkpoint is gone.
 *
 * Only the process that holds the lock of the checkpoint folder removes
 * checkpoints. So a claim that it finds was left by a process that was killed;
 * it takes over that claim or drops it.
 */
#include "stages/base/host/fault.h"
#include "stages/files/checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void pin_path(const char *dir, uint64_t step, char ret[PATH_MAX])
{
    snprintf(ret, PATH_MAX, "%s/step-%08" PRIu64 "/" PST_PIN_FILE, dir, step);
}

/* Allocates nothing: an allocation failure must not unpin. */
bool pst_checkpoint_is_pinned(const char *dir, uint64_t step)
{
    char path[PATH_MAX];
    struct stat st;

    pin_path(dir, step, path);
    if (lstat(path, &st) == 0)
        return !S_ISDIR(st.st_mode);
    return errno != ENOENT && errno != ENOTDIR;
}

bool pst_checkpoint_is_claimed(const char *dir, uint64_t step)
{
    char path[PATH_MAX];
    struct stat st;

    pin_path(dir, step, path);
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum pst_status pst_checkpoint_refuse_pinned(const char *dir, uint64_t step,
                                             struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_CHECKPOINT_KEPT,
                        "the checkpoint of step %" PRIu64 " in %s is "
                        "pinned: take --unpin %" PRIu64 " first",
                        step, dir, step);
}

enum pst_status pst_checkpoint_claim_removal(const char *dir, uint64_t step,
                                             struct pst_diag *diag)
{
    char path[PATH_MAX];
    int err;

    pin_path(dir, step, path);
    if (mkdir(path, 0777) == 0)
        return PST_OK;
    err = errno;
    if (pst_checkpoint_is_pinned(dir, step))
        return pst_checkpoint_refuse_pinned(dir, step, diag);
    /* A full disk has no block for the claim, and a removal is what it needs
     * most; hardly any pin can be created on it either. */
    if (err == EEXIST || err == ENOENT || err == ENOSPC || err == EDQUOT)
        return PST_OK;
    return pst_diag_errno(diag, err, "cannot remove the checkpoint of %s",
                          path);
}

void pst_checkpoint_drop_claim(const char *dir, uint64_t step)
{
    char path[PATH_MAX];

    pin_path(dir, step, path);
    (void)rmdir(path); /* fails on a pin, which is a file */
}

enum pst_status pst_checkpoint_check_exists(const char *dir, uint64_t step,
                                            struct pst_diag *diag)
{
    if (!pst_checkpoint_is_rest(dir, step))
        return PST_OK;
    return pst_diag_set(diag, PST_E_CHECKPOINT_NO_STEP,
                        "no checkpoint of step %" PRIu64
                        " in %s; `penstock checkpoints %s` lists them",
                        step, dir, dir);
}

/* Creates the pin at once, without a temporary file, and never through a link.
 * *ret_made: this call has created it. */
static enum pst_status create_pin(const char *dir, uint64_t step,
                                  const char *path, bool *ret_made,
                                  struct pst_diag *diag)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int err = errno;

    *ret_made = fd >= 0;
    if (fd < 0 && err == EEXIST && pst_checkpoint_is_claimed(dir, step))
        return pst_diag_set(diag, PST_E_CHECKPOINT_NO_STEP,
                            "the checkpoint of step %" PRIu64 " in %s is being "
                            "removed; if no job runs there, first remove the "
                            "empty folder %s, which a killed one has left",
                            step, dir, path);
    if (fd < 0 && err == EEXIST)
        return PST_OK;
    if (fd < 0 && err == ENOENT) /* removed in the meantime */
        return pst_checkpoint_check_exists(dir, step, diag);
    if (fd >= 0 && close(fd) == 0)
        return PST_OK;
    return pst_diag_errno(diag, fd < 0 ? err : errno, "cannot write %s", path);
}

static enum pst_status write_pin(const char *dir, uint64_t step,
                                 const char *path, struct pst_diag *diag)
{
    struct pst_str folder = {0};
    bool made;
    enum pst_status status;

    pst_fault_point("pin");
    status = create_pin(dir, step, path, &made, diag);
    /* The checkpoint may have been removed before the pin was created. */
    if (status == PST_OK)
        status = pst_checkpoint_check_exists(dir, step, diag);
    pst_checkpoint_step_dir(dir, step, &folder);
    if (status == PST_OK && folder.failed)
        status = pst_diag_nomem(diag, strlen(dir));
    if (status == PST_OK)
        status = pst_fsync_dir(folder.text, diag);
    if (status != PST_OK && made)
        (void)unlink(path);
    pst_str_fini(&folder);
    return status;
}

enum pst_status pst_checkpoint_pin(const char *dir, uint64_t step, bool pinned,
                                   struct pst_diag *diag)
{
    char path[PATH_MAX];
    enum pst_status status = pst_checkpoint_check_exists(dir, step, diag);

    pin_path(dir, step, path);
    if (status == PST_OK && pinned)
        return write_pin(dir, step, path, diag);
    if (status == PST_OK && !pst_checkpoint_is_claimed(dir, step) &&
        unlink(path) != 0 && errno != ENOENT && errno != EISDIR)
        status = pst_diag_errno(diag, errno, "cannot remove %s", path);
    return status;
}
