// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_PATHS_H
#define PENSTOCK_DAEMON_COMMON_PATHS_H
/*
 * Where control sockets are, and whether their folders are in good hands.
 * --socket names rank 0's alone. Else each rank has BASE/JOB/rankN.sock, where
 * BASE is $XDG_RUNTIME_DIR/penstock, or /tmp/penstock-UID. Any thread.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <stdbool.h>

/* Longest path that fits into a socket's address. */
#define PSTD_SOCKET_PATH 107

void pstd_socket_base(struct pst_str *out);
/* Letters, digits and "._-" of text, at most 40, never empty. */
void pstd_socket_job(const char *text, struct pst_str *out);
/* A name that was given (NULL: none) is the job's as it is, or is refused: two
 * names are two jobs. */
enum pst_status pstd_socket_check_job(const char *name,
                                      struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_socket_path(const char *job, unsigned rank,
                                 struct pst_str *out,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* PST_ERR_CONFIG if the path is longer than PSTD_SOCKET_PATH or empty. */
enum pst_status pstd_socket_check(const char *path,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Folder of a path, without the last '/'. */
void pstd_socket_folder(const char *path, struct pst_str *out);
/* True of ourselves and of root. */
bool pstd_socket_is_trusted(unsigned uid);
/* PST_ERR_DENIED: somebody else could put a socket of his own there. The folder
 * must be ours or root's, no link, and not be written by others; those below
 * BASE, and BASE itself, closed to them. A folder that is not there is fine. */
enum pst_status pstd_socket_check_folders(const char *path,
                                          struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_socket_check_base(const char *base,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Makes missing folders of path, 0700. own_dir: the last two must be ours and
 * closed to others, else PST_ERR_DENIED. */
enum pst_status pstd_socket_dirs(const char *path, bool own_dir,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
