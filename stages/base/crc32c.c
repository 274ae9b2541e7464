// SPDX-License-Identifier: Apache-2.0
#include "stages/base/crc32c.h"

#include "stages/base/macros.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* 0x1edc6f41, bits reversed */

static uint32_t table[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[i] = crc;
    }
}

uint32_t pst_crc32c_table(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *at = data;

    (void)pthread_once(&once, fill_table);
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = table[(crc ^ at[i]) & 255] ^ crc >> 8;
    return ~crc;
}

#if defined(__x86_64__)
/* Uses the crc32 instruction, whose latency limits this loop to eight bytes in
 * three cycles. */
PST_TARGET("sse4.2")
static uint32_t crc_by_instruction(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *at = data;
    uint64_t wide = ~crc;

    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;

        memcpy(&word, at, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size > 0; size--, at++)
        crc = __builtin_ia32_crc32qi(crc, *at);
    return ~crc;
}
#endif

uint32_t pst_crc32c(uint32_t crc, const void *data, size_t size)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return crc_by_instruction(crc, data, size);
#endif
    return pst_crc32c_table(crc, data, size);
}
