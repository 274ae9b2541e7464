// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_INFER_FORWARD_H
#define PENSTOCK_DAEMON_CTL_INFER_FORWARD_H
/* Opens plans that `eval` and `infer` run forward in their own process. */
#include "daemon/common/model/bytes.h"
#include "daemon/common/setup.h"
#include "daemon/ctl/model.h"

/* A plan ready to run forward. */
struct pstctl_forward {
    struct pstd_plan p;
    /* Plan in the checkpoint, which is used instead of `p`; or NULL. */
    struct pst_carried *carried;
    struct pst_plan *eval;  /* the plan as one stage in eval mode */
    struct pst_batch batch; /* microbatches of `eval` */
    /* Plan that runs, with the sizes of the batch; borrowed. */
    struct pst_plan *plan;
    struct pst_transport *transport;
    struct pst_engine *engine;
    struct pst_data *data;         /* --data of an evaluation; else NULL */
    struct pst_mean *mean;         /* mean loss of an evaluation; else NULL */
    struct pstd_token_bytes bytes; /* bytes of each token (--token-bytes) */
    uint64_t step;                 /* step of the checkpoint; 0: start values */
};

/* Opens a plan on one rank, with `microbatches` per step, in eval mode, with
 * the newest checkpoint of --checkpoint. mean: the engine computes the mean
 * loss over --data. *ret must be zeroed before, must not move while open, and
 * must be closed even after a failure. */
enum pst_status pstctl_forward_open(const struct pstd_config *config,
                                    unsigned microbatches, bool mean,
                                    struct pstctl_forward *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_forward_close(struct pstctl_forward *f);

/* generate.c: `infer` with a prompt. */
enum pst_status pstctl_infer_text(const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
