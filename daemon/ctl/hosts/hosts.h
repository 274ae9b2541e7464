// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_HOSTS_HOSTS_H
#define PENSTOCK_DAEMON_CTL_HOSTS_HOSTS_H
/*
 * The hosts of a job (--hosts, --hostfile) and the number of ranks on each. The
 * client's own host is first: rank 0 is there, because the client talks to it
 * by a socket in the file system. One thread.
 */
#include "daemon/common/config.h"
#include "stages/base/vec.h"

#define PSTCTL_MAX_HOSTS 4096u

struct pstctl_host {
    char *name;     /* owned */
    unsigned slots; /* maximum ranks; 0: not given by the user */
    unsigned ranks; /* ranks assigned by pstctl_hosts_place */
    bool local;     /* the host that this process runs on */
    bool away; /* not reachable, or unable to run ranks, at the last attempt */
};

struct pstctl_hosts {
    struct PST_VEC(struct pstctl_host) list; /* empty: no hosts are given */
};

/* Reads --hosts or --hostfile. Errors (PST_ERR_USAGE, PST_ERR_INPUT) name the
 * place in the list. The caller calls fini in any case. */
enum pst_status pstctl_hosts_init(struct pstctl_hosts *h,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Adds NAME[:SLOTS],... without marking any as local; for pstctl_hosts_init and
 * tests. */
enum pst_status pstctl_hosts_add(struct pstctl_hosts *h, const char *text,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Reads lines NAME [slots=N], as in Open MPI's hostfiles; # begins a
 * comment. */
enum pst_status pstctl_hosts_read(struct pstctl_hosts *h, const char *path,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the slots of all hosts that are not away; UINT_MAX: no limit. */
unsigned pstctl_hosts_slots(const struct pstctl_hosts *h);
/* Assigns consecutive ranks to hosts that are not away, and fills the slots of
 * each host in order. If no host has a number of slots, divides the ranks
 * evenly; if only some have one, the others get one rank each. PST_ERR_USAGE:
 * there are too few slots. */
enum pst_status pstctl_hosts_place(struct pstctl_hosts *h, unsigned ranks,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the largest number of ranks on a host. */
unsigned pstctl_hosts_most(const struct pstctl_hosts *h);
/* Appends "a:2,b:1" for the hosts that have ranks. */
void pstctl_hosts_text(const struct pstctl_hosts *h, struct pst_str *out);
/* True if ranks may be on more than one host. Without a list of hosts, a batch
 * system may provide several. */
bool pstctl_hosts_are_several(const struct pstctl_hosts *h);
void pstctl_hosts_fini(struct pstctl_hosts *h);

#endif
