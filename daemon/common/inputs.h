// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_INPUTS_H
#define PENSTOCK_DAEMON_COMMON_INPUTS_H
/*
 * Files that a job reads, identified by digests: its results depend on them, so
 * ranks compare them, checkpoints record them, and a job is not restarted if
 * they have changed. One thread.
 */
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/base/vec.h"

struct pstd_config;

/* Computes the digest of a data file: of the whole file up to 4 MiB, else of 64
 * pieces, including the first and the last. */
enum pst_status pstd_hash_data(const struct pst_file *file,
                               uint64_t *ret) PST_MUST_CHECK;
/* Appends "N bytes, digest X" of data files (as stages/files/data/list.h reads
 * their names), or PSTD_NOT_READABLE. */
#define PSTD_NOT_READABLE "not readable"
void pstd_describe_data(const char *path, struct pst_str *ret);

/* An input as it was when the job began. */
struct pstd_input {
    char what[64];   /* such as "--data" */
    char digest[33]; /* digest of the content */
};
struct pstd_inputs PST_VEC(struct pstd_input);

/* Compares the input's digest with the one recorded for `what`; the first call
 * for `what` records it. what: identifies the input, also in messages; path:
 * path of the input. PST_E_PLAN_REPLACED: the digests differ. */
enum pst_status pstd_inputs_check(struct pstd_inputs *inputs, const char *what,
                                  const char *path, const char *digest,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Does the same for data files. Ignores files that cannot be read: the ranks
 * report them. */
enum pst_status pstd_inputs_check_data(struct pstd_inputs *inputs,
                                       const char *what, const char *path,
                                       struct pst_diag *diag) PST_MUST_CHECK;
/* Does the same for all inputs that the options of a run name: --data, each set
 * of --eval-data, --eval-model. */
enum pst_status pstd_inputs_check_run(struct pstd_inputs *inputs,
                                      const struct pstd_config *config,
                                      struct pst_diag *diag) PST_MUST_CHECK;
void pstd_inputs_fini(struct pstd_inputs *inputs);

#endif
