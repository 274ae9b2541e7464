// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_HOSTS_HOSTS_H
#define PENSTOCK_DAEMON_CTL_HOSTS_HOSTS_H
/*
 * Hosts that ranks are started on (--hosts, --hostfile), and which ranks each
 * of them has. The client's own host is the first: rank 0, which it talks to
 * by a socket of the file system, is there. One thread.
 */
#include "daemon/common/config.h"
#include "stages/base/vec.h"

#define PSTCTL_MAX_HOSTS 4096u

struct pstctl_host {
    char *name;     /* owned */
    unsigned slots; /* ranks that it may have; 0: the user gave no number */
    unsigned ranks; /* that pstctl_hosts_place has given it */
    bool local;     /* this host */
    bool away;      /* it was not reached when it was last asked */
};

struct pstctl_hosts {
    struct PST_VEC(struct pstctl_host) list; /* empty: none are given */
};

/* What --hosts or --hostfile says; PST_ERR_USAGE or PST_ERR_INPUT with the
 * place of what is wrong. Whatever it returns, fini is called for. */
enum pst_status pstctl_hosts_init(struct pstctl_hosts *h,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* NAME[:SLOTS],...: adds them, none as local, for pstctl_hosts_init and its
 * tests. */
enum pst_status pstctl_hosts_add(struct pstctl_hosts *h, const char *text,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Lines NAME [slots=N], as Open MPI has them; # begins a comment. */
enum pst_status pstctl_hosts_read(struct pstctl_hosts *h, const char *path,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Ranks that those of them have room for that are not away; UINT_MAX: any
 * number. */
unsigned pstctl_hosts_room(const struct pstctl_hosts *h);
/* Gives ranks to hosts that are not away, neighbours to neighbours: up to the
 * slots of each, in order; evenly if no host has a number of slots, one to a
 * host without a number among others that have one. PST_ERR_USAGE if there is
 * no room. */
enum pst_status pstctl_hosts_place(struct pstctl_hosts *h, unsigned ranks,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* The most ranks that a host has been given. */
unsigned pstctl_hosts_most(const struct pstctl_hosts *h);
/* "a:2,b:1" of those that have ranks. */
void pstctl_hosts_text(const struct pstctl_hosts *h, struct pst_str *out);
/* Will ranks be on more than one host? Without a list a batch system may have
 * given us several. */
bool pstctl_hosts_spread(const struct pstctl_hosts *h);
void pstctl_hosts_fini(struct pstctl_hosts *h);

#endif
