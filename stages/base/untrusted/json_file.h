// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_UNTRUSTED_JSON_FILE_H
#define PENSTOCK_STAGES_BASE_UNTRUSTED_JSON_FILE_H
/* Reads JSON files that jansson parses, limiting the memory that parsing
 * takes. */
#include "stages/base/host/fs.h"

/* Reads a file like pst_file_read, but also refuses a text whose parsed values
 * would take more heap than the budget of the file (budget.h), estimated from
 * its brackets and commas. */
enum pst_status pst_json_file_read(const char *path, size_t max, char **ret,
                                   size_t *ret_size,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
