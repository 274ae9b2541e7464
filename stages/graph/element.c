// SPDX-License-Identifier: Apache-2.0
/* Loads and stores single elements of every dtype; strided copies with
 * conversion. */
#include "stages/graph/tensor.h"

#include <string.h>

static uint32_t bits_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    return u;
}

static float float_of(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof(x));
    return x;
}

/* Rounds half to even; NaN stays NaN. A carry into the exponent is correct: it
 * makes the largest finite numbers infinite. */
static uint16_t bf16_from_f32(float x)
{
    const uint32_t u = bits_of(x);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static uint16_t f16_from_f32(float x)
{
    const uint32_t sign = bits_of(x) >> 16 & 0x8000;
    uint32_t u = bits_of(x) & 0x7fffffffu;

    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x1ff));
    if (u >= 0x47800000u) /* 65536 and above */
        return (uint16_t)(sign | 0x7c00);
    if (u < 0x33000000u) /* below 2^-25: half of the smallest subnormal */
        return (uint16_t)sign;
    if (u < 0x38800000u) { /* below 2^-14: a multiple of 2^-24 */
        const uint32_t m = (u & 0x7fffff) | 0x800000;
        const unsigned shift = 126 - (u >> 23); /* 14..24 */
        const uint32_t rest = m & ((1u << shift) - 1);
        const uint32_t half = 1u << (shift - 1);
        uint32_t r = m >> shift;

        if (rest > half || (rest == half && (r & 1)))
            r++;
        return (uint16_t)(sign | r);
    }
    u += 0xfff + (u >> 13 & 1);
    return (uint16_t)(sign | (u - 0x38000000u) >> 13);
}

static float f32_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t e = h >> 10 & 31, m = h & 0x3ff;

    if (e == 31)
        return float_of(sign | 0x7f800000u | m << 13);
    if (e == 0) { /* m * 2^-24, exact in a float */
        const float x = (float)m * 0x1p-24f;

        return sign ? -x : x;
    }
    return float_of(sign | (e + 112) << 23 | m << 13);
}

/* Truncates; NaN and out-of-range values give INT64_MIN, as on x86. */
static int64_t i64_from_f64(double x)
{
    if (x >= -0x1p63 && x < 0x1p63)
        return (int64_t)x;
    return INT64_MIN;
}

/* Converts to an integer dtype as x86 does: dtypes below 32 bits get the low
 * bits of an int32_t. */
static int64_t whole_from_f64(enum pst_dtype dtype, double x)
{
    if (dtype == PST_I64 || (x > -0x1p31 - 1 && x < 0x1p31))
        return i64_from_f64(x);
    return INT32_MIN;
}

double pst_load_f64(enum pst_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case PST_F32:
        return ((const float *)data)[i];
    case PST_F64:
        return ((const double *)data)[i];
    case PST_BF16:
        return float_of((uint32_t)((const uint16_t *)data)[i] << 16);
    case PST_F16:
        return f32_from_f16(((const uint16_t *)data)[i]);
    default:
        return (double)pst_load_i64(dtype, data, i);
    }
}

int64_t pst_load_i64(enum pst_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case PST_I64:
        return ((const int64_t *)data)[i];
    case PST_I32:
        return ((const int32_t *)data)[i];
    case PST_I16:
        return ((const int16_t *)data)[i];
    case PST_I8:
        return ((const int8_t *)data)[i];
    case PST_U8:
        return ((const uint8_t *)data)[i];
    case PST_BOOL:
        return ((const uint8_t *)data)[i] != 0;
    default:
        return i64_from_f64(pst_load_f64(dtype, data, i));
    }
}

void pst_store_f64(enum pst_dtype dtype, void *data, int64_t i, double x)
{
    switch (dtype) {
    case PST_F32:
        ((float *)data)[i] = (float)x;
        break;
    case PST_F64:
        ((double *)data)[i] = x;
        break;
    case PST_BF16: /* through float, as PyTorch does */
        ((uint16_t *)data)[i] = bf16_from_f32((float)x);
        break;
    case PST_F16:
        ((uint16_t *)data)[i] = f16_from_f32((float)x);
        break;
    case PST_BOOL:
        ((uint8_t *)data)[i] = x != 0.0; /* true for NaN */
        break;
    default:
        pst_store_i64(dtype, data, i, whole_from_f64(dtype, x));
        break;
    }
}

