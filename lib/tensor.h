// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_TENSOR_H
#define PENSTOCK_LIB_TENSOR_H
/* Descriptions of the model's tensors for DLPack, and tensors of the caller.
 * Stateless. */
#include "include/penstock.h"
#include "stages/graph/tensor.h"

/* A tensor of the model. */
struct pstl_tensor {
    const char *name; /* borrowed from the plan */
    struct pst_meta meta;
    bool is_complex; /* the last dimension has the real and imaginary parts */
    bool trained;
    int batch_dim;
    unsigned index; /* index in the plan's inputs, outputs or params */
};

#define PSTL_ON_CPU (-1)

/* Memory of the caller. meta has the caller's strides, which may be negative.
 * data NULL: the caller gave no tensor. */
struct pstl_view {
    struct pst_meta meta;
    char *data;
    int gpu; /* number of the GPU that has the memory, or PSTL_ON_CPU */
};

/* Returns the dtype of a tensor of the model, and its number of dimensions. */
DLDataType pstl_dtype(const struct pstl_tensor *tensor);
int32_t pstl_ndim(const struct pstl_tensor *tensor);

/* Checks that a tensor of the caller is on the CPU or a GPU, and has the dtype
 * and shape of `wanted`, and sets *ret. Pairs of real numbers may be given as
 * complex numbers, and the other way round. writes: the tensor receives a
 * result, so no two of its elements may share memory. */
enum pst_status pstl_view_make(const struct pstl_tensor *wanted,
                               const DLTensor *given, bool writes,
                               struct pstl_view *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Checks an operand of a program, which must be on the CPU, and sets *ret, with
 * the operand's strides. dtype: the required dtype; PST_N_DTYPES: any. */
enum pst_status pstl_operand_view(const char *name, enum pst_dtype dtype,
                                  const DLTensor *given, struct pstl_view *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Copies the caller's tensor to contiguous memory at dst. Strides are those of
 * `from`, sizes those of `meta`. Invalid bytes of a bool tensor become valid
 * values. */
void pstl_view_read(const struct pst_meta *from, const char *src,
                    const struct pst_meta *meta, void *dst);

#endif
