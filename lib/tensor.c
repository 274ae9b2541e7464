// SPDX-License-Identifier: Apache-2.0
#include "lib/tensor.h"

#include <stdlib.h>

#include "stages/base/checked.h"
#include "stages/base/str.h"
#include "stages/graph/bytes.h"
#include "stages/ops/plugin/dtype.h"

DLDataType pstl_dtype(const struct pstl_tensor *tensor)
{
    DLDataType type = pst_dtype_to_dl(tensor->meta.dtype);

    if (tensor->is_complex) {
        type.code = kDLComplex;
        type.bits *= 2;
    }
    return type;
}

int32_t pstl_ndim(const struct pstl_tensor *tensor)
{
    return (int32_t)tensor->meta.rank - tensor->is_complex;
}

/* Appends "float32[2, 3]", with at most PST_MAX_RANK sizes: ndim of the
 * caller's tensor may be invalid. */
static void add_text(DLDataType type, int32_t ndim, const int64_t *shape,
                     struct pst_str *out)
{
    static const char *const names[] = {"int",    "uint",    "float", "handle",
                                        "bfloat", "complex", "bool"};

    if (type.code < PST_COUNT(names))
        pst_str_add(out, names[type.code]);
    else
        pst_str_addf(out, "type %u of ", type.code);
    if (type.code != PENSTOCK_DL_BOOL || type.bits != 8)
        pst_str_addf(out, "%u", type.bits);
    if (type.lanes != 1)
        pst_str_addf(out, "x%u", type.lanes);
    if (ndim > PST_MAX_RANK || ndim < 0 || (ndim > 0 && shape == NULL)) {
        pst_str_addf(out, " of %d dimensions", ndim);
        return;
    }
    pst_str_add(out, "[");
    for (int32_t d = 0; d < ndim; d++)
        pst_str_addf(out, "%s%lld", d > 0 ? ", " : "", (long long)shape[d]);
    pst_str_add(out, "]");
}

static enum pst_status fail_mismatch(const struct pstl_tensor *want,
                                     const DLTensor *given,
                                     struct pst_diag *diag)
{
    struct pst_str is = {0}, should = {0};

    add_text(given->dtype, given->ndim, given->shape, &is);
    add_text(pstl_dtype(want), pstl_ndim(want), want->meta.size, &should);
    (void)pst_diag_set(diag, PST_E_LIBRARY_TENSOR,
                       "the tensor of '%.200s' is %s, and the model has %s",
                       want->name, pst_str_text(&is), pst_str_text(&should));
    pst_str_fini(&is);
    pst_str_fini(&should);
    return PST_ERR_SHAPE;
}

static enum pst_status fail_unusable(const struct pstl_tensor *want,
                                     const char *why, struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_LIBRARY_TENSOR, "the tensor of '%.200s' %s",
                        want->name, why);
}

static bool has_dtype(const struct pstl_tensor *want, DLDataType type)
{
    const DLDataType right = pstl_dtype(want);

    if (type.lanes != 1 || type.bits != right.bits)
        return false;
    return type.code == right.code ||
           (right.code == PENSTOCK_DL_BOOL && type.code == kDLUInt);
}

static bool has_shape(const struct pstl_tensor *want, const DLTensor *given)
{
    const int32_t ndim = pstl_ndim(want);

    if (given->ndim != ndim)
        return false;
    for (int32_t d = 0; d < ndim; d++)
        if (given->shape[d] != want->meta.size[d])
            return false;
    return true;
}

/* Sets the strides of the view. Returns false if the address of an element
 * would overflow. */
static bool read_strides(const struct pstl_tensor *want, const DLTensor *given,
                         struct pst_meta *ret)
{
    const int64_t unit = want->is_complex ? 2 : 1;
    const int64_t bytes = (int64_t)pst_dtype_size(ret->dtype);
    int64_t low = 0, high = 0;

    for (int32_t d = 0; given->strides != NULL && d < given->ndim; d++) {
        int64_t far;

        if (ret->size[d] <= 1)
            continue;
        if (PST_MUL(given->strides[d], unit, &ret->stride[d]) ||
            PST_MUL(ret->stride[d], ret->size[d] - 1, &far) ||
            PST_ADD(far < 0 ? low : high, far, far < 0 ? &low : &high))
            return false;
    }
    if (PST_MUL(high, bytes, &high) || PST_MUL(low, bytes, &low) ||
        given->byte_offset > PTRDIFF_MAX)
        return false;
    return high <= PTRDIFF_MAX - bytes - (int64_t)given->byte_offset &&
           low > -PTRDIFF_MAX;
}

