// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_DATA_AHEAD_H
#define PENSTOCK_STAGES_FILES_DATA_AHEAD_H
/* Reads data files ahead; private to this folder, threads as pst_data_fill. */
#include "stages/files/data/inside.h"

/* To be called after a microbatch was read, which took `seconds`. If reading
 * is slow, asks the kernel to load `rows` samples of the input from number
 * `first` on, and does not wait for them. */
void pst_data_read_ahead(struct pst_data *d, const struct pst_data_column *in,
                         uint64_t first, uint64_t rows, double seconds);

#endif
