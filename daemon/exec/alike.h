// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_ALIKE_H
#define PENSTOCK_DAEMON_EXEC_ALIKE_H
/*
 * What all ranks must have alike; a difference is PST_ERR_MISMATCH on all,
 * which names it. Exec thread.
 */
#include "daemon/exec/collective.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"

/* COLLECTIVE. Program and options; then the plan; then the data that each of
 * them reads. */
enum pst_status pstd_compare_start(struct pstd_executor *w,
                                   struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_compare_plan(struct pstd_executor *w,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_compare_data(struct pstd_executor *w, const char *path,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* "N bytes, digest X", or that it is not readable. */
void pstd_data_text(const char *path, struct pst_str *ret);
/* What they compare of it: the whole of a file up to 4 MiB, else 64 pieces, the
 * first and the last among them. */
enum pst_status pstd_digest_data(const struct pst_file *file,
                                 uint64_t *ret) PST_MUST_CHECK;

#endif
