// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_FRONT_H
#define PENSTOCK_STAGES_FRONTEND_FRONT_H
/*
 * State of opening a file; the passes of the front end (passes.c) work on it.
 * One thread. The model outlives this state.
 */
#include "stages/base/str.h"
#include "stages/frontend/import/import.h"

struct pst_front {
    const char *path;     /* borrowed */
    const char *autocast; /* dtype of --autocast, or NULL; borrowed */
    struct pst_model *model;
    struct pst_zip *zip;      /* archive of the model; borrowed */
    struct pst_str digests;   /* digests of everything read, one line each */
    char name[128];           /* name of the model in the file */
    struct pst_document *doc; /* owned */
    struct pst_import import; /* set by pass "support"; zero before */
    /* Called after the last pass, before the document is freed; or NULL. */
    enum pst_status (*visit)(void *ctx, const struct pst_document *doc,
                             struct pst_diag *diag);
    void *ctx;
};

/* Checks the container and reads the documents of its only model. */
enum pst_status pst_front_document(struct pst_front *front,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
