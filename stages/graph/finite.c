// SPDX-License-Identifier: Apache-2.0
/* Searches arrays for NaN and infinities at memory bandwidth. */
#include "stages/graph/tensor.h"

#define IS_ALL_ONES(x, mask) (((x) & (mask)) == (mask))

/* A number whose exponent bits are all set is infinite, or NaN if its fraction
 * is not 0. The loop has no branches. */
#define DEFINE_HAS(name, type, exponent, fraction)                             \
    static bool name(const void *data, size_t n, bool inf)                     \
    {                                                                          \
        const type *x = data;                                                  \
        bool found = false;                                                    \
                                                                               \
        for (size_t i = 0; i < n; i++)                                         \
            found |= IS_ALL_ONES(x[i], (type)(exponent)) &&                    \
                     (inf || (x[i] & (type)(fraction)) != 0);                  \
        return found;                                                          \
    }

DEFINE_HAS(has_f64, uint64_t, 0x7ff0000000000000u, 0x000fffffffffffffu)
DEFINE_HAS(has_f32, uint32_t, 0x7f800000u, 0x007fffffu)
DEFINE_HAS(has_f16, uint16_t, 0x7c00u, 0x03ffu)
DEFINE_HAS(has_bf16, uint16_t, 0x7f80u, 0x007fu)

bool pst_has_nan(enum pst_dtype dtype, const void *data, size_t n, bool inf)
{
    switch (dtype) {
    case PST_F64:
        return has_f64(data, n, inf);
    case PST_F32:
        return has_f32(data, n, inf);
    case PST_F16:
        return has_f16(data, n, inf);
    case PST_BF16:
        return has_bf16(data, n, inf);
    default:
        return false;
    }
}
