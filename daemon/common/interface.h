// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_INTERFACE_H
#define PENSTOCK_DAEMON_COMMON_INTERFACE_H
/* Network interfaces for messages between hosts (--interface). One thread. */
#include "stages/base/diag.h"

/*
 * Checks words: NAME or NETWORK/BITS (IPv4, IPv6), separated by commas, as in
 * Open MPI's btl_tcp_if_include. PST_ERR_USAGE: a word is neither a name nor a
 * network, or no word is an interface of this host that is up. The error text
 * names the interfaces that are up.
 */
enum pst_status pstd_interface_check(const char *words,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