/* True if the strides show that no two elements share memory: in the order of
 * their strides, each dimension steps over the extent of the previous ones. */
static bool is_apart(const struct pst_meta *meta)
{
    int64_t end = 1; /* extent of the dimensions so far, in elements */
    bool done[PST_MAX_RANK] = {false};

    for (unsigned k = 0; k < meta->rank; k++) {
        int next = -1;

        for (unsigned d = 0; d < meta->rank; d++)
            if (!done[d] && (next < 0 || llabs(meta->stride[d]) <
                                             llabs(meta->stride[next])))
                next = (int)d;
        done[next] = true;
        if (meta->size[next] <= 1)
            continue;
        if (llabs(meta->stride[next]) < end)
            return false;
        end += llabs(meta->stride[next]) * (meta->size[next] - 1);
    }
    return true;
}

/* Checks that the tensor has memory on the CPU or on a GPU. *ret_gpu: number of
 * the GPU, or PSTL_ON_CPU. */
static enum pst_status check_device(const struct pstl_tensor *want,
                                    const DLTensor *given, int *ret_gpu,
                                    struct pst_diag *diag)
{
    if (given == NULL)
        return fail_unusable(want, "is missing (NULL)", diag);
    *ret_gpu = PSTL_ON_CPU;
    switch ((int)given->device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
        return PST_OK;
    case kDLCUDA:
        *ret_gpu = PST_MAX(given->device.device_id, 0);
        if (given->device.device_id >= 0)
            return PST_OK;
        break;
    default:
        break;
    }
    return pst_diag_set(diag, PST_E_LIBRARY_DEVICE,
                        "the tensor of '%.200s' is on device %d of type %d, "
                        "and there are the CPU (%d) and GPUs by CUDA (%d)",
                        want->name, (int)given->device.device_id,
                        (int)given->device.device_type, (int)kDLCPU,
                        (int)kDLCUDA);
}

/* True if a tensor whose last dimension has the real and imaginary parts may be
 * given as a tensor of complex numbers, or the other way round. */
static bool may_be_complex(const struct pst_meta *meta)
{
    return (meta->dtype == PST_F32 || meta->dtype == PST_F64) &&
           meta->rank > 0 && meta->size[meta->rank - 1] == 2;
}

enum pst_status pstl_view_make(const struct pstl_tensor *wanted,
                               const DLTensor *given, bool writes,
                               struct pstl_view *ret, struct pst_diag *diag)
{
    struct pstl_tensor as = *wanted;
    const struct pstl_tensor *want = &as;
    struct pst_meta meta = want->meta;
    int gpu = PSTL_ON_CPU;
    const enum pst_status status = check_device(want, given, &gpu, diag);

    if (status != PST_OK)
        return status;
    if (may_be_complex(&meta) &&
        (given->dtype.code == kDLComplex || given->ndim == (int)meta.rank))
        as.is_complex = given->dtype.code == kDLComplex;
    pst_meta_set_contiguous(&meta);
    if (given->ndim > 0 && given->shape == NULL)
        return fail_unusable(want, "has no shape (shape is NULL)", diag);
    if (!has_dtype(want, given->dtype) || !has_shape(want, given))
        return fail_mismatch(want, given, diag);
    if (!read_strides(want, given, &meta))
        return fail_unusable(want, "has strides or an offset beyond any memory",
                             diag);
    if (given->data == NULL && pst_meta_numel(&meta) > 0)
        return fail_unusable(want, "has no memory (data is NULL)", diag);
    if (writes && pst_meta_numel(&meta) > 0 && !is_apart(&meta))
        return fail_unusable(
            want, "has elements that share memory, and would be written", diag);
    /* Address of empty tensors, which may have none; data of a view is not
     * NULL. */
    static char nothing;

    *ret = (struct pstl_view){
        .meta = meta,
        .data = given->data == NULL ? &nothing
                                    : (char *)given->data + given->byte_offset,
        .gpu = gpu};
    return PST_OK;
}

/* Sets the dtype of an operand to that of the caller's tensor. dtype: the
 * required dtype; PST_N_DTYPES: any dtype of a program. */
static enum pst_status find_dtype(struct pstl_tensor *want,
                                  enum pst_dtype dtype, const DLTensor *given,
                                  struct pst_diag *diag)
{
    struct pst_str is = {0};

