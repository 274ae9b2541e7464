// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPTIM_LOSS_SCALE_H
#define PENSTOCK_STAGES_OPTIM_LOSS_SCALE_H
/*
 * The scale of a loss, for models whose backward has gradients in 16 bits: the
 * gradient of the loss is set to the scale, and gradients of parameters are
 * divided by it before anything reads them. Scales are powers of two, so that
 * multiplying and dividing are exact.
 *
 * Source: torch.amp.GradScaler (PyTorch 2.13) with growth_factor 2 and
 * backoff_factor .5; the smallest scale is DeepSpeed's min_loss_scale. Pure
 * functions.
 */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

enum pst_loss_scale_kind {
    PST_LOSS_SCALE_NONE,
    PST_LOSS_SCALE_FIXED,
    PST_LOSS_SCALE_DYNAMIC,
    /* dynamic in a plan of --autocast f16, none in others */
    PST_LOSS_SCALE_AUTO,
};

struct pst_loss_scale {
    enum pst_loss_scale_kind kind;
    double init;       /* the first scale; the only one if it is fixed */
    double least;      /* smallest scale */
    uint64_t interval; /* applied steps in a row after which it is doubled */
};

/* The scale of the next step, and what it depends on. */
struct pst_loss_scaler {
    double scale;       /* 1: none */
    uint64_t good;      /* applied steps since the scale changed */
    uint64_t overflows; /* steps of the run that were skipped for an overflow */
};

/* Reads "auto", "none", a number, or "init=X,growth-interval=N,min=X". Each of
 * these three may be left out; the defaults are 65536, 2000 and 1. */
enum pst_status pst_loss_scale_read(const char *text,
                                    struct pst_loss_scale *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* True for a power of two from 2^-60 to 2^127, as all scales are. */
bool pst_loss_scale_is_valid(double scale);
/* Returns the state before the first step. */
struct pst_loss_scaler pst_loss_scaler_begin(const struct pst_loss_scale *of);
/* Returns the state of a run that is resumed: the saved one, raised to the
 * smallest scale. saved->scale 0: the checkpoint has none. */
struct pst_loss_scaler pst_loss_scaler_resume(
    const struct pst_loss_scale *of, const struct pst_loss_scaler *saved);
/* True if the scale can be halved: gradients that are not finite can then be
 * due to the scale. */
bool pst_loss_scaler_can_halve(const struct pst_loss_scale *of,
                               const struct pst_loss_scaler *s);
/* Updates the state after a step. overflow: the step was skipped, and the scale
 * is halved. */
void pst_loss_scaler_update(const struct pst_loss_scale *of, bool overflow,
                            struct pst_loss_scaler *s);

#endif
