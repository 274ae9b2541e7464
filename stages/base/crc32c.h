// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_CRC32C_H
#define PENSTOCK_STAGES_BASE_CRC32C_H
/* CRC32C (Castagnoli), computed by the processor's instruction if it has one.
 * Any thread. */
#include <stddef.h>
#include <stdint.h>

/* Returns the checksum of the data appended to data whose checksum is `crc`;
 * crc is 0 at the start. */
uint32_t pst_crc32c(uint32_t crc, const void *data, size_t size);
/* Computes the same with a table: for processors without the instruction, and
 * as the reference in tests. */
uint32_t pst_crc32c_table(uint32_t crc, const void *data, size_t size);

#endif