    for (unsigned i = 0; i < PST_N_DTYPES; i++) {
        want->meta.dtype = dtype != PST_N_DTYPES ? dtype : (enum pst_dtype)i;
        if (has_dtype(want, given->dtype))
            return PST_OK;
    }
    add_text(given->dtype, given->ndim, given->shape, &is);
    (void)pst_diag_set(diag, PST_E_LIBRARY_TENSOR,
                       "the tensor of '%.200s' is %s, and %s%s", want->name,
                       pst_str_text(&is),
                       dtype != PST_N_DTYPES ? "the program has "
                                             : "programs have no such dtype",
                       dtype != PST_N_DTYPES ? pst_dtype_name(dtype) : "");
    pst_str_fini(&is);
    return PST_ERR_SHAPE;
}

/* A tensor of complex numbers, described as a tensor of real numbers. */
struct parts {
    DLTensor tensor;
    int64_t shape[PST_MAX_RANK + 1], strides[PST_MAX_RANK + 1];
};

/* Describes a tensor of complex numbers as a tensor of real numbers, with the
 * real and imaginary parts along an additional last dimension. False: it has
 * too many dimensions, or strides that overflow. */
static bool take_parts(const DLTensor *given, struct parts *ret)
{
    const int32_t n = given->ndim;
    int64_t stride = 1;

    if (n < 0 || n >= PST_MAX_RANK || (n > 0 && given->shape == NULL))
        return false;
    ret->tensor = *given;
    ret->tensor.dtype.code = kDLFloat;
    ret->tensor.dtype.bits /= 2;
    ret->tensor.ndim = n + 1;
    ret->tensor.shape = ret->shape;
    ret->tensor.strides = ret->strides;
    ret->shape[n] = 2;
    ret->strides[n] = 1;
    for (int32_t d = n; d-- > 0;) {
        ret->shape[d] = given->shape[d];
        if (given->strides != NULL)
            stride = given->strides[d];
        if (PST_MUL(stride, 2, &ret->strides[d]) ||
            (given->strides == NULL &&
             PST_MUL(stride, PST_MAX(given->shape[d], 1), &stride)))
            return false;
    }
    return true;
}

enum pst_status pstl_operand_view(const char *name, enum pst_dtype dtype,
                                  const DLTensor *given, struct pstl_view *ret,
                                  struct pst_diag *diag)
{
    struct pstl_tensor want = {.name = name};
    struct parts parts;
    uintptr_t end;
    enum pst_status status = check_device(&want, given, &ret->gpu, diag);

    if (status == PST_OK && ret->gpu >= 0)
        return pst_diag_set(diag, PST_E_LIBRARY_DEVICE,
                            "the operand '%.200s' is in the memory of GPU %d, "
                            "and programs run on the CPU",
                            name, ret->gpu);

    if (status == PST_OK && given->dtype.code == kDLComplex &&
        given->dtype.bits >= 64) {
        if (!take_parts(given, &parts))
            return fail_unusable(&want,
                                 "has no shape, more than 7 dimensions "
                                 "of complex numbers, or strides beyond "
                                 "any memory",
                                 diag);
        given = &parts.tensor;
    }
    if (status == PST_OK)
        status = find_dtype(&want, dtype, given, diag);
    if (status != PST_OK)
        return status;
    if (given->ndim < 0 || given->ndim > PST_MAX_RANK ||
        (given->ndim > 0 && given->shape == NULL))
        return fail_unusable(&want, "has no shape, or more than 8 dimensions",
                             diag);
    ret->meta =
        pst_meta_make(want.meta.dtype, (unsigned)given->ndim, given->shape);
    for (int32_t d = 0; given->strides != NULL && d < given->ndim; d++)
        ret->meta.stride[d] = given->strides[d];
    if (pst_meta_check(&ret->meta, NULL) != PST_OK)
        return fail_unusable(
            &want,
            "has a negative size or stride, or is larger than any "
            "memory",
            diag);
    if (given->data == NULL && pst_meta_numel(&ret->meta) > 0)
        return fail_unusable(&want, "has no memory (data is NULL)", diag);
    if (PST_ADD((uintptr_t)given->data, given->byte_offset, &end) ||
        PST_ADD(end, pst_meta_span(&ret->meta), &end))
        return fail_unusable(&want, "has an offset beyond any memory", diag);
    ret->data =
        given->data == NULL ? NULL : (char *)given->data + given->byte_offset;
    return PST_OK;
}

void pstl_view_read(const struct pst_meta *from, const char *src,
                    const struct pst_meta *meta, void *dst)
{
    struct pst_meta part = *meta, to = *meta;

    for (unsigned d = 0; d < meta->rank; d++)
        part.stride[d] = from->stride[d];
    pst_meta_set_contiguous(&to);
    pst_copy_strided(&part, src, &to, dst);
    pst_bytes_to_values(to.dtype, dst, pst_meta_bytes(&to));
}
