// SPDX-License-Identifier: Apache-2.0
/* Distributes the rows of a step over its microbatches. */
#include <inttypes.h>

#include "stages/split/bind/bind.h"

static enum pst_status bind_rows(struct pst_plan *plan, int64_t rows,
                                 struct pst_batch *b, struct pst_diag *diag)
{
    enum pst_status status;

    b->plan = plan;
    /* sizes other than rows may have been set, so their ranges are checked */
    if (rows == pst_plan_rows(plan)) {
        status = pst_symbols_check(&plan->symbols, diag);
        if (status != PST_OK)
            pst_diag_prefix(diag, "microbatches of %" PRId64 " rows", rows);
        return status;
    }
    status = pst_plan_bind(plan, rows, &b->owned, diag);
    if (status == PST_OK)
        b->plan = b->owned;
    return status;
}

/* Divides the rows into m microbatches as numpy.array_split does: for rows = q
 * m + n, n microbatches of q + 1 rows, then m - n of q rows. */
static enum pst_status divide_rows(struct pst_plan *plan, int64_t rows,
                                   struct pst_batch *b, struct pst_diag *diag)
{
    const int64_t m = b->microbatches, q = rows / m, n = rows % m;
    enum pst_status status;

    if (q == 0)
        return pst_diag_set(diag, PST_E_BATCH_DIVIDE,
                            "Expecting %" PRId64 " arg_mbs but got %" PRId64
                            ": a batch of %" PRId64 " rows cannot be divided "
                            "among %" PRId64 " microbatches",
                            m, rows, rows, m);
    if (n > 0 && !pst_plan_is_free(plan) && plan->fixed == NULL)
        return pst_diag_set(diag, PST_E_BATCH_DIVIDE,
                            "a batch of %" PRId64 " rows is not divisible by "
                            "%" PRId64 " microbatches, and the model has a "
                            "fixed number of rows, %" PRId64 "; to have it "
                            "free, export with a torch.export.Dim",
                            rows, m, pst_plan_rows(plan));
    status = bind_rows(plan, n > 0 ? q + 1 : q, b, diag);
    if (status != PST_OK || n == 0)
        return status;
    b->n_tail = (unsigned)(m - n);
    return pst_plan_bind(plan, q, &b->tail, diag);
}

enum pst_status pst_batch_init(struct pst_plan *plan, int64_t rows,
                               int64_t batch, unsigned microbatches,
                               struct pst_batch *ret, struct pst_diag *diag)
{
    struct pst_batch b = {.plan = plan, .microbatches = microbatches};
    enum pst_status status;

    if (rows > 0 && batch > 0)
        return pst_diag_set(diag, PST_E_BATCH_TWICE,
                            "the rows of a microbatch and those of a step are "
                            "two ways to say the same: give one of them");
    if (batch > 0)
        status = divide_rows(plan, batch, &b, diag);
    else
        status =
            bind_rows(plan, rows > 0 ? rows : pst_plan_rows(plan), &b, diag);
    if (status != PST_OK) {
        pst_batch_fini(&b);
        return status;
    }
    *ret = b;
    return PST_OK;
}

void pst_batch_fini(struct pst_batch *batch)
{
    pst_plan_free(batch->tail);
    pst_plan_free(batch->owned);
    pst_plan_free(batch->sized);
    batch->tail = batch->owned = batch->sized = NULL;
}

int64_t pst_batch_rows(const struct pst_batch *batch)
{
    const int64_t larger = batch->microbatches - batch->n_tail;

    return larger * pst_plan_rows(batch->plan) +
           (batch->tail != NULL ? batch->n_tail * pst_plan_rows(batch->tail)
                                : 0);
}
