// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_CONTROL_SOCKET_H
#define PENSTOCK_DAEMON_COMMON_CONTROL_SOCKET_H
/*
 * Control sockets: creating them, connecting to them, and the files beside
 * them.
 */
#include "daemon/common/control/paths.h"
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <stdbool.h>

/* Files beside the socket of a job started by `penstock run`. */
/* lock that `penstock run` and the ranks hold */
#define PSTD_SOCKET_OWNER  ".run"
#define PSTD_SOCKET_OUTPUT ".out"    /* output of the ranks */
#define PSTD_SOCKET_RESULT ".result" /* result of the run */
#define PSTD_SOCKET_LAST   ".last"   /* outcome of the job's previous start */
/* Lock of a socket, held by the rank that listens there. */
#define PSTD_SOCKET_LOCK ".lock"

/* A bound socket, not yet listening, and the lock that reserves it. */
struct pstd_listener {
    int fd, lock_fd;   /* -1: not open */
    char *path, *lock; /* owned */
    bool own_dir;      /* the folder is removed with the socket */
};

/*
 * Binds a socket with mode 0600; missing folders are created with mode 0700.
 * own_dir: uses the folder below BASE, which must be ours and closed to others.
 * A stale socket is replaced; PST_ERR_BUSY if it is in use.
 */
enum pst_status pstd_socket_bind(const char *path, bool own_dir,
                                 struct pstd_listener *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Removes socket and lock. Closes fd unless the caller has taken it (-1). */
void pstd_socket_unbind(struct pstd_listener *listener);

/* Returns user and process of the peer of a connected socket. */
enum pst_status pstd_socket_peer(int fd, unsigned *ret_uid, int *ret_pid,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Connects. PST_ERR_NO_DAEMON: nobody listens. PST_ERR_DENIED: the listener is
 * neither us nor root, or another user could listen there
 * (pstd_socket_check_folders). */
enum pst_status pstd_socket_connect(const char *path, int *ret_fd,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* True if pstd_socket_connect succeeds. */
bool pstd_socket_answers(const char *path);
/* Returns the pid of the `penstock run` process that started the job of this
 * socket, whether or not its ranks are running; 0: none, or it has ended. */
int pstd_socket_owner(const char *socket);
/* Appends the socket of rank 0 of the only job that answers or has a `penstock
 * run` process. PST_ERR_NO_DAEMON: there is no such job; PST_ERR_USAGE: there
 * are several, which the error text names. */
enum pst_status pstd_socket_find(struct pst_str *out,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Removes leftovers of killed jobs below BASE that no process holds: their
 * files, sockets, locks and folders. Does nothing if others hold the lock of
 * BASE; the next start tries again. */
void pstd_socket_sweep(void);
/* Removes the leftovers of the job of this socket only. The caller holds the
 * lock of BASE. */
void pstd_socket_sweep_job(int base, const char *socket);

#endif
