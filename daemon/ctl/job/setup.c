// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/job/setup.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/common/socket.h"
#include "daemon/ctl/model.h"
#include "daemon/ctl/out.h"
#include "stages/base/host/fs.h"
#include "stages/split/join.h"

enum pst_status pstctl_setup_name(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  struct pst_diag *diag)
{
    struct pst_str name = {0};
    const char *given = config->job, *base = config->args[0];
    enum pst_status status;

    for (const char *p = base; *p != '\0'; p++)
        if (*p == '/' && p[1] != '\0' && p[1] != '/')
            base = p + 1;
    if (given != NULL)
        pst_str_add(&name, given);
    else
        pst_str_addf(&name, "%.24s-%d", base, (int)getpid());
    pstd_socket_job(pst_str_text(&name), &s->job);
    pst_str_fini(&name);
    if (config->socket != NULL) {
        pst_str_add(&s->socket, config->socket);
        status = pstd_socket_check(pst_str_text(&s->socket), diag);
    } else {
        status = pstd_socket_path(pst_str_text(&s->job), 0, &s->socket, diag);
    }
    pst_str_addf(&s->output, "%s" PSTD_SOCKET_OUTPUT, pst_str_text(&s->socket));
    pst_str_addf(&s->record, "%s" PSTD_SOCKET_RESULT, pst_str_text(&s->socket));
    if (status == PST_OK && (s->output.failed || s->record.failed))
        status = pst_diag_nomem(diag, s->socket.len);
    return status;
}

enum pst_status pstctl_setup_plan(struct pstctl_setup *s,
                                  const struct pstd_config *config,
                                  unsigned *ret_ranks, struct pst_diag *diag)
{
    const char *base = getenv("TMPDIR"); // NOLINT(concurrency-mt-unsafe)
    struct pst_plan *whole = NULL;
    struct pstctl_plan p = {0};
    enum pst_status status =
        pstctl_plan_open(config->args[0], config, &p, diag);

    if (status == PST_OK && config->reference) {
        status = pst_plan_join(p.plan, &whole, diag);
        if (status != PST_OK)
            pstctl_plan_close(&p);
    }
    if (status != PST_OK)
        return status;
    *ret_ranks = pstd_ranks(config, (unsigned)p.plan->stages.n);
    if (whole != NULL)
        *ret_ranks = 1;
    s->plan = config->args[0];
    if (p.models.n > 0 || whole != NULL) {
        pst_str_addf(&s->temp, "%s/penstock-XXXXXX",
                     base != NULL && *base != '\0' ? base : "/tmp");
        if (s->temp.failed || mkdtemp(s->temp.text) == NULL) {
            status = pst_diag_errno(diag, errno, "cannot make a folder %s",
                                    pst_str_text(&s->temp));
            pst_str_fini(&s->temp);
        } else {
            s->plan = s->temp.text;
            status =
                pst_plan_save(whole != NULL ? whole : p.plan, s->plan, diag);
        }
    }
    pst_plan_free(whole);
    pstctl_plan_close(&p);
    return status;
}

void pstctl_setup_remove(const struct pstctl_setup *s)
{
    if (s->temp.len > 0 && pst_remove_tree(s->temp.text, NULL) != PST_OK)
        pstctl_printf(stderr, "penstock: cannot remove %s\n", s->temp.text);
}

void pstctl_setup_fini(struct pstctl_setup *s)
{
    pst_str_fini(&s->temp);
    pst_str_fini(&s->job);
    pst_str_fini(&s->socket);
    pst_str_fini(&s->output);
    pst_str_fini(&s->record);
}
