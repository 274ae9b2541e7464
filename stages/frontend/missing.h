// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_MISSING_H
#define PENSTOCK_STAGES_FRONTEND_MISSING_H
/* Operators of a model that nobody brings, as a plugin to start from. */
#include "stages/base/diag.h"
#include "stages/base/str.h"

struct pst_document;

/* Appends the C source of a plugin with the unknown operators of one namespace:
 * `space`, or "" for that of the first one. It compiles and loads; its kernels
 * fail. Schemas have the types and names that the model's calls show. *ret_more
 * gets the other namespaces, with blanks between. No source: there are no such
 * operators. */
enum pst_status pst_missing_print(const struct pst_document *doc,
                                  const char *space, struct pst_str *out,
                                  struct pst_str *ret_more,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Does so for a .pt2 file. */
enum pst_status pst_missing_open(const char *path, const char *space,
                                 struct pst_str *out, struct pst_str *ret_more,
                                 struct pst_diag *diag) PST_MUST_CHECK;

#endif
