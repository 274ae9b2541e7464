// SPDX-License-Identifier: Apache-2.0
/* Checks memory and processor. */
#include "daemon/ctl/doctor/check.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "stages/base/host/headroom.h"
#include "stages/base/host/topology.h"

#define MIB      1048576.0
#define LOW_MIB  512.0
#define SHM_EACH 4.0  /* MiB of shared memory that each rank needs */
#define SHM_MIN  64.0 /* minimum MiB of shared memory */

/* Returns the value in MiB of the line `key` of /proc/meminfo, such as
 * "MemAvailable:   123 kB"; -1: unknown. */
static double read_meminfo(const struct pstctl_doctor *d, const char *key)
{
    char text[8192];
    const char *at;

    if (!pstctl_read_system_file(d, "/proc/meminfo", text, sizeof(text)))
        return -1;
    at = strstr(text, key);
    return at != NULL ? strtod(at + strlen(key), NULL) / 1024 : -1;
}

static void check_memory(struct pstctl_doctor *d)
{
    const double left = read_meminfo(d, "MemAvailable:");

    if (left >= 0 && left < LOW_MIB)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "end what uses it; `penstock plan` says what a job needs",
            "%.0f MiB of memory are left", left);
}

static void check_group(struct pstctl_doctor *d)
{
    const double all = read_meminfo(d, "MemTotal:");
    struct pst_headroom headroom;

    pst_headroom_read(d->root, &headroom);
    if (headroom.group == UINT64_MAX || all <= 0 ||
        (double)headroom.group / MIB > 0.5 * all)
        return;
    pstctl_add_finding(
        d, PSTCTL_WARNING,
        "raise the limit (memory.max, docker --memory, Slurm --mem) "
        "if a job is to have more",
        "a control group leaves %.0f MiB of this host's %.0f",
        (double)headroom.group / MIB, all);
}

static void check_swap(struct pstctl_doctor *d)
{
    const double all = read_meminfo(d, "SwapTotal:"),
                 left = read_meminfo(d, "SwapFree:");

    if (all > 0 && all - left > 0.25 * all && all - left > 256)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "end what uses the memory; a job that swaps is slower by "
            "far",
            "%.0f MiB of swap are in use", all - left);
}

static void check_overcommit(struct pstctl_doctor *d)
{
    char text[16];

    if (pstctl_read_system_file(d, "/proc/sys/vm/overcommit_memory", text,
                                sizeof(text)) &&
        strcmp(text, "2") == 0)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "sysctl vm.overcommit_memory=0, or raise "
            "vm.overcommit_ratio",
            "vm.overcommit_memory is 2: memory that a job reserves may "
            "be refused though it is free");
}

static void check_huge(struct pstctl_doctor *d)
{
    char text[64];

    if (pstctl_read_system_file(d,
                                "/sys/kernel/mm/transparent_hugepage/enabled",
                                text, sizeof(text)) &&
        strstr(text, "[never]") != NULL)
        pstctl_add_finding(d, PSTCTL_WARNING,
                           "echo madvise > "
                           "/sys/kernel/mm/transparent_hugepage/enabled",
                           "there are no huge pages, with which large matmuls "
                           "are faster");
}

/* --- shared memory -------------------------------------------------------- */

static void check_shm(struct pstctl_doctor *d)
{
    struct statvfs fs;
    char path[4096];
    double left;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const double want =
        SHM_EACH * (double)cores > SHM_MIN ? SHM_EACH * (double)cores : SHM_MIN;

    (void)snprintf(path, sizeof(path), "%s/dev/shm", d->root);
    if (statvfs(path, &fs) != 0 || access(path, W_OK) != 0) {
        pstctl_add_finding(
            d, PSTCTL_FAULT, "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
            "/dev/shm cannot be written to (%s): ranks of a host "
            "exchange messages through it",
            strerrordesc_np(errno));
        return;
    }
    left = (double)fs.f_bavail * (double)fs.f_frsize / MIB;
    if (left < want)
        pstctl_add_finding(
            d, PSTCTL_FAULT,
            "mount -o remount,size=1G /dev/shm (docker --shm-size=1g)",
            "/dev/shm has %.0f MiB left, a rank for each of %ld cores "
            "needs %.0f",
            left, cores, want);
}

