// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_EXEC_PEAK_H
#define PENSTOCK_DAEMON_EXEC_PEAK_H
/*
 * What the cores of a job could do at best, beside which MFU (model FLOPs
 * utilisation, Chowdhery et al., PaLM, 2022, appendix B) is told: the FLOPs
 * that a forward and a backward pass of a batch need, recomputation not
 * counted, by the time of a step. The best of a core is what large matrix
 * products reach there (pst_rates_here: measured by `penstock calibrate`, else
 * assumed by feature bits): clocks under load are published of few processors.
 * Exec thread.
 */
#include "daemon/exec/session.h"

/* COLLECTIVE. Operations a second of all cores that the run's threads are on,
 * on rank 0; elsewhere 0. Hosts are told apart by their names. */
enum pst_status pstd_peak(struct pstd_session *s, double *ret,
                          struct pst_diag *diag) PST_MUST_CHECK;
/* Of steps of so many seconds; NAN: not known. */
double pstd_mfu(const struct pstd_session *s, double seconds);

#endif
