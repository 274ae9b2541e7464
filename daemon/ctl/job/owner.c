// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/job/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/common/control/lock.h"

#define TRIES 100 /* attempts to read the pids, one per millisecond */
/* Value sent with the SIGINT of a stop request. */
#define ASK_VALUE 0x53544f50

/* Reads the pids in a lock file; retries, since a process that has just taken
 * the lock may not have written its pid yet. */
static void read_pids(const char *path, int *ret_client, int *ret_launcher)
{
    char text[64] = "";
    int fd;

    for (unsigned i = 0; i < TRIES && *ret_client <= 0; i++) {
        if (i > 0)
            (void)usleep(1000);
        fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && pread(fd, text, sizeof(text) - 1, 0) > 0)
            (void)sscanf(text, "%d %d", ret_client, // NOLINT(cert-err34-c)
                         ret_launcher);
        if (fd >= 0)
            (void)close(fd);
    }
}

/* Reports that another process owns the job's name, and names that process if
 * the lock file has its pid. */
static enum pst_status refuse_owned(const char *path, const char *job,
                                    struct pst_diag *diag)
{
    char by[64] = "another process has it", ranks[64] = "";
    int client = 0, launcher = 0;
    struct stat st = {0};

    read_pids(path, &client, &launcher);
    if (client > 0 && stat(path, &st) == 0)
        (void)snprintf(by, sizeof(by), "process %d of user %u started it",
                       client, (unsigned)st.st_uid);
    if (launcher > 0)
        (void)snprintf(ranks, sizeof(ranks), ", its ranks belong to process %d",
                       launcher);
    return pst_diag_set(
        diag, PST_E_SOCKET_IN_USE,
        "the job %s is running already: %s%s; choose another name with --job, "
        "follow that job with `penstock watch`, or end it with `penstock stop`",
        job, by, ranks);
}

/* Writes PSTD_LOCK_RECORD bytes in one call, so that a concurrent reader sees
 * either the old or the new pids. If the write
 * fails, the file names no owner, but the lock is held. */
static void write_pids(int fd, pid_t client, pid_t launcher)
{
    char text[PSTD_LOCK_RECORD + 1];
    const int n = snprintf(text, sizeof(text), "%-11d%-11d\n", (int)client,
                           (int)launcher);

    if (pwrite(fd, text, (size_t)n, 0) != n || ftruncate(fd, n) != 0)
        return;
}

static enum pst_status lock_name(const char *socket, const char *job,
                                 bool own_dir, const char *path, int *ret,
                                 struct pst_diag *diag)
{
    const int base = own_dir ? pstd_lock_base() : -1;
    enum pst_status status =
        pstd_lock_file(base, socket, PSTD_SOCKET_OWNER, own_dir, ret, diag);

    if (status == PST_OK)
        write_pids(*ret, getpid(), 0);
    pstd_unlock_base(base);
    return status == PST_AGAIN ? refuse_owned(path, job, diag) : status;
}

/* Refuses the name of a job that was started by hand with `penstockd`, which
 * takes no lock of this kind; such a job owns its name even if it is stopped
 * and does not answer. Also refuses an untrusted folder. */
static enum pst_status check_socket(const char *socket, const char *job,
                                    struct pst_diag *diag)
{
    unsigned uid = 0;
    int pid = 0, fd = -1;
    enum pst_status status = pstd_socket_connect(socket, &fd, diag);

    if (status == PST_ERR_DENIED || status == PST_ERR_BUSY)
        return status;
    if (status != PST_OK)
        return PST_OK; /* no process listens */
    status = pstd_socket_peer(fd, &uid, &pid, diag);
    if (status == PST_OK)
        status = pst_diag_set(
            diag, PST_E_SOCKET_IN_USE,
            "the job %s is running already: process %d of user %u listens "
            "at %s; give it a run with `penstock train`, choose another name "
            "with --job, or end it with `penstock stop`",
            job, pid, uid, socket);
    (void)close(fd);
    return status;
}

enum pst_status pstctl_own_name(const char *socket, const char *job,
                                bool own_dir, struct pstctl_owner *ret,
                                struct pst_diag *diag)
{
    struct pstctl_owner owner = {.fd = -1};
    enum pst_status status = PST_OK;

