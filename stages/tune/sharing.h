// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_TUNE_SHARING_H
#define PENSTOCK_STAGES_TUNE_SHARING_H
/*
 * What each parameter is shared by, as text: words with commas between.
 *     MODE        none, zero1, zero2, zero3: of all that no other word names
 *     STAGE=MODE  of the parameters of that stage
 *     NAME=MODE   of a parameter, or of those of a module and of what is in it;
 *                 the longest name counts, and any before a stage
 * Pure functions; any thread.
 */
#include "stages/layout/memory/uses.h"
#include "stages/layout/options.h"

/* ret: a mode (enum pst_sharing) for each parameter of the plan; *ret_most: the
 * highest. PST_ERR_USAGE: a word that says or fits nothing, or names what
 * replicas cannot share. */
enum pst_status pst_sharing_read(const char *text, const struct pst_uses *uses,
                                 unsigned char *ret, enum pst_sharing *ret_most,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
