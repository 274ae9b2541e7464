// SPDX-License-Identifier: Apache-2.0
#include "stages/graph/tensor.h"

#include "stages/base/checked.h"
#include "stages/base/str.h"

#include <inttypes.h>
#include <string.h>

const struct pst_meta pst_meta_absent = {0};

/* Limit of a tensor's bytes: half of the address space of a process, so no real
 * tensor is larger, and sums over a plan (microbatches, slots) stay far below
 * 2^64. */
#define MAX_BYTES ((int64_t)1 << 46)

static const struct {
    const char *safetensors;
    unsigned char size, pt2, aten;
    enum pst_dtype_kind kind;
} rows[PST_N_DTYPES] = {
#define PST_DTYPE_ROW(id, bytes, k, p, a, st)                                  \
    [PST_##id] = {.safetensors = st,                                           \
                  .size = bytes,                                               \
                  .pt2 = p,                                                    \
                  .aten = a,                                                   \
                  .kind = PST_KIND_##k},
    PST_DTYPE_LIST(PST_DTYPE_ROW)
#undef PST_DTYPE_ROW
};

static const char *const names[PST_N_DTYPES] = {
    [PST_F32] = "f32",   [PST_F64] = "f64", [PST_BF16] = "bf16",
    [PST_F16] = "f16",   [PST_I64] = "i64", [PST_I32] = "i32",
    [PST_I16] = "i16",   [PST_I8] = "i8",   [PST_U8] = "u8",
    [PST_BOOL] = "bool",
};

size_t pst_dtype_size(enum pst_dtype dtype)
{
    return rows[dtype].size;
}

enum pst_dtype_kind pst_dtype_kind(enum pst_dtype dtype)
{
    return rows[dtype].kind;
}

const char *pst_dtype_name(enum pst_dtype dtype)
{
    return names[dtype];
}

const char *pst_dtype_safetensors(enum pst_dtype dtype)
{
    return rows[dtype].safetensors;
}

bool pst_dtype_from_pt2(int64_t code, enum pst_dtype *ret)
{
    for (int i = 0; i < PST_N_DTYPES; i++) {
        if (rows[i].pt2 == code) {
            *ret = (enum pst_dtype)i;
            return true;
        }
    }
    return false;
}

bool pst_dtype_from_aten(int64_t code, enum pst_dtype *ret)
{
    for (int i = 0; i < PST_N_DTYPES; i++) {
        if (rows[i].aten == code) {
            *ret = (enum pst_dtype)i;
            return true;
        }
    }
    return false;
}

bool pst_dtype_from_safetensors(const char *name, enum pst_dtype *ret)
{
    for (int i = 0; i < PST_N_DTYPES; i++) {
        if (strcmp(rows[i].safetensors, name) == 0) {
            *ret = (enum pst_dtype)i;
            return true;
        }
    }
    return false;
}

bool pst_dtype_from_name(const char *name, enum pst_dtype *ret)
{
    for (int i = 0; i < PST_N_DTYPES; i++) {
        if (strcmp(names[i], name) == 0) {
            *ret = (enum pst_dtype)i;
            return true;
        }
    }
    return false;
}

enum pst_dtype pst_dtype_promote(enum pst_dtype a, enum pst_dtype b)
{
    const enum pst_dtype_kind ka = rows[a].kind, kb = rows[b].kind;
    size_t wide;

    if (a == b || ka > kb)
        return a;
    if (kb > ka)
        return b;
    if (ka == PST_KIND_FLOAT) {
        if (rows[a].size == rows[b].size) /* f16 and bf16 promote to f32 */
            return PST_F32;
        return rows[a].size > rows[b].size ? a : b;
    }
    /* u8 and a signed integer promote to the smallest signed type that holds
     * the values of both. */
    if (a == PST_U8 || b == PST_U8) {
        const enum pst_dtype other = a == PST_U8 ? b : a;

        return other == PST_I8 ? PST_I16 : other;
    }
    wide = PST_MAX(rows[a].size, rows[b].size);
    return rows[a].size == wide ? a : b;
}

/* --- shapes ------------------------------------------------------------- */

void pst_meta_set_contiguous(struct pst_meta *meta)
{
    int64_t stride = 1;

    for (unsigned d = meta->rank; d-- > 0;) {
        meta->stride[d] = stride;
        stride *= PST_MAX(meta->size[d], 1);
    }
}

struct pst_meta pst_meta_make(enum pst_dtype dtype, unsigned rank,
                              const int64_t *sizes)
{
    struct pst_meta meta = {.dtype = dtype, .rank = rank};

    for (unsigned d = 0; d < rank && d < PST_MAX_RANK; d++)
        meta.size[d] = sizes[d];
    if (rank <= PST_MAX_RANK) {
        /* Unsigned, so that there is no signed overflow: sizes may still be
         * invalid (see pst_meta_check). */
        uint64_t stride = 1;

        for (unsigned d = rank; d-- > 0;) {
            meta.stride[d] = (int64_t)stride;
            stride *= meta.size[d] > 1 ? (uint64_t)meta.size[d] : 1;
        }
    }
    return meta;
}

enum pst_status pst_meta_check(const struct pst_meta *meta,
                               struct pst_diag *diag)
{
    int64_t bytes, span = 0, step;

    if (meta->dtype >= PST_N_DTYPES)
        return pst_diag_set(diag, PST_E_TENSOR_INVALID, "dtype %d is unknown",
                            (int)meta->dtype);
    if (meta->rank > PST_MAX_RANK)
        return pst_diag_set(diag, PST_E_TENSOR_INVALID,
                            "rank %u is above the limit of %d", meta->rank,
                            PST_MAX_RANK);
    bytes = (int64_t)rows[meta->dtype].size;
    for (unsigned d = 0; d < meta->rank; d++) {
        const int64_t n = meta->size[d];

        if (n < 0)
            return pst_diag_set(diag, PST_E_TENSOR_INVALID,
                                "size %" PRId64 " of dimension %u is negative",
                                n, d);
        if (meta->stride[d] < 0)
            return pst_diag_set(diag, PST_E_TENSOR_INVALID,
                                "stride %" PRId64
                                " of dimension %u is negative",
                                meta->stride[d], d);
        if (PST_MUL(bytes, PST_MAX(n, 1), &bytes) || bytes > MAX_BYTES ||
            PST_MUL(meta->stride[d], PST_MAX(n, 1) - 1, &step) ||
            PST_ADD(span, step, &span) || span >= MAX_BYTES ||
            PST_MUL(span + 1, (int64_t)rows[meta->dtype].size, &step) ||
            step > MAX_BYTES)
            return pst_diag_set(diag, PST_E_TENSOR_INVALID,
                                "a tensor of %" PRId64 " in dimension %u "
                                "is too large to address",
                                n, d);
    }
    return PST_OK;
}

int64_t pst_meta_numel(const struct pst_meta *meta)
{
    int64_t n = 1;

    for (unsigned d = 0; d < meta->rank; d++)
        n *= meta->size[d];
    return n;
}

size_t pst_meta_bytes(const struct pst_meta *meta)
{
    return (size_t)pst_meta_numel(meta) * rows[meta->dtype].size;
}

size_t pst_meta_span(const struct pst_meta *meta)
{
    int64_t last = 0;

    for (unsigned d = 0; d < meta->rank; d++) {
        if (meta->size[d] == 0)
            return 0;
        last += (meta->size[d] - 1) * meta->stride[d];
    }
    return (size_t)(last + 1) * rows[meta->dtype].size;
}

bool pst_meta_is_pairs(const struct pst_meta *meta)
{
    const unsigned last = meta->rank - 1;

    return meta->rank > 0 && meta->size[last] == 2 && meta->stride[last] == 1 &&
           (meta->dtype == PST_F32 || meta->dtype == PST_F64);
}

bool pst_meta_is_contiguous(const struct pst_meta *meta)
{
    int64_t stride = 1;
    bool ret = true;

    for (unsigned d = meta->rank; d-- > 0;) {
        if (meta->size[d] == 0)
            return true;
        if (meta->size[d] == 1)
            continue;
        ret = ret && meta->stride[d] == stride;
        /* stride is not used again once ret is false */
        stride = ret ? stride * meta->size[d] : 0;
    }
    return ret;
}

bool pst_meta_is_dense(const struct pst_meta *meta)
{
    bool done[PST_MAX_RANK] = {false};
    int64_t stride = 1;
    unsigned left = 0;

    for (unsigned d = 0; d < meta->rank; d++) {
        if (meta->size[d] == 0)
            return true;
        done[d] = meta->size[d] == 1;
        left += !done[d];
    }
    while (left > 0) {
        unsigned d = 0;

        while (d < meta->rank && (done[d] || meta->stride[d] != stride))
            d++;
        if (d == meta->rank)
            return false;
        done[d] = true;
        stride *= meta->size[d];
        left--;
    }
    return true;
}

bool pst_meta_same_shape(const struct pst_meta *a, const struct pst_meta *b)
{
    return a->rank == b->rank &&
           memcmp(a->size, b->size, a->rank * sizeof(a->size[0])) == 0;
}

bool pst_meta_same(const struct pst_meta *a, const struct pst_meta *b)
{
    return a->dtype == b->dtype && pst_meta_same_shape(a, b);
}

bool pst_meta_same_layout(const struct pst_meta *a, const struct pst_meta *b)
{
    return pst_meta_same(a, b) &&
           memcmp(a->stride, b->stride, a->rank * sizeof(a->stride[0])) == 0;
}

bool pst_meta_broadcast(const struct pst_meta *a, const struct pst_meta *b,
                        struct pst_meta *ret)
{
    const unsigned rank = PST_MAX(a->rank, b->rank);
    int64_t size[PST_MAX_RANK];

    for (unsigned d = 0; d < rank; d++) {
        const int64_t na = d + a->rank < rank ? 1 : a->size[d + a->rank - rank];
        const int64_t nb = d + b->rank < rank ? 1 : b->size[d + b->rank - rank];

        if (na != nb && na != 1 && nb != 1)
            return false;
        size[d] = na == 1 ? nb : na;
    }
    ret->rank = rank;
    memcpy(ret->size, size, rank * sizeof(size[0]));
    pst_meta_set_contiguous(ret);
    return true;
}

int pst_meta_dim(const struct pst_meta *meta, int64_t dim)
{
    const int64_t rank = PST_MAX(meta->rank, 1);

    if (dim < -rank || dim >= rank)
        return -1;
    return (int)(dim < 0 ? dim + rank : dim);
}

const char *pst_meta_text(const struct pst_meta *meta, char out[PST_META_TEXT])
{
    size_t at = 0;

#define ADD(...)                                                               \
    do {                                                                       \
        int n_ = pst_format(out + at, PST_META_TEXT - at, __VA_ARGS__);        \
        at = PST_MIN(at + (size_t)PST_MAX(n_, 0), (size_t)PST_META_TEXT - 1);  \
    } while (0)
    ADD("%s[", names[meta->dtype]);
    for (unsigned d = 0; d < meta->rank; d++)
        ADD("%s%" PRId64, d ? ", " : "", meta->size[d]);
    ADD("]");
    if (!pst_meta_is_contiguous(meta)) {
        ADD(":(");
        for (unsigned d = 0; d < meta->rank; d++)
            ADD("%s%" PRId64, d ? ", " : "", meta->stride[d]);
        ADD(")");
    }
#undef ADD
    return out;
}

int64_t pst_meta_offset(const struct pst_meta *meta, int64_t i)
{
    int64_t offset = 0;

    for (unsigned d = meta->rank; d-- > 0;) {
        const int64_t n = PST_MAX(meta->size[d], 1);

        offset += i % n * meta->stride[d];
        i /= n;
    }
    return offset;
}
