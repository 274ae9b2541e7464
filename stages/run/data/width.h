// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_DATA_WIDTH_H
#define PENSTOCK_STAGES_RUN_DATA_WIDTH_H
/* Detects bytes that are 16-bit integers. Any thread. */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* Histogram of the bytes at even and at odd offsets. */
struct pst_byte_counts {
    uint64_t n[2][256];
};

void pst_bytes_count(struct pst_byte_counts *counts, const unsigned char *bytes,
                     size_t n);
/* True if the bytes look like little-endian 16-bit integers: those at odd
 * offsets have another distribution, with fewer values. In text the
 * distribution is the same at all offsets. */
bool pst_bytes_are_halves(const struct pst_byte_counts *counts);

/* Sets *ret to pst_bytes_are_halves of a file, of which evenly spread parts are
 * read. */
enum pst_status pst_file_has_halves(const char *path, bool *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