void pst_store_i64(enum pst_dtype dtype, void *data, int64_t i, int64_t x)
{
    switch (dtype) {
    case PST_F32: /* not through double, which would round twice */
        ((float *)data)[i] = (float)x;
        break;
    case PST_F64:
        ((double *)data)[i] = (double)x;
        break;
    case PST_BF16:
        ((uint16_t *)data)[i] = bf16_from_f32((float)x);
        break;
    case PST_F16:
        ((uint16_t *)data)[i] = f16_from_f32((float)x);
        break;
    case PST_I64:
        ((int64_t *)data)[i] = x;
        break;
    case PST_I32:
        ((int32_t *)data)[i] = (int32_t)x;
        break;
    case PST_I16:
        ((int16_t *)data)[i] = (int16_t)x;
        break;
    case PST_I8:
        ((int8_t *)data)[i] = (int8_t)x;
        break;
    case PST_U8:
        ((uint8_t *)data)[i] = (uint8_t)x;
        break;
    default:
        ((uint8_t *)data)[i] = x != 0;
        break;
    }
}

/* Copies one row of n elements; steps are in elements. */
static void copy_row(enum pst_dtype from, const char *src, int64_t step_from,
                     enum pst_dtype to, char *dst, int64_t step_to, int64_t n)
{
    const size_t size = pst_dtype_size(to);

    if (from == to && step_from == 1 && step_to == 1) {
        memcpy(dst, src, (size_t)n * size);
    } else if (from == to && size == 4) {
        for (int64_t i = 0; i < n; i++) /* compiles to one load and store */
            memcpy(dst + i * step_to * 4, src + i * step_from * 4, 4);
    } else if (from == to) {
        for (int64_t i = 0; i < n; i++)
            memcpy(dst + i * step_to * (int64_t)size,
                   src + i * step_from * (int64_t)size, size);
    } else if (pst_dtype_kind(from) == PST_KIND_FLOAT) {
        for (int64_t i = 0; i < n; i++)
            pst_store_f64(to, dst, i * step_to,
                          pst_load_f64(from, src, i * step_from));
    } else {
        for (int64_t i = 0; i < n; i++)
            pst_store_i64(to, dst, i * step_to,
                          pst_load_i64(from, src, i * step_from));
    }
}

void pst_copy_strided(const struct pst_meta *from, const void *src,
                      const struct pst_meta *to, void *dst)
{
    const int64_t size_from = (int64_t)pst_dtype_size(from->dtype);
    const int64_t size_to = (int64_t)pst_dtype_size(to->dtype);
    int64_t size[PST_MAX_RANK], sf[PST_MAX_RANK], st[PST_MAX_RANK];
    int64_t index[PST_MAX_RANK] = {0}, of = 0, ot = 0;
    unsigned rank = 0;

    /* Merges dimensions that are adjacent in both tensors. */
    for (unsigned d = 0; d < from->rank; d++) {
        const int64_t n = from->size[d];

        if (n == 0)
            return;
        if (n == 1)
            continue;
        if (rank > 0 && sf[rank - 1] == from->stride[d] * n &&
            st[rank - 1] == to->stride[d] * n) {
            size[rank - 1] *= n;
            sf[rank - 1] = from->stride[d];
            st[rank - 1] = to->stride[d];
            continue;
        }
        size[rank] = n;
        sf[rank] = from->stride[d];
        st[rank] = to->stride[d];
        rank++;
    }
    if (rank == 0) {
        copy_row(from->dtype, src, 1, to->dtype, dst, 1, 1);
        return;
    }
    for (;;) {
        unsigned d = rank - 1;

        copy_row(from->dtype, (const char *)src + of * size_from, sf[d],
                 to->dtype, (char *)dst + ot * size_to, st[d], size[d]);
        for (;;) { /* advances the index of the outer dimensions */
            if (d == 0)
                return;
            d--;
            of += sf[d];
            ot += st[d];
            if (++index[d] < size[d])
                break;
            index[d] = 0;
            of -= sf[d] * size[d];
            ot -= st[d] * size[d];
        }
    }
}
