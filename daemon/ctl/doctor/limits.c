// SPDX-License-Identifier: Apache-2.0
/* Checks resource limits of this process, which a job inherits. */
#include "daemon/ctl/doctor/check.h"

#include <stdio.h>
#include <sys/resource.h>

struct limit {
    const char *option; /* option of the shell's ulimit */
    const char *what;
    __rlimit_resource_t resource;
    rlim_t want; /* RLIM_INFINITY: no limit */
    enum pstctl_level level;
};

#define MIB ((rlim_t)1 << 20)

static const struct limit limits[] = {
    {"-n", "open files", RLIMIT_NOFILE, 1024, PSTCTL_FAULT},
    {"-v", "bytes of address space", RLIMIT_AS, RLIM_INFINITY, PSTCTL_WARNING},
    {"-d", "bytes of data", RLIMIT_DATA, RLIM_INFINITY, PSTCTL_WARNING},
    {"-f", "bytes of a file", RLIMIT_FSIZE, RLIM_INFINITY, PSTCTL_FAULT},
    {"-u", "processes", RLIMIT_NPROC, 512, PSTCTL_FAULT},
    {"-s", "bytes of stack", RLIMIT_STACK, 2 * MIB, PSTCTL_FAULT},
    {"-t", "seconds of a processor", RLIMIT_CPU, RLIM_INFINITY, PSTCTL_WARNING},
};

static void check_limits(struct pstctl_doctor *d)
{
    for (size_t i = 0; i < PST_COUNT(limits); i++) {
        const struct limit *l = &limits[i];
        char remedy[200];
        struct rlimit now;

        if (getrlimit(l->resource, &now) != 0 || now.rlim_cur >= l->want)
            continue;
        if (l->want == RLIM_INFINITY)
            (void)snprintf(remedy, sizeof(remedy),
                           "ulimit %s unlimited, or /etc/security/limits.conf",
                           l->option);
        else
            (void)snprintf(remedy, sizeof(remedy),
                           "ulimit %s %llu, or /etc/security/limits.conf",
                           l->option, (unsigned long long)l->want);
        pstctl_add_finding(d, l->level, remedy,
                           "%s are limited to %llu (ulimit %s)", l->what,
                           (unsigned long long)now.rlim_cur, l->option);
    }
}

const struct pstctl_check pstctl_checks_limits[] = {
    {"limits", "of this process", check_limits},
};
const size_t pstctl_n_limits = PST_COUNT(pstctl_checks_limits);
