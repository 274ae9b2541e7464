// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_REPORT_H
#define PENSTOCK_STAGES_VERIFY_REPORT_H
/* Result of a verification. It owns its text. */
#include "stages/base/str.h"

struct pst_verify_report {
    /* number of tensors, summed over the questions of verify.h */
    unsigned compared, different;
    unsigned unchecked; /* gradients that finite differences left undecided */
    /* name of the first tensor that differs, such as "grad.w"; or "" */
    char first[300];
    struct pst_str text; /* description of the result, in lines */
};

/* Callback for progress: called with a short description before each long
 * step. */
struct pst_verify_watch {
    void (*emit)(void *ctx, const char *text);
    void *ctx;
};

#endif
