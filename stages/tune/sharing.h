// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_TUNE_SHARING_H
#define PENSTOCK_STAGES_TUNE_SHARING_H
/*
 * Sharing modes of parameters as text: comma-separated words.
 *     MODE        none, zero1, zero2, zero3: the default
 *     STAGE=MODE  for the parameters of that stage
 *     NAME=MODE   for a parameter, or for all parameters of a module;
 *                 the longest name wins, and any name wins over a stage
 * Pure functions; any thread.
 */
#include "stages/layout/memory/uses.h"
#include "stages/layout/options.h"

/* Parses the text. ret: a mode (enum pst_sharing) for each parameter of the
 * plan; *ret_most: the highest of them. PST_ERR_USAGE: a word that is invalid
 * or matches nothing, or names something that replicas cannot shard. */
enum pst_status pst_sharing_read(const char *text, const struct pst_uses *uses,
                                 unsigned char *ret, enum pst_sharing *ret_most,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
