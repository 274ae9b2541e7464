// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_INFER_FORWARD_H
#define PENSTOCK_DAEMON_CTL_INFER_FORWARD_H
/* Plans that a command runs forward in its own process: eval and infer. */
#include "daemon/common/setup.h"
#include "daemon/ctl/model.h"

/* A plan ready to run forward. */
struct pstctl_forward {
    struct pstctl_plan p;
    struct pst_carried *carried; /* the plan instead, or NULL */
    struct pst_plan *eval;  /* p's plan as one stage, as eval() would run it */
    struct pst_batch batch; /* of that */
    struct pst_plan *plan;  /* the batch's; borrowed */
    struct pst_transport *transport;
    struct pst_engine *engine;
    struct pst_data *data; /* of an evaluation, with: */
    struct pst_mean *mean; /* or both NULL */
    uint64_t step;         /* of the checkpoint, 0: start values */
};

/* Not to be moved while it is open. One rank, with `microbatches` a step, in
 * the mode of model.eval(), with the newest checkpoint of --checkpoint. mean:
 * the engine is for the mean loss over --data. Close also what failed to open;
 * *ret is zeroed before. */
enum pst_status pstctl_forward_open(const struct pstd_config *config,
                                    unsigned microbatches, bool mean,
                                    struct pstctl_forward *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_forward_close(struct pstctl_forward *f);

/* generate.c: `infer` with a prompt. */
enum pst_status pstctl_infer_text(const struct pstd_config *config,
                                  struct pst_diag *diag) PST_MUST_CHECK;

#endif
