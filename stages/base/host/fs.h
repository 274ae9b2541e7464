// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_FS_H
#define PENSTOCK_STAGES_BASE_HOST_FS_H
/* Files: reads at any offset, whole reads, and writes that are there whole or
 * not at all. */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * A regular file that is open for reading. It is never mapped: a map of a file
 * that another process cuts short ends this one by SIGBUS, wherever it touches
 * it. Reading at an offset is safe from several threads.
 */
struct pst_file {
    int fd;        /* -1 when closed */
    uint64_t size; /* when it was opened */
    char *path;
};

enum pst_status pst_file_open(const char *path, struct pst_file *ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Twice is fine, and so is a file of zeros that was never open. */
void pst_file_close(struct pst_file *file);
/* All of the bytes; PST_ERR_IO with the path if it cannot be read or if it has
 * become shorter than it was. */
enum pst_status pst_file_read_at(const struct pst_file *file, uint64_t offset,
                                 void *dst, size_t bytes,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* PST_ERR_IO if it is shorter than it was when it was opened. */
enum pst_status pst_file_check_size(const struct pst_file *file,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* pst_digest of the whole file; a piece of it is in memory at a time. */
enum pst_status pst_file_digest(const struct pst_file *file, char out[33],
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Whole file, NUL after its end; caller frees with pst_free. */
enum pst_status pst_file_read(const char *path, size_t max, char **ret,
                              size_t *ret_size,
                              struct pst_diag *diag) PST_MUST_CHECK;

/*
 * A file under construction: written beside its final name, fsynced, renamed,
 * directory fsynced on commit. abort (or fini without commit) removes it.
 * Short writes and a full disk are PST_ERR_IO; the old file stays as it was.
 * Of a link the file that it means is replaced; a character device is written
 * to as it is; folders, pipes and other devices are refused.
 */
struct pst_new_file {
    int fd; /* -1 when closed */
    char *path, *temp;
    uint64_t size;
    size_t waiting; /* bytes that the disk was not told to write */
    bool joined;    /* another process will give it its name */
};

enum pst_status pst_new_file_open(const char *path, struct pst_new_file *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_new_file_write(struct pst_new_file *file, const void *data,
                                   size_t size,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* At a place of its own, in any order; holes read as zeros. size = the end. */
enum pst_status pst_new_file_write_at(struct pst_new_file *file,
                                      uint64_t offset, const void *data,
                                      size_t size,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* The same file, by another process: temp is what the first one's is called,
 * which commits it when all others have committed their part of it. */
enum pst_status pst_new_file_join(const char *temp, struct pst_new_file *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_new_file_commit(struct pst_new_file *file,
                                    struct pst_diag *diag) PST_MUST_CHECK;
void pst_new_file_abort(struct pst_new_file *file);

/* A whole file at once, by the above. */
enum pst_status pst_file_write(const char *path, const void *data, size_t size,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* mkdir -p with mode; fine if it exists as a directory. */
enum pst_status pst_mkdirs(const char *path, unsigned mode,
                           struct pst_diag *diag) PST_MUST_CHECK;
/* rm -r; missing is fine. name: in the folder of a descriptor. */
enum pst_status pst_remove_tree(const char *path,
                                struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_remove_at(int dir, const char *name,
                              struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_fsync_dir(const char *path,
                              struct pst_diag *diag) PST_MUST_CHECK;

#endif
