// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_PEAK_H
#define PENSTOCK_DAEMON_EXEC_PEAK_H
/*
 * Peak FLOP/s of a job's cores, for MFU (model FLOPs utilisation, Chowdhery et
 * al., PaLM, 2022, appendix B). MFU = FLOPs of forward and backward of a batch,
 * without recomputation / (time of a step x peak FLOP/s). The peak of a core is
 * the rate of large matrix products (pst_rates_here: measured by `penstock
 * calibrate`, else assumed from feature bits), because few vendors publish
 * clock rates under load. Exec thread.
 */
#include "daemon/exec/session.h"

/* COLLECTIVE. Returns the FLOP/s of all cores that the run's threads use, on
 * rank 0; elsewhere 0. Hosts are distinguished by name. */
enum pst_status pstd_peak(struct pstd_session *s, double *ret,
                          struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the MFU of steps of the given duration; NAN: unknown. */
double pstd_mfu(const struct pstd_session *s, double seconds);

#endif
