// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_DOCTOR_CHECK_H
#define PENSTOCK_DAEMON_CTL_DOCTOR_CHECK_H
/*
 * Checks that `penstock doctor` makes on a machine before a job runs there. A
 * check adds a finding for each problem: a fault if a job cannot run, a warning
 * if it will be slow or may fail later, a note for information. One thread.
 */
#include "daemon/common/config.h"
#include "stages/base/vec.h"

enum pstctl_level { PSTCTL_NOTE, PSTCTL_WARNING, PSTCTL_FAULT };

struct pstctl_finding {
    const char *check; /* name of the check */
    enum pstctl_level level;
    char *text, *remedy; /* owned */
};

struct pstctl_doctor {
    const struct pstd_config *config;
    /* Prefix of /proc, /sys and /dev/shm; "" except in tests. */
    const char *root;
    const char *check; /* name of the check that runs now */
    struct PST_VEC(struct pstctl_finding) findings;
    bool failed; /* memory ran out */
};

typedef void (*pstctl_check_fn)(struct pstctl_doctor *d);

struct pstctl_check {
    const char *name, *about;
    pstctl_check_fn fn;
};

void pstctl_add_finding(struct pstctl_doctor *d, enum pstctl_level level,
                        const char *remedy, const char *fmt, ...)
    PST_PRINTF(4, 5);
/* Reads a file below the prefix `root`: up to size - 1 bytes, without the last
 * newline; false if it does not exist. */
bool pstctl_read_system_file(const struct pstctl_doctor *d, const char *path,
                             char *ret, size_t size);
/* Returns the time of this host's clock, in seconds since 1970 UTC. */
double pstctl_doctor_time(void);

/* The check of GPUs, a row of pstctl_checks_machine (gpus.c). */
void pstctl_check_gpus(struct pstctl_doctor *d);
/* Tables of checks, one for each source file. */
extern const struct pstctl_check pstctl_checks_programs[],
    pstctl_checks_machine[], pstctl_checks_limits[], pstctl_checks_folders[];
/* Checks --hosts or --hostfile: reachability, the doctor's findings on each
 * host, and clock differences. Returns the number of checks made. */
size_t pstctl_check_hosts(struct pstctl_doctor *d, struct pst_diag *diag,
                          enum pst_status *ret);
extern const size_t pstctl_n_programs, pstctl_n_machine, pstctl_n_limits,
    pstctl_n_folders;

#endif
