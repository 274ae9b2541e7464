// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_JOB_OWNER_H
#define PENSTOCK_DAEMON_CTL_JOB_OWNER_H
/*
 * A job's name belongs to whoever holds the lock beside its socket: the client
 * that starts it, and what it starts, which inherits the lock. So the name is
 * free again when the last of them has ended, whoever that is. One thread.
 */
#include "daemon/common/socket.h"
#include "stages/base/diag.h"

#include <sys/signalfd.h>
#include <sys/types.h>

struct pstctl_owner {
    int fd; /* -1: none */
    struct pst_str lock;
};

/* PST_ERR_BUSY, with the owner's name and process, if the job is there. */
enum pst_status pstctl_own(const char *socket, const char *job, bool own_dir,
                           struct pstctl_owner *ret,
                           struct pst_diag *diag) PST_MUST_CHECK;
/* Whether the lock is still the one that others find beside the socket. */
bool pstctl_owns(const struct pstctl_owner *owner);
/* Makes folder and lock again where somebody has removed them, as a program
 * that cleans /tmp does. PST_ERR_BUSY: another job has the name since then. */
enum pst_status pstctl_own_again(struct pstctl_owner *owner, const char *socket,
                                 const char *job, bool own_dir,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Tells that process, which the caller has seen there, that the job is to end,
 * as Ctrl-C does, but as often as it likes: a second time is not "at once".
 * False: it is not there any more. */
bool pstctl_ask_owner(const char *socket, pid_t owner);
/* True if that is what this signal of SIGINT was sent by. */
bool pstctl_is_ask(const struct signalfd_siginfo *info);
/* Is the process there that started the job of this socket? */
bool pstctl_is_owned(const char *socket);
/* Others read there which processes belong to the job. */
void pstctl_own_launcher(const struct pstctl_owner *owner, pid_t launcher);
/* The job has ended: the lock says how, for those who had it open. */
void pstctl_own_end(const struct pstctl_owner *owner, enum pst_status status,
                    const struct pst_diag *diag);
/* The lock of a job that somebody has, to be asked when it is over; -1: none.
 */
int pstctl_owner_open(const char *socket);
/* How it ended, into ret and diag. False: it does not say. */
bool pstctl_owner_end(int fd, enum pst_status *ret, struct pst_diag *diag);
/* remove: nothing of the job is left. The lock of another job stays. */
void pstctl_disown(struct pstctl_owner *owner, bool remove);

#endif
