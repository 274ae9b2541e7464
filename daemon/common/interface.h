// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_INTERFACE_H
#define PENSTOCK_DAEMON_COMMON_INTERFACE_H
/* Network interfaces that messages between hosts may go by (--interface). One
 * thread. */
#include "stages/base/diag.h"

/*
 * words: NAME or NETWORK/BITS (IPv4, IPv6), with commas between, as Open MPI
 * has them in btl_tcp_if_include. PST_ERR_USAGE: a word is neither, or none of
 * them is an interface of this host that is up; then the text names those that
 * are.
 */
enum pst_status pstd_interface_check(const char *words,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
