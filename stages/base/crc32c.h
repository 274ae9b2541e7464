// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_CRC32C_H
#define PENSTOCK_STAGES_BASE_CRC32C_H
/* CRC32C (Castagnoli), by the processor's instruction if it has one. Any
 * thread. */
#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, which is 0 at the start. */
uint32_t pst_crc32c(uint32_t crc, const void *data, size_t size);
/* Reference: the same without that instruction. */
uint32_t pst_crc32c_table(uint32_t crc, const void *data, size_t size);

#endif
