// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_CONTROL_PATHS_H
#define PENSTOCK_DAEMON_COMMON_CONTROL_PATHS_H
/*
 * Paths of control sockets, and checks that no other user controls their
 * folders. --socket sets the path for rank 0 only. Without it each rank has
 * BASE/JOB/rankN.sock, where BASE is $XDG_RUNTIME_DIR/penstock, or
 * /tmp/penstock-UID. Any thread.
 */
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <stdbool.h>

/* Longest path that fits into a socket address. */
#define PSTD_SOCKET_PATH 107

/* Appends BASE. */
void pstd_socket_base(struct pst_str *out);
/* Appends a job name made from text: at most 40 letters, digits and "._-";
 * "job" if nothing of the text remains. */
void pstd_socket_job(const char *text, struct pst_str *out);
/* Checks a job name given by the user (NULL: none), which is used unchanged or
 * refused, so that different names are always different jobs. */
enum pst_status pstd_socket_check_job(const char *name,
                                      struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_socket_path(const char *job, unsigned rank,
                                 struct pst_str *out,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Returns PST_ERR_CONFIG if the path is longer than PSTD_SOCKET_PATH, or
 * empty. */
enum pst_status pstd_socket_check(const char *path,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Appends the folder of a path, without the last '/'. */
void pstd_socket_folder(const char *path, struct pst_str *out);
/* True for our own user and root. */
bool pstd_socket_is_trusted(unsigned uid);
/* Returns PST_ERR_DENIED if another user could put a socket into the folder.
 * The folder must be owned by us or root, not be a link, and not be writable by
 * others unless it is sticky; BASE and the folders below it must be closed to
 * others. A missing folder is accepted. */
enum pst_status pstd_socket_check_folders(const char *path,
                                          struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_socket_check_base(const char *base,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Opens a folder in the folder `base`; -1: it is missing, another user's, a
 * link or no folder. */
int pstd_open_own_folder(int base, const char *name);
/* Creates missing folders of path with mode 0700. own_dir: the last two folders
 * must be ours and closed to others, else PST_ERR_DENIED. */
enum pst_status pstd_socket_dirs(const char *path, bool own_dir,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
