// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_SANDBOX_H
#define PENSTOCK_DAEMON_CTL_SANDBOX_H
/*
 * Commands that read files of others, and nothing else, see these files alone
 * (stages/base/host/guard.h): what the command line names, what is to be
 * written, what the C library and penstock ask the system. Before other threads
 * start. They have no more memory than the host has left, either.
 */
#include "daemon/common/config.h"

/* Without Landlock they see all files. */
enum pst_status pstctl_sandbox(const struct pstd_config *config,
                               struct pst_diag *diag) PST_MUST_CHECK;

#endif