/* Checks for shared-memory files of Open MPI left by killed processes. */
static void check_segments(struct pstctl_doctor *d)
{
    const struct dirent *e;
    char path[4096];
    unsigned n = 0;
    DIR *dir;

    (void)snprintf(path, sizeof(path), "%s/dev/shm", d->root);
    dir = opendir(path);
    while (dir != NULL && (e = readdir(dir)) != NULL)
        n += strncmp(e->d_name, "vader_segment.", 14) == 0;
    if (dir != NULL)
        (void)closedir(dir);
    if (n > 0)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "rm /dev/shm/vader_segment.* when no MPI program runs; "
            "jobs of `penstock run` have their own folder there",
            "%u segments of MPI programs are in /dev/shm: they run, "
            "or were killed",
            n);
}

/* --- processor ------------------------------------------------------------ */

static void check_cores(struct pstctl_doctor *d)
{
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < all)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "taskset, numactl, the batch system or the container "
            "keeps it there: ask for more cores, or give as many "
            "--threads as there are",
            "this process may use %d of %ld cores", CPU_COUNT(&set), all);
}

/* Adds a note if cores have two hardware threads: kernels may be slower with
 * one kernel thread per hardware thread than with one per core. */
static void check_threads(struct pstctl_doctor *d)
{
    struct pst_topology topology = {0};
    struct pst_str text = {0};
    struct pst_diag ignored;

    if (pst_topology_read(d->root, NULL, &topology, &ignored) == PST_OK) {
        pst_topology_print(&topology, &text);
        if (topology.n_cores < topology.processors.n)
            pstctl_add_finding(
                d, PSTCTL_NOTE,
                "compare --threads with the number of cores and of processors; "
                "on a machine that the job has for itself, with --bind cores",
                "this machine has %s", pst_str_text(&text));
    }
    pst_topology_fini(&topology);
    pst_str_fini(&text);
}

static void check_governor(struct pstctl_doctor *d)
{
    char text[64];

    if (pstctl_read_system_file(
            d, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text,
            sizeof(text)) &&
        strcmp(text, "powersave") == 0 &&
        !pstctl_read_system_file(d,
                                 "/sys/devices/system/cpu/intel_pstate/status",
                                 text, sizeof(text)))
        pstctl_add_finding(
            d, PSTCTL_WARNING, "cpupower frequency-set -g performance",
            "the processor saves power: its governor is powersave");
}

static void check_quota(struct pstctl_doctor *d)
{
    char text[64];
    double quota, period;
    char *end;
    const double all = (double)sysconf(_SC_NPROCESSORS_ONLN);

    if (!pstctl_read_system_file(d, "/sys/fs/cgroup/cpu.max", text,
                                 sizeof(text)) ||
        strncmp(text, "max", 3) == 0)
        return;
    quota = strtod(text, &end);
    period = strtod(end, NULL);
    if (quota > 0 && period > 0 && quota / period < all - 0.01)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "raise the quota (cpu.max, docker --cpus): a rank that is "
            "put to sleep keeps all others waiting",
            "a control group gives %.2f of %.0f cores", quota / period, all);
}

const struct pstctl_check pstctl_checks_machine[] = {
    {"memory", "that is left", check_memory},
    {"memory-limit", "of control groups", check_group},
    {"swap", "in use", check_swap},
    {"overcommit", "memory may be reserved", check_overcommit},
    {"huge-pages", "may be asked for", check_huge},
    {"shm", "/dev/shm, which ranks talk through", check_shm},
    {"segments", "of processes that were killed", check_segments},
    {"cores", "that may be used", check_cores},
    {"threads", "of a core", check_threads},
    {"governor", "of the processor", check_governor},
    {"cpu-limit", "of control groups", check_quota},
    {"gpus", "for --device cuda", pstctl_check_gpus},
};
const size_t pstctl_n_machine = PST_COUNT(pstctl_checks_machine);
