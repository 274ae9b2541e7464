// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_SOCKET_H
#define PENSTOCK_DAEMON_COMMON_SOCKET_H
/*
 * Control sockets: who may make them, how one gets to them, and what is beside
 * them.
 */
#include "daemon/common/paths.h"
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <stdbool.h>

/* Files beside the socket of a job that `penstock run` started: the lock that
 * it and the ranks hold, what the ranks print, and how the run ended. */
#define PSTD_SOCKET_OWNER  ".run"
#define PSTD_SOCKET_OUTPUT ".out"
#define PSTD_SOCKET_RESULT ".result"
#define PSTD_SOCKET_LAST   ".last"
/* The lock of a socket, held by the rank that listens there. */
#define PSTD_SOCKET_LOCK ".lock"

/* A bound socket, not yet listening, and the lock that says it is ours. */
struct pstd_listener {
    int fd, lock_fd;   /* -1: none */
    char *path, *lock; /* owned */
    bool own_dir;      /* the folder is removed with the socket */
};

/*
 * Socket 0600; missing folders are made 0700. own_dir: the folder below BASE,
 * which must be ours and closed to others. A stale socket is taken over; one
 * that is in use is PST_ERR_BUSY.
 */
enum pst_status pstd_socket_bind(const char *path, bool own_dir,
                                 struct pstd_listener *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Removes socket and lock. fd is closed unless somebody took it (-1). */
void pstd_socket_unbind(struct pstd_listener *listener);

/* Peer of a connected socket. */
enum pst_status pstd_socket_peer(int fd, unsigned *ret_uid, int *ret_pid,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* PST_ERR_NO_DAEMON; PST_ERR_DENIED, too, if somebody else but us or root
 * listens, or could: the folder must be ours or root's, no link, and not be
 * written by others; those below BASE closed to them. */
enum pst_status pstd_socket_connect(const char *path, int *ret_fd,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* The process that started the job of this socket with `penstock run`, whether
 * or not its ranks are there now; 0: none, or it has gone. */
int pstd_socket_owner(const char *socket);
/* Path of the only job's rank 0 that answers or has such a process; none:
 * PST_ERR_NO_DAEMON; several: PST_ERR_USAGE that names them. */
enum pst_status pstd_socket_find(struct pst_str *out,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Removes what nobody holds any more of the jobs below BASE that were killed:
 * their files, sockets, locks and folders. Nothing if others keep the lock of
 * BASE: the next start does it. */
void pstd_socket_sweep(void);
/* The same for the job of this socket alone. The caller holds the lock of BASE.
 */
void pstd_socket_sweep_job(int base, const char *socket);

#endif
