// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_CRC32C_H
#define PENSTOCK_STAGES_BASE_CRC32C_H
/* CRC32C (Castagnoli), by the processor's instruction where it has one. Any
 * thread. */
#include <stddef.h>
#include <stdint.h>

/* Goes on from `crc`, 0 at first. */
uint32_t pst_crc32c(uint32_t crc, const void *data, size_t size);
/* The same without that instruction: the reference. */
uint32_t pst_crc32c_table(uint32_t crc, const void *data, size_t size);

#endif
