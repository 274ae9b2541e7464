// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPTIM_RATE_H
#define PENSTOCK_STAGES_OPTIM_RATE_H
/*
 * Learning rate schedules as rows of a table. The rate of an update is a
 * function of the options and of the update's number, which counts from 0: a
 * resumed run needs no state. Pure functions.
 */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

#define PST_LR_MAX_POINTS  256
#define PST_LR_MAX_CYCLES  1000
#define PST_LR_MAX_OPTIONS 4
#define PST_LR_MAX_SHARE   1e30 /* maximum X of points:U=X */

/* Indices of the rows. */
enum pst_lr_schedule {
    PST_LR_CONSTANT,
    PST_LR_LINEAR,
    PST_LR_COSINE,
    PST_LR_COSINE_RESTARTS,
    PST_LR_POLYNOMIAL,
    PST_LR_WSD,
    PST_LR_ONE_CYCLE,
    PST_LR_INVERSE_SQRT,
    PST_LR_POINTS,
    PST_LR_N_SCHEDULES
};

/* Shapes in which the rate of wsd falls. */
enum pst_lr_shape {
    PST_LR_SHAPE_LINEAR,
    PST_LR_SHAPE_COSINE,
    PST_LR_SHAPE_SQRT,
    PST_LR_SHAPE_EXP,
    PST_LR_N_SHAPES
};

/* The rate is lr * share at this update. */
struct pst_lr_point {
    uint64_t update;
    double share;
};

struct pst_optim_options;

struct pst_lr {
    const char *name;   /* in "points:0=1,9=0.5" the part before the colon */
    const char *points; /* the part from the colon on, for help; NULL: none */
    const char *summary;
    /* Options besides lr, lr-schedule and warmup, such as "lr-min";
     * NULL-terminated. Any other option of a schedule is refused. */
    const char *options[PST_LR_MAX_OPTIONS + 1];
    bool to_end; /* share() depends on the update at which the run ends */
    bool rises;  /* share() computes the warmup, too */
    double default_min; /* value of min_lr_ratio without --lr-min */
    /* Returns rate / lr. Unless `rises` is set, it is only called for updates
     * from the end of the warmup on. */
    double (*share)(const struct pst_optim_options *options, uint64_t update);
};

/* Returns the row of a schedule. */
const struct pst_lr *pst_lr_row(enum pst_lr_schedule schedule);
bool pst_lr_has(enum pst_lr_schedule schedule, const char *option);
/* Sets the schedule, with its points, by a text such as "cosine" or
 * "points:0=1,9=0.5". Updates of points ascend. */
enum pst_status pst_lr_set(const char *text, struct pst_optim_options *options,
                           struct pst_diag *diag) PST_MUST_CHECK;
/* Sets the shape of wsd: linear, cosine, sqrt or exp. */
enum pst_status pst_lr_set_shape(const char *name,
                                 struct pst_optim_options *options,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Copies the schedule with its options, except for lr. */
void pst_lr_copy(const struct pst_optim_options *from,
                 struct pst_optim_options *to);
/* Refuses options that contradict each other; called by pst_optim_check. */
enum pst_status pst_lr_check(const struct pst_optim_options *options,
                             struct pst_diag *diag) PST_MUST_CHECK;

/* Returns the learning rate of an update. */
double pst_lr_at(const struct pst_optim_options *options, uint64_t update);
/* Let top(u) be the largest rate of the updates from `first` to u. Returns
 * top(update)^2 divided by the sum of top(u)^2 over u from `first` to `update`;
 * 0 if the sum is 0. */
double pst_lr_share_of_top(const struct pst_optim_options *options,
                           uint64_t first, uint64_t update);

#endif
