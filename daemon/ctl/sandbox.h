// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_SANDBOX_H
#define PENSTOCK_DAEMON_CTL_SANDBOX_H
/*
 * Sandbox for commands that read untrusted files (stages/base/host/guard.h):
 * they can only access the files that the command line names, their outputs,
 * and the system files that the C library and penstock need. Their memory is
 * limited to what the host has left. Call before other threads start.
 */
#include "daemon/common/config.h"

/* Limits files and memory of this process. Files are not limited if the kernel
 * has no Landlock. */
enum pst_status pstctl_sandbox(const struct pstd_config *config,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
