// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/plugin/dtype.h"

/* Type codes of dlpack.h by dtype; pst_dtype_size gives the bits. */
static const uint8_t codes[PST_N_DTYPES] = {
    [PST_F32] = kDLFloat,   [PST_F64] = kDLFloat,
    [PST_BF16] = kDLBfloat, [PST_F16] = kDLFloat,
    [PST_I64] = kDLInt,     [PST_I32] = kDLInt,
    [PST_I16] = kDLInt,     [PST_I8] = kDLInt,
    [PST_U8] = kDLUInt,     [PST_BOOL] = PENSTOCK_DL_BOOL,
};

DLDataType pst_dtype_to_dl(enum pst_dtype dtype)
{
    return (DLDataType){.code = codes[dtype],
                        .bits = (uint8_t)(8 * pst_dtype_size(dtype)),
                        .lanes = 1};
}

bool pst_dtype_from_dl(DLDataType type, enum pst_dtype *ret)
{
    for (unsigned d = 0; d < PST_N_DTYPES; d++)
        if (type.lanes == 1 && type.code == codes[d] &&
            type.bits == 8 * pst_dtype_size(d)) {
            *ret = d;
            return true;
        }
    return false;
}
