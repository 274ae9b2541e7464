// SPDX-License-Identifier: Apache-2.0
/* Passes over the data: the steps of --epochs, and intervals in epochs. */
#include <math.h>

#include "daemon/common/setup.h"
#include "daemon/exec/change/ramp.h"
#include "daemon/exec/session.h"

/* Returns the number of rows in the steps before a resume, computed from the
 * position in the data, since their batches may have had other sizes. Rows that
 * a rollback skipped do not count; steps that a program made since that
 * position count like steps of this run. If the position is unknown, or the
 * data have several sources, assumes the batches of this run for all steps.
 * rows: rows in a pass over the data; each: rows in a step with the first
 * number of microbatches. */
static double used_rows(const struct pstd_session *s, uint64_t rows,
                        uint64_t each)
{
    const struct pst_data_place *was = &s->drawn;
    struct pst_data_place is;
    double each_row, pass; /* rows or tokens */

    if (!was->known || was->n != 1 || !pst_data_place(s->data, 0, &is) ||
        was->tokens != is.tokens || is.step == 0)
        return pstd_ramp_sum(&s->config.microbatches, 0, s->before) /
               s->counts[0] * (double)each;
    each_row = (double)is.step / (double)each;
    pass = (double)rows * each_row;
    return fmax((double)rows * ((double)was->sources[0].pass +
                                fmin((double)was->sources[0].at / pass, 1)) -
                    (double)was->left_out / each_row,
                0) +
           pstd_ramp_sum(&s->config.microbatches, s->before - was->since,
                         s->before) /
               s->counts[0] * (double)each;
}

/* The numbers that rank 0 counts and sends to the others. */
struct counted {
    uint64_t steps;  /* steps that --epochs asks for */
    uint64_t rows;   /* rows in one pass over the data */
    uint64_t each;   /* rows in a step with the first number of microbatches */
    uint64_t before; /* steps before a resume */
    double used;     /* rows in these */
};

/* Counts the rows of the data and, with --epochs, the steps: those before a
 * resume plus those that draw the remaining rows. */
static enum pst_status count_rows(const struct pstd_session *s,
                                  struct counted *ret, struct pst_diag *diag)
{
    const uint64_t each = (uint64_t)PST_MAX(pst_batch_rows(&s->w->batch), 1);
    const uint64_t rows = s->data != NULL ? pst_data_samples(s->data, each) : 0;
    double left, steps;

    if (rows == 0)
        return pst_diag_set(
            diag, PST_E_RUN_OPTIONS,
            "--%s needs data with a number of rows, and %s "
            "has none: give a number of steps",
            pstd_needs_epochs(&s->config)     ? "epochs"
            : s->config.eval_every.epochs > 0 ? "eval-every in epochs"
                                              : "checkpoint-every in epochs",
            s->config.data != NULL ? s->config.data : "a run without --data");
    ret->used = s->before > 0 ? used_rows(s, rows, each) : 0;
    ret->rows = rows;
    ret->each = each;
    ret->before = s->before;
    if (!pstd_needs_epochs(&s->config))
        return PST_OK;
    /* A little less, so that rounding errors do not add a step. */
    left = s->config.epochs * (double)rows * (1 - 1e-12);
    if (s->before > 0)
        left -= ret->used * (1 + 1e-12);
    steps =
        (double)s->before + pstd_ramp_steps(&s->config.microbatches, s->before,
                                            left / (double)each * s->counts[0]);
    if (!(steps < 0x1p53))
        return pst_diag_set(diag, PST_E_RUN_OPTIONS,
                            "--epochs %g of %llu rows are too many steps",
                            s->config.epochs, (unsigned long long)rows);
    ret->steps = (uint64_t)fmax(steps, 1);
    return PST_OK;
}

static enum pst_status set_steps(struct pstd_session *s, uint64_t steps,
                                 struct pst_diag *diag)
{
    enum pst_status status;

    pstd_set_steps(&s->config, steps);
    status =
        pstd_exec_options(&s->config, s->w->ranks / pstd_replicas(&s->config),
                          true, &s->options, diag);
    pstd_set_device(s->w, &s->options);
    pstd_ramp_prepare(s);
    if (status == PST_OK)
        status = pstd_session_record_key(s, diag);
    return status;
}

enum pst_status pstd_session_count_epochs(struct pstd_session *s,
                                          struct pst_diag *diag)
{
    const bool sets_steps = pstd_needs_epochs(&s->config);
    struct counted of_zero = {0};
    enum pst_status status = PST_OK;

    if (!sets_steps && !(s->config.eval_every.epochs > 0) &&
        !(s->config.checkpoint_every.epochs > 0))
        return PST_OK;
    if (s->w->rank == 0) /* which always has the data */
        status = count_rows(s, &of_zero, diag);
    status = pstd_agree_status(s->w, status, diag);
    if (status == PST_OK && s->w->size > 1)
        status = pstd_broadcast(s->w, &of_zero, sizeof(of_zero), diag);
    if (status != PST_OK)
        return status;
    s->passes = (struct pstd_passes){
        .from = of_zero.before,
        .before = of_zero.used / (double)of_zero.rows,
        .each = (double)of_zero.each / (double)of_zero.rows / s->counts[0]};
    if (!sets_steps)
        return PST_OK;
    s->epoch_rows = of_zero.rows;
    return pstd_agree_status(s->w, set_steps(s, of_zero.steps, diag), diag);
}

/* Returns how many intervals of `epochs` passes are over after a step. */
static double intervals_over(const struct pstd_session *s, double epochs,
                             uint64_t step)
{
    const struct pstd_passes *p = &s->passes;
    const struct pstd_ramp *ramp = &s->config.microbatches;
    const double drawn = step < p->from ? -pstd_ramp_sum(ramp, step, p->from)
                                        : pstd_ramp_sum(ramp, p->from, step);

    /* A little more, so that rounding errors do not delay the end by a step. */
    return floor((p->before + drawn * p->each) / epochs + 1e-9);
}

bool pstd_session_is_due(const struct pstd_session *s,
                         const struct pstd_every *every)
{
    if (s->step == 0)
        return false;
    if (every->epochs > 0)
        return intervals_over(s, every->epochs, s->step) >
               intervals_over(s, every->epochs, s->step - 1);
    return every->steps > 0 && s->step % every->steps == 0;
}
