// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_FS_H
#define PENSTOCK_STAGES_BASE_HOST_FS_H
/* Files: reads at any offset, whole reads, and atomic writes. */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/*
 * A regular file open for reading. It is never memory-mapped: if another
 * process truncated a mapped file, any access would end this process by SIGBUS.
 * Reading at an offset is safe from several threads.
 */
struct pst_file {
    int fd;                  /* -1 when closed */
    uint64_t size;           /* bytes at the time of opening */
    struct timespec written; /* last write at that time */
    /* first bytes that must stay the same, and their digest; see
     * pst_file_keep_head() */
    uint64_t head, head_digest;
    char *path;
};

enum pst_status pst_file_open(const char *path, struct pst_file *ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Closes a file. It may be closed twice, or zeroed and never opened. */
void pst_file_close(struct pst_file *file);
/* Reads exactly `bytes` bytes; PST_ERR_IO with the path if the file cannot be
 * read or has been truncated. */
enum pst_status pst_file_read_at(const struct pst_file *file, uint64_t offset,
                                 void *dst, size_t bytes,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Returns PST_ERR_IO if the file has been truncated since it was opened. */
enum pst_status pst_file_check_size(const struct pst_file *file,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Records the first `bytes` bytes (a header, which locates the rest of the
 * data) for pst_file_check_written. */
void pst_file_keep_head(struct pst_file *file, const void *head, size_t bytes);
/* Sets *ret to whether a program has written to the file since it was opened.
 * PST_ERR_IO if the file has become shorter, or if the bytes of
 * pst_file_keep_head have changed. */
enum pst_status pst_file_check_written(const struct pst_file *file, bool *ret,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Computes pst_digest of the whole file, reading one piece at a time. */
enum pst_status pst_file_digest(const struct pst_file *file, char out[33],
                                struct pst_diag *diag) PST_MUST_CHECK;

/* True if both paths lead to one file or folder. */
bool pst_path_is_same(const char *a, const char *b);

/* Reads a whole file and puts NUL after its end; the caller frees it with
 * pst_free. */
enum pst_status pst_file_read(const char *path, size_t max, char **ret,
                              size_t *ret_size,
                              struct pst_diag *diag) PST_MUST_CHECK;

/*
 * A file under construction, written under a temporary name in the folder of
 * its final name. commit fsyncs and renames the file, then fsyncs the folder;
 * abort removes the file. Short writes and a full disk are PST_ERR_IO; the old
 * file stays unchanged. If the path is a symbolic link, its target is replaced;
 * a character device is written in place; folders, pipes and other devices are
 * refused.
 */
struct pst_new_file {
    int fd; /* -1 when closed */
    char *path, *temp;
    uint64_t size;
    size_t waiting; /* bytes whose writeback has not been started */
    bool joined;    /* another process commits the file */
};

enum pst_status pst_new_file_open(const char *path, struct pst_new_file *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_new_file_write(struct pst_new_file *file, const void *data,
                                   size_t size,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Writes at an offset, in any order; holes read as zeros. file->size becomes
 * the largest end of a write. */
enum pst_status pst_new_file_write_at(struct pst_new_file *file,
                                      uint64_t offset, const void *data,
                                      size_t size,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Opens the temporary file `temp` of another process, to write a part of it.
 * That process commits it after all others have committed their parts. */
enum pst_status pst_new_file_join(const char *temp, struct pst_new_file *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_new_file_commit(struct pst_new_file *file,
                                    struct pst_diag *diag) PST_MUST_CHECK;
void pst_new_file_abort(struct pst_new_file *file);

/* Writes a whole file at once, by the functions above. */
enum pst_status pst_file_write(const char *path, const void *data, size_t size,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Like pst_file_write, for files that penstock names itself in a folder: a
 * symbolic link, which another user of the folder may have made, is replaced by
 * the file, and its target stays unchanged. Devices are refused. */
enum pst_status pst_file_replace(const char *path, const void *data,
                                 size_t size,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Creates a directory and its missing parents with this mode; an existing
 * directory is fine. */
enum pst_status pst_mkdirs(const char *path, unsigned mode,
                           struct pst_diag *diag) PST_MUST_CHECK;
/* Removes a file, or a folder with its contents; a missing path is fine.
 * pst_remove_at removes `name` in the folder of a descriptor. */
enum pst_status pst_remove_tree(const char *path,
                                struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_remove_at(int dir, const char *name,
                              struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_fsync_dir(const char *path,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
