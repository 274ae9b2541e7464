// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_BYTES_H
#define PENSTOCK_STAGES_GRAPH_BYTES_H
/* Bytes of tensors that come from outside: from a file, a request, the memory
 * of a caller. Any thread. */
#include "stages/graph/tensor.h"

/*
 * Makes them values of the dtype, where they lie. A bool is 0 or 1 afterwards:
 * elsewhere every byte but 0 is true. All bytes are values of the other dtypes.
 * Every reader of tensors from outside calls it.
 */
static inline void pst_bytes_to_values(enum pst_dtype dtype, void *data,
                                       size_t bytes)
{
    uint8_t *byte = data;

    for (size_t i = 0; dtype == PST_BOOL && i < bytes; i++)
        byte[i] = byte[i] != 0;
}

#endif
