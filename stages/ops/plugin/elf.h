// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_PLUGIN_ELF_H
#define PENSTOCK_STAGES_OPS_PLUGIN_ELF_H
/* Sizes of shared libraries, before they are loaded. Any thread. */
#include "stages/base/host/fs.h"

/* Checks that the file has all that its ELF header and its segments refer to:
 * dlopen maps segments without a look at the file's size, and the process ends
 * by SIGBUS where a truncated file has no bytes. Accepts whatever is not ELF of
 * this machine's class and byte order: dlopen refuses that with its reason.
 * PST_E_PLUGIN_FILE, or the error of a read. */
enum pst_status pst_plugin_check_elf(const struct pst_file *file,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
