// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_MISSING_H
#define PENSTOCK_STAGES_FRONTEND_MISSING_H
/* Prints a plugin to start from, for the operators of a model that are neither
 * ours nor in a loaded plugin. */
#include "stages/base/diag.h"
#include "stages/base/str.h"

struct pst_document;

/* Appends the C source of a plugin with the unknown operators of the namespace
 * `space`, or of the first namespace if `space` is "". The plugin compiles and
 * loads; its kernels fail. Schemas have the types and names seen in the model's
 * calls. *ret_more gets the other namespaces, separated by blanks. Appends
 * nothing if there are no such operators. */
enum pst_status pst_missing_print(const struct pst_document *doc,
                                  const char *space, struct pst_str *out,
                                  struct pst_str *ret_more,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* As pst_missing_print, for a .pt2 file. */
enum pst_status pst_missing_open(const char *path, const char *space,
                                 struct pst_str *out, struct pst_str *ret_more,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
