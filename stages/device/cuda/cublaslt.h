// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_DEVICE_CUDA_CUBLASLT_H
#define PENSTOCK_STAGES_DEVICE_CUDA_CUBLASLT_H
/*
 * NVIDIA's library of matmuls, cuBLASLt, opened at run time: the same binary
 * runs on hosts without it. Any thread; the table of functions is constant once
 * it has been returned. The values of enums are those of the library's
 * documented interface, the same in CUDA 12 and 13.
 */
#include "stages/base/diag.h"

#include <stddef.h>
#include <stdint.h>

/* cublasLtMatmulAlgo_t: how a matmul is computed. */
struct pst_cublaslt_algo {
    uint64_t data[8];
};

/* cublasLtMatmulHeuristicResult_t */
struct pst_cublaslt_result {
    struct pst_cublaslt_algo algo;
    size_t workspace; /* bytes that the algorithm needs */
    int status;       /* the other members are set if this is 0 */
    float waves;
    int reserved[4];
};

/* cudaDataType_t */
enum pst_cublaslt_type {
    PST_CUBLASLT_F32 = 0,
    PST_CUBLASLT_F16 = 2,
    PST_CUBLASLT_BF16 = 14,
};

enum {
    PST_CUBLASLT_INVALID = 7,        /* CUBLAS_STATUS_INVALID_VALUE */
    PST_CUBLASLT_NOT_SUPPORTED = 15, /* CUBLAS_STATUS_NOT_SUPPORTED */
    /* CUBLAS_COMPUTE_32F: sums in f32, and products of f32 operands in f32,
     * without TF32. It is PyTorch's compute type. */
    PST_CUBLASLT_COMPUTE_F32 = 68,
    /* CUBLAS_COMPUTE_32F_FAST_TF32: sums in f32; f32 operands may be rounded to
     * TF32 (10 bits of mantissa). It is PyTorch's compute type with allow_tf32.
     */
    PST_CUBLASLT_COMPUTE_TF32 = 77,
};

/* cublasLtMatmulDescAttributes_t, each with the type of its value */
enum pst_cublaslt_desc {
    PST_CUBLASLT_DESC_TRANS_A = 3,  /* int32_t: 0 no, 1 yes */
    PST_CUBLASLT_DESC_TRANS_B = 4,  /* int32_t */
    PST_CUBLASLT_DESC_EPILOGUE = 7, /* uint32_t */
    PST_CUBLASLT_DESC_BIAS = 8,     /* pointer */
};
#define PST_CUBLASLT_EPILOGUE_BIAS 4 /* CUBLASLT_EPILOGUE_BIAS */

/* cublasLtMatrixLayoutAttribute_t; matrices are column-major. */
enum pst_cublaslt_layout {
    PST_CUBLASLT_LAYOUT_BATCH = 5,  /* int32_t: number of matrices */
    PST_CUBLASLT_LAYOUT_STRIDE = 6, /* int64_t: elements between them */
};

/* cublasLtMatmulPreferenceAttributes_t */
enum pst_cublaslt_preference {
    PST_CUBLASLT_PREF_WORKSPACE = 1, /* uint64_t: maximum, in bytes */
    PST_CUBLASLT_PREF_REDUCTION = 3, /* uint32_t: mask of schemes */
    PST_CUBLASLT_PREF_ALIGN_A = 5,   /* uint32_t, bytes; B, C, D: 6 to 8 */
};
/* CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: partial sums over k are kept in f32,
 * and a separate kernel adds them. */
#define PST_CUBLASLT_REDUCTION_F32 2

struct pst_cublaslt {
#define X(type, member, symbol, arguments) type(*member) arguments;
#include "stages/device/cuda/cublaslt.def"
#undef X
};

/*
 * Opens libcublasLt.so.13 or .12 once for the process. $PENSTOCK_LIBCUBLASLT
 * names the file or its folder; "none": the library is not used. Without that
 * variable, the loader and the folders of CUDA are searched, unless
 * $PENSTOCK_LIBCUDA names a driver. Sets *ret to NULL if there is no library.
 * PST_ERR_UNSUPPORTED: the library that was named or found cannot be used.
 */
enum pst_status pst_cublaslt_open(const struct pst_cublaslt **ret,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Opens the library and checks that it exists: only cuBLASLt computes matmuls
 * in TF32. */
enum pst_status pst_cublaslt_check_tf32(struct pst_diag *diag) PST_MUST_CHECK;
/* Returns "cuBLASLt 13.0.1 (FILE)", or why there is none. Opens the library. */
const char *pst_cublaslt_text(void);

#endif
