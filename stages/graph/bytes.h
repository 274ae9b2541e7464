// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_BYTES_H
#define PENSTOCK_STAGES_GRAPH_BYTES_H
/* Sanitises tensor data that comes from outside: from a file, a request or a
 * caller's memory. Any thread. */
#include "stages/graph/tensor.h"

/*
 * Makes the bytes valid values of the dtype, in place: every nonzero byte of a
 * bool becomes 1. For other dtypes all bit patterns are valid. Every reader of
 * tensors from outside must call it.
 */
static inline void pst_bytes_to_values(enum pst_dtype dtype, void *data,
                                       size_t bytes)
{
    uint8_t *byte = data;

    for (size_t i = 0; dtype == PST_BOOL && i < bytes; i++)
        byte[i] = byte[i] != 0;
}

/* True if all bytes are valid values of the dtype. */
static inline bool pst_bytes_are_values(enum pst_dtype dtype, const void *data,
                                        size_t bytes)
{
    const uint8_t *byte = data;
    unsigned any = 0;

    for (size_t i = 0; dtype == PST_BOOL && i < bytes; i++)
        any |= byte[i];
    return any <= 1;
}

#endif
