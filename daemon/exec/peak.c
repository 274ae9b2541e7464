// SPDX-License-Identifier: Apache-2.0
#include "daemon/exec/peak.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"
#include "stages/base/host/cpu.h"
#include "stages/ops/rates/rates.h"

/* Host, cores and computing threads of a process of the job. */
struct place {
    char host[64];
    uint32_t cores;   /* cores of the host that the process may use */
    uint32_t threads; /* threads of the process that compute */
};

static struct place place_of(const struct pstd_session *s)
{
    const unsigned ranks = pst_engine_n_local(s->w->engine);
    struct place p = {.cores = pst_cpu_count(),
                      .threads = ranks * pst_exec_threads(&s->options)};

    (void)gethostname(p.host, sizeof(p.host) - 1);
    return p;
}

/* Returns the number of cores that compute, summed over the hosts. On each host
 * it is the number of computing threads, at most the number of cores. */
static unsigned busy_cores(const struct place *all, unsigned n)
{
    unsigned ret = 0;

    for (unsigned i = 0; i < n; i++) {
        unsigned threads = 0, before = 0;

        for (unsigned k = 0; k < n; k++)
            if (strcmp(all[k].host, all[i].host) == 0) {
                threads += all[k].threads;
                before += k < i;
            }
        if (before == 0)
            ret += PST_MIN(threads, all[i].cores);
    }
    return ret;
}

enum pst_status pstd_peak(struct pstd_session *s, double *ret,
                          struct pst_diag *diag)
{
    const struct pst_rates *rates = pst_rates_here();
    const struct place mine = place_of(s);
    struct place *all = pst_calloc(PST_TAG_DAEMON, s->w->size, sizeof(*all));
    enum pst_status status =
        all == NULL ? pst_diag_nomem(diag, s->w->size * sizeof(*all)) : PST_OK;

    *ret = 0;
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK)
        status = pstd_gather(s->w, &mine, sizeof(mine), all, diag);
    if (status == PST_OK && s->w->rank == 0)
        *ret = busy_cores(all, s->w->size) *
               (s->options.bf16 || pst_plan_casts_bf16(s->w->plan)
                    ? PST_MAX(rates->bf16, rates->f32)
                    : rates->f32);
    pst_free(all);
    return status;
}

double pstd_mfu(const struct pstd_session *s, double seconds)
{
    return s->peak > 0 && seconds > 0
               ? pstd_count_flops(&s->w->batch) / seconds / s->peak
               : NAN;
}
