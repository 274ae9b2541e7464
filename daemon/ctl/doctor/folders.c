// SPDX-License-Identifier: Apache-2.0
/* Checks folders that jobs write to. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/doctor/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB       1048576.0
#define LEAST_MIB 100.0
#define SKEW_S    1.0

/* Compares the file system's clock, which on a network file system is the
 * server's, with that of this host. */
static void check_clock(struct pstctl_doctor *d, const char *dir,
                        const struct stat *st, double before, double after)
{
    const double time =
        (double)st->st_mtim.tv_sec + 1e-9 * (double)st->st_mtim.tv_nsec;
    const double skew = time < before ? before - time : time - after;

    if (skew > SKEW_S)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "synchronise the clocks (chrony, systemd-timesyncd): "
            "they order the logs of several hosts",
            "the clock of the disk of %s differs from this host's by "
            "%.1f s",
            dir, skew);
}

static void check_file(struct pstctl_doctor *d, const char *dir, int fd,
                       double before)
{
    struct stat st;
    char byte = 0;

    if (write(fd, &byte, 1) != 1)
        pstctl_add_finding(d, PSTCTL_FAULT, "free space there",
                           "a file in %s takes no byte: %s", dir,
                           strerrordesc_np(errno));
    else if (fsync(fd) != 0)
        pstctl_add_finding(
            d, PSTCTL_FAULT, "use a disk that stores data reliably",
            "files in %s cannot be synced: %s", dir, strerrordesc_np(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "two runs could write into one folder of checkpoints: "
            "take a file system with locks",
            "files in %s cannot be locked: %s", dir, strerrordesc_np(errno));
    if (fstat(fd, &st) == 0)
        check_clock(d, dir, &st, before, pstctl_doctor_time());
}

static void check_space(struct pstctl_doctor *d, const char *dir)
{
    struct statvfs fs;
    double left;

    if (statvfs(dir, &fs) != 0)
        return;
    left = (double)fs.f_bavail * (double)fs.f_frsize / MIB;
    if (left < LEAST_MIB)
        pstctl_add_finding(d, PSTCTL_FAULT,
                           "free space there, or take another disk",
                           "%s has %.0f MiB left", dir, left);
    else if (fs.f_files > 0 && fs.f_favail < 1000)
        pstctl_add_finding(d, PSTCTL_FAULT, "remove files there",
                           "%s has space for %llu files", dir,
                           (unsigned long long)fs.f_favail);
}

static void check_dir(struct pstctl_doctor *d, const char *dir)
{
    const double before = pstctl_doctor_time();
    char path[4096];
    struct stat st;
    int fd;

    if (stat(dir, &st) != 0) {
        pstctl_add_finding(d, PSTCTL_FAULT, "make it, or name another one",
                           "the folder %s: %s", dir, strerrordesc_np(errno));
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        pstctl_add_finding(d, PSTCTL_FAULT, "name a folder",
                           "%s is not a folder", dir);
        return;
    }
    check_space(d, dir);
    (void)snprintf(path, sizeof(path), "%s/penstock-doctor-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        pstctl_add_finding(
            d, PSTCTL_FAULT,
            "chmod or chown it, mount it for writing, or name another",
            "files cannot be made in %s: %s", dir, strerrordesc_np(errno));
        return;
    }
    check_file(d, dir, fd, before);
    (void)close(fd);
    (void)unlink(path);
}

static void check_temporary(struct pstctl_doctor *d)
{
    const char *dir = pstctl_environment("TMPDIR");

    check_dir(d, dir != NULL ? dir : "/tmp");
}

static void check_given(struct pstctl_doctor *d)
{
    for (size_t i = 0; i < d->config->n_args; i++)
        check_dir(d, d->config->args[i]);
}

const struct pstctl_check pstctl_checks_folders[] = {
    {"temporary", "TMPDIR, where jobs keep temporary files", check_temporary},
    {"folders", "that were named", check_given},
};
const size_t pstctl_n_folders = PST_COUNT(pstctl_checks_folders);
