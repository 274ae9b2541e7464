// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_RUN_DATA_WIDTH_H
#define PENSTOCK_STAGES_RUN_DATA_WIDTH_H
/* Bytes that are the halves of 16-bit integers. Any thread. */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* How often each byte stands at even and at odd places. */
struct pst_byte_counts {
    uint64_t n[2][256];
};

void pst_bytes_count(struct pst_byte_counts *counts, const unsigned char *bytes,
                     size_t n);
/* Whether they look like little-endian integers of two bytes each: the second
 * ones have a distribution of their own, with fewer values. Bytes of a text
 * have the same one at all places. */
bool pst_bytes_are_halves(const struct pst_byte_counts *counts);

/* The same of a file, of which parts are read that are spread evenly. */
enum pst_status pst_file_has_halves(const char *path, bool *ret,
                                    struct pst_diag *diag) PST_MUST_CHECK;

#endif
