// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_LOCK_H
#define PENSTOCK_DAEMON_COMMON_LOCK_H
/*
 * Locks beside sockets. The lock of BASE (daemon/common/paths.h) makes several
 * calls one: to make a folder below it and lock a file there, to remove what
 * nobody holds, to remove one's own folder. It is held for milliseconds, and
 * nothing waits while it is held. Any thread.
 */
#include "stages/base/diag.h"

#include <stdbool.h>

/* Makes BASE and locks it; -1: it is not ours, or another process kept it for
 * seconds. Then nothing may be removed; what is made may have to be made again,
 * which pstd_lock_file does. */
int pstd_lock_base(void);
/* -1 is fine. */
void pstd_unlock_base(int fd);

/* Makes the folders of a socket (pstd_socket_dirs) and the file SOCKET+end, and
 * locks it. base: the lock of BASE, or -1; without it a process that sweeps may
 * have the file for a moment. PST_AGAIN: another process has locked it. */
enum pst_status pstd_lock_file(int base, const char *socket, const char *end,
                               bool own_dir, int *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* True if the descriptor is of the file that has this name now. */
bool pstd_lock_is_current(int fd, const char *path);

#endif
