// SPDX-License-Identifier: Apache-2.0
/* `penstock doctor`: checks whether this machine can run jobs. */
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/doctor/check.h"
#include "daemon/ctl/out.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/base/alloc.h"

static const char *const levels[] = {"note", "warning", "fault"};

void pstctl_add_finding(struct pstctl_doctor *d, enum pstctl_level level,
                        const char *remedy, const char *fmt, ...)
{
    struct pstctl_finding f = {.check = d->check, .level = level};
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    f.text = pst_strdup(PST_TAG_CLIENT, text);
    f.remedy = pst_strdup(PST_TAG_CLIENT, remedy);
    if (f.text != NULL && f.remedy != NULL &&
        pst_vec_push(PST_TAG_CLIENT, &d->findings, f))
        return;
    pst_free(f.text);
    pst_free(f.remedy);
    d->failed = true;
}

bool pstctl_read_system_file(const struct pstctl_doctor *d, const char *path,
                             char *ret, size_t size)
{
    char whole[4096];
    ssize_t n;
    int fd;

    if (snprintf(whole, sizeof(whole), "%s%s", d->root, path) >=
        (int)sizeof(whole))
        return false;
    fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    n = read(fd, ret, size - 1);
    (void)close(fd);
    if (n < 0)
        return false;
    ret[n] = '\0';
    if (n > 0 && ret[n - 1] == '\n')
        ret[n - 1] = '\0';
    return true;
}

static size_t run_checks(struct pstctl_doctor *d,
                         const struct pstctl_check *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        d->check = rows[i].name;
        rows[i].fn(d);
    }
    return n;
}

static size_t count_findings(const struct pstctl_doctor *d,
                             enum pstctl_level level)
{
    size_t n = 0;

    for (size_t i = 0; i < d->findings.n; i++)
        n += d->findings.at[i].level == level;
    return n;
}

static enum pst_status print_json(const struct pstctl_doctor *d, size_t checks,
                                  struct pst_diag *diag)
{
    json_t *findings = json_array();

    for (size_t i = 0; i < d->findings.n; i++) {
        const struct pstctl_finding *f = &d->findings.at[i];

        (void)json_array_append_new(
            findings,
            json_pack("{s:s s:s s:o s:o}", "check", f->check, "level",
                      levels[f->level], "text", pstctl_json_text(f->text),
                      "remedy", pstctl_json_text(f->remedy)));
    }
    return pstctl_json_print(
        json_pack("{s:I s:I s:I s:o}", "checks", (json_int_t)checks, "faults",
                  (json_int_t)count_findings(d, PSTCTL_FAULT), "warnings",
                  (json_int_t)count_findings(d, PSTCTL_WARNING), "findings",
                  findings),
        diag);
}

static void print_findings(const struct pstctl_doctor *d, size_t checks)
{
    for (int level = PSTCTL_FAULT; level >= PSTCTL_NOTE; level--) {
        for (size_t i = 0; i < d->findings.n; i++) {
            const struct pstctl_finding *f = &d->findings.at[i];

            if ((int)f->level != level)
                continue;
            pstctl_printf(stdout, "%s (%s): %s\n", levels[level], f->check,
                          f->text);
            pstctl_printf(stdout, "    %s\n", f->remedy);
        }
    }
    pstctl_printf(stdout, "%zu checks, %zu faults, %zu warnings\n", checks,
                  count_findings(d, PSTCTL_FAULT),
                  count_findings(d, PSTCTL_WARNING));
}

static enum pst_status run_doctor(const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    const char *root = pstctl_environment("PST_DOCTOR_ROOT");
    struct pstctl_doctor d = {.config = config,
                              .root = root != NULL ? root : ""};
    size_t checks = 0;
    enum pst_status status = PST_OK;

    /* Folders come first: the check of programs runs mpirun, which creates its
     * own folder. */
    checks += run_checks(&d, pstctl_checks_folders, pstctl_n_folders);
    checks += run_checks(&d, pstctl_checks_programs, pstctl_n_programs);
    checks += run_checks(&d, pstctl_checks_machine, pstctl_n_machine);
    checks += run_checks(&d, pstctl_checks_limits, pstctl_n_limits);
    checks += pstctl_check_hosts(&d, diag, &status);
    if (status == PST_OK && d.failed)
        status = pst_diag_nomem(diag, sizeof(struct pstctl_finding));
    else if (status == PST_OK && config->json)
        status = print_json(&d, checks, diag);
    else if (status == PST_OK)
        print_findings(&d, checks);
    if (status == PST_OK && count_findings(&d, PSTCTL_FAULT) > 0)
        status = pst_diag_set(diag, PST_E_DOCTOR_UNFIT,
                              "jobs cannot run here: %zu of %zu checks found a "
                              "fault",
                              count_findings(&d, PSTCTL_FAULT), checks);
    for (size_t i = 0; i < d.findings.n; i++) {
        pst_free(d.findings.at[i].text);
        pst_free(d.findings.at[i].remedy);
    }
    pst_vec_fini(&d.findings);
    return status;
}

const struct pstctl_command pstctl_doctor = {
    "doctor",
    "[DIR...]",
    0,
    64,
    PSTD_OPT_JSON | PSTD_OPT_HOSTS,
    "check whether this machine can run jobs, and say what to do if not",
    "Checks programs, memory, limits, the processor, sockets and the folders "
    "that\n"
    "jobs use, and each DIR as a folder for checkpoints or logs. With --hosts "
    "or\n"
    "--hostfile also the hosts of a job: whether they can be reached, what "
    "doctor\n"
    "finds on them, and whether their clocks agree. Exit code 1 if there is a "
    "fault.",
    run_doctor};
