// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_OWNER_H
#define PENSTOCK_DAEMON_CTL_JOB_OWNER_H
/*
 * Ownership of a job's name by the lock beside its socket: held by the client
 * that starts the job, and inherited by the processes it starts. The name is
 * free again when the last of them has ended. One thread.
 */
#include "daemon/common/control/socket.h"
#include "stages/base/diag.h"

#include <sys/signalfd.h>
#include <sys/types.h>

struct pstctl_owner {
    int fd; /* descriptor of the lock file; -1: none */
    struct pst_str lock;
};

/* Takes the name of a job. PST_ERR_BUSY: another job has the name; the text
 * gives its owner's pid. */
enum pst_status pstctl_own_name(const char *socket, const char *job,
                                bool own_dir, struct pstctl_owner *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* True if the owner's lock file is still the one beside the socket. */
bool pstctl_is_owner(const struct pstctl_owner *owner);
/* Recreates folder and lock after their removal, for instance by a program that
 * cleans /tmp. PST_ERR_BUSY: another job has taken the name since then. */
enum pst_status pstctl_own_restore(struct pstctl_owner *owner,
                                   const char *socket, const char *job,
                                   bool own_dir,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Asks process `owner`, whose pid the caller has from pstd_socket_owner, to end
 * the job, like Ctrl-C. Unlike with Ctrl-C, a second request does not end the
 * job at once. False: the process is no longer the owner. */
bool pstctl_stop_owner(const char *socket, pid_t owner);
/* True if this SIGINT was sent by pstctl_stop_owner. */
bool pstctl_is_stop_request(const struct signalfd_siginfo *info);
/* Interval, in ms, at which a client checks a job that has no ranks at the
 * moment. */
#define PSTCTL_OWNED_MS 50
/* True if the process that started the job of this socket is alive. */
bool pstctl_is_owned(const char *socket);
/* Records the launcher, so that other commands can find the processes of the
 * job. */
void pstctl_own_launcher(const struct pstctl_owner *owner, pid_t launcher);
/* Records in the lock file how the job has ended, for processes that have the
 * file open. */
void pstctl_own_record_end(const struct pstctl_owner *owner,
                           enum pst_status status, const struct pst_diag *diag);
/* Opens the lock of a running job for pstctl_owner_end; -1: there is none. */
int pstctl_owner_open(const char *socket);
/* Reads from the lock how the job ended, into *ret and diag. False: the lock
 * has no record of it. */
bool pstctl_owner_end(int fd, enum pst_status *ret, struct pst_diag *diag);
/* Closes the lock. remove: also removes its file, since no process of the job
 * is left; a file that belongs to another job is kept. */
void pstctl_release_name(struct pstctl_owner *owner, bool remove);

#endif
