// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_CONTROL_LOCK_H
#define PENSTOCK_DAEMON_COMMON_CONTROL_LOCK_H
/*
 * Locks beside sockets. The lock of BASE (daemon/common/control/paths.h) makes
 * several calls atomic: creating a folder below BASE and locking a file in it,
 * removing unused files, and removing the folder of one's own job. It is held
 * for milliseconds, and never while waiting. Any thread.
 */
#include "stages/base/diag.h"

#include <stdbool.h>

/* Bytes at the beginning of the lock of `penstock run`: the pids of the client
 * and of the launcher, in columns (daemon/ctl/job/owner.c). */
#define PSTD_LOCK_RECORD 23

/* Creates BASE and locks it. -1: BASE is not ours or has no locks, or another
 * process held the lock for seconds. The caller must then remove nothing; a
 * file that it creates may have to be created again, which pstd_lock_file does.
 */
int pstd_lock_base(void);
/* Unlocks BASE; fd -1: does nothing. */
void pstd_unlock_base(int fd);

/* Creates the folders of a socket (pstd_socket_dirs) and the file SOCKET+end,
 * and locks the file. base: the lock of BASE; -1: not held, so a process that
 * removes unused files may lock the file for a moment. PST_AGAIN: another
 * process has locked it. PST_E_SOCKET_PATH: the file is not a lock of a job. */
enum pst_status pstd_lock_file(int base, const char *socket, const char *end,
                               bool own_dir, int *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* True if SOCKET+end is a lock of a job, held or left by a killed process. */
bool pstd_lock_exists(const char *socket, const char *end);
/* True if the descriptor refers to the file that has this name now. */
bool pstd_lock_is_current(int fd, const char *path);

#endif
