// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_VERIFY_REPORT_H
#define PENSTOCK_STAGES_VERIFY_REPORT_H
/* Result of a verification. A plain value; it owns its text. */
#include "stages/base/str.h"

struct pst_verify_report {
    unsigned compared, different; /* tensors, over all questions */
    unsigned unchecked;  /* gradients that differences left undecided */
    char first[300];     /* name of the first that differs: "grad.w"; or "" */
    struct pst_str text; /* lines for people */
};

/* Callback for progress: called with a short description before each long
 * step. */
struct pst_verify_watch {
    void (*tell)(void *ctx, const char *text);
    void *ctx;
};

#endif