    pst_str_addf(&owner.lock, "%s" PSTD_SOCKET_OWNER, socket);
    if (owner.lock.failed)
        status = pst_diag_nomem(diag, owner.lock.len);
    if (status == PST_OK)
        status =
            lock_name(socket, job, own_dir, owner.lock.text, &owner.fd, diag);
    if (status == PST_OK)
        status = check_socket(socket, job, diag);
    if (status != PST_OK) {
        pstctl_release_name(&owner, true);
        return status;
    }
    *ret = owner;
    return PST_OK;
}

bool pstctl_is_owner(const struct pstctl_owner *owner)
{
    return owner->fd >= 0 && pstd_lock_is_current(owner->fd, owner->lock.text);
}

enum pst_status pstctl_own_restore(struct pstctl_owner *owner,
                                   const char *socket, const char *job,
                                   bool own_dir, struct pst_diag *diag)
{
    enum pst_status status;
    int fd = -1;

    if (pstctl_is_owner(owner))
        return PST_OK;
    status = lock_name(socket, job, own_dir, owner->lock.text, &fd, diag);
    if (status != PST_OK)
        return status;
    if (owner->fd >= 0)
        (void)close(owner->fd);
    owner->fd = fd;
    return PST_OK;
}

/* Sends the signal by a pidfd: a pid may be reused by another process before
 * the signal arrives. */
bool pstctl_stop_owner(const char *socket, pid_t owner)
{
    const int fd = (int)syscall(SYS_pidfd_open, owner, 0);
    siginfo_t info = {.si_signo = SIGINT, .si_code = SI_QUEUE};
    bool sent;

    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_int = ASK_VALUE;
    sent = fd >= 0 && pstd_socket_owner(socket) == owner &&
           syscall(SYS_pidfd_send_signal, fd, SIGINT, &info, 0) == 0;
    if (fd >= 0)
        (void)close(fd);
    return sent;
}

bool pstctl_is_stop_request(const struct signalfd_siginfo *info)
{
    return info->ssi_signo == SIGINT && info->ssi_code == SI_QUEUE &&
           info->ssi_int == ASK_VALUE;
}

bool pstctl_is_owned(const char *socket)
{
    return pstd_socket_owner(socket) > 0;
}

void pstctl_own_launcher(const struct pstctl_owner *owner, pid_t launcher)
{
    write_pids(owner->fd, getpid(), launcher);
}

void pstctl_own_record_end(const struct pstctl_owner *owner,
                           enum pst_status status, const struct pst_diag *diag)
{
    struct pst_str text = {0};

    if (status == PST_OK)
        pst_str_add(&text, "0 - ");
    else
        pst_str_addf(&text, "%d %s %s", (int)status,
                     diag->error != PST_E_NONE ? pst_error_id(diag->error)
                                               : "-",
                     diag->text);
    if (text.failed ||
        pwrite(owner->fd, text.text, text.len, PSTD_LOCK_RECORD) < 0)
        errno = 0; /* readers find no record: the result is unknown */
    pst_str_fini(&text);
}

int pstctl_owner_open(const char *socket)
{
    struct pst_str path = {0};
    int fd = -1;

    pst_str_addf(&path, "%s" PSTD_SOCKET_OWNER, socket);
    if (!path.failed && pstd_socket_owner(socket) > 0)
        fd = open(path.text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    pst_str_fini(&path);
    return fd;
}

bool pstctl_owner_end(int fd, enum pst_status *ret, struct pst_diag *diag)
{
    char text[PST_DIAG_TEXT + 64], id[64], *end;
    const ssize_t n =
        fd >= 0 ? pread(fd, text, sizeof(text) - 1, PSTD_LOCK_RECORD) : 0;
    size_t len;

    if (n <= 0)
        return false;
    text[n] = '\0';
    *ret = (enum pst_status)strtol(text, &end, 10);
    end += *end == ' ';
    len = strcspn(end, " ");
    if (end[len] != ' ' || len >= sizeof(id))
        return false;
    (void)snprintf(id, sizeof(id), "%.*s", (int)len, end);
    if (*ret != PST_OK)
        *ret =
            pst_diag_carry(diag, pst_error_find(id), *ret, "%s", end + len + 1);
    return true;
}

void pstctl_release_name(struct pstctl_owner *owner, bool remove)
{
    if (remove && pstctl_is_owner(owner))
        (void)unlink(owner->lock.text);
    if (owner->fd >= 0)
        (void)close(owner->fd);
    owner->fd = -1;
    pst_str_fini(&owner->lock);
}
