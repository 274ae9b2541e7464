// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_JSON_FILE_H
#define PENSTOCK_STAGES_BASE_JSON_FILE_H
/* Files of JSON that jansson reads, whose memory nothing else limits. */
#include "stages/base/host/fs.h"

/* pst_file_read, and a refusal of a text that would become more values than
 * the budget of a file allows (budget.h), by the brackets in it. */
enum pst_status pst_json_file_read(const char *path, size_t max, char **ret,
                                   size_t *ret_size,
                                   struct pst_diag *diag) PST_MUST_CHECK;

#endif
