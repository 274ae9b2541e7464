// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_ALIKE_H
#define PENSTOCK_DAEMON_EXEC_ALIKE_H
/*
 * Checks that all ranks agree; a difference is PST_ERR_MISMATCH on all ranks,
 * and the text names it. Exec thread.
 */
#include "daemon/exec/collective.h"
#include "stages/base/str.h"

/* COLLECTIVE. Compare, in this order: program and options; the plan; the data
 * that each rank reads. */
enum pst_status pstd_compare_program(struct pstd_executor *w,
                                     struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_compare_plan(struct pstd_executor *w,
                                  struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_compare_data(struct pstd_executor *w, const char *path,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* COLLECTIVE, before programs are compiled. If matmuls may use bf16 (the dtype
 * is bf16, or the plan is one of --autocast), all ranks use the rates of rank
 * 0's machine (stages/ops/rates/rates.h). If that machine was never measured,
 * measures it and emits the event "measured". */
enum pst_status pstd_share_rates(struct pstd_executor *w, const char *dtype,
                                 struct pst_diag *diag) PST_MUST_CHECK;

struct pstd_setting_change;
/* Emits "resume_changed": a setting differs from that of the checkpoint of
 * `step`, which was loaded. */
void pstd_emit_setting(struct pstd_executor *w, uint64_t step,
                       const struct pstd_setting_change *change);

#endif
