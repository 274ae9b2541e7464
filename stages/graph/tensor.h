// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_GRAPH_TENSOR_H
#define PENSTOCK_STAGES_GRAPH_TENSOR_H
/*
 * Dtypes and tensor metadata. Plain values without ownership. Strides count
 * elements, are never negative, and may be 0 (expanded dimensions).
 */
#include "stages/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

#define PST_MAX_RANK 8

/* Columns: name, bytes, kind, code in .pt2 and in ATen, name in safetensors. */
#define PST_DTYPE_LIST(X)                                                      \
    X(F32, 4, FLOAT, 7, 6, "F32")                                              \
    X(F64, 8, FLOAT, 8, 7, "F64")                                              \
    X(BF16, 2, FLOAT, 13, 15, "BF16")                                          \
    X(F16, 2, FLOAT, 6, 5, "F16")                                              \
    X(I64, 8, INT, 5, 4, "I64")                                                \
    X(I32, 4, INT, 4, 3, "I32")                                                \
    X(I16, 2, INT, 3, 2, "I16")                                                \
    X(I8, 1, INT, 2, 1, "I8")                                                  \
    X(U8, 1, INT, 1, 0, "U8")                                                  \
    X(BOOL, 1, BOOL, 12, 11, "BOOL")

enum pst_dtype {
#define PST_DTYPE_ROW(name, bytes, kind, pt2, aten, st) PST_##name,
    PST_DTYPE_LIST(PST_DTYPE_ROW)
#undef PST_DTYPE_ROW
        PST_N_DTYPES
};

/* Categories in the order of promotion: bool < integer < floating. */
enum pst_dtype_kind { PST_KIND_BOOL, PST_KIND_INT, PST_KIND_FLOAT };

size_t pst_dtype_size(enum pst_dtype dtype);
enum pst_dtype_kind pst_dtype_kind(enum pst_dtype dtype);
const char *pst_dtype_name(enum pst_dtype dtype); /* returns "f32" */
const char *pst_dtype_safetensors(enum pst_dtype dtype);
/* Return false if the code or name is unknown. */
bool pst_dtype_from_pt2(int64_t code, enum pst_dtype *ret);
bool pst_dtype_from_aten(int64_t code, enum pst_dtype *ret);
bool pst_dtype_from_safetensors(const char *name, enum pst_dtype *ret);
bool pst_dtype_from_name(const char *name, enum pst_dtype *ret);
/* Promotes two tensor dtypes of equal priority as PyTorch does
 * (ops/README). */
enum pst_dtype pst_dtype_promote(enum pst_dtype a, enum pst_dtype b);

/* Load and store one element as a double or int64. Stores to f16 and bf16 round
 * half to even, stores to integers wrap, and NaN stored as bool is true. */
double pst_load_f64(enum pst_dtype dtype, const void *data, int64_t i);
int64_t pst_load_i64(enum pst_dtype dtype, const void *data, int64_t i);
void pst_store_f64(enum pst_dtype dtype, void *data, int64_t i, double x);
void pst_store_i64(enum pst_dtype dtype, void *data, int64_t i, int64_t x);

struct pst_meta {
    enum pst_dtype dtype;
    unsigned rank; /* 0 = scalar, at most PST_MAX_RANK */
    int64_t size[PST_MAX_RANK];
    int64_t stride[PST_MAX_RANK];
};

/* Returns a contiguous (row-major) meta; sizes may be NULL if rank is 0. */
struct pst_meta pst_meta_make(enum pst_dtype dtype, unsigned rank,
                              const int64_t *sizes);
/* Checks that sizes are >= 0, the rank is in range and the strided extent is at
 * most 64 TiB. */
enum pst_status pst_meta_check(const struct pst_meta *meta,
                               struct pst_diag *diag) PST_MUST_CHECK;
void pst_meta_set_contiguous(struct pst_meta *meta);
int64_t pst_meta_numel(const struct pst_meta *meta);
/* Returns numel * element size: the bytes of a contiguous copy. */
size_t pst_meta_bytes(const struct pst_meta *meta);
/* The meta of an absent tensor (an optional argument that is None). */
extern const struct pst_meta pst_meta_absent;
/* Returns the bytes from the first element to the end of the last one,
 * including gaps between strided elements. */
size_t pst_meta_span(const struct pst_meta *meta);
/* True if the tensor is contiguous; strides of dimensions of size 1 are
 * ignored, and empty tensors count as contiguous. */
bool pst_meta_is_contiguous(const struct pst_meta *meta);
/* True if some permutation of the dimensions is contiguous (no gap, no
 * overlap). */
bool pst_meta_is_dense(const struct pst_meta *meta);
bool pst_meta_same_shape(const struct pst_meta *a, const struct pst_meta *b);
/* True if dtypes and sizes are equal; strides are ignored. */
bool pst_meta_same(const struct pst_meta *a, const struct pst_meta *b);
/* True if dtypes, sizes and strides are equal. */
bool pst_meta_same_layout(const struct pst_meta *a, const struct pst_meta *b);
/* Stores the broadcast sizes in *ret (contiguous, dtype untouched); returns
 * false if the shapes are not compatible. */
bool pst_meta_broadcast(const struct pst_meta *a, const struct pst_meta *b,
                        struct pst_meta *ret);
/* Maps a dimension in -rank..rank-1 to 0..rank-1; -1 if out of range. Rank 0
 * counts as 1. */
int pst_meta_dim(const struct pst_meta *meta, int64_t dim);
/* Writes "f32[2, 3]" to out and returns out; strides are appended as ":(1, 2)"
 * if the tensor is not contiguous. */
#define PST_META_TEXT 400
const char *pst_meta_text(const struct pst_meta *meta, char out[PST_META_TEXT]);

/* Returns the offset, in elements, of the i-th element in row-major order. */
int64_t pst_meta_offset(const struct pst_meta *meta, int64_t i);
/* Copies between tensors of the same shape and converts dtypes. Strides may be
 * any, here also negative ones. */
void pst_copy_strided(const struct pst_meta *from, const void *src,
                      const struct pst_meta *to, void *dst);

/* True if the tensor can hold complex numbers as pairs: f32 or f64, last
 * dimension of size 2 and stride 1. */
bool pst_meta_is_pairs(const struct pst_meta *meta);
/* True if one of n elements is NaN or, with `inf`, infinite. */
bool pst_has_nan(enum pst_dtype dtype, const void *data, size_t n, bool inf);

/* A name in the model's state that stands for a view of another tensor. */
struct pst_named_window {
    const char *fqn;
    struct pst_meta meta; /* strides within the value, which is contiguous */
    int64_t offset;       /* first element within the value */
};

#endif
