// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_TENSOR_H
#define PENSTOCK_LIB_TENSOR_H
/* Tensors of the model as DLPack describes them, and tensors of the caller.
 * Stateless. */
#include "include/penstock.h"
#include "stages/graph/tensor.h"

/* A tensor of the model. */
struct pstl_tensor {
    const char *name; /* borrowed from the plan */
    struct pst_meta meta;
    bool is_complex; /* the last dimension has the real and imaginary part */
    bool trained;
    int batch_dim;
    unsigned index; /* in the plan's inputs, outputs or params */
};

#define PSTL_ON_CPU (-1)

/* Memory of the caller: meta has its strides, which may be negative. data NULL:
 * the caller gave no tensor. */
struct pstl_view {
    struct pst_meta meta;
    char *data;
    int gpu; /* number of the GPU whose memory it is, or PSTL_ON_CPU */
};

/* Returns the dtype of a tensor of the model, and its number of dimensions. */
DLDataType pstl_dtype(const struct pstl_tensor *tensor);
int32_t pstl_ndim(const struct pstl_tensor *tensor);

/* Checks that a tensor of the caller is on the CPU or a GPU, and has dtype,
 * shape and memory as `wanted` needs them, and sets *ret. Pairs of real numbers
 * may be complex numbers, too, and the other way round. writes: it is a result,
 * so that no two of its elements may share memory. */
enum pst_status pstl_view_make(const struct pstl_tensor *wanted,
                               const DLTensor *given, bool writes,
                               struct pstl_view *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Checks an operand of a program, on the CPU, and sets *ret, with the strides
 * that it has. dtype: the one that it must have; PST_N_DTYPES: any. */
enum pst_status pstl_operand_view(const char *name, enum pst_dtype dtype,
                                  const DLTensor *given, struct pstl_view *ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;

/* Copies the caller's tensor to contiguous memory, with the strides that `from`
 * has and the sizes of `meta`; foreign bytes become valid values. */
void pstl_view_read(const struct pst_meta *from, const char *src,
                    const struct pst_meta *meta, void *dst);

#endif
