// SPDX-License-Identifier: Apache-2.0
/* Checks the hosts of a job: runs `penstock doctor` on each of them, and
 * compares their clocks with this host's. */
#include "daemon/ctl/doctor/check.h"
#include "daemon/ctl/hosts/remote.h"
#include "daemon/ctl/run/launch.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ASK_S      60 /* time limit for a host's doctor, which tries mpirun */
#define MAX_SKEW_S 1.0

double pstctl_doctor_time(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Appends the path of this program; other hosts have it under the same path. */
static void add_self(struct pst_str *out)
{
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    self[n > 0 ? n : 0] = '\0';
    pstctl_remote_quote(n > 0 ? self : "penstock", out);
}

/* Adds the findings of a host's doctor, with the host's name in front. */
static void add_findings(struct pstctl_doctor *d, const struct pstctl_host *h,
                         const json_t *findings)
{
    static const char *const levels[] = {"note", "warning", "fault"};
    const json_t *f;
    size_t i;

    json_array_foreach(findings, i, f)
    {
        const char *level = json_string_value(json_object_get(f, "level"));
        const char *text = json_string_value(json_object_get(f, "text"));
        const char *check = json_string_value(json_object_get(f, "check"));
        const char *remedy = json_string_value(json_object_get(f, "remedy"));
        enum pstctl_level number = PSTCTL_NOTE;

        if (level == NULL || text == NULL || check == NULL || remedy == NULL)
            continue;
        for (size_t k = 0; k < PST_COUNT(levels); k++)
            if (strcmp(level, levels[k]) == 0)
                number = (enum pstctl_level)k;
        pstctl_add_finding(d, number, remedy, "%s: %s: %s", h->name, check,
                           text);
    }
}

/* Checks the clock of a host that answered "TIME {...}" with its time
 * (`theirs`). If the clock is right, that time is between `begin` and `end`,
 * when this host asked and got the answer. */
static void check_clock(struct pstctl_doctor *d, const struct pstctl_host *h,
                        double theirs, double begin, double end)
{
    const double early = begin - theirs, late = theirs - end;
    const double skew = PST_MAX(early, late);

    if (skew > MAX_SKEW_S)
        pstctl_add_finding(
            d, PSTCTL_WARNING,
            "set the clocks by the same server "
            "(systemd-timesyncd, chrony): otherwise the lines of "
            "logs are in the wrong order",
            "%s: its clock is %.1f s %s that of this host", h->name, skew,
            early > late ? "behind" : "before");
}

static void check_answer(struct pstctl_doctor *d, const struct pstctl_remote *r,
                         double begin, double end)
{
    const char *text = pst_str_text(&r->out), *json = strchr(text, '{');
    json_t *answer = json != NULL ? json_loads(json, 0, NULL) : NULL;
    const char *why = r->late          ? "no answer within a minute"
                      : r->out.len > 0 ? text
                                       : "it cannot be reached";

    if (r->late || (answer == NULL && r->code != 0)) {
        pstctl_add_finding(d, PSTCTL_FAULT,
                           "make sure that `ssh HOST true` works without a "
                           "password, that the name of the host is right, and "
                           "that penstock is at the same path there",
                           "%s: %.*s", r->host->name, (int)strcspn(why, "\n"),
                           why);
    } else if (answer == NULL) {
        pstctl_add_finding(
            d, PSTCTL_FAULT, "install the same version on all hosts",
            "%s: its penstock has no such doctor", r->host->name);
    } else {
        check_clock(d, r->host, strtod(text, NULL), begin, end);
        add_findings(d, r->host, json_object_get(answer, "findings"));
    }
    json_decref(answer);
}

size_t pstctl_check_hosts(struct pstctl_doctor *d, struct pst_diag *diag,
                          enum pst_status *ret)
{
    struct pstctl_hosts hosts = {0};
    struct pstctl_remote *at = NULL;
    struct pst_str command = {0};
    const double begin = pstctl_doctor_time();
    size_t n = 0;

    d->check = "hosts";
    *ret = pstctl_hosts_init(&hosts, d->config, diag);
    if (*ret == PST_OK && hosts.list.n > 1) {
        n = hosts.list.n - 1;
        at = pstctl_remote_new(&hosts);
        pst_str_add(&command, "date +%s.%N; exec ");
        add_self(&command);
        pst_str_add(&command, " doctor --json");
        *ret = at == NULL || command.failed
                   ? pst_diag_nomem(diag, sizeof(*at))
                   : pstctl_remote_run(at + 1, n, command.text, ASK_S, diag);
    }
    for (size_t i = 1; *ret == PST_OK && i <= n; i++)
        check_answer(d, &at[i], begin, pstctl_doctor_time());
    pst_str_fini(&command);
    pstctl_remote_free(at, hosts.list.n);
    pstctl_hosts_fini(&hosts);
    return n;
}
