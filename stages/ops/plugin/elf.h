// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_PLUGIN_ELF_H
#define PENSTOCK_STAGES_OPS_PLUGIN_ELF_H
/* Sizes of shared libraries, before they are loaded. Any thread. */
#include "stages/base/host/fs.h"

/* Checks that the file has all bytes to which its ELF header and segments
 * refer. dlopen maps segments without checking the file's size, and a read
 * beyond the end of a truncated file ends the process by SIGBUS. Accepts a file
 * that is not ELF of this machine's class and byte order, since dlopen refuses
 * it and reports why. PST_E_PLUGIN_FILE, or the error of a read. */
enum pst_status pst_plugin_check_elf(const struct pst_file *file,
                                     struct pst_diag *diag) PST_MUST_CHECK;

#endif
